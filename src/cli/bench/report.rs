//! The figures of `kitfox bench`, under the keys that scripts read.

use super::{Arguments, Comparison};
use crate::cli::output::{Done, one_line, print_json, print_line, say};
use kitfox::gpu::Gpu;
use kitfox::gpu::floor;
use kitfox::session::bench::{Measured, time_prefill};
use kitfox::session::trace::Traced;
use kitfox::session::{Device, Model};
use kitfox::{Error, Result};
use pollster::block_on;
use serde_json::{Value, json};

/// The report of one model; what cannot be known here is null.
pub fn report(arguments: &Arguments, model: &Model, measured: &mut Measured) -> Result<Value> {
    if let Device::Gpu(executor) = model.device() {
        let gpu = executor.gpu();
        measured.dispatch = Some(block_on(floor::dispatch_time(gpu, model.dispatches_per_token(), measured.in_flight))?);
        measured.copy = copy_rate(gpu)?;
    }
    let mut report = measured.report(model);
    if arguments.shape.is_some() {
        report["quant"] = json!(arguments.quant());
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
pub fn compare(report: &mut Value, what: Comparison, runs: &Measured) {
    let mut add = |key: &str, rates: [f64; 3]| {
        report[format!("{key}_tokens_per_s_{}", what.suffix())] = json!(rates[0]);
        report[format!("{key}_spread_{}", what.suffix())] = json!(rates[1..]);
    };
    add("decode", runs.decode.rates(runs.n));
    if what == Comparison::Prune {
        add("prefill", runs.prefill.rates(runs.context - 1));
        report["live_kv_fraction_unpruned"] = json!(runs.live_kv);
    }
}

/// Adds the times of the kernels of the prompt's last chunk and of the token behind it, under `trace` with the suffix, and those of attention
/// alone.
pub fn add_trace(report: &mut Value, suffix: &str, model: &mut Model, ids: &[u32]) -> Result<()> {
    let prompt = ids.len() - 1;
    let last = prompt.saturating_sub(model.chunk());
    let chunk = &ids[last..prompt];
    block_on(time_prefill(model, &ids[..=last]))?;
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
    for (key, value) in rows.iter().filter(|(key, value)| !key.starts_with("trace") && !value.is_null()) {
        print_line(&format!("{key:<36} {}", readable(value)))?;
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

/// A value for people: numbers to four digits.
fn readable(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            if number == 0.0 {
                return "0".to_owned();
            }
            if number.abs() < 1e-6 {
                return format!("{number:.3e}");
            }
            let before_point = number.abs().log10().floor() as i32 + 1;
            format!("{number:.*}", (4 - before_point).clamp(0, 9) as usize)
        }
        Value::Array(values) => values.iter().map(readable).collect::<Vec<_>>().join(" "),
        other => one_line(other.to_string().trim_matches('"')),
    }
}
