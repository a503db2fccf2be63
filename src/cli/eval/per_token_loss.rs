//! `kitfox eval per-token-loss`: the mean loss of each position in the context, as figure 2 of the FoX paper: a model that uses its
//! whole context has a curve that falls to the end.
//!
//! Windows are those of `kitfox perplexity`, whole ones only: ids = BOS + the text's tokens; window w reads ids[wC .. wC + C] from an
//! empty state, and position p (1 to C) predicts ids[wC + p] from the p ids before it. Losses are in nats. A bin's standard error is s / √n over its
//! tokens. Sums are per window, added in the order of the windows, so that a run that goes on later ends with the same table.

use super::chart::{LineChart, Point};
use super::journal::{Journal, hash, run_of};
use super::{check_outputs, write_plot};
use crate::cli::drawing::Format;
use crate::cli::input;
use crate::cli::output::{Done, print_line, say, tokens_bar};
use crate::cli::{KvArgument, ModelArguments, source};
use clap::Args;
use indicatif::ProgressBar;
use kitfox::session::generate::check_ids;
use kitfox::session::score::nll;
use kitfox::session::{KvType, LoadOptions, Model};
use kitfox::{Error, Result};
use serde_json::json;
use std::ops::Range;
use std::path::PathBuf;

/// Rows of the table unless it is said otherwise.
const BINS: usize = 64;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Texts, UTF-8
    #[arg(short, long, value_name = "TEXT", required = true, num_args = 1..)]
    file: Vec<PathBuf>,
    /// Positions of a window; default: what the model states, as far as 4 GiB of keys or eight times its weights hold it; else 4096
    #[arg(short, long, value_name = "TOKENS")]
    context: Option<usize>,
    /// Windows of each text at most
    #[arg(long, value_name = "N")]
    windows: Option<usize>,
    /// Rows of the table: positions are averaged in so many equal steps; default: 64, or as many as there are positions
    #[arg(long, value_name = "B")]
    bins: Option<usize>,
    // As in the other evaluations: a help line is a literal, and each says what its own table has.
    /// Element type of the KV cache
    #[arg(long, value_enum, default_value = "f16", value_name = "TYPE")]
    kv: KvArgument,
    /// The table: first_position, last_position, tokens, mean_loss, standard_error
    #[arg(short, long, value_name = "OUT.csv")]
    output: PathBuf,
    /// The curve as a picture
    #[arg(long, value_name = "OUT.svg|OUT.png")]
    plot: Option<PathBuf>,
}

/// n, Σ x, Σ x² of the losses of a bin.
#[derive(Clone, Copy, Default)]
struct Sums {
    n: usize,
    sum: f64,
    squares: f64,
}

impl Sums {
    fn add(&mut self, n: usize, sum: f64, squares: f64) {
        *self = Self { n: self.n + n, sum: self.sum + sum, squares: self.squares + squares };
    }

    fn mean(&self) -> f64 {
        self.sum / self.n as f64
    }

