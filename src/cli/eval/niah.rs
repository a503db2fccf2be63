//! `kitfox eval niah`: needle in a haystack, the easy mode of the FoX paper: the needle has the question in it, so that a base model,
//! which answers no questions, can continue it.
//!
//! A prompt of exactly L tokens: BOS, hay, the needle (`What is the magic number? The magic number is 48213.`) at a depth of D % of
//! the hay, at the end of a sentence, hay, and the question with the beginning of its answer. Found means: greedy decoding goes on
//! with exactly this number. Each trial has a number of its own, from the seed and its place in the grid.

use super::chart::HeatMap;
use super::journal::{Journal, hash, run_of};
use super::{check_outputs, write_plot};
use crate::cli::drawing::Format;
use crate::cli::input;
use crate::cli::output::{Done, print_line, tokens_bar};
use crate::cli::{KvArgument, ModelArguments, source};
use clap::Args;
use indicatif::ProgressBar;
use kitfox::format::random::splitmix64;
use kitfox::model::Config;
use kitfox::session::generate::check_ids;
use kitfox::session::load::{DEFAULT_CONTEXT, MAX_CONTEXT};
use kitfox::session::{KvType, LoadOptions, Model, Sampler, SamplerOptions};
use kitfox::text::TextStream;
use kitfox::{Error, Result};
use serde_json::json;
use std::path::PathBuf;

/// Of the passkey test by Mohtashami and Jaggi (arXiv 2305.16300), where no text is given.
const HAY: &str = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";
const QUESTION: &str = " What is the magic number? The magic number is";
/// Enough for a space and five digits in any vocabulary.
const ANSWER_TOKENS: usize = 16;
/// Characters of an answer that a row shows: a token may be long.
const ANSWER_CHARACTERS: usize = 1000;
/// Bytes of a row at most: every character of the answer four, every number twenty.
const ROW_BYTES: usize = 4 * ANSWER_CHARACTERS + 100;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Lengths of the prompt in tokens; default: eight steps up to what the model states, else 4096
    #[arg(long, value_name = "TOKENS,..", value_delimiter = ',')]
    lengths: Option<Vec<usize>>,
    /// Depths of the needle, in percent of the hay before it
    #[arg(long, value_name = "PERCENT,..", value_delimiter = ',', default_values_t = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100])]
    depths: Vec<usize>,
    /// Numbers hidden at each place
    #[arg(long, value_name = "N", default_value_t = 1)]
    trials: usize,
    /// Of the numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The hay, UTF-8; default: five plain sentences. Repeated as needed
    #[arg(short, long, value_name = "TEXT")]
    file: Option<PathBuf>,
    // As in the other evaluations: a help line is a literal, and each says what its own table has.
    /// Element type of the KV cache
    #[arg(long, value_enum, default_value = "f16", value_name = "TYPE")]
    kv: KvArgument,
    /// The table: length, depth_percent, trial, number, answer, found
    #[arg(short, long, value_name = "OUT.csv")]
    output: PathBuf,
    /// The heat map as a picture
    #[arg(long, value_name = "OUT.svg|OUT.png")]
    plot: Option<PathBuf>,
}

/// One needle in one haystack.
struct Trial {
    length: usize,
    depth: usize,
    trial: usize,
    number: u64,
}

