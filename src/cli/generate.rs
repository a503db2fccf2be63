//! `kitfox generate`: a prompt's continuation, streamed to stdout; statistics go to stderr.

use super::new_file::NewFile;
use super::output::{Done, Stop, print, print_json, say, tokens_bar};
use super::{KvArgument, ModelArguments, input, session_file, source};
use clap::Args;
use kitfox::session::{FinishReason, GenerateOptions, Generation, LoadOptions, Model, SamplerOptions};
use kitfox::{Error, Result};
use serde_json::json;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How `kitfox` alone begins its story.
const OPENING: &str = "Once upon a time, in a little village by the sea,";
const STORY_TOKENS: usize = 200;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    /// The text to continue; `-` reads it from stdin (without its last line break)
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: String,
    /// Tokens to generate at most
    #[arg(short = 'n', long, value_name = "N", default_value_t = STORY_TOKENS)]
    tokens: usize,
    #[command(flatten)]
    sampling: Sampling,
    /// Ends the text before this string; may be given several times: the one that is complete first ends it
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    stop: Vec<String>,
    /// Tokens whose keys have room, in whole pages of 64; a text whose keys are forgotten may grow longer. Default: what the model states, as far as 4 GiB of
    /// keys or eight times its weights hold it; else 4096
    #[arg(short, long, value_name = "TOKENS")]
    context: Option<usize>,
    /// Element type of the KV cache
    #[arg(long, value_enum, default_value = "f16", value_name = "TYPE")]
    kv: KvArgument,
    /// Go on after the end-of-text token
    #[arg(long)]
    ignore_eos: bool,
    /// Go on with the session in FILE, if there is one, and keep it there with prompt and answer
    #[arg(long, value_name = "FILE")]
    session: Option<PathBuf>,
    /// Print the prompt too
    #[arg(long)]
    echo: bool,
    /// Print one JSON object at the end instead of streaming text
    #[arg(long)]
    json: bool,
    /// Compare every dispatch on the GPU with its plain twin as the text is written, and stop at the first that differs or is not finite (slow)
    #[arg(long)]
    check: bool,
    /// Add ln of the model's probability of each token to the object
    #[arg(long, requires = "json")]
    logprobs: bool,
}

#[derive(Args)]
struct Sampling {
    /// Divides the logits; 0 always takes the best token
    #[arg(long, value_name = "T", default_value_t = SamplerOptions::default().temperature)]
    temp: f32,
    /// Draw from the K best tokens; 0 = all
    #[arg(long, value_name = "K", default_value_t = SamplerOptions::default().top_k)]
    top_k: usize,
    /// Draw from the best tokens whose probabilities sum to P
    #[arg(long, value_name = "P", default_value_t = SamplerOptions::default().top_p)]
    top_p: f32,
    /// Draw from tokens at least this fraction as probable as the best
    #[arg(long, value_name = "P", default_value_t = SamplerOptions::default().min_p)]
    min_p: f32,
    /// Makes recent tokens less likely; default 1.1, and 1 with --temp 0
    #[arg(long, value_name = "R")]
    repeat_penalty: Option<f32>,
    /// How many tokens are recent
    #[arg(long, value_name = "N", default_value_t = SamplerOptions::default().repeat_last_n)]
    repeat_last_n: usize,
    /// Adds BIAS to the logit of token ID; may be given several times
    #[arg(long, value_name = "ID=BIAS", value_parser = bias, allow_hyphen_values = true)]
    logit_bias: Vec<(u32, f32)>,
    /// Of the random numbers; default: a new one each run
    #[arg(long)]
    seed: Option<u64>,
}

impl Sampling {
    fn options(&self) -> SamplerOptions {
        SamplerOptions {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            repeat_last_n: self.repeat_last_n,
            seed: self.seed.unwrap_or_else(random_seed),
            logit_bias: self.logit_bias.clone(),
        }
    }
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    let pair = text.split_once('=').and_then(|(id, bias)| Some((id.parse().ok()?, bias.parse().ok()?)));
    pair.ok_or_else(|| "a token id, =, and a number are needed".to_owned())
}

