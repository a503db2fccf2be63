//! `kitfox bench`: how fast a model reads a prompt and writes tokens here, and how near that is to the device's own floor.
//!
//! Prefill and decode are timed apart: `--runs` runs after one that warms up, medians with the quickest and slowest beside them.
//! The floor of a token is what the device needs at best: bytes of weights and live keys and values over its best copy rate, and
//! the dispatches of a token at the time of an empty one that depends on the one before (both measured here, raw figures printed).

use super::output::{Done, one_line, print_json, print_line, say};
use super::{ModelArguments, source};
use clap::Args;
use cpu_time::ThreadTime;
use kitfox::gpu::floor;
use kitfox::session::bench::{self, Times};
use kitfox::session::draw::check_in_flight;
use kitfox::session::trace::Traced;
use kitfox::session::{Device, LoadOptions, Model, load};
use kitfox::{Error, Result};
use pollster::block_on;
use serde_json::{Value, json};

/// English that a model knows, for the prompt.
const TEXT: &str = include_str!("../../README.md");

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
    /// Type of its matrices
    #[arg(long, default_value = "q4_0", value_name = "TYPE", requires = "shape")]
    quant: String,
    /// Tokens of the prompt: decoding starts behind them
    #[arg(short, long, default_value_t = 1024, value_name = "TOKENS")]
    context: usize,
    /// Tokens to generate in a run
    #[arg(short, default_value_t = 128, value_name = "N")]
    n: usize,
    /// Timed runs
    #[arg(long, default_value_t = 5, value_name = "RUNS")]
    runs: usize,
    /// Prompt tokens of a prefill replay
    #[arg(long, value_name = "N")]
    chunk: Option<usize>,
    /// Tokens under way on the GPU at once; default: as many as pay
    #[arg(long, value_name = "N")]
    in_flight: Option<usize>,
    /// `inflight`: decode with one token under way and with as many as pay, in turns
    #[arg(long, value_name = "WHAT", value_parser = ["inflight"])]
    compare: Option<String>,
    /// Time of each kernel in a token and in a chunk of the prompt, from the GPU's own clock
    #[arg(long)]
    trace: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Done {
    for (option, value, least) in [("context", arguments.context, 2), ("n", arguments.n, 1), ("runs", arguments.runs, 1)] {
        if value < least {
            return Err(Error::argument(option, format!("at least {least}"), value).into());
        }
    }
    check_in_flight(arguments.in_flight)?;
    let mut model = open(arguments)?;
    source::say_note(&model);
    let ids = bench::prompt(&model, Some(TEXT), arguments.context)?;
    let mut prefill = Times::default();
    let (mut decode, mut decode_single) = (Times::default(), Times::default());
    let mut cpu_us = Times::default();
    let mut live_kv = 1.0;
    for run in 0..=arguments.runs {
        let read = time_prefill(&mut model, &ids)?;
        live_kv = block_on(model.live_kv_fraction())?;
        let (written, cpu) = time_decode(&mut model, &ids, arguments.n, arguments.in_flight)?;
        let single = match arguments.compare {
            Some(_) => {
                time_prefill(&mut model, &ids)?;
                Some(time_decode(&mut model, &ids, arguments.n, Some(1))?.0)
            }
            None => None,
        };
        if run > 0 {
            prefill.0.push(read);
            decode.0.push(written);
            cpu_us.0.push(cpu * 1e6 / arguments.n as f64);
            decode_single.0.extend(single);
        }
    }
    let mut report = report(arguments, &model, &prefill, &decode, &decode_single, &cpu_us, live_kv)?;
    if arguments.trace {
        report["trace"] = trace(&mut model, &ids)?;
    }
    if arguments.json {
        return print_json(&report);
    }
    let Value::Object(rows) = &report else { unreachable!("the report is an object") };
    for (key, value) in rows.iter().filter(|(key, _)| *key != "trace") {
        print_line(&format!("{key:<28} {}", one_line(value.to_string().trim_matches('"'))))?;
    }
    for (what, kernels) in report["trace"].as_object().into_iter().flatten() {
        print_line(&format!("\n{what}: kernel, dispatches, microseconds"))?;
        for row in kernels.as_array().into_iter().flatten() {
            let kernel = row["kernel"].as_str().unwrap_or_default();
            print_line(&format!("{kernel:<28} {:>4} {:>10.1}", row["dispatches"], row["us"].as_f64().unwrap_or_default()))?;
        }
    }
    Ok(())
}

/// Times of the kernels of the prompt's last chunk and of the token behind it.
fn trace(model: &mut Model, ids: &[u32]) -> Result<Value> {
    let prompt = ids.len() - 1;
    let last = prompt.saturating_sub(model.chunk());
    let chunk = &ids[last..prompt];
    time_prefill(model, &ids[..=last])?;
    let of_chunk = block_on(model.trace(chunk))?;
    block_on(model.prefill(chunk, false))?;
    let of_token = block_on(model.trace(&ids[prompt..]))?;
    let rows = |traced: &[Traced]| -> Value {
        let row = |Traced { kernel, dispatches, seconds }: &Traced| json!({ "kernel": kernel, "dispatches": dispatches, "us": seconds * 1e6 });
        traced.iter().map(row).collect()
    };
    Ok(json!({ "chunk": rows(&of_chunk), "token": rows(&of_token) }))
}

