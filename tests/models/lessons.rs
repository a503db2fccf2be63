//! Reports to the trackers of other programs about models at work (tests/README.md has the table), each under its symptom.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic, also in its helpers")]

use crate::common::tiny::{Tiny, VOCAB};
use crate::common::{self, golden, tokenizers};
use crate::slide::Reference;
use kitfox::Error;
use kitfox::format::{Quant, TensorType};
use kitfox::session::load::random;
use kitfox::session::{
    DeviceChoice, FinishReason, GenerateOptions, Generation, KvType, LoadOptions, Model, Pruning, SamplerOptions,
};
use pollster::block_on;
use serde_json::json;
use std::path::Path;

fn tiny(test: &str, spoil: impl FnOnce(&mut Tiny), options: LoadOptions) -> Model {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lessons").join(test);
    let mut tiny = Tiny::new(Some(tokenizers::byte_level()));
    tiny.config["training_context"] = json!(512);
    spoil(&mut tiny);
    let checkpoint = block_on(kitfox::format::open(&tiny.write(&folder))).unwrap();
    block_on(Model::load(checkpoint, options, &mut |_| Ok(()))).unwrap()
}

fn on(device: DeviceChoice) -> LoadOptions {
    LoadOptions { device, chunk: Some(64), ..LoadOptions::default() }
}

fn devices() -> Vec<DeviceChoice> {
    let gpu = common::gpu_expected().then_some(DeviceChoice::Gpu);
    [DeviceChoice::Cpu].into_iter().chain(gpu).collect()
}

/// tracel-ai/models#64: WebGPU's grids have 65,535 workgroups an axis. Logits of 70,001 rows and of so many that
/// their workgroups are more, of one token and of several. (A text of 65,536
/// tokens is read in tests/kernels/long_context.rs.)
#[test]
fn more_work_than_65535_workgroups_of_an_axis_is_all_done() {
    if !common::gpu_expected() {
        return;
    }
    [70_001, 1_048_700].into_iter().for_each(all_logits_are_there);
}

fn all_logits_are_there(vocab: usize) {
    let config = json!({
        "model_type": "forgetting_transformer-project_fox", "vocab_size": vocab, "hidden_size": 16, "num_hidden_layers": 1,
        "num_heads": 1, "intermediate_size": 32,
    });
    let run = |device| {
        let checkpoint = random(config.as_object().unwrap().clone(), Quant::plain(TensorType::F16), 1).unwrap();
        let options =
            LoadOptions { device, chunk: Some(3), context: Some(64), kv: KvType::F32, scores: true, ..LoadOptions::default() };
        let mut model = block_on(Model::load(checkpoint, options, &mut |_| Ok(()))).unwrap();
        let first = block_on(model.score(&common::ids(3, vocab))).unwrap();
        (first, block_on(model.step(vocab as u32 - 1)).unwrap())
    };
    let (got, want) = (run(DeviceChoice::Gpu), run(DeviceChoice::Cpu));
    assert_eq!(got.0.len(), 3 * vocab);
    for (got, want) in [(&got.0, &want.0), (&got.1, &want.1)] {
        let off = golden::worst(got, want);
        assert!(off < golden::BAR && want.iter().any(|logit| logit.abs() > 0.1), "off by {off:.1e}");
    }
}

/// Likewise a prompt of more tokens than that: whatever its chunks, the same logits behind it.
#[test]
fn a_prompt_of_70000_tokens_is_read_to_its_end() {
    if !common::gpu_expected() {
        return;
    }
    let read = |device, chunk| {
        let checkpoint = block_on(kitfox::format::open(&golden::directory("fox_pro_pruned"))).unwrap();
        let options = LoadOptions {
            device,
            chunk: Some(chunk),
            context: Some(70_080),
            kv: KvType::F32,
            prune: Pruning::Epsilon(1e-5),
            ..LoadOptions::default()
        };
        let mut model = block_on(Model::load(checkpoint, options, &mut |_| Ok(()))).unwrap();
        let mut last = None;
        for ids in common::ids(70_000, 199).chunks(chunk) {
            last = block_on(model.prefill(ids, true)).unwrap();
        }
        last.unwrap()
    };
    let off = golden::worst(&read(DeviceChoice::Gpu, 1024), &read(DeviceChoice::Cpu, 512));
    assert!(off < golden::BAR, "off by {off:.1e}");
}