    /// s / √n; none of a single token.
    fn standard_error(&self) -> Option<f64> {
        let n = self.n as f64;
        let variance = (self.squares - self.sum * self.sum / n).max(0.0) / (n - 1.0);
        (self.n > 1).then(|| (variance / n).sqrt())
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Done {
    let at_least_one = |option: &str, n: Option<usize>| match n {
        Some(0) => Err(Error::argument(option, "at least 1", 0)),
        _ => Ok(()),
    };
    at_least_one("windows", arguments.windows)?;
    at_least_one("bins", arguments.bins)?;
    let plot = arguments.plot.as_ref().map(|path| Ok::<_, Error>((path, Format::of(path)?))).transpose()?;
    check_outputs(&arguments.output, arguments.plot.as_deref(), arguments.file.iter().chain(&arguments.model.model))?;
    let texts = arguments.file.iter().map(|path| input::text(path, input::MAX_TEXT)).collect::<Result<Vec<_>>>()?;
    let kv: KvType = arguments.kv.into();
    let load = LoadOptions { context: arguments.context, kv, scores: true, ..LoadOptions::default() };
    let mut model = source::load(&arguments.model, Some("eval per-token-loss"), load)?;
    let context = model.context();
    let n_bins = arguments.bins.unwrap_or(BINS.min(context));
    if n_bins > context {
        return Err(Error::argument("bins", format!("at most one a position ({context})"), n_bins).into());
    }
    let texts = texts.iter().map(|text| ids_of(&model, text)).collect::<Result<Vec<_>>>()?;
    let windows = windows(&texts, context, arguments.windows.unwrap_or(usize::MAX))?;
    let bins: Vec<_> = (0..n_bins).map(|bin| bin * context / n_bins..(bin + 1) * context / n_bins).collect();
    let options = json!({
        "context": context, "windows": windows.len(), "bins": bins.len(), "kv": format!("{kv:?}"),
        "texts": texts.iter().map(|ids| hash(ids)).collect::<Vec<_>>(),
    });
    let run = run_of("per-token-loss", &model, options);
    let mut journal = Journal::open(&arguments.output, &run, windows.len(), line_bytes(bins.len()))?;
    source::say_note(&model);
    for (text, path) in arguments.file.iter().enumerate() {
        if !windows.iter().any(|(of, _)| *of == text) {
            say(&format!("note: {} has no whole window of {context} predictions", path.display()));
        }
    }
    let bar = tokens_bar("per-token loss", windows.len() * context);
    let mut sums = vec![Sums::default(); bins.len()];
    for (step, (text, window)) in windows.iter().enumerate() {
        let line = match journal.next_line()? {
            Some(line) => line,
            None => {
                let line = window_line(&losses(&mut model, &texts[*text][window.clone()], &bar)?, &bins);
                journal.push(&line)?;
                line
            }
        };
        let numbers = parse_line(&line, bins.len()).ok_or_else(|| journal.bad_line(step, "two numbers a bin", &line))?;
        for ((bin, sums), of_bin) in bins.iter().zip(&mut sums).zip(numbers.chunks(2)) {
            sums.add(bin.len(), of_bin[0], of_bin[1]);
        }
        bar.set_position(((step + 1) * context) as u64);
    }
    bar.finish_and_clear();
    if let Some((path, format)) = plot {
        write_plot(path, format, &chart(&model, &bins, &sums).draw())?;
    }
    journal.finish(&arguments.output, &table(&bins, &sums))?;
    let n: usize = sums.iter().map(|bin| bin.n).sum();
    let mean = sums.iter().map(|bin| bin.sum).sum::<f64>() / n as f64;
    let (output, device) = (arguments.output.display(), model.device_name());
    print_line(&format!("{output}: mean {mean:.6} nats, {n} tokens, windows: {}, device {device}", windows.len()))
}

/// BOS, if the model has one, and the text's tokens.
fn ids_of(model: &Model, text: &str) -> Result<Vec<u32>> {
    let ids = model.ids_of("eval per-token-loss", text)?;
    check_ids("file", &ids, model.vocab())?;
    Ok(ids)
}

/// Whole windows: index of the text, and its `context` inputs and one more id.
fn windows(texts: &[Vec<u32>], context: usize, at_most: usize) -> Result<Vec<(usize, Range<usize>)>> {
    let of_text = |(text, ids): (usize, &Vec<u32>)| {
        let n = (ids.len().saturating_sub(1) / context).min(at_most);
        (0..n).map(move |window| (text, window * context..(window + 1) * context + 1)).collect::<Vec<_>>()
    };
    let windows: Vec<_> = texts.iter().enumerate().flat_map(of_text).collect();
    if windows.is_empty() {
        let longest = texts.iter().map(|ids| ids.len().saturating_sub(1)).max().unwrap_or(0);
        return Err(Error::argument("context", format!("at most {longest} (the predictions of the longest text)"), context));
    }
    Ok(windows)
}

/// The loss of each position. `ids`: the window's inputs and one more.
fn losses(model: &mut Model, ids: &[u32], bar: &ProgressBar) -> Result<Vec<f64>> {
    let (inputs, targets) = (&ids[..ids.len() - 1], &ids[1..]);
    let (mut losses, chunk, vocab) = (Vec::with_capacity(inputs.len()), model.chunk(), model.vocab());
    model.reset();
    for (inputs, targets) in inputs.chunks(chunk).zip(targets.chunks(chunk)) {
        let logits = pollster::block_on(model.score(inputs))?;
        for (row, &target) in logits.chunks_exact(vocab).zip(targets) {
            losses.push(nll(row, target)?);
        }
        bar.inc(inputs.len() as u64);
    }
    Ok(losses)
}

/// Σ x and Σ x² of each bin, written so that they read back exactly.
fn window_line(losses: &[f64], bins: &[Range<usize>]) -> String {
    let of_bin = |bin: &Range<usize>| {
        let (sum, squares) = losses[bin.clone()].iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        format!("{sum} {squares}")
    };
    bins.iter().map(of_bin).collect::<Vec<_>>().join(" ")
}

/// Bytes of a line at most: two numbers a bin, each with a blank behind it. A double has no more than 327 characters.
fn line_bytes(n_bins: usize) -> usize {
    n_bins * 2 * 328
}

fn parse_line(line: &str, n_bins: usize) -> Option<Vec<f64>> {
    let numbers: Vec<f64> = line.split(' ').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    (numbers.len() == 2 * n_bins && numbers.iter().all(|number| number.is_finite())).then_some(numbers)
}

fn table(bins: &[Range<usize>], sums: &[Sums]) -> String {
    let mut table = "first_position,last_position,tokens,mean_loss,standard_error\n".to_owned();
    for (bin, sums) in bins.iter().zip(sums) {
        let error = sums.standard_error().map_or_else(String::new, |error| format!("{error:.6}"));
        table += &format!("{},{},{},{:.6},{error}\n", bin.start + 1, bin.end, sums.n, sums.mean());
    }
    table
}

fn chart(model: &Model, bins: &[Range<usize>], sums: &[Sums]) -> LineChart {
    let point = |(bin, sums): (&Range<usize>, &Sums)| Point {
        x: (bin.start + 1 + bin.end) as f64 / 2.0,
        y: sums.mean(),
        error: sums.standard_error().unwrap_or(0.0),
    };
    let stated = model.config().context.filter(|stated| *stated < model.context());
    LineChart {
        title: format!("Per-token loss: {}", model.file()),
        x_label: "position in the context (tokens)".into(),
        y_label: "mean loss (nats)".into(),
        points: bins.iter().zip(sums).map(point).collect(),
        mark: stated.map(|stated| (stated as f64, format!("stated context {stated}"))),
        reference: None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_never_longer_than_its_journal_takes() {
        let longest = [f64::MAX, f64::MIN, f64::MIN_POSITIVE, -f64::MIN_POSITIVE, -f64::from_bits((1 << 52) - 1), 1.0 / 3.0];
        for loss in longest {
            assert!(format!("{loss} ").len() <= 328, "{loss}");
        }
        let losses = [1e-300, 1e150, 1e-150, 2.0 / 3.0, 11.0, 1e-160];
        let line = window_line(&losses, &[0..1, 1..2, 2..3, 3..4, 4..5, 5..6]);
        assert!(line.len() <= line_bytes(6), "{line}");
        let numbers = parse_line(&line, 6).unwrap();
        assert!(losses.iter().zip(numbers.chunks(2)).all(|(loss, pair)| pair == [*loss, loss * loss]));
    }
}
