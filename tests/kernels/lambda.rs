//! λ over a long context (docs/model.md, section 1): gates as trained heads have them, 100,032 tokens. Chunks of any size give the same bits, and
//! D = λ_i − λ_j is right within 1e-5 + 1e-6·|D| for pairs up to 32 pages apart, on the CPU and on every adapter at hand.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic, also in its helpers")]

use crate::common;
use kitfox::gpu;
use kitfox::graph::{BufferId, GraphId, Program, Role, Step, cpu};
use kitfox::kernel::attention::cases::scrambled_pages;
use kitfox::kernel::attention::{Heads, Kv, PAGE, Proj, Vectors, lambda};
use kitfox::kernel::{forget_gate, inputs};
use pollster::block_on;

const HEADS: Heads = Heads { n_heads: 3, n_kv_heads: 3, head_dim: 16, n_layers: 2, layer: 1 };
const N_TOKENS: usize = 1563 * PAGE;

/// z = w·x before its bias, `[N_TOKENS, n_heads]`: a head that forgets hard (−log f about 2.8), one that forgets softly (about
/// 0.01), and one that saturates.
fn gates() -> Vec<f32> {
    let noise = inputs::floats(5, 3 * N_TOKENS, 1.0);
    let head = |[hard, soft, saturated]: [f32; 3]| [-2.8 + 2.0 * hard, 4.6 + soft, if saturated < -0.9 { -60.0 } else { 60.0 }];
    noise.as_chunks().0.iter().flat_map(|row| head(*row)).collect()
}

const BIASES: [f32; 3] = [0.07, -0.03, 0.0];

struct Chain {
    program: Program,
    graph: GraphId,
    proj: BufferId,
    kv: Kv,
    table: Vec<u32>,
    contents: Vec<(BufferId, Vec<u32>)>,
}

/// The forget gate of one layer, for chunks of up to `chunk` tokens.
fn chain(chunk: usize) -> Chain {
    let mut program = Program::default();
    let max_pages = N_TOKENS / PAGE;
    let table = scrambled_pages(&HEADS, max_pages);
    let rows = (max_pages * HEADS.n_heads + 1) * PAGE;
    let kv = Kv {
        k_pages: program.buffer("k_pages", 1, Role::State),
        v_pages: program.buffer("v_pages", 1, Role::State),
        lam_pages: program.buffer("lam_pages", 2 * rows, Role::Output),
        page_table: program.buffer("page_table", table.len(), Role::Input),
        f16: true,
        max_pages,
        window: None,
        prune: None,
    };
    let proj = program.buffer("proj", chunk * HEADS.n_heads, Role::Input);
    let bias = program.buffer("bias", HEADS.n_heads, Role::Weight);
    let columns = Proj { stride: HEADS.n_heads, q: 0, k: 0, v: 0, gate: None, f: Some(0), k_shift: None, v_shift: None };
    let vectors =
        Vectors { buffer: bias, q_norm: None, k_norm: None, f_bias: Some(0), f_table: None, out_norm: None, rope: None };
    let mut r = program.record("gates");
    forget_gate::record(&mut r, &HEADS, proj, &columns, &vectors, &kv);
    let graph = r.finish();
    let contents = vec![(kv.page_table, table.clone()), (bias, bytemuck::cast_slice(&BIASES).to_vec())];
    Chain { program, graph, proj, kv, table, contents }
}

/// Calls `feed(words of proj, step)` for every chunk.
fn feed(z: &[f32], chunk: usize, mut feed: impl FnMut(&[u32], &Step)) {
    for (ix, rows) in z.chunks(chunk * HEADS.n_heads).enumerate() {
        let n_tokens = (rows.len() / HEADS.n_heads) as u32;
        feed(bytemuck::cast_slice(rows), &Step { pos: (ix * chunk) as u32, n_tokens, ..Step::default() });
    }
}

