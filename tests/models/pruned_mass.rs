//! What pruning leaves out of the attention of the demo model, row by row in f64: never more than ε.
//!
//! `KITFOX_MASS_TEXT` names a text and `KITFOX_MASS_TOKENS` how many of its tokens (`npm run evidence prune`); else a few of a book.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic, also in its helpers")]

use half::f16;
use kitfox::graph::{Dispatch, Role, cpu};
use kitfox::kernel::attention::{PAGE, lambda};
use kitfox::kernel::parallel::map_ranges;
use kitfox::model::Pages;
use kitfox::model::evict::{Eviction, Overflow};
use kitfox::session::{Device, DeviceChoice, LoadOptions, Model};
use pollster::block_on;
use std::path::Path;

const CHUNK: usize = 128;
/// A score this far below the largest that a row can have at least counts as this.
const FLOOR: f64 = 60.0;

/// One head's keys so far: as they were stored, their Λ, and the ends of their pages.
#[derive(Default)]
struct Head {
    keys: Vec<f64>,
    lams: Vec<u64>,
    ends: Vec<u64>,
}

fn param(dispatch: &Dispatch, name: &str) -> usize {
    dispatch.params[dispatch.kernel.params.iter().position(|known| *known == name).unwrap()] as usize
}

/// Takes over what a chunk added to a head's pages.
fn collect(executor: &cpu::Executor, dispatch: &Dispatch, head: usize, seen: &mut Head, n_tokens: usize, h: usize) {
    let words = |ix: usize| executor.read(dispatch.bindings[ix].buffer);
    let (k_pages, lam_pages, table) = (words(1), words(3), words(4));
    let (n_heads, n_layers, layer) = (param(dispatch, "n_kv_heads"), param(dispatch, "n_layers"), param(dispatch, "layer"));
    let page = |column: usize| table[(column * n_layers + layer) * n_heads + head] as usize;
    for position in seen.lams.len()..n_tokens {
        let slot = page(position / PAGE) * PAGE + position % PAGE;
        let row = &k_pages[slot * h / 2..(slot + 1) * h / 2];
        seen.keys.extend(row.iter().flat_map(|w| [*w as u16, (*w >> 16) as u16]).map(|bits| f16::from_bits(bits).to_f64()));
        seen.lams.push(lambda::read(lam_pages, slot));
    }
    for column in seen.ends.len()..n_tokens / PAGE {
        seen.ends.push(lambda::read(lam_pages, param(dispatch, "ends") + page(column)));
    }
}

/// The part of row i's attention that lies in pages which are dead for it.
fn dead_mass(seen: &Head, query: &[f64], i: usize, bound: f64) -> f64 {
    let lam = seen.lams[i];
    let n_dead = PAGE * seen.ends[..i / PAGE].iter().filter(|end| **end < lam).count();
    let (mut dead, mut all) = (0.0, 0.0);
    for (j, key) in seen.keys.chunks_exact(query.len()).take(i + 1).enumerate() {
        let fall = lambda::value(lam - seen.lams[j]);
        // No score is above U, and the row's own is at least −U.
        let weight = if fall > 2.0 * bound + FLOOR {
            (bound - fall).exp()
        } else {
            (query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() - fall).exp()
        };
        all += weight;
        dead += if j < n_dead { weight } else { 0.0 };
    }
    dead / all
}

