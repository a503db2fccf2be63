//! Attention at the end of 65,536 tokens, against f64: gates that forget hard (λ reaches −190,000, where one f32 step is 0.016),
//! softly, and by saturated numbers. The bar is 1e-3 on logits, here 32 products of the attention's output with random rows.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic, also in its helpers")]

use crate::common;
use kitfox::gpu;
use kitfox::graph::{BufferId, GraphId, Program, Role, Step, cpu};
use kitfox::kernel::Rows;
use kitfox::kernel::attention::cases::scrambled_pages;
use kitfox::kernel::attention::{GateAct, Heads, Kv, MAX_SPLITS, PAGE, Proj, Vectors};
use kitfox::kernel::attn_decode::AttnDecode;
use kitfox::kernel::attn_merge::AttnMerge;
use kitfox::kernel::{attn_prefill, forget_gate, inputs, kv_append};
use pollster::block_on;

const HEADS: Heads = Heads { n_heads: 3, n_kv_heads: 3, head_dim: 16, n_layers: 1, layer: 0 };
const D: usize = 48;
const STRIDE: usize = 3 * D + 3;
const N_TOKENS: usize = 65_536;
/// Tokens of a replay that only fills the pages, and of the one whose attention is compared.
const FILL: usize = 4096;
const LAST: usize = 64;
const N_LOGITS: usize = 32;
const BAR: f64 = 1e-3;

/// q, k, v and z of every token, `[N_TOKENS, STRIDE]`.
fn projection() -> Vec<f32> {
    let mut rows = inputs::floats(3, N_TOKENS * STRIDE, 2.0);
    for row in rows.chunks_exact_mut(STRIDE) {
        let [hard, soft, saturated] = [0, 1, 2].map(|head| row[3 * D + head] / 2.0);
        row[3 * D..].copy_from_slice(&[-2.8 + 2.0 * hard, 4.6 + soft, if saturated < -0.9 { -60.0 } else { 60.0 }]);
    }
    rows
}

struct Layer {
    program: Program,
    fill: GraphId,
    attend: GraphId,
    decode: GraphId,
    proj: BufferId,
    o: BufferId,
    contents: Vec<(BufferId, Vec<u32>)>,
}

fn layer() -> Layer {
    let mut program = Program::default();
    let max_pages = N_TOKENS / PAGE;
    let table = scrambled_pages(&HEADS, max_pages);
    let n_keys = (max_pages * HEADS.n_kv_heads + 1) * PAGE;
    let kv = Kv {
        k_pages: program.buffer("k_pages", n_keys * HEADS.head_dim, Role::State),
        v_pages: program.buffer("v_pages", n_keys * HEADS.head_dim, Role::State),
        lam_pages: program.buffer("lam_pages", 2 * n_keys, Role::State),
        page_table: program.buffer("page_table", table.len(), Role::Input),
        f16: false,
        max_pages,
        window: None,
        prune: None,
    };
    let proj = program.buffer("proj", FILL * STRIDE, Role::Input);
    let bias = program.buffer("bias", HEADS.n_heads, Role::Weight);
    let (partials, o) =
        (program.buffer("partials", HEADS.partial_words(), Role::State), program.buffer("o", LAST * D, Role::Output));
    let columns = Proj { stride: STRIDE, q: 0, k: D, v: 2 * D, gate: None, f: Some(3 * D), k_shift: None, v_shift: None };
    let vectors =
        Vectors { buffer: bias, q_norm: None, k_norm: None, f_bias: Some(0), f_table: None, out_norm: None, rope: None };
    let [q, k, v] = [0, D, 2 * D].map(|column| Rows { buffer: proj, stride: STRIDE, column });
    let mut graph = |attends: bool| {
        let mut r = program.record("prefill");
        forget_gate::record(&mut r, &HEADS, proj, &columns, &vectors, &kv);
        kv_append::record(&mut r, &HEADS, &k, &v, &kv);
        if attends {
            attn_prefill::record(&mut r, &HEADS, &q, &kv, o);
        }
        r.finish()
    };
    let (fill, attend) = (graph(false), graph(true));
    let mut r = program.record("decode");
    let (heads, columns, vectors) = (&HEADS, &columns, &vectors);
    AttnDecode { heads, proj, columns, vectors, kv: &kv, shift_rows: proj, partials }.record(&mut r);
    AttnMerge { heads, partials, proj, columns, vectors, eps: 1e-6, act: GateAct::Sigmoid, kv: &kv, o }.record(&mut r);
    let decode = r.finish();
    let contents = vec![(kv.page_table, table), (bias, vec![0; HEADS.n_heads])];
    Layer { program, fill, attend, decode, proj, o, contents }
}

/// The replays: graph, first token, tokens. The last token comes twice: in the chunk, and decoded.
fn replays(layer: &Layer) -> Vec<(GraphId, Step)> {
    let step = |pos: usize, n_tokens: usize| Step { pos: pos as u32, n_tokens: n_tokens as u32, ..Step::default() };
    let before = N_TOKENS - LAST;
    let fills = (0..before).step_by(FILL).map(|pos| (layer.fill, step(pos, FILL.min(before - pos))));
    let pages_per_split = (N_TOKENS / PAGE).div_ceil(MAX_SPLITS) as u32;
    let decode = Step { n_splits: MAX_SPLITS as u32, pages_per_split, ..step(N_TOKENS - 1, 1) };
    fills.chain([(layer.attend, step(before, LAST)), (layer.decode, decode)]).collect()
}