impl Chain {
    /// Λ by head and position.
    fn lams(&self, words: &[u32], n_tokens: usize) -> Vec<Vec<u64>> {
        let slot = |position: usize, head: usize| {
            let at = (position / PAGE * HEADS.n_layers + HEADS.layer) * HEADS.n_heads + head;
            self.table[at] as usize * PAGE + position % PAGE
        };
        let head = |head| (0..n_tokens).map(|position| lambda::read(words, slot(position, head))).collect();
        (0..HEADS.n_heads).map(head).collect()
    }
}

fn on_cpu(z: &[f32], chunk: usize) -> Vec<Vec<u64>> {
    let chain = chain(chunk);
    let mut executor = cpu::Executor::new(&chain.program, false);
    chain.contents.iter().for_each(|(buffer, words)| executor.write(*buffer, 0, words));
    feed(z, chunk, |words, step| {
        executor.write(chain.proj, 0, words);
        executor.replay(chain.program.graph(chain.graph), step, true);
    });
    chain.lams(executor.read(chain.kv.lam_pages), z.len() / HEADS.n_heads)
}

fn on_gpu(gpu: gpu::Gpu, z: &[f32], chunk: usize) -> Vec<Vec<u64>> {
    let chain = chain(chunk);
    let executor = block_on(gpu::Executor::new(gpu, &chain.program)).unwrap();
    chain.contents.iter().for_each(|(buffer, words)| executor.write(*buffer, 0, words));
    feed(z, chunk, |words, step| {
        executor.write(chain.proj, 0, words);
        executor.replay(chain.graph, step, true).unwrap();
    });
    let words = chain.program.get(chain.kv.lam_pages).words;
    chain.lams(&block_on(executor.read(chain.kv.lam_pages, 0, words)).unwrap(), z.len() / HEADS.n_heads)
}

/// D of pairs up to 32 pages apart, as the kernels take it, against sums in f64.
fn check_differences(z: &[f32], lams: &[Vec<u64>], by: &str) {
    for (head, lams) in lams.iter().enumerate() {
        let mut sum = 0.0;
        let exact: Vec<f64> = z[head..]
            .iter()
            .step_by(HEADS.n_heads)
            .map(|z| f64::from(*z) + f64::from(BIASES[head]))
            .map(|z| (-z).max(0.0) + (-z.abs()).exp().ln_1p())
            .map(|m| {
                sum += m;
                sum
            })
            .collect();
        let mut worst: f64 = 0.0;
        for i in (0..lams.len()).step_by(61).chain([lams.len() - 1]) {
            for j in (i.saturating_sub(32 * PAGE)..=i).rev().step_by(13) {
                let (got, want) = (f64::from((lams[i] - lams[j]) as f32 * 2f32.powi(-32)), exact[i] - exact[j]);
                worst = worst.max((got - want).abs() / (1e-5 + 1e-6 * want));
            }
        }
        println!("{by}: head {head}: Λ reaches {sum:.1}, |error of D| at most {worst:.3} of what is allowed");
        assert!(worst <= 1.0, "{by}: head {head}");
    }
}

#[test]
fn differences_of_lambda_stay_exact_over_100_032_tokens_in_any_chunks() {
    let z = gates();
    let one_by_one = on_cpu(&z, 1);
    check_differences(&z, &one_by_one, "cpu");
    for chunk in [7, 64, 512] {
        assert!(on_cpu(&z, chunk) == one_by_one, "chunks of {chunk} give other bits");
    }
}

#[test]
fn a_gpu_keeps_lambda_as_exact() {
    let z = gates();
    for gpu in common::gpus() {
        let name = gpu.info().name.clone();
        let whole = on_gpu(gpu.clone(), &z, 512);
        check_differences(&z, &whole, &name);
        let n_tokens = 2000;
        let part: Vec<&[u64]> = whole.iter().map(|lams| &lams[..n_tokens]).collect();
        for chunk in [1, 7, 64, 100] {
            assert!(on_gpu(gpu.clone(), &z[..n_tokens * HEADS.n_heads], chunk) == part, "{name}: chunks of {chunk}");
        }
    }
}
