//! What the page measures: phases one after the other, and figures under the names of `kitfox bench --json`.
#![allow(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]

use crate::common;
use kitfox::Error;
use kitfox::session::bench::{Bench, BenchOptions, Times};
use kitfox::session::{DeviceChoice, LoadOptions, Model};
use pollster::block_on;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn open(path: &str, device: DeviceChoice) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let options = LoadOptions { device, context: Some(256), ..LoadOptions::default() };
    block_on(async { Model::load(kitfox::format::open(&path).await?, options, &mut |_| Ok(())).await }).unwrap()
}

fn demo() -> Model {
    open("www/models/demo.gguf", DeviceChoice::Cpu)
}

fn options(floor: bool) -> BenchOptions {
    BenchOptions { context: 100, n: 4, runs: 2, floor, text: Some("Once upon a time ".to_owned()), ..BenchOptions::default() }
}

fn measured(model: &mut Model, options: BenchOptions) -> (Value, usize) {
    let mut bench = Bench::new(model, options).unwrap();
    let mut phases = 0;
    loop {
        let (done, total) = block_on(bench.measure(model)).unwrap();
        phases += 1;
        assert_eq!(done, phases, "phases are counted one by one");
        if done == total {
            assert_eq!(block_on(bench.measure(model)).unwrap(), (total, total), "after the last comes nothing");
            return (bench.report(model), phases);
        }
    }
}

#[test]
fn a_report_has_the_names_and_the_model_of_the_command_line() {
    let (report, phases) = measured(&mut demo(), options(true));
    assert_eq!(phases, 6, "a warm-up and two runs, read and written; no floor on the CPU");
    let arguments = ["bench", "--device", "cpu", "-c", "100", "-n", "4", "--runs", "1", "--json"];
    let output = Command::new(env!("CARGO_BIN_EXE_kitfox")).args(arguments).output().unwrap();
    let native: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (name, value) in report.as_object().unwrap() {
        let same = native.get(name).unwrap_or_else(|| panic!("kitfox bench --json has no {name}"));
        if ["adapter", "backend", "shape", "context", "dispatches_per_token", "copy_gb_s", "floor_ms"].contains(&&name[..]) {
            assert_eq!(value, same, "{name}");
        }
    }
    assert!(report["quant"].as_str().unwrap().starts_with("Q4_0"), "{report}");
    for name in ["prefill_tokens_per_s", "decode_tokens_per_s", "decode_ms", "cpu_us_per_token", "bytes_per_token"] {
        assert!(report[name].as_f64().unwrap() > 0.0, "{name}: {report}");
    }
    let live = report["live_kv_fraction"].as_f64().unwrap();
    assert!(live > 0.0 && live <= 1.0, "{report}");
}

/// The prompt is of made-up ids: this model has no tokenizer.
#[test]
fn a_gpu_may_be_measured_without_its_floor() {
    if !common::gpu_expected() {
        return;
    }
    let mut model = open("tests/fixtures/golden/fox_pro_pruned", DeviceChoice::Gpu);
    let (report, phases) = measured(&mut model, options(false));
    assert_eq!((phases, &report["floor_ms"], &report["copy_gb_s"]), (6, &Value::Null, &Value::Null));
    assert_eq!(report["dispatches_per_token"], 6 * model.config().n_layers + 2);
}

#[test]
fn what_cannot_be_measured_is_refused_by_name() {
    let model = demo();
    let refused = |options: BenchOptions| Bench::new(&model, options).err().unwrap();
    for (name, bad) in [
        ("context", BenchOptions { context: 1, ..options(false) }),
        ("n", BenchOptions { n: 0, ..options(false) }),
        ("runs", BenchOptions { runs: 0, ..options(false) }),
        ("in-flight", BenchOptions { in_flight: Some(17), ..options(false) }),
        ("text", BenchOptions { text: Some(String::new()), ..options(false) }),
    ] {
        let error = refused(bad);
        assert!(matches!(&error, Error::Argument { option, .. } if option == name), "{name}: {error}");
    }
    let error = refused(BenchOptions { context: usize::MAX, ..options(false) });
    assert!(matches!(error, Error::ContextFull { .. }), "{error}");
}

#[test]
fn rates_are_of_the_median_the_slowest_and_the_quickest() {
    let times = Times(vec![4.0, 1.0, 2.0]);
    assert_eq!(times.rates(8), [4.0, 2.0, 8.0]);
}
