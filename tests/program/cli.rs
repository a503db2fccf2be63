//! The built binary: what it prints, and how it ends for every kind of bad input. On the CPU device, so that no adapter is needed, but for what only a GPU
//! does.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::common::command::{assert_fails, folder, kitfox, stdout_of, succeeds, text};
use crate::common::tiny::{Tiny, VOCAB};
use crate::common::tokenizers;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The tiny model, with or without tokenizer, as it should be.
pub fn model(folder: &Path, tokenizer: bool) -> String {
    let tiny = Tiny::new(tokenizer.then(tokenizers::byte_level));
    text(&tiny.write(&folder.join(if tokenizer { "model" } else { "plain" })))
}

/// What lies in a folder.
fn names(folder: &Path) -> Vec<String> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn json_of(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout_of(arguments)).unwrap()
}

fn logits_of(path: &Path) -> Vec<Vec<f32>> {
    let bytes = std::fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let logits = file.tensor("logits").unwrap();
    assert_eq!((logits.dtype(), logits.shape()[1]), (safetensors::Dtype::F32, VOCAB));
    let values: Vec<f32> = logits.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
    values.chunks(VOCAB).map(<[f32]>::to_vec).collect()
}

#[test]
fn bad_usage_is_exit_code_2() {
    let folder = folder("cli", "usage");
    let model = model(&folder, true);
    let out = text(&folder.join("out"));
    let generate = |more: &[&'static str]| [&["generate", "-m", model.as_str(), "--device", "cpu"], more].concat();
    let cases: [(&[&str], Vec<&str>); 26] = [
        (&["dance"], vec!["dance"]),
        (&["--prompt"], generate(&[])),
        (&["prompt", "empty"], generate(&["-p", ""])),
        (&["temperature", "-1"], generate(&["-p", "a", "--temp", "-1"])),
        (&["temperature", "NaN"], generate(&["-p", "a", "--temp", "nan"])),
        (&["warm"], generate(&["-p", "a", "--temp", "warm"])),
        (&["top-p", "0"], generate(&["-p", "a", "--top-p", "0"])),
        (&["min-p", "2"], generate(&["-p", "a", "--min-p", "2"])),
        (&["repeat-penalty", "0"], generate(&["-p", "a", "--repeat-penalty", "0"])),
        (&["stop", "empty"], generate(&["-p", "a", "--stop", ""])),
        (&["logit-bias", "NaN"], generate(&["-p", "a", "--logit-bias", "5=nan"])),
        (&["logit-bias", "two", "5"], generate(&["-p", "a", "--logit-bias", "5=1", "--logit-bias", "5=2"])),
        (&["logit-bias", "264", "id 1000"], generate(&["-p", "a", "--logit-bias", "1000=1"])),
        (&["--logit-bias", "a token id"], generate(&["-p", "a", "--logit-bias", "fox=1"])),
        (&["--json"], generate(&["-p", "a", "--logprobs"])),
        (&["-5"], generate(&["-p", "a", "-n", "-5"])),
        (&["context"], generate(&["-p", "a", "-c", "0"])),
        (&["context", "129", "64"], generate(&["-p", "a", "-c", "64", "--overflow", "slide"])),
        (&["tpu"], vec!["generate", "-m", &model, "-p", "a", "--device", "tpu"]),
        (&["quant", "q3_k"], vec!["convert", &model, "-o", &out, "--quant", "q3_k"]),
        (&["ids", "none"], vec!["logits", "-m", &model, "--ids", "", "-o", &out]),
        (&["ids", "x"], vec!["logits", "-m", &model, "--ids", "1,x", "-o", &out]),
        (&["ids", "264", "id 1000"], vec!["logits", "-m", &model, "--ids", "1,1000", "-o", &out, "--device", "cpu"]),
        (&["--ids"], vec!["logits", "-m", &model, "-o", &out]),
        (&["chunk", "0"], vec!["logits", "-m", &model, "--ids", "1", "-o", &out, "--chunk", "0", "--device", "cpu"]),
        (&["max-tokens", "0"], vec!["perplexity", "-m", &model, "-f", &model, "--max-tokens", "0"]),
    ];
    for (named, arguments) in cases {
        assert_fails(2, named, &arguments);
    }
    assert!(names(&folder).iter().all(|name| !name.starts_with("out")), "a failed run leaves no file");
}

#[test]
fn runs_that_cannot_be_done_are_exit_code_1() {
    let folder = folder("cli", "failed");
    let (model, plain) = (model(&folder, true), model(&folder, false));
    let file = text(&folder.join("text"));
    std::fs::write(&file, b"abc\xff").unwrap();
    let words = text(&folder.join("words"));
    std::fs::write(&words, "1 2 abc").unwrap();
    let out = text(&folder.join("out"));
    let long = "a".repeat(100);
    let cases: [(&[&str], Vec<&str>); 13] = [
        (&["context", "102", "64"], vec!["generate", "-m", &model, "-p", &long, "--device", "cpu"]),
        (&["context", "5", "4"], vec!["generate", "-m", &model, "-p", "abc", "-c", "4", "--device", "cpu"]),
        (&["tokenizer", "generate"], vec!["generate", "-m", &plain, "-p", "a", "--device", "cpu"]),
        (&["tokenizer", "perplexity"], vec!["perplexity", "-m", &plain, "-f", &words, "--device", "cpu"]),
        (&["text", "byte 3", "UTF-8"], vec!["perplexity", "-m", &model, "-f", &file, "--device", "cpu"]),
        (&["nowhere", "read"], vec!["perplexity", "-m", &model, "-f", "/nowhere"]),
        (&["nowhere"], vec!["logits", "-m", &model, "--ids-file", "/nowhere", "-o", &out]),
        // Before any work: nothing is generated that could not be kept.
        (&["/nowhere/out", "no folder"], vec!["convert", &model, "-o", "/nowhere/out", "--quant", "f16"]),
        (&["/nowhere/out", "no folder"], vec!["logits", "-m", &model, "--ids", "1", "-o", "/nowhere/out", "--device", "cpu"]),
        (&["/nowhere/s", "no folder"], vec!["generate", "-m", &model, "-p", "a", "--session", "/nowhere/s", "--device", "cpu"]),
        (&["g.safetensors", "no folder"], vec!["inspect", "gates", "-m", &model, "-p", "a", "-o", "/nowhere/g.safetensors"]),
        (&["loss.csv", "no folder"], vec!["eval", "per-token-loss", "-m", &model, "-f", &words, "-o", "/nowhere/loss.csv"]),
        (&["words", "token ids", "abc"], vec!["logits", "-m", &model, "--ids-file", &words, "-o", &out]),
    ];
    for (named, arguments) in cases {
        assert_fails(1, named, &arguments);
    }
}

/// Spoils a GGUF file and returns its path.
fn spoiled(folder: &Path, name: &str, spoil: impl Fn(&mut Vec<u8>)) -> String {
    let mut bytes = std::fs::read(folder.join("good.gguf")).unwrap();
    spoil(&mut bytes);
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    text(&path)
}

fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to);
}

