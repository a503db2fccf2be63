//! `kitfox eval live-keys`: how many keys stay alive as a text grows, where the others are forgotten for good.
//!
//! ids = BOS + the text's tokens, read from an empty state. After every `--every` tokens: the live pages of 64 keys as a part of those that the
//! tokens fill (a page that is not full counts whole), the keys that is for each key head on average, and the bytes of keys, values and λ.

use super::chart::{LineChart, Point, Reference};
use super::{check_outputs, write_plot};
use crate::cli::drawing::Format;
use crate::cli::input;
use crate::cli::output::{Done, print_line, tokens_bar};
use crate::cli::{KvArgument, ModelArguments, source};
use clap::Args;
use kitfox::kernel::attention::PAGE;
use kitfox::session::generate::check_ids;
use kitfox::session::{LoadOptions, Model};
use kitfox::{Error, Result};
use std::path::PathBuf;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    /// The text, UTF-8
    #[arg(short, long, value_name = "TEXT")]
    file: PathBuf,
    /// Tokens to read at most; default: what the model states as its context, as far as 4 GiB of keys or eight times its weights hold it; else 4096
    #[arg(short, long, value_name = "TOKENS")]
    context: Option<usize>,
    /// Tokens from one row of the table to the next
    #[arg(long, value_name = "N", default_value_t = 64)]
    every: usize,
    // As in the other evaluations: a help line is a literal, and each says what its own table has.
    /// Element type of the KV cache
    #[arg(long, value_enum, default_value = "f16", value_name = "TYPE")]
    kv: KvArgument,
    /// The table: tokens, live_fraction, live_keys, live_bytes
    #[arg(short, long, value_name = "OUT.csv")]
    output: PathBuf,
    /// Live keys against tokens as a picture
    #[arg(long, value_name = "OUT.svg|OUT.png")]
    plot: Option<PathBuf>,
}

/// What is live after so many tokens.
struct Row {
    tokens: usize,
    /// Pages that are live, and those that the tokens fill, of all layers and key heads.
    pages: [usize; 2],
    bytes: u64,
}

impl Row {
    fn fraction(&self) -> f64 {
        self.pages[0] as f64 / self.pages[1] as f64
    }

    /// Of a key head, on average.
    fn keys(&self) -> f64 {
        self.fraction() * self.tokens as f64
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Done {
    if arguments.every == 0 {
        return Err(Error::argument("every", "at least 1", 0).into());
    }
    let plot = arguments.plot.as_ref().map(|path| Ok::<_, Error>((path, Format::of(path)?))).transpose()?;
    check_outputs(&arguments.output, arguments.plot.as_deref(), [&arguments.file].into_iter().chain(&arguments.model.model))?;
    let text = input::text(&arguments.file, input::MAX_TEXT)?;
    let load = LoadOptions { context: arguments.context, kv: arguments.kv.into(), ..LoadOptions::default() };
    let mut model = source::load(&arguments.model, Some("eval live-keys"), load)?;
    let mut ids = model.ids_of("eval live-keys", &text)?;
    check_ids("file", &ids, model.vocab())?;
    ids.truncate(model.context());
    if ids.is_empty() {
        return Err(Error::argument("file", "a text of at least one token", "none").into());
    }
    source::say_note(&model);
    let rows = rows(&mut model, &ids, arguments.every)?;
    if let Some((path, format)) = plot {
        write_plot(path, format, &chart(&model, &rows).draw())?;
    }
    super::write_file(&arguments.output, table(&rows).as_bytes())?;
    let Some(last) = rows.last() else { unreachable!("there is a token, so there is a row") };
    let (output, device) = (arguments.output.display(), model.device_name());
    let live = 100.0 * last.fraction();
    print_line(&format!(
        "{output}: {live:.1} % of the keys of {} tokens are live, {:.1} MB, device {device}",
        last.tokens,
        last.bytes as f64 / 1e6
    ))
}

fn rows(model: &mut Model, ids: &[u32], every: usize) -> Result<Vec<Row>> {
    let bar = tokens_bar("live keys", ids.len());
    let mut rows = Vec::new();
    model.reset();
    for ids in ids.chunks(every) {
        pollster::block_on(model.read(ids))?;
        let (tokens, bytes) = (model.pos(), pollster::block_on(model.kv_bytes_live())?);
        let config = model.config();
        let filled = tokens.div_ceil(PAGE) * config.n_layers * config.n_kv_heads;
        rows.push(Row { tokens, pages: [pollster::block_on(model.live_pages())?, filled], bytes });
        bar.inc(ids.len() as u64);
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn table(rows: &[Row]) -> String {
    let mut table = "tokens,live_fraction,live_keys,live_bytes\n".to_owned();
    for row in rows {
        table += &format!("{},{:.6},{:.1},{}\n", row.tokens, row.fraction(), row.keys(), row.bytes);
    }
    table
}

fn chart(model: &Model, rows: &[Row]) -> LineChart {
    let last = rows.last().map_or(0, |row| row.tokens) as f64;
    LineChart {
        title: format!("Keys that stay alive: {}", model.file()),
        x_label: "tokens read".into(),
        y_label: "live keys of a head (mean of all)".into(),
        points: rows.iter().map(|row| Point { x: row.tokens as f64, y: row.keys(), error: 0.0 }).collect(),
        mark: None,
        reference: Some(Reference { points: [[0.0, 0.0], [last, last]], meaning: "nothing forgotten".into() }),
    }
}
