//! λ in a session of thousands of tokens: exactly the sum of its gates, as integers, however the tokens came.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{self, golden};
use kitfox::kernel::attention::{PAGE, lambda};
use kitfox::session::{DeviceChoice, KvType, LoadOptions, Model, Pruning};
use pollster::block_on;
use std::collections::HashMap;

const CASE: &str = "fox_llama";
/// Ids that are told apart: each has a gate of its own in the first layer, which sees nothing but the token.
const IDS: u32 = 13;
const TILE: usize = 64;

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Λ of the first layer, `[tokens, H]`, out of a saved session (src/session/snapshot.rs) of a model without shifts whose pages never die.
fn lambdas(model: &mut Model) -> Vec<Vec<u64>> {
    const HEADER: usize = 11;
    let config = model.config().clone();
    let saved = words(&block_on(model.save(&[])).unwrap());
    let (n_tokens, n_ids) = (saved[9] as usize, saved[10] as usize);
    assert_eq!((n_tokens, n_ids), (model.pos(), model.pos()));
    assert!(!config.k_shift && !config.v_shift && config.n_heads == config.n_kv_heads);
    let columns = n_tokens.div_ceil(PAGE);
    let at = HEADER + n_ids + 2 * columns * config.n_heads * PAGE * config.head_dim;
    let page = |column: usize, head: usize| &saved[at + (column * config.n_heads + head) * 2 * PAGE..][..2 * PAGE];
    (0..n_tokens).map(|t| (0..config.n_heads).map(|head| lambda::read(page(t / PAGE, head), t % PAGE)).collect()).collect()
}

#[test]
fn lambda_is_the_sum_of_its_gates_in_integers_after_thousands_of_tokens() {
    let gpu = common::gpu_expected().then_some((DeviceChoice::Gpu, 2048));
    for (device, n_tokens) in [(DeviceChoice::Cpu, 6016)].into_iter().chain(gpu) {
        let options = LoadOptions {
            device,
            kv: KvType::F32,
            prune: Pruning::Off,
            context: Some(n_tokens + PAGE),
            chunk: Some(TILE),
            ..LoadOptions::default()
        };
        let checkpoint = block_on(kitfox::format::open(&golden::directory(CASE))).unwrap();
        let mut model = block_on(Model::load(checkpoint, options, &mut |_| Ok(()))).unwrap();
        // By id, and whether it came alone: what a token's gate is at the start of a text. Chunk and token are other kernels, which may
        // round z otherwise.
        let mut gates: HashMap<(u32, bool), Vec<u64>> = HashMap::new();
        for id in 0..IDS {
            for alone in [false, true] {
                model.reset();
                if alone {
                    block_on(model.step(id)).unwrap();
                } else {
                    block_on(model.prefill(&[id; TILE], false)).unwrap();
                }
                gates.insert((id, alone), lambdas(&mut model)[0].clone());
            }
        }
        model.reset();
        let mut came = Vec::new();
        while came.len() + TILE + 3 < n_tokens {
            let from = came.len() as u32;
            let ids: Vec<u32> = (from..from + TILE as u32).map(|t| (t.wrapping_mul(2_654_435_761) >> 7) % IDS).collect();
            block_on(model.prefill(&ids, false)).unwrap();
            came.extend(ids.iter().map(|id| (*id, false)));
            for id in [from % IDS, (from + 5) % IDS, 7] {
                block_on(model.step(id)).unwrap();
                came.push((id, true));
            }
        }
        let got = lambdas(&mut model);
        let mut sums = vec![0u64; got[0].len()];
        for (t, (key, got)) in came.iter().zip(&got).enumerate() {
            sums.iter_mut().zip(&gates[key]).for_each(|(sum, gate)| *sum += gate);
            assert_eq!(got, &sums, "{device:?}: Λ of token {t}, {key:?}");
        }
        println!("{device:?}: {} tokens, Λ up to {:.1}", came.len(), lambda::value(*sums.iter().max().unwrap()));
    }
}