#[test]
fn model_files_that_are_not_whole_or_not_of_this_model_are_named() {
    let folder = folder("cli", "files");
    let good = model(&folder, true);
    stdout_of(&["convert", &good, "-o", &text(&folder.join("good.gguf")), "--quant", "f32"]);
    let tokenizer = || Some(tokenizers::byte_level());
    let write = |name: &str, tiny: &Tiny| text(&tiny.write(&folder.join(name)));
    let config = |name: &str, key: &str, value: Value| {
        let mut tiny = Tiny::new(tokenizer());
        tiny.config[key] = value;
        write(name, &tiny)
    };
    let mut extra = Tiny::new(tokenizer());
    extra.random("model.layers.0.attn.z_proj.weight", &[32, 32], 1.0);
    let mut shape = Tiny::new(tokenizer()).without("lm_head.weight");
    shape.random("lm_head.weight", &[VOCAB, 16], 1.0);
    let mut not_finite = Tiny::new(tokenizer());
    not_finite.tensors[1].2[5] = f32::NAN;
    let not_finite = write("not_finite", &not_finite);
    let empty = folder.join("empty");
    std::fs::create_dir_all(&empty).unwrap();
    std::fs::write(folder.join("nothing.gguf"), b"").unwrap();
    let broken_tokenizer = write("broken_tokenizer", &Tiny::new(Some("{}".to_owned())));
    let cases: [(&[&str], String); 17] = [
        (&["/nowhere.gguf", "open"], "/nowhere.gguf".to_owned()),
        (&["empty", "config.json"], text(&empty)),
        (&["nothing.gguf"], text(&folder.join("nothing.gguf"))),
        (&["short.gguf", "got"], spoiled(&folder, "short.gguf", |bytes| bytes.truncate(bytes.len() - 100))),
        (&["header.gguf", "got"], spoiled(&folder, "header.gguf", |bytes| bytes.truncate(200))),
        (&["magic.gguf", "GGUF"], spoiled(&folder, "magic.gguf", |bytes| bytes[0] = b'X')),
        (&["version.gguf", "version", "99"], spoiled(&folder, "version.gguf", |bytes| bytes[4] = 99)),
        (&["missing", "output.weight"], write("missing", &Tiny::new(tokenizer()).without("lm_head.weight"))),
        (&["extra", "z_proj"], write("extra", &extra)),
        (&["output.weight", "[264, 32]", "[264, 16]"], write("shape", &shape)),
        (&["architecture/config.json", "model_type", "llama"], config("architecture", "model_type", json!("llama"))),
        (&["num_heads", "7"], config("heads", "num_heads", json!(7))),
        (&["fgate_type", "leaky"], config("gate", "fgate_type", json!("leaky"))),
        (&["broken_tokenizer", "tokenizer"], broken_tokenizer),
        (
            &["layers/model.safetensors", "tensors", "parameters, as its configuration says"],
            config("layers", "num_hidden_layers", json!(16_777_216)),
        ),
        (&["context/config.json", "max_position", "-c"], config("context", "max_position_embeddings", json!(16_777_216))),
        (&["trained/config.json", "training_context", "-c"], config("trained", "training_context", json!(16_777_216))),
    ];
    for (named, model) in &cases {
        assert_fails(1, named, &["generate", "-m", model, "-p", "a", "--device", "cpu"]);
    }
    let architecture = spoiled(&folder, "architecture.gguf", |bytes| {
        let key = b"general.architecture";
        let at = bytes.windows(key.len()).position(|window| window == key).unwrap() + key.len() + 12;
        replace(&mut bytes[at..], b"fox", b"cat");
    });
    assert_fails(1, &["architecture.gguf", "fox", "cat"], &["generate", "-m", &architecture, "-p", "a", "--device", "cpu"]);
    let out = text(&folder.join("out.gguf"));
    assert_fails(1, &["NaN"], &["convert", &not_finite, "-o", &out, "--quant", "q8_0"]);
    assert_fails(1, &["NaN", "model.safetensors", "element 5"], &["generate", "-m", &not_finite, "-p", "a", "--device", "cpu"]);
    // What cannot be run is refused before its weights are read: these have a NaN, too.
    let mut refused = Tiny::new(tokenizer());
    (refused.tensors[1].2[5], refused.config["hidden_act"]) = (f32::NAN, json!("gelu"));
    assert_fails(1, &["hidden_act", "gelu"], &["convert", &write("refused", &refused), "-o", &out, "--quant", "q8_0"]);
    for model in [&cases[7].1, &cases[8].1, &cases[9].1, &cases[13].1] {
        assert_fails(1, &[], &["convert", model, "-o", &out, "--quant", "f16"]);
    }
    assert!(names(&folder).iter().all(|name| !name.starts_with("out")), "a failed run leaves no file");
}