/// The token ids that prompts are made of.
struct Parts {
    bos: Option<u32>,
    hay: Vec<u32>,
    /// Whether a sentence ends with this token of the hay.
    ends: Vec<bool>,
    question: Vec<u32>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Done {
    check(arguments)?;
    let plot = arguments.plot.as_ref().map(|path| Ok::<_, Error>((path, Format::of(path)?))).transpose()?;
    check_outputs(&arguments.output, arguments.plot.as_deref(), arguments.file.iter().chain(&arguments.model.model))?;
    let hay = arguments.file.as_ref().map(|path| input::text(path, input::MAX_TEXT)).transpose()?;
    let lengths = match &arguments.lengths {
        Some(lengths) => lengths.clone(),
        None => {
            let checkpoint = source::open(arguments.model.model.as_deref())?;
            let context = Config::from_json(&checkpoint.config)
                .map_err(|error| error.in_file(&checkpoint.config_file))?
                .context
                .unwrap_or(DEFAULT_CONTEXT);
            (1..=8).map(|step| context * step / 8).collect()
        }
    };
    let longest = lengths.iter().copied().max().unwrap_or_else(|| unreachable!("the parser wants one"));
    if longest > MAX_CONTEXT - ANSWER_TOKENS {
        return Err(Error::argument("lengths", format!("at most {} tokens", MAX_CONTEXT - ANSWER_TOKENS), longest).into());
    }
    let kv: KvType = arguments.kv.into();
    let load = LoadOptions { context: Some(longest + ANSWER_TOKENS), kv, ..LoadOptions::default() };
    let mut model = source::load(&arguments.model, Some("eval niah"), load)?;
    let parts = Parts::new(&model, hay.as_deref().unwrap_or(HAY))?;
    let trials = trials(arguments, &lengths);
    let prompts = trials.iter().map(|trial| parts.prompt(trial, &needle(&model, trial)?)).collect::<Result<Vec<_>>>()?;
    let options = json!({
        "lengths": lengths, "depths": arguments.depths, "trials": arguments.trials, "seed": arguments.seed,
        "kv": format!("{kv:?}"), "hay": hash(&parts.hay),
    });
    let mut journal = Journal::open(&arguments.output, &run_of("niah", &model, options), trials.len(), ROW_BYTES)?;
    source::say_note(&model);
    let bar = tokens_bar("needle in a haystack", trials.iter().map(|trial| trial.length).sum());
    let (mut rows, mut found) = (Vec::new(), Vec::new());
    for (step, (trial, prompt)) in trials.iter().zip(&prompts).enumerate() {
        let row = match journal.next_line()? {
            Some(row) => row,
            None => {
                let row = trial.row(&answer(&mut model, prompt, &bar)?);
                journal.push(&row)?;
                row
            }
        };
        let is_found = trial.outcome(&row).ok_or_else(|| journal.bad_line(step, &trial.start(), &row))?;
        found.push(is_found);
        rows.push(row);
        bar.set_position(trials[..=step].iter().map(|trial| trial.length as u64).sum());
    }
    bar.finish_and_clear();
    if let Some((path, format)) = plot {
        write_plot(path, format, &map(&model, arguments, &lengths, &found).draw())?;
    }
    let table = format!("length,depth_percent,trial,number,answer,found\n{}\n", rows.join("\n"));
    journal.finish(&arguments.output, &table)?;
    let (output, n) = (arguments.output.display(), found.iter().filter(|found| **found).count());
    print_line(&format!("{output}: {n} of {} found, device {}", found.len(), model.device_name()))
}

fn check(arguments: &Arguments) -> Result<()> {
    if arguments.trials == 0 {
        return Err(Error::argument("trials", "at least 1", 0));
    }
    match arguments.depths.iter().find(|depth| **depth > 100) {
        Some(depth) => Err(Error::argument("depths", "0 to 100 percent", depth)),
        None => Ok(()),
    }
}

/// Length after length, depth after depth.
fn trials(arguments: &Arguments, lengths: &[usize]) -> Vec<Trial> {
    let mut trials = Vec::new();
    for &length in lengths {
        for &depth in &arguments.depths {
            for trial in 0..arguments.trials {
                let place = [length, depth, trial].into_iter().fold(arguments.seed, |state, n| splitmix64(state ^ n as u64));
                trials.push(Trial { length, depth, trial, number: 10_000 + place % 90_000 });
            }
        }
    }
    trials
}

impl Trial {
    /// How its row begins.
    fn start(&self) -> String {
        format!("{},{},{},{},", self.length, self.depth, self.trial, self.number)
    }