/// onnxruntime#31626, of a whole model: a channel of ±800 goes through every norm. Each token's logits, behind the one layer that there is,
/// against f64; on the GPU each dispatch against its twin, too.
#[test]
fn an_outlier_channel_is_finite_and_right_in_every_layer() {
    let outlier = |tiny: &mut Tiny| {
        let rows = &mut tiny.tensors[0].2;
        let d = rows.len() / VOCAB;
        for (row, values) in rows.chunks_exact_mut(d).enumerate() {
            values[5] = if row % 2 == 0 { 800.0 } else { -800.0 };
        }
    };
    let ids = common::ids(90, VOCAB);
    let mut reference = Tiny::new(None);
    outlier(&mut reference);
    let mut reference = Reference::new(&reference);
    let want: Vec<f32> = ids.iter().flat_map(|id| reference.step(*id, 0)).map(|logit| logit as f32).collect();
    for device in devices().into_iter().chain([DeviceChoice::Twin]) {
        let options = LoadOptions { kv: KvType::F32, scores: true, ..on(device) };
        let mut model = tiny(&format!("outlier {device:?}"), outlier, options);
        let by_chunks = golden::worst(&golden::by_chunks(&mut model, &ids), &want);
        let by_steps = golden::worst(&golden::by_steps(&mut model, &ids), &want);
        println!("{device:?}: off by {by_chunks:.1e}, {by_steps:.1e}");
        assert!(by_chunks.max(by_steps) < golden::BAR, "{device:?}: off by {by_chunks:.1e}, {by_steps:.1e}");
        if device == DeviceChoice::Gpu {
            model.watch().unwrap();
            golden::by_chunks(&mut model, &ids[..70]);
            golden::by_steps(&mut model, &ids[..3]);
            assert!(model.watched().unwrap().dispatches() > 20);
        }
    }
}

/// llama.cpp#8106: a kernel for short prompts that nobody tried. Every length to 70, and those around the tiles.
#[test]
fn a_prompt_of_any_length_gives_the_logits_of_its_tokens_one_by_one() {
    let lengths: Vec<usize> = (1..=70).chain(127..=130).chain(191..=194).chain(255..=258).collect();
    let cases = ["fox_pro", "fla_gqa_norm_gate", "head_dim_128"];
    for (device, case) in devices().into_iter().flat_map(|device| cases.map(|case| (device, case))) {
        let options = LoadOptions { kv: KvType::F32, context: Some(320), chunk: Some(128), ..on(device) };
        let open = || block_on(kitfox::format::open(&golden::directory(case))).unwrap();
        let mut model = block_on(Model::load(open(), options, &mut |_| Ok(()))).unwrap();
        let ids = common::ids(258, model.vocab());
        let lengths = if case == "head_dim_128" { &lengths[..12] } else { &lengths[..] };
        // In software a GPU takes its time: one of the cases has all lengths.
        let lengths = if device == DeviceChoice::Gpu && case != "fox_pro" { &lengths[..10] } else { lengths };
        let by_steps: Vec<Vec<f32>> =
            ids[..*lengths.last().unwrap()].iter().map(|id| block_on(model.step(*id)).unwrap()).collect();
        for n in lengths {
            model.reset();
            let (last, before) =
                ids[..*n].chunks(128).collect::<Vec<_>>().split_last().map(|(last, before)| (*last, before.to_vec())).unwrap();
            for chunk in before {
                block_on(model.prefill(chunk, false)).unwrap();
            }
            let logits = block_on(model.prefill(last, true)).unwrap().unwrap();
            let off = golden::worst(&logits, &by_steps[n - 1]);
            assert!(off < golden::BAR, "{device:?}, {case}, {n} tokens: off by {off:.1e}");
        }
    }
}

