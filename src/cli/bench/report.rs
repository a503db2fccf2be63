//! The figures of `kitfox bench`, under the keys that scripts read.

use super::measure::{Runs, time_prefill};
use super::{Arguments, Comparison};
use crate::cli::output::{Done, one_line, print_json, print_line, say};
use kitfox::gpu::Gpu;
use kitfox::gpu::floor;
use kitfox::session::trace::Traced;
use kitfox::session::{Device, Model};
use kitfox::{Error, Result};
use pollster::block_on;
use serde_json::{Value, json};

/// What the matrices are: as asked for, or the file that says it.
fn quant(arguments: &Arguments) -> String {
    match (&arguments.shape, &arguments.model.model) {
        (Some(_), _) => arguments.quant.clone(),
        (None, Some(path)) => format!("as in {}", path.display()),
        (None, None) => "q4_0".to_owned(),
    }
}

/// The report of one model; what cannot be known here is null.
pub fn report(arguments: &Arguments, model: &Model, runs: &Runs) -> Result<Value> {
    let config = model.config();
    let [prefill_rate, prefill_slowest, prefill_quickest] = runs.prefill.rates(arguments.context - 1);
    let [decode_rate, decode_slowest, decode_quickest] = runs.decode.rates(arguments.n);
    let decode_ms = 1e3 / decode_rate;
    let dispatches = model.dispatches_per_token();
    let bytes = model.bytes_per_token(arguments.context, runs.live_kv);
    let mut report = json!({
        "adapter": model.device_name(), "backend": "cpu",
        "shape": [config.hidden, config.n_layers, config.n_heads, config.vocab],
        "quant": quant(arguments),
        "context": arguments.context,
        "prefill_tokens_per_s": prefill_rate, "prefill_spread": [prefill_slowest, prefill_quickest],
        "decode_tokens_per_s": decode_rate, "decode_spread": [decode_slowest, decode_quickest],
        "decode_ms": decode_ms,
        "in_flight": runs.in_flight,
        "dispatches_per_token": dispatches,
        "copy_gb_s": null, "copy_bytes": null, "dispatch_us": null, "floor_ms": null, "floor_fraction": null,
        "bytes_per_token": bytes,
        "live_kv_fraction": runs.live_kv,
        "log_pruning_tolerance": model.log_pruning_tolerance(),
        "peak_device_bytes": model.bytes(),
        "cpu_us_per_token": runs.cpu_us.median(),
    });
    if let Device::Gpu(executor) = model.device() {
        let gpu = executor.gpu();
        report["backend"] = json!(gpu.info().backend);
        let dispatch = block_on(floor::dispatch_time(gpu, dispatches, runs.in_flight))?;
        report["dispatch_us"] = json!(dispatch * 1e6);
        if let Some(copy) = copy_rate(gpu)? {
            let floor_ms = (bytes as f64 / copy.bytes_per_s + dispatches as f64 * dispatch) * 1e3;
            report["copy_gb_s"] = json!(copy.bytes_per_s / 1e9);
            report["copy_bytes"] = json!(copy.bytes);
            report["floor_ms"] = json!(floor_ms);
            report["floor_fraction"] = json!(floor_ms / decode_ms);
        }
    }
    Ok(report)
}

/// None, with a note, where the device has no room for buffers of that size beside the model.
fn copy_rate(gpu: &Gpu) -> Result<Option<floor::CopyRate>> {
    match block_on(floor::copy_rate(gpu)) {
        Ok(rate) => Ok(Some(rate)),
        Err(error @ Error::OutOfMemory { .. }) => {
            say(&format!("note: the device's copy rate, and so its floor, cannot be measured: {}", one_line(&error)));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Adds the other side of a comparison.
pub fn compare(report: &mut Value, what: Comparison, arguments: &Arguments, runs: &Runs) {
    let mut add = |key: &str, rates: [f64; 3]| {
        report[format!("{key}_tokens_per_s_{}", what.suffix())] = json!(rates[0]);
        report[format!("{key}_spread_{}", what.suffix())] = json!(rates[1..]);
    };
    add("decode", runs.decode.rates(arguments.n));
    if what == Comparison::Prune {
        add("prefill", runs.prefill.rates(arguments.context - 1));
        report["live_kv_fraction_unpruned"] = json!(runs.live_kv);
    }
}

/// Adds the times of the kernels of the prompt's last chunk and of the token behind it, under `trace` with the suffix, and those of attention
/// alone.
pub fn add_trace(report: &mut Value, suffix: &str, model: &mut Model, ids: &[u32]) -> Result<()> {
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
    let attention = |traced: &[Traced]| -> f64 {
        traced.iter().filter(|traced| traced.kernel.starts_with("attn_")).map(|traced| traced.seconds * 1e6).sum()
    };
    report[format!("attention_us_chunk{suffix}")] = json!(attention(&of_chunk));
    report[format!("attention_us_token{suffix}")] = json!(attention(&of_token));
    report[format!("trace{suffix}")] = json!({ "chunk": rows(&of_chunk), "token": rows(&of_token) });
    Ok(())
}

/// Prints it, as JSON or for people.
pub fn print(report: &Value, as_json: bool) -> Done {
    if as_json {
        return print_json(report);
    }
    let Value::Object(rows) = report else { unreachable!("the report is an object") };
    for (key, value) in rows.iter().filter(|(key, _)| !key.starts_with("trace")) {
        print_line(&format!("{key:<36} {}", one_line(value.to_string().trim_matches('"'))))?;
    }
    for (key, traced) in rows.iter().filter(|(key, _)| key.starts_with("trace")) {
        let side = key.trim_start_matches("trace").replace('_', ", ");
        for (what, kernels) in traced.as_object().into_iter().flatten() {
            print_line(&format!("\n{what}{side}: kernel, dispatches, microseconds"))?;
            for row in kernels.as_array().into_iter().flatten() {
                let kernel = row["kernel"].as_str().unwrap_or_default();
                print_line(&format!("{kernel:<28} {:>4} {:>10.1}", row["dispatches"], row["us"].as_f64().unwrap_or_default()))?;
            }
        }
    }
    Ok(())
}
