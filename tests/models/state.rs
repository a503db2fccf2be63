//! Promises of what a sequence holds: however it came about, by chunks, steps, marks, ways back, forks and saved bytes in any order, it is
//! what a fresh run of its tokens gives; what slid away is masked and nothing else; prompts of any length and vocabularies of any size.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic, also in its helpers")]

use crate::common;
use crate::common::golden;
use crate::common::tiny::Tiny;
use crate::common::tokenizers;
use kitfox::Error;
use kitfox::session::{DeviceChoice, FinishReason, GenerateOptions, Generation, KvType, LoadOptions, Model};
use kitfox::session::{Overflow, Pruning, SamplerOptions, Sequences};
use pollster::block_on;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

fn devices() -> Vec<DeviceChoice> {
    let gpu = common::gpu_expected().then_some(DeviceChoice::Gpu);
    [DeviceChoice::Cpu].into_iter().chain(gpu).collect()
}

fn load(folder: &Path, options: LoadOptions) -> Model {
    let checkpoint = block_on(kitfox::format::open(folder)).unwrap();
    block_on(Model::load(checkpoint, options, &mut |_| Ok(()))).unwrap()
}

fn folder(test: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("state").join(test)
}

/// A golden model that reads and writes text: a token for each of the first bytes, and no other.
fn golden_with_bytes(case: &str) -> PathBuf {
    let (from, to) = (golden::directory(case), folder(case));
    std::fs::create_dir_all(&to).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
    let config: Value = serde_json::from_str(&std::fs::read_to_string(from.join("config.json")).unwrap()).unwrap();
    let size = config["vocab_size"].as_u64().unwrap() as u32;
    let shown = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut others = 256..;
    let letters =
        (0..256).map(|byte| char::from_u32(if shown(byte) { byte } else { others.next().unwrap() }).unwrap().to_string());
    let tokens = std::iter::once("<|endoftext|>".to_owned()).chain(letters).take(size as usize);
    let vocab: Map<String, Value> = tokens.zip(0u32..).map(|(token, id)| (token, id.into())).collect();
    std::fs::write(to.join("vocab.json"), Value::Object(vocab).to_string()).unwrap();
    std::fs::write(to.join("merges.txt"), "#version: 0.2\n").unwrap();
    to
}

fn furthest(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    got.iter().zip(want).map(|(got, want)| (got - want).abs()).fold(0.0, f32::max)
}

/// What may be done with sequences, each by small numbers that are taken modulo what there is.
#[derive(Clone, Debug)]
enum Act {
    Append { n: usize, first: u32 },
    Answer { n: usize, seed: u64 },
    Rewind { to: usize },
    Mark,
    Fork,
    Turn { to: usize },
    SaveAndRestore,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (1usize..150, 0u32..199).prop_map(|(n, first)| Act::Append { n, first }),
        3 => (1usize..12, any::<u64>()).prop_map(|(n, seed)| Act::Answer { n, seed }),
        3 => any::<usize>().prop_map(|to| Act::Rewind { to }),
        2 => Just(Act::Mark),
        1 => Just(Act::Fork),
        2 => any::<usize>().prop_map(|to| Act::Turn { to }),
        1 => Just(Act::SaveAndRestore),
    ];
    prop::collection::vec(act, 8..14)
}

fn read(all: &mut Sequences, model: &mut Model, number: u32) -> kitfox::Result<()> {
    loop {
        let (done, total) = block_on(all.read(model, number))?;
        if done == total {
            return Ok(());
        }
    }
}