    /// `answer`: what the model wrote.
    fn row(&self, answer: &str) -> String {
        let answer = answer.trim_start();
        let number = self.number.to_string();
        let found = answer.strip_prefix(&number).is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()));
        // A row is a line, and a quoted field keeps commas.
        let shown = answer
            .chars()
            .take(ANSWER_CHARACTERS)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect::<String>()
            .replace('"', "\"\"");
        format!("{}\"{shown}\",{}", self.start(), u8::from(found))
    }

    /// Whether the number was found, by a row of this trial.
    fn outcome(&self, row: &str) -> Option<bool> {
        match row.strip_prefix(&self.start())?.rsplit_once("\",")?.1 {
            "1" => Some(true),
            "0" => Some(false),
            _ => None,
        }
    }
}

impl Parts {
    fn new(model: &Model, hay: &str) -> Result<Self> {
        let tokenizer = model.tokenizer("eval niah")?;
        if hay.trim().is_empty() {
            return Err(Error::argument("file", "text", "an empty text"));
        }
        let hay = tokenizer.encode(&format!(" {}", hay.trim()))?;
        if hay.is_empty() {
            return Err(Error::argument("file", "text that the vocabulary can spell", "text of no token"));
        }
        check_ids("file", &hay, model.vocab())?;
        let ends = hay.iter().map(|id| Ok(tokenizer.decode(&[*id])?.ends_with(['.', '!', '?']))).collect::<Result<_>>()?;
        let question = tokenizer.encode(QUESTION)?;
        check_ids("question", &question, model.vocab())?;
        Ok(Self { bos: model.bos(), hay, ends, question })
    }

    /// The ids of a trial's prompt: exactly its length.
    fn prompt(&self, trial: &Trial, needle: &[u32]) -> Result<Vec<u32>> {
        let n_fixed = usize::from(self.bos.is_some()) + needle.len() + self.question.len();
        let Some(n_hay) = trial.length.checked_sub(n_fixed) else {
            return Err(Error::argument("lengths", format!("at least {n_fixed} tokens (needle and question)"), trial.length));
        };
        let n_before = self.sentence_end(n_hay * trial.depth / 100);
        let mut hay = self.hay.iter().copied().cycle();
        let mut ids = Vec::from_iter(self.bos);
        ids.extend(hay.by_ref().take(n_before));
        ids.extend(needle);
        ids.extend(hay.take(n_hay - n_before));
        ids.extend(&self.question);
        Ok(ids)
    }

    /// The last end of a sentence in the first `n` tokens of hay; `n` where there is none.
    fn sentence_end(&self, n: usize) -> usize {
        let ends_before = |n: &usize| *n == 0 || self.ends[(n - 1) % self.hay.len()];
        (0..=n).rev().take(self.hay.len()).find(ends_before).unwrap_or(n)
    }
}

/// The ids of a trial's needle.
fn needle(model: &Model, trial: &Trial) -> Result<Vec<u32>> {
    let needle = model.tokenizer("eval niah")?.encode(&format!("{QUESTION} {}.", trial.number))?;
    check_ids("needle", &needle, model.vocab())?;
    Ok(needle)
}

