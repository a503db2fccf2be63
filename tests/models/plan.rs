//! A plan made from a header says what the load then takes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::tiny::Tiny;
use kitfox::format::{self, Checkpoint, Quant, TensorType};
use kitfox::session::load::plan::plan;
use kitfox::session::load::random;
use kitfox::session::{DeviceChoice, KvType, LoadOptions, Model};
use std::path::PathBuf;

fn checkpoint(test: &str) -> Checkpoint {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("plan").join(test);
    pollster::block_on(format::open(&Tiny::new(None).write(&folder))).unwrap()
}

fn demo() -> Checkpoint {
    pollster::block_on(format::open("www/models/demo.gguf".as_ref())).unwrap()
}

#[test]
fn a_plan_counts_the_buffers_that_the_load_makes() {
    let options = LoadOptions { device: DeviceChoice::Cpu, ..LoadOptions::default() };
    let cases = [
        LoadOptions { context: Some(64), ..options.clone() },
        LoadOptions { context: Some(1000), kv: KvType::F32, ..options.clone() },
        LoadOptions { context: Some(300), scores: true, chunk: Some(64), ..options.clone() },
        options,
    ];
    for (make, name) in [(&(|| checkpoint("counts")) as &dyn Fn() -> Checkpoint, "tiny"), (&demo, "demo")] {
        for options in &cases {
            let planned = plan(&make(), options, false).unwrap();
            let model = pollster::block_on(Model::load(make(), options.clone(), &mut |_| Ok(()))).unwrap();
            assert!(planned.refusal.is_none());
            assert_eq!(planned.device_bytes, model.bytes(), "{name} {options:?}");
            assert_eq!(planned.kv_bytes_pool, model.kv_bytes_pool(), "{name} {options:?}");
            assert_eq!((planned.context, planned.chunk), (model.context(), model.max_chunk()));
        }
    }
    let bytes = std::fs::metadata("www/models/demo.gguf").unwrap().len();
    assert_eq!(plan(&demo(), &cases[0], true).unwrap().file_bytes, bytes, "the tensors reach to the end of the file");
}

#[test]
fn what_does_not_fit_is_part_of_the_plan_and_what_cannot_be_is_an_error() {
    let asked = |context| LoadOptions { context: Some(context), ..LoadOptions::default() };
    let planned = plan(&demo(), &asked(1 << 18), true).unwrap();
    let told = planned.refusal.unwrap().to_string();
    assert!(told.contains("a context of at most") && planned.device_bytes > 1 << 30, "{told} {}", planned.device_bytes);
    assert_eq!(plan(&demo(), &asked(1 << 19), true).unwrap_err().code(), "argument");
}

/// A file of a few MB may claim the longest context: what it is given without a caller's word is bounded, and a note says so.
#[test]
fn a_context_that_a_file_merely_claims_takes_four_gigabytes_at_most() {
    let made_up = |config: serde_json::Value| {
        let serde_json::Value::Object(config) = config else { unreachable!() };
        random(config, Quant::plain(TensorType::F16), 1).unwrap()
    };
    let claims = |layers: usize, context: usize| {
        made_up(serde_json::json!({ "model_type": "forgetting_transformer-project_fox", "vocab_size": 64, "hidden_size": 64,
            "num_hidden_layers": layers, "num_heads": 1, "intermediate_size": 64, "max_position_embeddings": context }))
    };
    let windowed = serde_json::json!({ "model_type": "forgetting_transformer", "vocab_size": 64, "hidden_size": 64,
        "num_hidden_layers": 400, "num_heads": 1, "intermediate_size": 64, "max_position_embeddings": 1 << 18, "window_size": 256 });
    let options = LoadOptions { device: DeviceChoice::Cpu, ..LoadOptions::default() };
    // A window's keys are few.
    let windowed = plan(&made_up(windowed), &options, false).unwrap();
    assert!(windowed.context == 1 << 18 && windowed.kv_bytes_pool < 1 << 30, "{windowed:?}");
    let claimed = plan(&claims(400, 1 << 18), &options, false).unwrap();
    assert!(claimed.refusal.is_none() && (4096..100_000).contains(&claimed.context), "{claimed:?}");
    assert!((3 << 30..=4u64 << 30).contains(&claimed.kv_bytes_pool), "{claimed:?}");
    // Who asks has all of it, and so has a model whose context takes less.
    let asked = plan(&claims(400, 1 << 18), &LoadOptions { context: Some(1 << 18), ..options.clone() }, false).unwrap();
    assert!(asked.context == 1 << 18 && asked.kv_bytes_pool > 16 << 30, "{asked:?}");
    let load =
        |layers, context| pollster::block_on(Model::load(claims(layers, context), options.clone(), &mut |_| Ok(()))).unwrap();
    let small = load(2, 20_000);
    assert!(small.context() == 20_000 && small.context_note().is_none());
    // Nothing of it is touched before a token needs it.
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
    };
    let before = resident();
    let large = load(400, 1 << 18);
    let note = large.context_note().unwrap();
    assert!(note.contains(&format!("a context of {} tokens, not of 262144", claimed.context)), "{note}");
    let took = resident().saturating_sub(before);
    println!("{} bytes of keys and values, {took} bytes more resident", large.kv_bytes_pool());
    assert!(took < 1 << 30, "{took} bytes are resident");
}