/// llama.cpp#28527, #12396, tenstorrent/vllm#415: a prompt of which a part was read before, saved and restored, at every place.
#[test]
fn a_cached_prefix_gives_the_answer_of_a_fresh_prompt() {
    let gpu = common::gpu_expected().then_some((DeviceChoice::Gpu, "fox_pro", 80));
    for (device, case, n) in
        [(DeviceChoice::Cpu, "fox_pro", 80), (DeviceChoice::Cpu, "fla_window_bias", 70)].into_iter().chain(gpu)
    {
        let options = LoadOptions { kv: KvType::F32, context: Some(128), ..on(device) };
        let open = || block_on(kitfox::format::open(&golden::directory(case))).unwrap();
        let mut model = block_on(Model::load(open(), options.clone(), &mut |_| Ok(()))).unwrap();
        let mut other = block_on(Model::load(open(), options, &mut |_| Ok(()))).unwrap();
        let ids = common::ids(n, model.vocab());
        let best = |logits: &[f32]| (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
        let whole = |model: &mut Model, ids: &[u32]| {
            let mut logits = None;
            for chunk in ids.chunks(64) {
                logits = block_on(model.prefill(chunk, true)).unwrap();
            }
            logits.unwrap()
        };
        let fresh = whole(&mut model, &ids);
        // In software a GPU takes its time: around the ends of pages, and some.
        let is_tried = |cut: &usize| device != DeviceChoice::Gpu || cut.is_multiple_of(9) || (62..=66).contains(cut);
        for cut in (1..n).filter(is_tried) {
            model.reset();
            block_on(model.read(&ids[..cut])).unwrap();
            let saved = block_on(model.save(&[])).unwrap();
            block_on(other.restore(&saved)).unwrap();
            for model in [&mut model, &mut other] {
                let logits = whole(model, &ids[cut..]);
                let off = golden::worst(&logits, &fresh);
                assert!(off < golden::BAR && best(&logits) == best(&fresh), "{device:?}, {case}, cut at {cut}: off by {off:.1e}");
            }
        }
    }
}

/// forgetting-transformer 2026-02-25, transformers#46773: the shift of a token at the edge of a chunk. Keys and values of both layers, with
/// either shift, out of the saved session.
#[test]
fn keys_and_values_are_the_same_whatever_the_chunk() {
    for device in devices() {
        let options = |chunk| LoadOptions { kv: KvType::F32, context: Some(256), chunk: Some(chunk), ..on(device) };
        let saved = |chunk: usize| {
            let checkpoint = block_on(kitfox::format::open(&golden::directory("fox_pro"))).unwrap();
            let mut model = block_on(Model::load(checkpoint, options(chunk), &mut |_| Ok(()))).unwrap();
            for ids in common::ids(100, model.vocab()).chunks(chunk) {
                block_on(model.prefill(ids, false)).unwrap();
            }
            let (config, bytes) = (model.config().clone(), block_on(model.save(&[])).unwrap());
            let words = |range: std::ops::Range<usize>| -> Vec<f32> {
                bytes[4 * range.start..4 * range.end].chunks_exact(4).map(|w| f32::from_le_bytes(w.try_into().unwrap())).collect()
            };
            // src/session/snapshot.rs: 11 words and the ids; by layer shift rows, keys and values of two pages, Λ.
            let (shift, kv, lam) = (2 * config.kv_width(), 2 * 2 * 64 * config.kv_width(), 2 * 64 * 2 * config.n_heads);
            let layer = |ix: usize| 11 + 100 + ix * (shift + kv + lam);
            assert_eq!(bytes.len() / 4, layer(config.n_layers) + 2, "the layout of a saved session");
            (0..config.n_layers).flat_map(|ix| words(layer(ix)..layer(ix) + shift + kv)).collect::<Vec<f32>>()
        };
        let want = saved(64);
        assert!(want.iter().filter(|value| value.abs() > 0.01).count() > want.len() / 4);
        for chunk in [1, 2, 3, 7, 100] {
            let off = golden::worst(&saved(chunk), &want);
            println!("{device:?}, chunks of {chunk}: keys and values off by {off:.1e}");
            // Lavapipe gives the same bits, too; another driver may fuse products and sums otherwise.
            let most = if device == DeviceChoice::Cpu { 0.0 } else { 1e-5 };
            assert!(off <= most, "{device:?}, chunks of {chunk}: off by {off:.1e}");
        }
    }
}

/// wllama#118, #130: what is empty, and what is too long, has a documented end.
#[test]
fn prompts_of_nothing_of_the_context_and_of_ten_times_it_end_as_documented() {
    const CONTEXT: usize = 64;
    let mut model = tiny("lengths", |tiny| tiny.config["training_context"] = json!(CONTEXT), on(DeviceChoice::Cpu));
    let options = |max_tokens| GenerateOptions {
        max_tokens,
        ignore_eos: true,
        sampler: SamplerOptions { temperature: 0.0, ..SamplerOptions::default() },
        ..GenerateOptions::default()
    };
    let mut run = |prompt: &str, max_tokens| {
        let mut generation = Generation::new(&model, prompt, options(max_tokens))?;
        while block_on(generation.next(&mut model))?.is_some() {}
        Ok::<_, Error>((generation.generated_ids().len(), generation.finish().unwrap().clone()))
    };
    // BOS and the prompt's letters, one token each; of the last token drawn nothing is read.
    let letters = |n: usize| "a".repeat(n);
    for (prompt, max_tokens, n) in
        [(letters(1), 1, 1), ("<|end|>".into(), 3, 3), (letters(10), 5, 5), (letters(CONTEXT - 2), 1, 1)]
    {
        assert_eq!(run(&prompt, max_tokens).unwrap(), (n, FinishReason::Length), "{} bytes, {max_tokens}", prompt.len());
    }
    for max_tokens in [1000, usize::MAX] {
        let (n, finish) = run(&letters(10), max_tokens).unwrap();
        assert!((CONTEXT - 11..=CONTEXT - 10).contains(&n) && finish != FinishReason::Eos, "{n} {finish:?}");
    }
    assert!(matches!(run("", 1), Err(Error::Argument { .. })), "nothing is no prompt");
    assert_eq!(run(&letters(10), 0).unwrap(), (0, FinishReason::Length), "the prompt is read, and that is all");
    for n in [CONTEXT - 1, CONTEXT, CONTEXT + 1, 10 * CONTEXT, 1000 * CONTEXT] {
        let refused = run(&letters(n), 1);
        assert!(matches!(refused, Err(Error::ContextFull { available: CONTEXT, needed }) if needed == n + 2), "{n}: {refused:?}");
    }
    assert_eq!(run(&letters(2), 2).unwrap().0, 2, "usable after");
}
