//! The device's draw against the host's sampler, on 10,000 rows of the demo model's logits under random settings.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic, also in its helpers")]

use crate::common;
use crate::sampler::ranked;
use kitfox::format::random::SplitMix64;
use kitfox::gpu::Executor;
use kitfox::graph::{BufferId, GraphId, Program, Role, Step};
use kitfox::kernel::sample::{self, Options, Sample};
use kitfox::session::{DeviceChoice, LoadOptions, Model, Sampler, SamplerOptions};
use pollster::block_on;
use std::collections::BTreeSet;
use std::path::Path;

const ROWS: usize = 10_000;
/// Two draws may differ where a filter's or the draw's bound is this close, of 1, to a candidate's end.
const CUT: f64 = 1e-5;

/// Tokens of a book, and the demo model's logits after each, from four places on: near the start of a text they are other than in its middle.
fn rows(mut seen: impl FnMut(&[u32], &[f32])) -> usize {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let load = LoadOptions { device: DeviceChoice::Cpu, scores: true, ..LoadOptions::default() };
    let checkpoint = block_on(kitfox::format::open(&root.join("www/models/demo.gguf"))).unwrap();
    let mut model = block_on(Model::load(checkpoint, load, &mut |_| Ok(()))).unwrap();
    let text = include_str!("../fixtures/books/the_time_machine.txt");
    let ids = model.tokenizer("test").unwrap().encode(text).unwrap();
    let mut n = 0;
    for begin in (0..4).map(|part| part * ids.len() / 4) {
        let ids = &ids[begin..ids.len().min(begin + model.context())];
        model.reset();
        let (chunk, vocab) = (model.chunk(), model.vocab());
        for first in (0..ids.len()).step_by(chunk) {
            let end = ids.len().min(first + chunk);
            let logits = block_on(model.score(&ids[first..end])).unwrap();
            for (ix, row) in logits.chunks_exact(vocab).enumerate() {
                if n == ROWS {
                    return n;
                }
                seen(&ids[..=first + ix], row);
                n += 1;
            }
        }
    }
    n
}

fn pick<T: Copy>(random: &mut SplitMix64, of: &[T]) -> T {
    of[random.below(of.len())]
}

fn random_biases(random: &mut SplitMix64) -> Vec<(u32, f32)> {
    let (n, first) = (pick(random, &[0, 0, 1, 7, 512]), random.below(8192));
    (0..n).map(|ix| (((first + 16 * ix) % 8192) as u32, pick(random, &[-100.0, -1.5, 0.0, 2.25, 8.0]))).collect()
}

fn random_options(random: &mut SplitMix64) -> SamplerOptions {
    SamplerOptions {
        temperature: pick(random, &[0.0, 0.3, 0.8, 1.0, 1.0, 1.5, 4.0, 50.0]),
        top_k: pick(random, &[0, 0, 0, 1, 2, 40, 40, 500, 3000, 100_000]),
        top_p: pick(random, &[1.0, 1.0, 0.95, 0.9, 0.5, 0.999, 1e-3]),
        min_p: pick(random, &[0.0, 0.0, 0.05, 0.05, 0.01, 0.5, 1e-4, 1.0]),
        repeat_penalty: pick(random, &[None, Some(1.0), Some(1.3), Some(0.7)]),
        repeat_last_n: pick(random, &[64, 64, 0, 1, 5, 1000, usize::MAX]),
        seed: (random.below(1 << 30) as u64) << 31 | random.below(1 << 30) as u64,
        logit_bias: random_biases(random),
    }
}

