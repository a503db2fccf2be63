//! `kitfox bench`: how fast a model reads a prompt and writes tokens here, and how near that is to the device's own floor.
//!
//! Prefill and decode are timed apart: `--runs` runs after one that warms up, medians with the quickest and slowest beside them.
//! The floor of a token is what the device needs at best: bytes of weights and live keys and values over its best copy rate, and
//! the dispatches of a token at the time of an empty one that depends on the one before (both measured here, raw figures printed).

mod matmul;
mod measure;
mod report;

use super::output::{Done, say};
use super::{ModelArguments, gates_file, source};
use clap::{Args, ValueEnum};
use kitfox::format::Checkpoint;
use kitfox::session::bench::{BenchOptions, Measured};
use kitfox::session::draw::check_in_flight;
use kitfox::session::{LoadOptions, Model, Pruning, bench, load};
use kitfox::{Error, Result};
use pollster::block_on;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// English that a model knows, for the prompt: from H. G. Wells, The Time Machine (public domain).
const TEXT: &str = include_str!("bench/prompt.txt");

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    /// A made-up FoX (Pro) of this width, layers and heads instead of a model file
    #[arg(long, value_name = "D,L,H", value_delimiter = ',', conflicts_with = "model")]
    shape: Option<Vec<usize>>,
    /// Its vocabulary
    #[arg(long, default_value_t = 50_257, value_name = "V", requires = "shape")]
    vocab: usize,
    /// Type of its matrices [default: q4_0]
    #[arg(long, value_name = "TYPE")]
    quant: Option<String>,
    /// Time a product of [rows, k] weights with so many tokens, in every way that the GPU has for it, and nothing else
    #[arg(long, value_name = "ROWS,K,TOKENS", value_delimiter = ',', conflicts_with_all = ["model", "shape", "gates", "compare", "trace"])]
    matmul: Option<Vec<usize>>,
    /// Gates of a trained model (`kitfox inspect gates`): it forgets by these, over and over in layers, heads and tokens, and its norms of q and k
    /// have their `u`. With --shape only
    #[arg(long, value_name = "G.safetensors")]
    gates: Option<PathBuf>,
    /// Tokens of the prompt: decoding starts behind them
    #[arg(short, long, default_value_t = BenchOptions::default().context, value_name = "TOKENS")]
    context: usize,
    /// Tokens to generate in a run
    #[arg(short, default_value_t = BenchOptions::default().n, value_name = "N")]
    n: usize,
    /// Timed runs
    #[arg(long, default_value_t = BenchOptions::default().runs, value_name = "RUNS")]
    runs: usize,
    /// Prompt tokens of a prefill replay
    #[arg(long, value_name = "N")]
    chunk: Option<usize>,
    /// Tokens that the GPU draws before they are read (while it draws the next as many; 1: one at a time). Default: as many as pay
    #[arg(long, value_name = "N")]
    in_flight: Option<usize>,
    /// Time another way in turns with the first
    #[arg(long, value_enum, value_name = "WHAT")]
    compare: Option<Comparison>,
    /// Time of each kernel in a token and in a chunk of the prompt, from the GPU's own clock
    #[arg(long)]
    trace: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What is timed beside the model as it is.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// Decode with one token under way
    Inflight,
    /// Nothing pruned: a second model is loaded with `--prune off` (memory for both is needed). The first prunes by --prune, else by what
    /// the model states, else by e^-10
    Prune,
}

impl Comparison {
    /// Behind the keys of the other side.
    fn suffix(self) -> &'static str {
        match self {
            Self::Inflight => "one_in_flight",
            Self::Prune => "unpruned",
        }
    }
}

/// ε of `--compare prune` where neither the model nor the caller states one: e^-10, the tolerance of the paper.
const EPSILON: f64 = 4.539_992_976_248_485e-5;

