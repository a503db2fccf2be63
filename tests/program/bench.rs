//! `kitfox inspect gates` and `kitfox bench` as built: the files and keys that scripts read, and how bad input ends.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::common::command::{assert_fails, folder, succeeds, text};
use crate::common::tiny::Tiny;
use crate::common::tokenizers;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::Value;
use std::path::Path;

/// Shape and numbers of a tensor of f32.
fn tensor(path: &Path, name: &str) -> Option<(Vec<usize>, Vec<f32>)> {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = file.tensor(name).ok()?;
    assert_eq!(tensor.dtype(), Dtype::F32);
    Some((tensor.shape().to_vec(), tensor.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()))
}

fn write(path: &Path, tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) -> String {
    let views =
        tensors.iter().map(|(name, dtype, shape, bytes)| (*name, TensorView::new(*dtype, shape.to_vec(), bytes).unwrap()));
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
    text(path)
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

#[test]
fn gates_of_a_text_are_written_with_their_shape() {
    let folder = folder("bench", "inspect");
    let model = text(&Tiny::new(Some(tokenizers::byte_level())).write(&folder.join("model")));
    let (out, book) = (folder.join("g.safetensors"), folder.join("book"));
    let inspect = |more: &[&str]| {
        let arguments = [&["inspect", "gates", "-m", &model, "--device", "cpu", "-o", out.to_str().unwrap()], more].concat();
        succeeds(&arguments)
    };
    let (stdout, _) = inspect(&["-p", "xyz xyz"]);
    assert!(stdout.contains("log_f [1, 2, 8]") && !stdout.contains("u ["), "{stdout}");
    let (shape, whole) = tensor(&out, "log_f").unwrap();
    assert_eq!(shape, [1, 2, 8]);
    assert!(whole.iter().all(|log_f| *log_f < 0.0 && *log_f > -20.0), "{whole:?}");
    assert_eq!(tensor(&out, "u"), None, "nothing bounds the scores of a model without norms of q and k");
    // Cut, and from a file: the first tokens of the same.
    std::fs::write(&book, "xyz xyz").unwrap();
    let (_, stderr) = inspect(&["-f", book.to_str().unwrap(), "-c", "5"]);
    assert!(stderr.contains("8 tokens") && stderr.contains("first 5"), "{stderr}");
    let (shape, cut) = tensor(&out, "log_f").unwrap();
    assert_eq!((shape, &cut[..5], &cut[5..]), (vec![1, 2, 5], &whole[..5], &whole[8..13]));
    let (stdout, _) = succeeds(&["inspect", "gates", "-p", "A fox.", "--device", "cpu", "-o", out.to_str().unwrap()]);
    assert!(stdout.contains("u [8, 8]"), "{stdout}");
    assert!(tensor(&out, "u").unwrap().1.iter().all(|u| (1.0..100.0).contains(u)));
    // What was there before works as before, and only alone.
    succeeds(&["inspect", "-m", &model, "--json"]);
    assert_fails(2, &["--json"], &["inspect", "--json", "gates", "-p", "a", "-o", out.to_str().unwrap()]);
}

#[test]
fn bad_use_of_gates_is_named() {
    let folder = folder("bench", "bad");
    let model = text(&Tiny::new(Some(tokenizers::byte_level())).write(&folder.join("model")));
    let plain = text(&Tiny::new(None).write(&folder.join("plain")));
    let out = text(&folder.join("g.safetensors"));
    let file = |name: &str| folder.join(name);
    let inspect = |more: &[&'static str]| [&["inspect", "gates", "-m", model.as_str(), "--device", "cpu"], more].concat();
    assert_fails(2, &["--prompt", "--text-file"], &[&inspect(&[])[..], &["-o", &out]].concat());
    assert_fails(2, &["--text-file"], &[&inspect(&["-p", "a", "-f", "b"])[..], &["-o", &out]].concat());
    assert_fails(2, &["output", ".safetensors", "g.gif"], &inspect(&["-p", "a", "-o", "g.gif"]));
    assert_fails(2, &["prompt", "empty"], &[&inspect(&["-p", ""])[..], &["-o", &out]].concat());
    assert_fails(2, &["context"], &[&inspect(&["-p", "a", "-c", "0"])[..], &["-o", &out]].concat());
    assert_fails(1, &["tokenizer", "inspect gates"], &["inspect", "gates", "-m", &plain, "-p", "a", "-o", &out]);
    assert!(!file("g.safetensors").exists());

    let short: &[&str] = &["bench", "--shape", "32,1,2", "--vocab", "64", "-c", "4", "-n", "1", "--runs", "1", "--device", "cpu"];
    let bench =
        |gates: &str| short.iter().map(|word| (*word).to_owned()).chain(["--gates".to_owned(), gates.to_owned()]).collect();
    let fails = |code: i32, named: &[&str], gates: &str| {
        let arguments: Vec<String> = bench(gates);
        assert_fails(code, named, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    };
    std::fs::write(file("text"), "no gates").unwrap();
    let log_f = bytes(&[-1.0, -0.5]);
    fails(1, &["/nowhere", "read"], "/nowhere");
    fails(1, &["text", "safetensors"], &text(&file("text")));
    fails(1, &["log_f", "logits"], &write(&file("other"), &[("logits", Dtype::F32, &[1, 2], log_f.clone())]));
    fails(1, &["log_f", "F32 of 3"], &write(&file("flat"), &[("log_f", Dtype::F32, &[2], log_f.clone())]));
    fails(1, &["log_f", "I32"], &write(&file("whole"), &[("log_f", Dtype::I32, &[1, 1, 2], log_f.clone())]));
    fails(1, &["log_f[0, 1, 0]", "0.5"], &write(&file("above"), &[("log_f", Dtype::F32, &[1, 2, 1], bytes(&[-1.0, 0.5]))]));
    let u = |shape: &'static [usize], u: &[f32]| {
        [("log_f", Dtype::F32, &[1, 2, 1][..], log_f.clone()), ("u", Dtype::F32, shape, bytes(u))]
    };
    fails(1, &["u", "[1, 2]", "[2, 1]"], &write(&file("turned"), &u(&[2, 1], &[1.0, 1.0])));
    fails(1, &["u[0, 1]", "NaN"], &write(&file("nan"), &u(&[1, 2], &[1.0, f32::NAN])));
    let good = write(&file("good"), &u(&[1, 2], &[1.0, 2.0]));
    assert_fails(2, &["--shape"], &["bench", "-m", &model, "--gates", &good]);
    assert_fails(2, &["--shape"], &["bench", "--gates", &good]);
    assert_fails(2, &["prune", "off"], &[short, &["--compare", "prune", "--prune", "off"]].concat());
    assert_fails(
        2,
        &["prune", "norms of q and k"],
        &["bench", "-m", &model, "--compare", "prune", "-c", "4", "-n", "1", "--device", "cpu"],
    );
}

const KEYS: [&str; 25] = [
    "adapter",
    "backend",
    "bytes_per_token",
    "chunk",
    "context",
    "copy_bytes",
    "copy_gb_s",
    "cpu_us_per_token",
    "decode_ms",
    "decode_spread",
    "decode_tokens_per_s",
    "dispatch_us",
    "dispatches_per_token",
    "floor_fraction",
    "floor_ms",
    "in_flight",
    "live_kv_fraction",
    "log_pruning_tolerance",
    "peak_device_bytes",
    "prefill_spread",
    "prefill_tokens_per_s",
    "quant",
    "shape",
    "startup_check_ms",
    "startup_tune_ms",
];

/// The report of a run of a made-up model of two layers, whose keys are those above and `more`.
fn bench(device: &str, more_keys: &[&str], more: &[&str]) -> Value {
    let base =
        ["bench", "--shape", "64,2,2", "--vocab", "100", "-c", "200", "-n", "4", "--runs", "1", "--json", "--device", device];
    let report: Value = serde_json::from_str(&succeeds(&[&base[..], more].concat()).0).unwrap();
    let mut keys: Vec<&str> = KEYS.iter().chain(more_keys).copied().collect();
    keys.sort_unstable();
    let mut got: Vec<&String> = report.as_object().unwrap().keys().collect();
    got.sort_unstable();
    assert_eq!(got, keys, "{more:?}");
    report
}

/// The keys without a value.
fn nulls(report: &Value) -> Vec<&str> {
    let mut nulls: Vec<&str> =
        report.as_object().unwrap().iter().filter(|(_, value)| value.is_null()).map(|(key, _)| key.as_str()).collect();
    nulls.sort_unstable();
    nulls
}

const UNPRUNED: [&str; 5] = [
    "decode_spread_unpruned",
    "decode_tokens_per_s_unpruned",
    "live_kv_fraction_unpruned",
    "prefill_spread_unpruned",
    "prefill_tokens_per_s_unpruned",
];

#[test]
fn bench_reports_every_key_and_null_only_what_cannot_be_known() {
    let report = bench("cpu", &[], &[]);
    let floor = ["copy_bytes", "copy_gb_s", "dispatch_us", "floor_fraction", "floor_ms"];
    let start_up = ["startup_check_ms", "startup_tune_ms"];
    let without_pruning = [&floor[..], &["log_pruning_tolerance"], &start_up].concat();
    assert_eq!(nulls(&report), without_pruning);
    assert_eq!((&report["in_flight"], &report["live_kv_fraction"]), (&Value::from(1), &Value::from(1.0)));
    let report = bench("cpu", &["decode_spread_one_in_flight", "decode_tokens_per_s_one_in_flight"], &["--compare", "inflight"]);
    assert_eq!(nulls(&report), without_pruning);
    let report = bench("cpu", &UNPRUNED, &["--compare", "prune"]);
    assert_eq!(nulls(&report), [&floor[..], &start_up].concat());
    assert!((report["log_pruning_tolerance"].as_f64().unwrap() + 10.0).abs() < 1e-9, "e^-10 where nothing else is said");
}

/// One head that forgets nothing and one that forgets by 1 a token: all 4 pages are live, and the last two (its 7 tokens are not enough for the
/// one before, with τ = 2 · 0.25 + 6.9), which only the pruned side sees.
#[test]
fn both_sides_of_prune_see_the_gates_that_are_replayed() {
    let folder = folder("bench", "prune");
    let log_f = [vec![0.0; 50], vec![-1.0; 50]].concat();
    let tensors = [("log_f", Dtype::F32, &[1, 2, 50][..], bytes(&log_f)), ("u", Dtype::F32, &[1, 2][..], bytes(&[0.25, 0.25]))];
    let gates = write(&folder.join("g.safetensors"), &tensors);
    let report = bench("cpu", &UNPRUNED, &["--compare", "prune", "--prune", "1e-3", "--gates", &gates]);
    assert_eq!(report["live_kv_fraction"], 6.0 / 8.0);
    assert_eq!(report["live_kv_fraction_unpruned"], 1.0);
    assert!((report["log_pruning_tolerance"].as_f64().unwrap() - 1e-3f64.ln()).abs() < 1e-9);
}

#[test]
fn on_a_gpu_the_floor_is_that_of_the_figures_beside_it() {
    if !common::gpu_expected() {
        return;
    }
    let report = bench("gpu", &[], &["--in-flight", "4"]);
    assert_eq!(nulls(&report), ["log_pruning_tolerance"]);
    let number = |key: &str| report[key].as_f64().unwrap();
    assert_eq!((number("dispatches_per_token"), number("in_flight")), (6.0 * 2.0 + 2.0, 8.0));
    assert!(number("copy_bytes") >= f64::from(256 << 20), "{}", number("copy_bytes"));
    let floor =
        number("bytes_per_token") / number("copy_gb_s") / 1e6 + number("dispatches_per_token") * number("dispatch_us") / 1e3;
    assert!((floor / number("floor_ms") - 1.0).abs() < 1e-9, "{floor} {}", number("floor_ms"));
    assert!((number("floor_ms") / number("decode_ms") / number("floor_fraction") - 1.0).abs() < 1e-9);
}

#[test]
fn products_are_timed_in_every_way_there_is() {
    assert_fails(2, &["quant", "--shape", "q8_0"], &["bench", "--quant", "q8_0", "--device", "cpu"]);
    assert_fails(2, &["device", "a GPU's"], &["bench", "--matmul", "64,64,64", "--device", "cpu"]);
    if !common::gpu_expected() {
        return;
    }
    let arguments = ["bench", "--matmul", "64,96,40", "--quant", "q8_0", "--json"];
    let report: Value = serde_json::from_str(&succeeds(&arguments).0).unwrap();
    assert_eq!((&report["shape"], &report["quant"]), (&serde_json::json!([64, 96, 40]), &Value::from("Q8_0")));
    let ways = report["ways"].as_array().unwrap();
    assert!(ways[0]["way"].as_str().unwrap().starts_with("matmul [W_Q8_0"), "{report}");
    assert!(ways.iter().all(|way| way["us"].as_f64().unwrap() > 0.0 && way["tflop_s"].as_f64().unwrap() > 0.0), "{report}");
    for (named, shape, quant) in [
        (["matmul", "three numbers"], "64,96", "q4_0"),
        (["matmul", "0"], "64,0,1", "q4_0"),
        (["matmul", "whole 32"], "64,80,1", "q4_0"),
        (["matmul", "128 MiB"], "8192,8192,8192", "f32"),
        (["quant", "Q4_0"], "64,64,64", "q9_9"),
    ] {
        assert_fails(2, &named, &["bench", "--matmul", shape, "--quant", quant]);
    }
}