/// What greedy decoding writes after the prompt, up to the first character behind a number of five digits.
fn answer(model: &mut Model, ids: &[u32], bar: &ProgressBar) -> Result<String> {
    const DIGITS: usize = 5;
    model.reset();
    let mut logits = None;
    let mut left = ids;
    while !left.is_empty() {
        let (chunk, rest) = left.split_at(pollster::block_on(model.next_chunk(left.len()))?);
        logits = pollster::block_on(model.prefill(chunk, rest.is_empty()))?;
        bar.inc(chunk.len() as u64);
        left = rest;
    }
    let mut logits = logits.unwrap_or_else(|| unreachable!("a prompt has tokens, and its last chunk asks for logits"));
    let mut sampler = Sampler::new(SamplerOptions { temperature: 0.0, ..SamplerOptions::default() })?;
    let (mut text, mut stream) = (String::new(), TextStream::new(&[])?);
    for n in 1..=ANSWER_TOKENS {
        let id = sampler.sample(&logits, &[])?;
        if Some(id) == model.eos() {
            break;
        }
        text += &stream.push(model.tokenizer("eval niah")?, id)?.0;
        if text.trim_start().chars().count() > DIGITS || n == ANSWER_TOKENS {
            break;
        }
        logits = pollster::block_on(model.step(id))?;
    }
    text += &stream.finish(model.tokenizer("eval niah")?)?.0;
    Ok(text)
}

/// Depths down, lengths to the right.
fn map(model: &Model, arguments: &Arguments, lengths: &[usize], found: &[bool]) -> HeatMap {
    let (n_depths, n_trials) = (arguments.depths.len(), arguments.trials);
    let share = |length: usize, depth: usize| {
        let first = (length * n_depths + depth) * n_trials;
        found[first..first + n_trials].iter().filter(|found| **found).count() as f64 / n_trials as f64
    };
    HeatMap {
        title: format!("Needle in a haystack (easy mode): {}", model.file()),
        x_label: "length of the prompt (tokens)".into(),
        y_label: "depth of the needle".into(),
        columns: lengths.iter().map(usize::to_string).collect(),
        rows: arguments.depths.iter().map(|depth| format!("{depth}%")).collect(),
        shares: (0..n_depths).flat_map(|depth| (0..lengths.len()).map(move |length| share(length, depth))).collect(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Sentences of ten tokens: 10, 11, .. 19.
    fn parts() -> Parts {
        let hay: Vec<u32> = (10..20).collect();
        Parts { bos: Some(1), ends: hay.iter().map(|id| *id == 19).collect(), hay, question: vec![2, 3] }
    }

    #[test]
    fn a_prompt_has_its_length_and_its_needle_at_the_end_of_a_sentence_before_its_depth() {
        let needle = [2, 3, 4, 5];
        for (length, depth, at) in [(107, 0, 0), (107, 100, 100), (107, 55, 50), (107, 50, 50), (17, 99, 0), (7, 50, 0)] {
            let ids = parts().prompt(&Trial { length, depth, trial: 0, number: 12345 }, &needle).unwrap();
            assert_eq!(ids.len(), length);
            assert_eq!((ids[0], &ids[1 + at..5 + at], &ids[length - 2..]), (1, &needle[..], &[2, 3][..]), "{length}, {depth}");
            let hay: Vec<u32> = [&ids[1..1 + at], &ids[5 + at..length - 2]].concat();
            assert!(hay.iter().zip((10..20).cycle()).all(|(id, expected)| *id == expected));
        }
        let error = parts().prompt(&Trial { length: 6, depth: 0, trial: 0, number: 12345 }, &needle).unwrap_err();
        assert!(error.to_string().contains("lengths: expected at least 7"), "{error}");
    }

    #[test]
    fn found_is_exactly_the_number_and_a_row_says_so_again() {
        let trial = Trial { length: 100, depth: 50, trial: 3, number: 12345 };
        for (answer, found) in [
            (" 12345.", true),
            ("\n12345", true),
            (" 123456", false),
            (" 1234", false),
            ("x 12345", false),
            ("12345 \"a\",1", true),
        ] {
            let row = trial.row(answer);
            assert!(row.starts_with("100,50,3,12345,\"") && row.lines().count() == 1, "{row}");
            assert_eq!(trial.outcome(&row), Some(found), "{row}");
        }
        for row in ["", "100,50,3,12346,\"\",1", "100,50,3,12345,\"\",2", "100,50,3,12345,1"] {
            assert_eq!(trial.outcome(row), None, "{row}");
        }
    }
}