/// Ids that the sampler may draw when each bound is moved by [`CUT`] either way: by its definition, in f64.
fn near(options: &SamplerOptions, logits: &[f32], history: &[u32], uniform: f64) -> BTreeSet<u32> {
    let ranked = ranked(options, logits, history);
    let best = ranked[0].1;
    let mut found = BTreeSet::new();
    for (p, gap, u) in [-CUT, 0.0, CUT]
        .into_iter()
        .flat_map(|p| [-CUT, 0.0, CUT].map(move |gap| (p, gap)))
        .flat_map(|(p, gap)| [-CUT, 0.0, CUT].map(move |u| (p, gap, u)))
    {
        let mut left = ranked.clone();
        if options.top_p < 1.0 {
            let total: f64 = left.iter().map(|(_, l)| (l - best).exp()).sum();
            let mut sum = 0.0;
            let n = left.iter().take_while(|(_, l)| {
                let before = sum;
                sum += (l - best).exp();
                before < (f64::from(options.top_p) + p) * total
            });
            let n = n.count().max(1);
            left.truncate(n);
        }
        left.retain(|(_, l)| l - best >= f64::from(options.min_p).ln() - gap.abs() * gap.signum() || *l == best);
        let weight = |l: f64| ((l - best) / f64::from(options.temperature)).exp();
        let total: f64 = left.iter().map(|(_, l)| weight(*l)).sum();
        let mut sum = 0.0;
        for (id, l) in &left {
            // All whose share the moved number can fall in.
            let before = sum;
            sum += weight(*l);
            if before <= (uniform + CUT) * total && sum >= (uniform + u.min(0.0)) * total {
                found.insert(*id);
            }
        }
    }
    found
}

#[test]
fn equal_logits_give_the_id_of_the_hosts_sampler() {
    for gpu in common::gpus() {
        let mut program = Program::default();
        let (vocab, context) = (8192, 4096 + 64);
        let buffers = Sample {
            logits: program.buffer("logits", vocab, Role::Output),
            ids: program.buffer("ids", context, Role::State),
            marks: program.buffer("marks", vocab, Role::State),
            options: program.buffer("options", Options::WORDS, Role::Input),
            gather: None,
        };
        let mut r = program.record("draw");
        buffers.record(&mut r);
        r.finish();
        let executor = block_on(Executor::new(gpu, &program)).unwrap();
        let mut random = SplitMix64(7);
        let (mut excused, mut told) = (0, std::time::Duration::ZERO);
        let n = rows(|history, logits| {
            let options = random_options(&mut random);
            let want = Sampler::new(options.clone()).unwrap().sample(logits, history).unwrap();
            let start = std::time::Instant::now();
            let got = draw(&executor, &buffers, &options, logits, history);
            told += start.elapsed();
            if got != want {
                let uniform = f64::from(philox(options.seed)) / 2f64.powi(32);
                let near = near(&options, logits, history, uniform);
                assert!(near.contains(&got) && near.contains(&want), "{options:?}: got {got}, want {want}, near {near:?}");
                excused += 1;
            }
        });
        println!("{n} rows, {excused} within {CUT:e} of a cut, {:.2} ms each", told.as_secs_f64() * 1e3 / n as f64);
        assert_eq!(n, ROWS);
        assert!(excused * 100 < n, "{excused} of {n} differ");
    }
}

fn draw(executor: &Executor, buffers: &Sample, options: &SamplerOptions, logits: &[f32], history: &[u32]) -> u32 {
    let n = history.len();
    let write = |buffer: BufferId, words: &[u32]| executor.write(buffer, 0, words);
    write(buffers.logits, bytemuck::cast_slice(logits));
    write(buffers.ids, history);
    write(buffers.options, &options.on_device(n).words());
    let step = Step { pos: n as u32 - 1, n_tokens: 1, ..Step::default() };
    executor.replay(GraphId(0), &step, true).unwrap();
    sample::outcome(block_on(executor.read(buffers.ids, n, 1)).unwrap()[0]).unwrap()
}

/// Random number 0 of a seed: word 0 of Philox 2x32-10.
fn philox(seed: u64) -> u32 {
    let (mut counter, mut key) = ([0, (seed >> 32) as u32], seed as u32);
    for _ in 0..10 {
        let product = u64::from(counter[0]) * 0xd256_d193;
        counter = [(product >> 32) as u32 ^ key ^ counter[1], product as u32];
        key = key.wrapping_add(0x9e37_79b9);
    }
    counter[0]
}
