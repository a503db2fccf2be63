//! Files that were changed by chance, to the end: what tests/formats/mutations tries up to the device is loaded here on the CPU, and asked
//! for four tokens. A result or a typed error; a panic or a hang fails the test.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::tiny::Tiny;
use crate::common::tokenizers;
use cpu_time::ThreadTime;
use kitfox::kernel::inputs;
use kitfox::session::{DeviceChoice, GenerateOptions, Generation, LoadOptions, Model, Overflow, SamplerOptions};
use kitfox::{Error, Result};
use pollster::block_on;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const FILES: u32 = 300;
/// Of this thread's time, for a load and four tokens; what other threads do for it takes as long at most.
const MAX_CPU: Duration = Duration::from_secs(5);

/// Numbers of one seed.
struct Chance(std::vec::IntoIter<f32>);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        let unit = f64::from(self.0.next().unwrap()) / 2.0 + 0.5;
        ((unit * n as f64) as usize).min(n - 1)
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

/// An entry that is another, gone, or new.
fn change_config(config: &mut Value, chance: &mut Chance) {
    let others = [
        json!(0),
        json!(1),
        json!(-1),
        json!(2),
        json!(3),
        json!(7),
        json!(31),
        json!(64),
        json!(65),
        json!(1_000_000_007u64),
        json!(u64::MAX),
        json!(1e-30),
        json!(1e30),
        json!(-1e300),
        json!(true),
        json!(false),
        json!(null),
        json!("full"),
        json!("fixed"),
        json!("bias_only"),
        json!("swish"),
        json!(""),
        json!([1, 2]),
        json!({}),
    ];
    let keys: Vec<String> = config.as_object().unwrap().keys().cloned().collect();
    let more = [
        "window_size",
        "num_kv_heads",
        "rope_base",
        "hidden_ratio",
        "qk_norm_share_param_across_head",
        "log_pruning_tolerance",
        "max_position_embeddings",
        "attn_bias",
        "ogate_act",
        "initializer_range",
    ];
    let key = if chance.below(5) == 0 { chance.one_of(&more).to_owned() } else { chance.one_of(&keys) };
    match chance.below(8) {
        0 => drop(config.as_object_mut().unwrap().remove(&key)),
        _ => config[key] = chance.one_of(&others),
    }
}

/// Numbers that are extreme or none, a shape that is another, a tensor that is gone or there twice.
fn change_weights(tiny: &mut Tiny, chance: &mut Chance) {
    let ix = chance.below(tiny.tensors.len());
    let (_, shape, values) = &mut tiny.tensors[ix];
    match chance.below(8) {
        0 => shape.reverse(),
        1 => *shape = vec![values.len()],
        2 => drop(tiny.tensors.remove(ix)),
        3 => tiny.tensors[ix].0 += ".twin",
        kind => {
            let extreme = [f32::NAN, f32::INFINITY, f32::MAX, 1e38, -1e30, 1e20, 1e4, 0.0, -0.0, 1e-42];
            for _ in 0..[1, 3, 64, values.len().min(300)][kind - 4] {
                let at = chance.below(values.len());
                values[at] = chance.one_of(&extreme);
            }
        }
    }
}

/// Bytes of the file itself: turned, cut off, or put behind it.
fn change_bytes(path: &Path, chance: &mut Chance) {
    let mut bytes = std::fs::read(path).unwrap();
    let header = bytes.len().min(2000);
    match chance.below(4) {
        0 => bytes.truncate(chance.below(bytes.len())),
        1 => bytes.extend([7; 13]),
        _ => {
            for _ in 0..1 + chance.below(4) {
                let (at, bit) = (chance.below(header), chance.below(8));
                bytes[at] ^= 1 << bit;
            }
        }
    }
    std::fs::write(path, bytes).unwrap();
}

fn run(folder: &Path, context: Option<usize>, overflow: Overflow) -> Result<usize> {
    let options = LoadOptions { device: DeviceChoice::Cpu, context, overflow, chunk: Some(16), ..LoadOptions::default() };
    let generated = GenerateOptions {
        max_tokens: 4,
        ignore_eos: true,
        sampler: SamplerOptions { temperature: 1.0, seed: 1, ..SamplerOptions::default() },
        ..GenerateOptions::default()
    };
    block_on(async {
        let mut model = Model::load(kitfox::format::open(folder).await?, options, &mut |_| Ok(())).await?;
        let mut story = Generation::new(&model, "hello, this is longer than a chunk", generated)?;
        while story.next(&mut model).await?.is_some() {}
        Ok(story.generated_ids().len())
    })
}

#[test]
fn a_file_that_was_changed_by_chance_gives_four_tokens_or_a_typed_error() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutated");
    let (mut ran, mut refused) = (0, std::collections::BTreeMap::<&str, usize>::new());
    for seed in 1..=FILES {
        let mut chance = Chance(inputs::floats(seed, 4096, 1.0).into_iter());
        let mut tiny = Tiny::new(Some(tokenizers::byte_level()));
        tiny.config["training_context"] = json!(512);
        let kind = chance.below(4);
        for _ in 0..1 + chance.below(3) {
            match kind {
                0 | 1 => change_config(&mut tiny.config, &mut chance),
                _ => change_weights(&mut tiny, &mut chance),
            }
        }
        tiny.write(&folder);
        if kind == 3 {
            change_bytes(&folder.join("model.safetensors"), &mut chance);
        }
        // Half of them with the context that the file states.
        let context = [None, Some(192)][chance.below(2)];
        let overflow = chance.one_of(&[Overflow::Error, Overflow::Slide]);
        let started = ThreadTime::now();
        match run(&folder, context, overflow) {
            Ok(n) => {
                assert_eq!(n, 4, "seed {seed}");
                ran += 1;
            }
            Err(error) => {
                let said = error.to_string();
                assert!(!said.is_empty() && !said.chars().any(char::is_control), "seed {seed}: {said:?}");
                assert!(!matches!(error, Error::DeviceLost(_) | Error::NoGpu(_) | Error::Aborted), "seed {seed}: {said}");
                *refused.entry(error.code()).or_default() += 1;
            }
        }
        assert!(started.elapsed() < MAX_CPU, "seed {seed} took {:?}", started.elapsed());
    }
    println!("{ran} of {FILES} gave four tokens, the others {refused:?}");
    assert!(ran > 20 && refused.values().sum::<usize>() > 100, "{ran}, {refused:?}");
}