impl Arguments {
    fn quant(&self) -> &str {
        self.quant.as_deref().unwrap_or("q4_0")
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Done {
    if let Some(shape) = &arguments.matmul {
        return matmul::run(arguments, shape);
    }
    if let (Some(quant), None) = (&arguments.quant, &arguments.shape) {
        return Err(Error::argument("quant", "a made-up model (--shape) or product (--matmul)", quant).into());
    }
    for (option, value, least) in [("context", arguments.context, 2), ("n", arguments.n, 1), ("runs", arguments.runs, 1)] {
        if value < least {
            return Err(Error::argument(option, format!("at least {least}"), value).into());
        }
    }
    check_in_flight(arguments.in_flight)?;
    if let (Some(gates), None) = (&arguments.gates, &arguments.shape) {
        let got = format!("{} for a model that has gates of its own", gates.display());
        return Err(Error::argument("gates", "a made-up model (--shape) to replay them in", got).into());
    }
    let mut model = open(arguments)?;
    source::say_note(&model);
    let mut other = match arguments.compare {
        Some(Comparison::Prune) => Some(open_with(arguments, Some(Pruning::Off))?),
        Some(Comparison::Inflight) if !model.draws_on_device() => {
            say("note: on the CPU one token is under way at a time; both sides are the same");
            None
        }
        _ => None,
    };
    let ids = bench::prompt(&model, Some(TEXT), arguments.context)?;
    let mut measured = Measured::new(arguments.context, arguments.n);
    let mut others = measured.clone();
    for run in 0..=arguments.runs {
        measure::run(&mut measured, &mut model, &ids, arguments.in_flight, run > 0)?;
        if let Some(what) = arguments.compare {
            let in_flight = if what == Comparison::Inflight { Some(1) } else { arguments.in_flight };
            measure::run(&mut others, other.as_mut().unwrap_or(&mut model), &ids, in_flight, run > 0)?;
        }
    }
    let mut report = report::report(arguments, &model, &mut measured)?;
    if let Some(what) = arguments.compare {
        report::compare(&mut report, what, &others);
    }
    if arguments.trace {
        report::add_trace(&mut report, "", &mut model, &ids)?;
        if let Some(other) = &mut other {
            report::add_trace(&mut report, "_unpruned", other, &ids)?;
        }
    }
    report::print(&report, arguments.json)
}

/// The model that is measured.
fn open(arguments: &Arguments) -> Result<Model> {
    if arguments.compare != Some(Comparison::Prune) {
        return open_with(arguments, arguments.model.prune);
    }
    let states = match &arguments.shape {
        Some(_) => false,
        None => source::open(arguments.model.model.as_deref())?.config.get("log_pruning_tolerance").is_some_and(Value::is_number),
    };
    let prune = arguments.model.prune.or((!states).then_some(Pruning::Epsilon(EPSILON)));
    let model = open_with(arguments, prune)?;
    match model.log_pruning_tolerance() {
        Some(_) => Ok(model),
        None => {
            let got = model.pruning_note().unwrap_or("off").to_owned();
            Err(Error::argument("prune", "a part of the attention to prune by, for --compare prune", got))
        }
    }
}

fn open_with(arguments: &Arguments, prune: Option<Pruning>) -> Result<Model> {
    let gates = arguments.gates.as_deref().map(gates_file::read).transpose()?.map(Arc::new);
    let options = LoadOptions {
        context: Some(arguments.context + arguments.n + 1),
        chunk: arguments.chunk,
        gates,
        ..LoadOptions::default()
    };
    let model = ModelArguments { prune, ..arguments.model.clone() };
    match &arguments.shape {
        Some(shape) => {
            let checkpoint = made_up(arguments, shape)?;
            block_on(Model::load(checkpoint, model.apply(options), &mut |_| Ok(())))
        }
        None => source::load(&model, None, options),
    }
}

/// A FoX (Pro) of a shape.
fn made_up(arguments: &Arguments, shape: &[usize]) -> Result<Checkpoint> {
    let [hidden, layers, heads] = shape[..] else {
        return Err(Error::argument("shape", "three numbers: width, layers, heads", format!("{} numbers", shape.len())));
    };
    let config = json!({
        "model_type": "forgetting_transformer-project_fox", "vocab_size": arguments.vocab, "hidden_size": hidden,
        "hidden_ratio": 3.5, "num_hidden_layers": layers, "num_heads": heads, "use_output_gate": true,
        "use_output_norm": true, "qk_norm": true, "use_k_shift": true, "use_v_shift": true
    });
    let Value::Object(config) = config else { unreachable!("the literal above is an object") };
    load::random(config, arguments.quant().parse()?, 1)
}