fn open(arguments: &Arguments) -> Result<Model> {
    let options =
        LoadOptions { context: Some(arguments.context + arguments.n + 1), chunk: arguments.chunk, ..LoadOptions::default() };
    let Some(shape) = &arguments.shape else { return source::load(&arguments.model, None, options) };
    let [hidden, layers, heads] = shape[..] else {
        return Err(Error::argument("shape", "three numbers: width, layers, heads", format!("{} numbers", shape.len())));
    };
    let config = json!({
        "model_type": "forgetting_transformer-project_fox", "vocab_size": arguments.vocab, "hidden_size": hidden,
        "hidden_ratio": 3.5, "num_hidden_layers": layers, "num_heads": heads, "use_output_gate": true,
        "use_output_norm": true, "qk_norm": true, "use_k_shift": true, "use_v_shift": true
    });
    let Value::Object(config) = config else { unreachable!("an object") };
    let checkpoint = load::random(config, arguments.quant.parse()?, 1)?;
    block_on(Model::load(checkpoint, arguments.model.apply(options), &mut |_| Ok(())))
}

/// Seconds for all of the prompt but its last token.
fn time_prefill(model: &mut Model, ids: &[u32]) -> Result<f64> {
    block_on(bench::time_prefill(model, ids))
}

/// Seconds for the last token of the prompt and `n` sampled ones, and CPU seconds of this thread in them.
fn time_decode(model: &mut Model, ids: &[u32], n: usize, in_flight: Option<usize>) -> Result<(f64, f64)> {
    let cpu = ThreadTime::now();
    let seconds = block_on(bench::time_decode(model, ids, n, in_flight))?;
    Ok((seconds, cpu.elapsed().as_secs_f64()))
}

/// What the matrices are: as asked for, or the file that says it.
fn quant(arguments: &Arguments) -> String {
    match (&arguments.shape, &arguments.model.model) {
        (Some(_), _) => arguments.quant.clone(),
        (None, Some(path)) => format!("as in {}", path.display()),
        (None, None) => "q4_0".to_owned(),
    }
}

/// The figures under the keys that scripts read.
fn report(
    arguments: &Arguments,
    model: &Model,
    prefill: &Times,
    decode: &Times,
    decode_single: &Times,
    cpu_us: &Times,
    live_kv: f64,
) -> Result<Value> {
    let config = model.config();
    let [prefill_rate, prefill_slowest, prefill_quickest] = prefill.rates(arguments.context - 1);
    let [decode_rate, decode_slowest, decode_quickest] = decode.rates(arguments.n);
    let decode_ms = 1e3 / decode_rate;
    let dispatches = model.dispatches_per_token();
    let bytes = model.bytes_per_token(arguments.context, live_kv);
    let mut report = json!({
        "adapter": model.device_name(), "backend": "cpu",
        "shape": [config.hidden, config.n_layers, config.n_heads, config.vocab],
        "quant": quant(arguments),
        "context": arguments.context,
        "prefill_tokens_per_s": prefill_rate, "prefill_spread": [prefill_slowest, prefill_quickest],
        "decode_tokens_per_s": decode_rate, "decode_spread": [decode_slowest, decode_quickest],
        "decode_ms": decode_ms,
        "dispatches_per_token": dispatches,
        "copy_gb_s": null, "dispatch_us": null, "floor_ms": null, "floor_fraction": null,
        "bytes_per_token": bytes,
        "live_kv_fraction": live_kv,
        "peak_device_bytes": model.bytes(),
        "cpu_us_per_token": cpu_us.median(),
    });
    if let Device::Gpu(executor) = model.device() {
        let (gpu, in_flight) = (executor.gpu(), arguments.in_flight.unwrap_or(8));
        report["backend"] = json!(gpu.info().backend);
        let (copy, dispatch) = (block_on(floor::copy_rate(gpu))?, block_on(floor::dispatch_time(gpu, dispatches, in_flight))?);
        let floor_ms = (bytes as f64 / copy + dispatches as f64 * dispatch) * 1e3;
        report["copy_gb_s"] = json!(copy / 1e9);
        report["dispatch_us"] = json!(dispatch * 1e6);
        report["floor_ms"] = json!(floor_ms);
        report["floor_fraction"] = json!(floor_ms / decode_ms);
    }
    if arguments.compare.is_some() {
        if !model.draws_on_device() {
            say("note: on the CPU one token is under way at a time; both sides are the same");
        }
        let [single, slowest, quickest] = decode_single.rates(arguments.n);
        report["decode_tokens_per_s_one_in_flight"] = json!(single);
        report["decode_spread_one_in_flight"] = json!([slowest, quickest]);
    }
    Ok(report)
}