fn rows<'a>(proj: &'a [f32], step: &Step) -> &'a [u32] {
    bytemuck::cast_slice(&proj[step.pos as usize * STRIDE..][..step.n_tokens as usize * STRIDE])
}

/// Running sums of log f by head: in f64, and in f32 as a runtime would that has never seen a long text.
fn lambdas(proj: &[f32], single: bool) -> Vec<Vec<f64>> {
    let log_f = |z: f64| -((-z).max(0.0) + (-z.abs()).exp().ln_1p());
    let head = |head: usize| {
        let (mut sum, mut sum32) = (0.0, 0f32);
        let z = proj.iter().skip(3 * D + head).step_by(STRIDE).map(move |z| log_f(f64::from(*z)));
        z.map(|log_f| {
            sum += log_f;
            sum32 += log_f as f32;
            if single { f64::from(sum32) } else { sum }
        })
        .collect()
    };
    (0..HEADS.n_heads).map(head).collect()
}

/// o of the token at a position, [D], from its definition.
fn attention(proj: &[f32], lambdas: &[Vec<f64>], position: usize) -> Vec<f64> {
    let h = HEADS.head_dim;
    let x = |t: usize, column: usize| f64::from(proj[t * STRIDE + column]);
    let head = |head: usize| {
        let score = |j: usize| {
            let dot: f64 = (head * h..(head + 1) * h).map(|c| x(position, c) * x(j, D + c)).sum();
            dot / (h as f64).sqrt() + lambdas[head][position] - lambdas[head][j]
        };
        let scores: Vec<f64> = (0..=position).map(score).collect();
        let top = scores.iter().copied().fold(f64::MIN, f64::max);
        let p: Vec<f64> = scores.into_iter().map(|score| (score - top).exp()).collect();
        let total: f64 = p.iter().sum();
        let mean = move |c: usize| p.iter().enumerate().map(|(j, p)| p * x(j, 2 * D + head * h + c)).sum::<f64>() / total;
        (0..h).map(mean).collect::<Vec<f64>>()
    };
    (0..HEADS.n_heads).flat_map(head).collect()
}

fn logits(o: impl Iterator<Item = f64> + Clone) -> Vec<f64> {
    let head = inputs::floats(77, N_LOGITS * D, 1.0);
    head.chunks_exact(D).map(|row| row.iter().zip(o.clone()).map(|(w, o)| f64::from(*w) * o).sum()).collect()
}

fn worst(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| if a.is_finite() { (a - b).abs() } else { f64::INFINITY }).fold(0.0, f64::max)
}

#[test]
fn a_logit_after_65536_tokens_is_that_of_f64() {
    let proj = projection();
    let exact = lambdas(&proj, false);
    let positions: Vec<usize> = (N_TOKENS - LAST..N_TOKENS).step_by(9).collect();
    assert_eq!(positions.last(), Some(&(N_TOKENS - 1)));
    let want: Vec<Vec<f64>> = positions.iter().map(|position| logits(attention(&proj, &exact, *position).into_iter())).collect();
    // The test of the test: sums in f32 are far off.
    let naive = attention(&proj, &lambdas(&proj, true), N_TOKENS - 1);
    let naive = worst(&logits(naive.into_iter()), &want[positions.len() - 1]);
    println!("λ reaches {:.0}; with an f32 sum a logit is off by {naive:.1e}", exact[0][N_TOKENS - 1]);
    assert!(naive > BAR);

    let layer = layer();
    let judge = |by: &str, prefill: &[u32], decode: &[u32]| {
        let row = |o: &[u32], t: usize| {
            logits(o[t * D..(t + 1) * D].iter().map(|word| f64::from(f32::from_bits(*word))).collect::<Vec<_>>().into_iter())
        };
        let chunk = positions.iter().zip(&want).map(|(position, want)| worst(&row(prefill, position + LAST - N_TOKENS), want));
        let (chunk, decode) = (chunk.fold(0.0, f64::max), worst(&row(decode, 0), &want[positions.len() - 1]));
        println!("{by}: off by {chunk:.1e} in a chunk, {decode:.1e} decoded");
        assert!(chunk < BAR && decode < BAR, "{by}");
    };
    for fast in [false, true] {
        let mut executor = cpu::Executor::new(&layer.program, fast);
        layer.contents.iter().for_each(|(buffer, words)| executor.write(*buffer, 0, words));
        let mut prefill = Vec::new();
        for (graph, step) in replays(&layer) {
            prefill = executor.read(layer.o).to_vec();
            executor.write(layer.proj, 0, rows(&proj, &step));
            executor.replay(layer.program.graph(graph), &step, true);
        }
        judge(if fast { "cpu" } else { "twin" }, &prefill, executor.read(layer.o));
    }
    for gpu in common::gpus() {
        let name = gpu.info().name.clone();
        let executor = block_on(gpu::Executor::new(gpu, &layer.program)).unwrap();
        layer.contents.iter().for_each(|(buffer, words)| executor.write(*buffer, 0, words));
        let mut prefill = Vec::new();
        for (graph, step) in replays(&layer) {
            if graph == layer.decode {
                prefill = block_on(executor.read(layer.o, 0, LAST * D)).unwrap();
            }
            executor.write(layer.proj, 0, rows(&proj, &step));
            executor.replay(graph, &step, true).unwrap();
        }
        judge(&name, &prefill, &block_on(executor.read(layer.o, 0, D)).unwrap());
    }
}