/// From the system's randomness, which seeds every [`RandomState`]. Below 2^53, so that JSON readers keep it whole.
fn random_seed() -> u64 {
    RandomState::new().hash_one(std::process::id()) >> 11
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Done {
    let prompt = read_prompt(arguments.prompt)?;
    let options = GenerateOptions {
        max_tokens: arguments.tokens,
        sampler: arguments.sampling.options(),
        stop: arguments.stop,
        ignore_eos: arguments.ignore_eos,
        logprobs: arguments.logprobs,
        ..GenerateOptions::default()
    };
    options.check()?;
    let seed = options.sampler.seed;
    let inputs: Vec<&Path> = arguments.model.model.iter().map(PathBuf::as_path).collect();
    let session = arguments.session.as_deref().map(|path| NewFile::new(path, &inputs)).transpose()?;
    let load = LoadOptions { context: arguments.context, kv: arguments.kv.into(), ..LoadOptions::default() };
    let mut model = source::load(&arguments.model, Some("generate"), load)?;
    if arguments.check {
        model.watch()?;
    }
    let generation = match &arguments.session {
        Some(path) => session_file::begin(&mut model, path, &prompt, options)?,
        None => Generation::new(&model, &prompt, options)?,
    };
    let (echo, json) = (arguments.echo.then_some(&prompt[..]), arguments.json);
    generate(&mut model, generation, seed, echo, json, session.as_ref())
}

/// `kitfox` alone: a story by the demo model.
pub fn story() -> Done {
    let sampler = SamplerOptions { seed: random_seed(), ..SamplerOptions::default() };
    let options = GenerateOptions { max_tokens: STORY_TOKENS, sampler, ..GenerateOptions::default() };
    let mut model = source::load(&ModelArguments::default(), Some("generate"), LoadOptions::default())?;
    let seed = options.sampler.seed;
    let generation = Generation::new(&model, OPENING, options)?;
    generate(&mut model, generation, seed, Some(OPENING), false, None)
}

/// The prompt; `-` stands for stdin.
pub fn read_prompt(prompt: String) -> Result<String> {
    if prompt != "-" {
        return if prompt.is_empty() { Err(Error::argument("prompt", "text", "an empty text")) } else { Ok(prompt) };
    }
    let mut text = input::stdin_text()?;
    if text.ends_with('\n') {
        text.truncate(text.len() - if text.ends_with("\r\n") { 2 } else { 1 });
    }
    if text.is_empty() { Err(Error::argument("prompt", "text", "an empty stdin")) } else { Ok(text) }
}

/// Seconds to the first token, which comes from the prompt's last logits, and of the others; a rate counts those.
struct Times {
    prompt: f64,
    decode: f64,
}

/// What was written.
struct Told {
    text: String,
    logprobs: Vec<f32>,
    times: Times,
    /// Why it was left before its end: nobody reads stdout any more, or it cannot be written.
    left: Option<Stop>,
}

/// `echo` is printed first. What has come is kept in the session, also where stdout was closed or full meanwhile.
fn generate(
    model: &mut Model,
    mut generation: Generation,
    seed: u64,
    echo: Option<&str>,
    json: bool,
    session: Option<&NewFile<'_>>,
) -> Done {
    source::say_note(model);
    let Told { text, logprobs, times, left } = tell(model, &mut generation, echo, json)?;
    if let Some(file) = session {
        session_file::keep(model, file, &generation)?;
    }
    if let Some(stop) = left {
        return Err(stop);
    }
    let kv = Kv { live: pollster::block_on(model.kv_bytes_live())?, pool: model.kv_bytes_pool() };
    report(&generation, model, &times, seed, kv);
    source::say_end(model);
    if !json {
        return Ok(());
    }
    let mut summary = summary(&generation, model, &times, (seed, kv), &text);
    if !logprobs.is_empty() {
        summary["logprobs"] = json!(logprobs);
    }
    print_json(&summary)
}

/// Generates to the end, or until what comes cannot be shown.
fn tell(model: &mut Model, generation: &mut Generation, echo: Option<&str>, json: bool) -> Result<Told> {
    let (mut text, mut logprobs) = (String::new(), Vec::new());
    let show = |text: &str| if json { None } else { print(text).err() };
    let mut left = echo.and_then(show);
    text += echo.unwrap_or_default();
    let start = Instant::now();
    prefill(generation, model)?;
    // On a GPU the prompt's last part is under way still: it has been read when the first token comes.
    let mut first = None;
    while left.is_none() {
        let Some(piece) = pollster::block_on(generation.next(model))? else { break };
        first.get_or_insert_with(Instant::now);
        left = show(&piece.text);
        text += &piece.text;
        logprobs.extend(piece.logprobs);
    }
    let prompt_end = first.unwrap_or_else(Instant::now);
    let times = Times { prompt: (prompt_end - start).as_secs_f64(), decode: prompt_end.elapsed().as_secs_f64() };
    if left.is_none() && io::stdout().is_terminal() {
        left = show("\n");
    }
    Ok(Told { text, logprobs, times, left })
}

fn prefill(generation: &mut Generation, model: &mut Model) -> Result<()> {
    let bar = tokens_bar("prompt", generation.prompt_ids().len());
    let done = loop {
        match pollster::block_on(generation.prefill(model)) {
            Ok((done, total)) if done < total => bar.set_position(done as u64),
            Ok(_) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    bar.finish_and_clear();
    done
}

/// Tokens a second after the first token; none when there was no other.
fn rate(n_tokens: usize, seconds: f64) -> Option<f64> {
    (n_tokens > 1 && seconds > 0.0).then(|| (n_tokens - 1) as f64 / seconds)
}

fn finish_of(generation: &Generation) -> &FinishReason {
    generation.finish().unwrap_or_else(|| unreachable!("`next` gave None, so the generation has ended"))
}

/// Bytes of keys, values and λ: of pages that later tokens may look at, and of all pages.
#[derive(Clone, Copy)]
struct Kv {
    live: u64,
    pool: u64,
}

fn report(generation: &Generation, model: &Model, times: &Times, seed: u64, kv: Kv) {
    let (n_prompt, n) = (generation.prompt_ids().len(), generation.generated_ids().len());
    let rate = rate(n, times.decode).map_or_else(String::new, |rate| format!(" ({rate:.1} tokens/s)"));
    let finish = match finish_of(generation) {
        FinishReason::Stop(stop) => format!("stop {stop:?}"),
        reason => reason.word().to_owned(),
    };
    say(&format!(
        "prompt: {n_prompt} tokens in {:.3} s; generated: {n} tokens in {:.3} s{rate}; finish: {finish}; device: {}; kv: {:.1} of {:.1} MB live; seed: {seed}",
        times.prompt,
        times.decode,
        model.device_name(),
        kv.live as f64 / 1e6,
        kv.pool as f64 / 1e6,
    ));
}

fn summary(generation: &Generation, model: &Model, times: &Times, (seed, kv): (u64, Kv), text: &str) -> serde_json::Value {
    let ids = generation.generated_ids();
    let finish = finish_of(generation);
    let mut summary = json!({
        "text": text,
        "ids": ids,
        "prompt_ids": generation.prompt_ids(),
        "finish": finish.word(),
        "tokens": ids.len(),
        "prompt_seconds": times.prompt,
        "seconds": times.decode,
        "tokens_per_s": rate(ids.len(), times.decode),
        "device": model.device_name(),
        "seed": seed,
        "kv_bytes_live": kv.live,
        "kv_bytes_pool": kv.pool,
    });
    if let FinishReason::Stop(stop) = finish {
        summary["stop"] = json!(stop);
    }
    summary
}