#[test]
fn no_row_misses_more_than_epsilon() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("www/models/demo.gguf");
    let options = LoadOptions { device: DeviceChoice::Cpu, context: Some(4096), chunk: Some(CHUNK), ..Default::default() };
    let model = block_on(async { Model::load(kitfox::format::open(&model).await?, options, &mut |_| Ok(())).await }).unwrap();
    let text = std::env::var("KITFOX_MASS_TEXT").map_or_else(
        |_| include_str!("../fixtures/books/the_time_machine.txt").to_owned(),
        |path| std::fs::read_to_string(path).unwrap(),
    );
    let n_tokens = std::env::var("KITFOX_MASS_TOKENS").map_or(768, |n| n.parse().unwrap());
    let mut ids = Vec::from_iter(model.bos());
    ids.extend(model.tokenizer("test").unwrap().encode(&text).unwrap());
    ids.truncate(n_tokens);
    assert_eq!(ids.len(), n_tokens, "the text is long enough");
    let (config, program) = (model.config(), model.program());
    let (n_layers, n_heads, h) = (config.n_layers, config.n_heads, config.head_dim);
    let epsilon = model.log_pruning_tolerance().unwrap().exp();
    let bounds = model.score_bounds().unwrap();

    // The model's buffers in an executor of our own, which stops in front of each attention.
    let Device::Cpu(loaded) = model.device() else { unreachable!("the CPU was asked for") };
    let mut executor = cpu::Executor::new(program, true);
    let buffers = (0..).map(kitfox::graph::BufferId).zip(&program.buffers);
    for (id, _) in buffers.clone().filter(|(_, buffer)| buffer.role != Role::Scratch) {
        executor.write(id, 0, loaded.read(id));
    }
    let buffer = |name: &str| buffers.clone().find(|(_, buffer)| buffer.name == name).unwrap().0;
    let (table, ids_buffer) = (buffer("page table"), buffer("ids"));
    let prefill = program.graphs.iter().find(|graph| graph.name == "prefill").unwrap();
    let n_columns = program.get(ids_buffer).words / PAGE;
    let mut pages = Pages::evicting(config, n_columns, 4096 / PAGE, Eviction { prune: true, overflow: Overflow::Error });

    let mut heads: Vec<Vec<Head>> = (0..n_layers).map(|_| (0..n_heads).map(|_| Head::default()).collect()).collect();
    let (mut worst, mut live) = (0.0f64, Vec::new());
    for chunk in ids.chunks(CHUNK) {
        let pos = pages.n_tokens();
        for (at, words) in pages.reserve(chunk.len()).unwrap() {
            executor.write(table, at, &words);
        }
        executor.write(ids_buffer, pos, chunk);
        let step = pages.step(chunk.len());
        for dispatch in prefill.dispatches.iter().filter(|dispatch| !dispatch.only_for_logits) {
            if dispatch.kernel.name == "attn_prefill" {
                let layer = param(dispatch, "layer");
                for (head, seen) in heads[layer].iter_mut().enumerate() {
                    collect(&executor, dispatch, head, seen, pos + chunk.len(), h);
                }
                let (stride, column) = (param(dispatch, "q_stride"), param(dispatch, "q_column"));
                let q = executor.read(dispatch.bindings[0].buffer);
                let masses = map_ranges(n_heads, 1, |range| {
                    let (head, mut worst) = (range.start, 0.0f64);
                    for t in 0..chunk.len() {
                        let row = &q[t * stride + column + head * h..][..h];
                        let query: Vec<f64> = row.iter().map(|q| f64::from(f32::from_bits(*q)) / (h as f64).sqrt()).collect();
                        worst = worst.max(dead_mass(&heads[layer][head], &query, pos + t, bounds[layer * n_heads + head]));
                    }
                    worst
                });
                worst = masses.into_iter().fold(worst, f64::max);
            }
            executor.run(dispatch, &step);
        }
        pages.advance(chunk.len());
        let (at, words) = pages.live_at();
        live = executor.read(table)[at..at + words].to_vec();
        pages.saw(pages.n_tokens(), live.clone());
    }
    let columns = n_tokens.div_ceil(PAGE);
    let n_live: usize = live.iter().map(|first| columns - *first as usize).sum();
    let live = n_live as f64 / (columns * n_layers * n_heads) as f64;
    println!("{{\"tokens\":{n_tokens},\"live\":{live},\"mass\":{worst:e},\"epsilon\":{epsilon:e}}}");
    assert!(worst <= epsilon, "a row misses {worst:e} of its attention, over {epsilon:e}");
    assert!(live < 1.0, "some page is dead");
}
