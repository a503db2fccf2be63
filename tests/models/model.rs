//! Promises of a loaded model: nothing is created between two tokens, six dispatches a layer, bad input leaves it usable.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic, also in its helpers")]

use crate::common;
use kitfox::Error;
use kitfox::session::{Device, DeviceChoice, KvType, LoadOptions, Model};
use std::path::PathBuf;

fn load(case: &str, options: LoadOptions) -> Result<Model, Error> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden").join(case);
    pollster::block_on(async { Model::load(kitfox::format::open(&directory).await?, options, &mut |_| Ok(())).await })
}

fn step(model: &mut Model, id: u32) -> Vec<f32> {
    pollster::block_on(model.step(id)).unwrap()
}

/// Between two tokens no buffer, bind group or pipeline is created, and at most four writes are made (the step, the id, and
/// every 64 tokens the page table).
#[test]
fn nothing_is_created_between_two_tokens() {
    if !common::gpu_expected() {
        return;
    }
    let mut model = load("fox_pro", LoadOptions { device: DeviceChoice::Gpu, context: Some(256), ..Default::default() }).unwrap();
    step(&mut model, 1);
    let counters = |model: &Model| match model.device() {
        Device::Gpu(gpu) => gpu.counters(),
        Device::Cpu(_) => unreachable!("a GPU was asked for"),
    };
    for id in 0..150 {
        let before = counters(&model);
        step(&mut model, id % 199);
        let after = counters(&model);
        assert_eq!(
            (after.buffers, after.bind_groups, after.pipelines),
            (before.buffers, before.bind_groups, before.pipelines),
            "token {id}"
        );
        assert!(after.writes - before.writes <= 4, "token {id}: {} writes", after.writes - before.writes);
        assert_eq!(after.dispatches - before.dispatches, model.dispatches_per_token() as u64);
    }
}

#[test]
fn a_token_costs_six_dispatches_a_layer_and_two_beside() {
    for case in ["fox_llama", "fox_pro", "head_dim_128"] {
        let model = load(case, LoadOptions { device: DeviceChoice::Cpu, ..Default::default() }).unwrap();
        assert_eq!(model.dispatches_per_token(), 6 * model.config().n_layers + 2, "{case}");
    }
}

/// Every refusal is typed, and the sequence goes on as if it had not been asked.
#[test]
fn a_refused_call_leaves_the_sequence_as_it_was() {
    let options = LoadOptions { device: DeviceChoice::Cpu, context: Some(70), chunk: Some(16), ..Default::default() };
    let mut model = load("fox_pro", options.clone()).unwrap();
    let mut fresh = load("fox_pro", options).unwrap();
    for id in 0..70 {
        let refused = pollster::block_on(model.step(199)).unwrap_err();
        assert!(matches!(refused, Error::Argument { .. }), "{refused}");
        let refused = pollster::block_on(model.prefill(&[], true)).unwrap_err();
        assert!(matches!(refused, Error::Argument { .. }), "{refused}");
        let refused = pollster::block_on(model.prefill(&[1; 17], true)).unwrap_err();
        assert!(matches!(refused, Error::Argument { .. }), "{refused}");
        if id > 60 {
            let refused = pollster::block_on(model.prefill(&[1; 16], true)).unwrap_err();
            assert!(matches!(refused, Error::ContextFull { available: 70, .. }), "{refused}");
        }
        assert_eq!(step(&mut model, id), step(&mut fresh, id), "token {id}");
    }
    assert!(matches!(pollster::block_on(model.step(1)), Err(Error::ContextFull { needed: 71, available: 70 })));
    assert!(matches!(pollster::block_on(model.score(&[1])), Err(Error::Argument { .. })), "loaded without scores");
    model.reset();
    fresh.reset();
    assert_eq!(step(&mut model, 5), step(&mut fresh, 5));
}

#[test]
fn a_context_or_chunk_that_cannot_be_is_refused_before_any_weight_is_read() {
    for (context, chunk) in [(Some(0), None), (Some((1 << 18) + 1), None), (None, Some(0)), (None, Some(4097))] {
        let refused =
            load("fox_pro", LoadOptions { context, chunk, device: DeviceChoice::Cpu, ..Default::default() }).err().unwrap();
        assert!(matches!(refused, Error::Argument { .. }), "{refused}");
    }
    // 2^18 tokens of 256 channels in f32: 256 MiB of keys a layer.
    let options = LoadOptions { context: Some(1 << 18), kv: KvType::F32, device: DeviceChoice::Cpu, ..Default::default() };
    let refused = load("head_dim_128", options).err().unwrap();
    assert!(matches!(refused, Error::OutOfMemory { bytes: 0x1000_0000, .. }), "{refused}");
    assert!(refused.to_string().contains("at most 134217728 bytes; a context of at most 131072 tokens fits"), "{refused}");
    let options = LoadOptions { context: Some(1 << 17), kv: KvType::F32, device: DeviceChoice::Cpu, ..Default::default() };
    assert!(load("head_dim_128", options).is_ok());
}

/// An f16 cache rounds keys and values by 2^-11; the logits follow the f32 ones closely, and differ.
#[test]
fn an_f16_cache_is_close_to_an_f32_cache() {
    let options = |kv| LoadOptions { kv, device: DeviceChoice::Cpu, context: Some(256), ..Default::default() };
    let (mut half, mut full) = (load("fox_pro", options(KvType::F16)).unwrap(), load("fox_pro", options(KvType::F32)).unwrap());
    let mut worst = 0f32;
    for id in 0..150 {
        let (a, b) = (step(&mut half, id % 199), step(&mut full, id % 199));
        worst = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(worst, f32::max);
    }
    assert!(worst > 0.0 && worst < 2e-2, "{worst:e}");
}

/// Every buffer fits in a binding, all together in no memory: a sentence, not the end of the process.
#[test]
fn a_context_for_which_the_system_has_no_memory_is_refused_with_the_bytes() {
    let overcommits = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.trim() == "1");
    if overcommits {
        println!("vm.overcommit_memory is 1: this system refuses no memory");
        return;
    }
    let config = serde_json::json!({
        "model_type": "forgetting_transformer-project_fox", "vocab_size": 64, "hidden_size": 128, "hidden_ratio": 1.0,
        "num_hidden_layers": 4000, "num_heads": 2
    });
    let serde_json::Value::Object(config) = config else { panic!("an object") };
    let checkpoint = kitfox::session::load::random(config, "q8_0".parse().unwrap(), 1).unwrap();
    let options = LoadOptions { context: Some(1 << 18), kv: KvType::F32, device: DeviceChoice::Cpu, ..LoadOptions::default() };
    let refused = pollster::block_on(Model::load(checkpoint, options, &mut |_| Ok(()))).err().unwrap();
    assert!(matches!(refused, Error::OutOfMemory { bytes: 1_000_000_000_000.., .. }), "{refused}");
    let advice = "keys and values of a context of 262144 tokens take ";
    assert!(refused.to_string().contains(advice), "{refused}");
}