/// Does them all; gives the tokens of the last sequence and the logits behind them.
fn walk(model: &mut Model, acts: &[Act]) -> (Vec<u32>, Vec<f32>) {
    const MOST: usize = 700;
    let mut all = Sequences::default();
    let mut numbers = vec![all.open()];
    let mut now = numbers[0];
    all.append(model, now, &[3, 1, 4]).unwrap();
    for act in acts {
        let there = all.ids(now).unwrap().len();
        match act {
            Act::Append { n, first } if there + n < MOST => {
                let ids: Vec<u32> = (0..*n as u32).map(|ix| (first + ix * ix * 7) % 199).collect();
                all.append(model, now, &ids).unwrap();
                read(&mut all, model, now).unwrap();
            }
            Act::Answer { n, seed } if there > 0 && there + n < MOST => {
                let sampler = SamplerOptions { seed: *seed, temperature: 1.5, ..SamplerOptions::default() };
                let options = GenerateOptions { max_tokens: *n, sampler, ignore_eos: true, ..GenerateOptions::default() };
                let mut answer = block_on(all.generate(model, now, options)).unwrap();
                while block_on(answer.next(model)).unwrap().is_some() {}
                let ids = answer.generated_ids().to_vec();
                all.append(model, now, &ids).unwrap();
            }
            Act::Rewind { to } => all.rewind(now, 1 + to % there).unwrap(),
            Act::Mark => drop(block_on(all.mark(model, now)).unwrap()),
            Act::Fork if numbers.len() < 3 => {
                now = block_on(all.fork(model, now)).unwrap();
                numbers.push(now);
            }
            Act::Turn { to } => now = numbers[to % numbers.len()],
            Act::SaveAndRestore => {
                let bytes = block_on(all.save(model, now)).unwrap();
                block_on(all.restore(model, now, &bytes)).unwrap();
            }
            Act::Append { .. } | Act::Answer { .. } | Act::Fork => {}
        }
    }
    // All but the last are read, which an answer would begin with.
    all.append(model, now, &[9]).unwrap();
    read(&mut all, model, now).unwrap();
    let ids = all.ids(now).unwrap().to_vec();
    assert_eq!(model.pos(), ids.len() - 1);
    let logits = block_on(model.step(9)).unwrap();
    (ids, logits)
}

/// What each part of a sequence's state asks for: pruning with norms, shifts, grouped keys, windows, rotation. ε is small enough for
/// what is forgotten to stay under the bar.
const CASES: [(&str, Option<f64>); 5] = [
    ("fox_pro", Some(1e-6)),
    ("fox_pro_pruned", None),
    ("fla_gqa_norm_gate", None),
    ("fla_window_bias", None),
    ("fox_rope", None),
];