#[test]
fn every_fallback_is_listed() {
    let folder = folder("cli", "fallbacks");
    let good = model(&folder, true);
    let gguf = text(&folder.join("out.gguf"));
    // Rows of 32 and 64: no whole blocks of 256.
    let output = kitfox(&["convert", &good, "-o", &gguf, "--quant", "q4_k_m"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("note: token_embd.weight is stored as Q8_0: its rows of 32 are no whole blocks of Q6_K"), "{stderr}");
    assert!(
        stderr.contains("note: blk.0.ffn_down.weight is stored as Q5_0: its rows of 64 are no whole blocks of Q4_K"),
        "{stderr}"
    );
    assert_eq!(stderr.matches("note: ").count(), 9, "{stderr}");
    let inspected = json_of(&["inspect", "-m", &gguf, "--json"]);
    assert_eq!(inspected["main_type"], "Q8_0");
    let others = inspected["other_types"].as_object().unwrap();
    assert!(others.len() == 7 && others.values().all(|ty| ty == "Q5_0"), "{others:?}");
    assert_eq!(inspected["warnings"], json!([]));
    assert!(stdout_of(&["inspect", "-m", &gguf]).contains("note: blk.0.attn_q.weight is Q5_0, not Q8_0 as most matrices are"));
    stdout_of(&["generate", "-m", &gguf, "-p", "a", "-n", "2", "--device", "cpu"]);
}

/// A pipe that nobody writes to must not be waited for.
#[cfg(unix)]
#[test]
fn a_pipe_is_no_model() {
    let folder = folder("cli", "fifo");
    let pipe = text(&folder.join("pipe.gguf"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert_fails(1, &["pipe.gguf", "not a regular file"], &["inspect", "-m", &pipe]);
}

#[test]
fn generation_streams_the_continuation_and_the_json_says_the_same() {
    let folder = folder("cli", "generate");
    let model = model(&folder, true);
    let base = ["generate", "-m", &model, "--device", "cpu", "-p", "hello", "-n", "20", "--seed", "7", "--ignore-eos"];
    let summary = json_of(&[&base[..], &["--json"]].concat());
    let whole = summary["text"].as_str().unwrap();
    assert_eq!(summary["prompt_ids"], json!([256, 261, u32::from(b'o')]), "BOS is put in front");
    assert_eq!(summary["tokens"], 20);
    assert_eq!(summary["ids"].as_array().unwrap().len(), 20);
    assert_eq!((&summary["finish"], &summary["seed"], &summary["device"]), (&json!("length"), &json!(7), &json!("cpu")));
    let streamed = kitfox(&base);
    assert_eq!(String::from_utf8(streamed.stdout).unwrap(), whole);
    let statistics = String::from_utf8(streamed.stderr).unwrap();
    assert!(statistics.contains("seed: 7") && statistics.contains("device: cpu"), "{statistics}");
    assert_eq!(stdout_of(&[&base[..], &["--echo"]].concat()), format!("hello{whole}"));
    let other = json_of(&[
        "generate",
        "-m",
        &model,
        "--device",
        "cpu",
        "-p",
        "hello",
        "-n",
        "20",
        "--seed",
        "8",
        "--ignore-eos",
        "--json",
    ]);
    assert_ne!(other["ids"], summary["ids"]);
    let likely = json_of(&[&base[..], &["--json", "--logprobs"]].concat());
    assert_eq!(likely["ids"], summary["ids"]);
    let logprobs = likely["logprobs"].as_array().unwrap();
    assert!(logprobs.len() == 20 && logprobs.iter().all(|logprob| logprob.as_f64().unwrap() < 0.0), "{logprobs:?}");
    let biased = json_of(&[&base[..], &["--json", "--logit-bias", "9=1e9", "--logit-bias", "8=-2"]].concat());
    assert_eq!(biased["ids"], serde_json::json!(vec![9; 20]));
    // A stop string taken from the text itself ends it there.
    let stop: String = whole.chars().skip(4).take(3).filter(|c| *c != '\u{fffd}').collect();
    let cut = json_of(&[&base[..], &["--json", "--stop", &stop]].concat());
    assert_eq!((cut["finish"].as_str(), cut["stop"].as_str()), (Some("stop"), Some(stop.as_str())));
    assert_eq!(cut["text"].as_str(), whole.split(&stop).next());
}

#[test]
fn generation_ends_at_the_context_and_does_nothing_for_no_tokens() {
    let folder = folder("cli", "ends");
    let model = model(&folder, true);
    let base = ["generate", "-m", &model, "--device", "cpu", "-p", "hello", "--temp", "0", "--json", "--ignore-eos"];
    let full = json_of(&[&base[..], &["-n", "100", "-c", "10"]].concat());
    assert_eq!((&full["finish"], &full["tokens"]), (&json!("context"), &json!(7)), "three prompt tokens and seven more are ten");
    let exact = json_of(&[&base[..], &["-n", "7", "-c", "10"]].concat());
    assert_eq!((&exact["finish"], &exact["ids"]), (&json!("length"), &full["ids"]));
    let longer = json_of(&[&base[..], &["-n", "7"]].concat());
    assert_eq!(longer["ids"], full["ids"], "the context does not change the text");
    let none = json_of(&[&base[..], &["-n", "0"]].concat());
    assert_eq!((&none["finish"], &none["tokens"], &none["text"]), (&json!("length"), &json!(0), &json!("")));
}

#[test]
fn a_prompt_from_stdin_loses_its_last_line_break_only() {
    let folder = folder("cli", "stdin");
    let model = model(&folder, true);
    let run = |input: &[u8]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kitfox"));
        command.args(["generate", "-m", &model, "--device", "cpu", "-p", "-", "-n", "1", "--json"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    };
    let ids = |input: &[u8]| serde_json::from_slice::<Value>(&run(input).stdout).unwrap()["prompt_ids"].clone();
    assert_eq!(ids(b"a b\n"), json!([256, 97, 32, 98]));
    assert_eq!(ids(b"a\n\n"), json!([256, 97, 10]));
    assert_eq!(run(b"\n").status.code(), Some(2));
    assert_eq!(run(b"\xff\xfe").status.code(), Some(1));
}

#[test]
fn logits_are_the_same_in_chunks_and_token_by_token_and_perplexity_follows_from_them() {
    let folder = folder("cli", "logits");
    let model = model(&folder, true);
    let sentence = "hello a world, this is a text of some length";
    let ids: Vec<u32> =
        json_of(&["generate", "-m", &model, "--device", "cpu", "-p", sentence, "-n", "0", "--json"])["prompt_ids"]
            .as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_u64().unwrap() as u32)
            .collect();
    let list = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let file = text(&folder.join("ids"));
    std::fs::write(&file, list.replace(',', " \n")).unwrap();
    let run = |name: &str, more: &[&str]| {
        let out = folder.join(name);
        stdout_of(&[&["logits", "-m", &model, "--device", "cpu", "-o", &text(&out)], more].concat());
        logits_of(&out)
    };
    let whole = run("whole", &["--ids", &list]);
    assert_eq!(whole.len(), ids.len(), "a row for each id, nothing in front");
    for (name, more) in [("chunks", &["--ids-file", &file, "--chunk", "5"][..]), ("decode", &["--ids", &list, "--decode"])] {
        for (row, expected) in run(name, more).iter().zip(&whole) {
            for (got, want) in row.iter().zip(expected) {
                assert!((got - want).abs() <= 1e-4, "{name}: {got} {want}");
            }
        }
    }
    let nll = |row: &Vec<f32>, id: u32| {
        let total: f64 = row.iter().map(|&logit| f64::from(logit).exp()).sum();
        total.ln() - f64::from(row[id as usize])
    };
    let expected = whole.iter().zip(&ids[1..]).map(|(row, &id)| nll(row, id)).sum::<f64>() / (ids.len() - 1) as f64;
    std::fs::write(folder.join("text"), sentence).unwrap();
    let perplexity = ["perplexity", "-m", &model, "--device", "cpu", "-f", &text(&folder.join("text")), "--kv", "f32", "--json"];
    let got = json_of(&perplexity);
    assert_eq!(got["tokens"], ids.len() - 1);
    assert!((got["nll"].as_f64().unwrap() - expected).abs() < 1e-5, "{got} {expected}");
    assert!((got["perplexity"].as_f64().unwrap() - expected.exp()).abs() < 1e-2, "{got}");
    // Windows of 4 predictions start afresh: the first is a text of its own.
    let first = run("first", &["--ids", &ids[..4].iter().map(u32::to_string).collect::<Vec<_>>().join(",")]);
    let second = run("second", &["--ids", &ids[4..6].iter().map(u32::to_string).collect::<Vec<_>>().join(",")]);
    let rows = first.iter().chain(&second).zip(&ids[1..]);
    let expected = rows.map(|(row, &id)| nll(row, id)).sum::<f64>() / 6.0;
    let got = json_of(&[&perplexity[..], &["--context", "4", "--max-tokens", "6"]].concat());
    assert_eq!(got["tokens"], 6);
    assert!((got["nll"].as_f64().unwrap() - expected).abs() < 1e-5, "{got} {expected}");
}

#[test]
fn what_needs_no_tokenizer_works_without_one() {
    let folder = folder("cli", "plain");
    let plain = model(&folder, false);
    let gguf = text(&folder.join("plain.gguf"));
    stdout_of(&["convert", &plain, "-o", &gguf, "--quant", "q4_0"]);
    stdout_of(&["logits", "-m", &gguf, "--ids", "1,2", "-o", &text(&folder.join("out")), "--device", "cpu"]);
    let inspected = json_of(&["inspect", "-m", &gguf, "--json"]);
    assert_eq!(inspected["tokenizer"], false);
    assert_eq!(inspected["config"]["hidden_size"], 32);
    assert_eq!(inspected["parameters"], 2 * VOCAB * 32 + 4 * 32 * 32 + 2 * 32 + 2 + 3 * 64 * 32 + 3 * 32);
    let head = inspected["tensors"].as_array().unwrap().iter().find(|tensor| tensor["name"] == "output.weight").unwrap();
    assert_eq!((&head["type"], &head["shape"]), (&json!("Q4_0"), &json!([VOCAB, 32])));
    assert_eq!(head["bytes"], VOCAB * 18);
    assert!(inspected["quantization"]["Q4_0"]["parameters"].as_u64().unwrap() > 20_000);
    assert!(stdout_of(&["inspect", "-m", &plain]).contains("tokenizer: no"));
}

#[test]
fn devices_and_check_run_here() {
    let devices = json_of(&["devices", "--json"]);
    assert!(devices["adapters"].is_array() && devices["auto"].is_string());
    assert!(stdout_of(&["devices"]).contains("cpu"));
    assert!(stdout_of(&["check", "--device", "cpu"]).contains("agree"));
    assert_fails(2, &["device", "twin"], &["check", "--device", "twin"]);
    // Errors name alternatives, and so they are known here: each alone, in the place of the kernel that it stands for.
    assert_fails(2, &["matvec", "matvec_sub", "got matvec_subs"], &["check", "matvec_subs", "--device", "cpu"]);
    if common::gpu_expected() {
        assert_fails(2, &["compared on this device", "matvec_sub"], &["check", "matvec_sub", "--device", "gpu", "--baseline"]);
        let offered = devices["adapters"].as_array().unwrap().iter().any(|adapter| adapter.to_string().contains("subgroups"));
        if offered {
            let lines = stdout_of(&["check", "matvec_sub", "--device", "gpu"]);
            let kernels: Vec<_> = lines.lines().filter(|line| line.contains("nmse")).collect();
            assert!(kernels.len() == 1 && kernels[0].starts_with("matvec (others)"), "{lines}");
        }
    }
}

#[test]
fn a_run_is_checked_dispatch_by_dispatch_where_there_is_a_gpu() {
    let folder = folder("cli", "checked");
    let (model, out) = (model(&folder, true), text(&folder.join("logits.safetensors")));
    let generate = ["generate", "-m", &model, "-p", "hello", "-n", "2", "--temp", "0", "--check", "--device"];
    let logits = ["logits", "-m", &model, "--ids", "1,2,3", "-o", &out, "--check", "--device"];
    for arguments in [&generate[..], &logits] {
        assert_fails(2, &["check", "GPU"], &[arguments, &["cpu"]].concat());
    }
    if common::gpu_expected() {
        let (_, said) = succeeds(&[&generate[..], &["gpu", "--baseline"]].concat());
        assert!(said.contains("dispatches agree with their twins") && said.contains("check: the worst: "), "{said}");
    }
}

/// A real model's sums cancel more than those of made-up numbers, and a device with features takes other kernels.
#[cfg(kitfox_demo)]
#[test]
fn a_run_of_a_real_model_is_checked_with_every_feature_and_without() {
    if !common::gpu_expected() {
        return;
    }
    for features in [&[][..], &["--baseline"]] {
        for temperature in ["0", "0.8"] {
            let generate =
                ["generate", "-p", "It was", "-n", "4", "--temp", temperature, "--seed", "1", "--check", "--device", "gpu"];
            let (_, said) = succeeds(&[&generate[..], features].concat());
            assert!(said.contains("dispatches agree with their twins"), "{said}");
        }
    }
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let folder = folder("cli", "pipe");
    let model = model(&folder, true);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kitfox"));
    command.args(["generate", "-m", &model, "--device", "cpu", "-p", "a", "-n", "60", "--ignore-eos"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(kitfox_demo)]
#[test]
fn without_a_model_the_embedded_one_tells_a_story() {
    let story = stdout_of(&[]);
    assert!(story.starts_with("Once upon a time, in a little village by the sea,") && story.len() > 200, "{story}");
    let greedy = json_of(&["generate", "-p", "Once upon a time,", "-n", "3", "--temp", "0", "--device", "cpu", "--json"]);
    assert_eq!(greedy["prompt_ids"][0], 0, "the demo model's BOS");
    assert_eq!(greedy["tokens"], 3);
}

#[cfg(not(kitfox_demo))]
#[test]
fn without_an_embedded_model_a_line_says_how_to_give_one() {
    for arguments in [&[][..], &["generate", "-p", "a"]] {
        assert_fails(1, &["demo model", "-m"], arguments);
    }
}