fn any_way_to_a_sequence_is_a_fresh_run(device: DeviceChoice, n_walks: u32) {
    for (case, epsilon) in CASES {
        let prune = epsilon.map_or(Pruning::Model, Pruning::Epsilon);
        let options = LoadOptions { device, prune, kv: KvType::F32, context: Some(1024), chunk: Some(64), ..Default::default() };
        let mut model = load(&golden_with_bytes(case), options);
        let mut runner = TestRunner::new_with_rng(
            Config { cases: n_walks, failure_persistence: None, ..Config::default() },
            proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
        );
        let model = std::cell::RefCell::new(&mut model);
        let outcome = runner.run(&acts(), |acts| {
            let model = &mut **model.borrow_mut();
            let (ids, got) = walk(model, &acts);
            model.reset();
            block_on(model.read(&ids[..ids.len() - 1])).unwrap();
            let want = block_on(model.step(9)).unwrap();
            let off = furthest(&got, &want);
            prop_assert!(off < 2e-4, "{} tokens, off by {:.1e}", ids.len(), off);
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{case} on {device:?}: {error}"));
    }
}

#[test]
fn any_way_to_a_sequence_is_a_fresh_run_on_the_cpu() {
    any_way_to_a_sequence_is_a_fresh_run(DeviceChoice::Cpu, 16);
}

#[test]
fn any_way_to_a_sequence_is_a_fresh_run_on_the_gpu() {
    if common::gpu_expected() {
        any_way_to_a_sequence_is_a_fresh_run(DeviceChoice::Gpu, 2);
    }
}

/// A model of bytes whose context holds a prompt of `context` tokens.
fn bytes_model(test: &str, device: DeviceChoice, context: usize, overflow: Overflow) -> Model {
    let folder = Tiny::new(Some(tokenizers::byte_level())).write(&folder(&format!("{test} {device:?} {overflow:?}")));
    load(&folder, LoadOptions { device, overflow, context: Some(context), chunk: Some(64), ..LoadOptions::default() })
}

#[test]
fn prompts_of_no_token_one_and_about_the_context_end_as_documented() {
    const CONTEXT: usize = 192;
    let options = |max_tokens| GenerateOptions { max_tokens, ignore_eos: true, ..GenerateOptions::default() };
    for device in devices() {
        for overflow in [Overflow::Error, Overflow::Slide] {
            let mut model = bytes_model("prompts", device, CONTEXT, overflow);
            let empty = Generation::behind(&model, Vec::new(), options(1)).err();
            assert!(matches!(&empty, Some(Error::Argument { .. })), "{empty:?}");
            for n in [1, CONTEXT - 1, CONTEXT, CONTEXT + 1, 10 * CONTEXT] {
                let ids: Vec<u32> = (0..n as u32).map(|ix| ix * 37 % 256).collect();
                let answer = Generation::behind(&model, ids, options(3));
                // With one token of room an answer may begin; it ends where the context does.
                if n >= CONTEXT && overflow == Overflow::Error {
                    let error = answer.err();
                    let full = matches!(&error, Some(Error::ContextFull { available: CONTEXT, needed }) if *needed > n);
                    assert!(full, "{device:?} {n}: {error:?}");
                    continue;
                }
                let mut answer = answer.unwrap();
                while block_on(answer.next(&mut model)).unwrap().is_some() {}
                model.reset();
                let (want, finish) = match (n, overflow) {
                    (1, _) | (_, Overflow::Slide) => (3, FinishReason::Length),
                    _ => (1, FinishReason::Context),
                };
                assert_eq!((answer.generated_ids().len(), answer.finish()), (want, Some(&finish)), "{device:?} {overflow:?} {n}");
            }
        }
    }
}

/// More ids than 16 bits count, and more rows than a grid has workgroups on one axis.
#[test]
fn a_vocabulary_of_70_001_ends_in_the_same_logits_and_ids_on_every_device() {
    const VOCAB: usize = 70_001;
    let mut tiny = Tiny::new(Some(tokenizers::byte_level()));
    tiny.config["vocab_size"] = VOCAB.into();
    tiny.tensors.retain(|(name, ..)| !name.contains("embeddings") && !name.contains("lm_head"));
    tiny.random("model.embeddings.weight", &[VOCAB, 32], 1.0);
    tiny.random("lm_head.weight", &[VOCAB, 32], 0.5);
    let folder = tiny.write(&folder("vocabulary"));
    let runs: Vec<_> = devices()
        .into_iter()
        .map(|device| {
            let options = LoadOptions { device, kv: KvType::F32, context: Some(64), chunk: Some(16), ..LoadOptions::default() };
            let mut model = load(&folder, options);
            let ids = [70_000, 65_535, 65_536, 0, 69_999];
            let logits = block_on(model.prefill(&ids, true)).unwrap().unwrap();
            let answer = |model: &mut Model, sampler: SamplerOptions| {
                let options = GenerateOptions { max_tokens: 12, sampler, ignore_eos: true, ..GenerateOptions::default() };
                let mut answer = Generation::behind(model, ids.to_vec(), options).unwrap();
                while block_on(answer.next(model)).unwrap().is_some() {}
                model.reset();
                answer.generated_ids().to_vec()
            };
            model.reset();
            let drawn = answer(&mut model, SamplerOptions { seed: 5, ..SamplerOptions::default() });
            let biased = SamplerOptions { temperature: 0.0, logit_bias: vec![(70_000, 1e3)], ..SamplerOptions::default() };
            assert_eq!(answer(&mut model, biased), [70_000; 12], "{device:?}");
            (logits, drawn)
        })
        .collect();
    for (logits, drawn) in &runs {
        assert_eq!(logits.len(), VOCAB);
        assert!(furthest(logits, &runs[0].0) < 1e-4);
        assert_eq!(*drawn, runs[0].1);
    }
}
