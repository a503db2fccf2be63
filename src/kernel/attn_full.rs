//! o_i = Σ_j softmax_j(q_i·k_j/√h + λ_i − λ_j) v_j over a whole sequence at once, for the encoder family's layer: over all keys, or
//! over keys j ≤ i (`CAUSAL`). For j > i the difference is positive, as the layer's authors wrote it: far later keys win.
//!
//! Tiles of keys and values go through workgroup memory, the softmax is online: no buffer grows with tokens². In λ_i − λ_j the
//! first term is the same for all keys of a query and cancels; shader and `fast` take the last key that the query sees in its place, so
//! that what is large is rounded only where its weight is 0.

use super::attention::lambda;
use super::{dot, forget_sum, inputs, parallel};
use crate::graph::{
    Args, BindingDecl, BufferId, Case, Compare, Elem, Expect, Extent, Grid, Kernel, Program, Recorder, Role, Step, Tolerance,
    Variant,
};

/// `proj: [tokens, stride]` (q, k, v of d columns each) and `lam: [tokens, n_heads]` to `o: [tokens, n_heads · HEAD_DIM]`.
pub static ATTN_FULL: Kernel = Kernel {
    name: "attn_full",
    wgsl: wgsl!("attn_full"),
    bindings: &[
        BindingDecl::read("proj", Elem::F32x4),
        BindingDecl::read("lam", Elem::U32x2),
        BindingDecl::write("o", Elem::F32x4),
    ],
    params: &["stride", "n_heads", "scale"],
    flags: &["CAUSAL"],
    consts: &["HEAD_DIM", "TILE"],
    twin,
    fast: Some(fast),
    cases,
    ..Kernel::PLAIN
};

/// o is a mean of values up to 2, so it moves by 2·δ when the scores move by δ: an f32 dot product of up to 128 terms, a rounded
/// difference near 20 (2e-6; beyond, p is 0) and an exponential of up to 3 + 2·20 units give δ up to 5e-6.
const TOLERANCE: Tolerance = Tolerance { nmse: 1e-11, max_abs: 1e-5 };

/// Queries of a workgroup; the shader has the same.
const QUERIES: u32 = 64;

/// Widest head: two tiles of 16 keys fill 16 KiB of workgroup memory.
pub const MAX_HEAD_DIM: usize = 128;

/// Whether the kernel is made for heads of this width.
pub fn takes_head_dim(head_dim: usize) -> bool {
    head_dim.is_multiple_of(4) && (4..=MAX_HEAD_DIM).contains(&head_dim)
}

/// Records it for the step's tokens; `stride` is a multiple of 4.
pub fn record(
    r: &mut Recorder<'_>,
    (n_heads, head_dim, causal): (usize, usize, bool),
    proj: BufferId,
    stride: usize,
    lam: BufferId,
    o: BufferId,
) {
    assert!(takes_head_dim(head_dim) && stride.is_multiple_of(4), "heads of {head_dim}, rows of {stride} floats");
    let variant = Variant::new().flag_if(causal, "CAUSAL").constant("HEAD_DIM", head_dim as u32);
    let variant = variant.constant("TILE", (2048 / head_dim as u32).min(64));
    let bindings = [proj, lam, o].map(|buffer| r.whole(buffer));
    let scale = (1.0 / (head_dim as f64).sqrt()) as f32;
    let params = [stride as u32, n_heads as u32, scale.to_bits()];
    r.dispatch(&ATTN_FULL, variant, &bindings, &params, Grid::xy(Extent::Tokens { per: QUERIES }, Extent::Fixed(n_heads as u32)));
}

/// λ_j − λ_i = Λ_i − Λ_j of two fixed-point numbers in two's complement.
fn difference(a: u64, b: u64) -> f64 {
    a.wrapping_sub(b) as i64 as f64 / (1u64 << 32) as f64
}

fn twin(args: &mut Args<'_>) {
    let (stride, n_heads, h) = (args.param("stride"), args.param("n_heads"), args.constant("HEAD_DIM"));
    let (scale, causal, d) = (f64::from(args.param_f32("scale")), args.has("CAUSAL"), n_heads * h);
    let (proj, lam, o) = (args.take_f32("proj"), args.take("lam"), args.take_f32("o"));
    let n_tokens = args.step.n_tokens as usize;
    for head in 0..n_heads {
        let row = |t: usize, part: usize| &proj[t * stride + part * d + head * h..][..h];
        for i in 0..n_tokens {
            let seen = if causal { i + 1 } else { n_tokens };
            let score = |j: usize| {
                let dot: f64 = row(i, 0).iter().zip(row(j, 1)).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                dot * scale + difference(lambda::read(lam, j * n_heads + head), lambda::read(lam, i * n_heads + head))
            };
            let scores: Vec<f64> = (0..seen).map(score).collect();
            let top = scores.iter().copied().fold(f64::MIN, f64::max);
            let total: f64 = scores.iter().map(|score| (score - top).exp()).sum();
            for c in 0..h {
                let sum: f64 = scores.iter().enumerate().map(|(j, score)| (score - top).exp() * f64::from(row(j, 2)[c])).sum();
                o[i * d + head * h + c] = (sum / total) as f32;
            }
        }
    }
}

/// Queries that a core takes at a time.
const QUERIES_PER_TASK: usize = 16;

fn fast(args: &mut Args<'_>) {
    let (stride, n_heads, h) = (args.param("stride"), args.param("n_heads"), args.constant("HEAD_DIM"));
    let (scale, causal, d) = (args.param_f32("scale"), args.has("CAUSAL"), n_heads * h);
    let (proj, lam, o) = (&*args.take_f32("proj"), &*args.take("lam"), args.take_f32("o"));
    let n_tokens = args.step.n_tokens as usize;
    let tasks = parallel::map_ranges(n_tokens, QUERIES_PER_TASK, |queries| {
        let mut out = vec![0.0; queries.len() * d];
        for (i, out) in queries.zip(out.chunks_exact_mut(d)) {
            for (head, out) in out.chunks_exact_mut(h).enumerate() {
                let row = |t: usize, part: usize| &proj[t * stride + part * d + head * h..][..h];
                let last = if causal { i } else { n_tokens - 1 };
                let (query, base) = (row(i, 0), lambda::read(lam, last * n_heads + head));
                let rise = |j: usize| difference(lambda::read(lam, j * n_heads + head), base) as f32;
                let mut scores: Vec<f32> = (0..=last).map(|j| dot::dot(query, row(j, 1)) * scale + rise(j)).collect();
                let top = scores.iter().copied().fold(f32::MIN, f32::max);
                let mut total = 0.0;
                for score in &mut scores {
                    *score = (*score - top).exp();
                    total += *score;
                }
                for (j, p) in scores.iter().enumerate().filter(|(_, p)| **p > 0.0) {
                    for (out, v) in out.iter_mut().zip(row(j, 2)) {
                        *out += p / total * v;
                    }
                }
            }
        }
        out
    });
    for (to, from) in o.chunks_mut(QUERIES_PER_TASK * d).zip(tasks) {
        to[..from.len()].copy_from_slice(&from);
    }
}

fn cases() -> Vec<Case> {
    // Middle and spread of the gates before their sigmoid.
    let case = |(n_heads, head_dim, causal, (middle, spread), tokens): (usize, usize, bool, (f32, f32), usize)| {
        let (d, rows) = (n_heads * head_dim, tokens + 1); // room for a token more than the step has
        let stride = (3 * d + n_heads).next_multiple_of(4);
        let mut program = Program::default();
        let proj = program.buffer("proj", rows * stride, Role::Input);
        let lam = program.buffer("lam", rows * n_heads * 2, Role::Input);
        let o = program.buffer("o", rows * d, Role::Output);
        let mut r = program.record("attn_full");
        record(&mut r, (n_heads, head_dim, causal), proj, stride, lam, o);
        r.finish();
        let (mut sums, mut words) = (vec![0u64; n_heads], vec![0; tokens * n_heads * 2]);
        for (at, unit) in inputs::floats(51, tokens * n_heads, spread).into_iter().enumerate() {
            let sum = &mut sums[at % n_heads];
            *sum = sum.wrapping_add(forget_sum::forgotten(f64::from(unit + middle)));
            lambda::write(&mut words, at, *sum);
        }
        let mode = if causal { "decoder" } else { "encoder" };
        Case {
            name: format!("{mode} heads={n_heads} head_dim={head_dim} gates={middle}±{spread} tokens={tokens}"),
            program,
            contents: vec![(proj, inputs::words(52, tokens * stride, 2.0)), (lam, words)],
            step: Step { n_tokens: tokens as u32, ..Step::default() },
            expect: vec![Expect { buffer: o, compare: Compare::F32(TOLERANCE) }],
        }
    };
    const SOFT: (f32, f32) = (4.6, 1.0);
    const HARD: (f32, f32) = (-2.7, 1.0);
    const EITHER: (f32, f32) = (0.0, 60.0);
    const NOTHING: (f32, f32) = (60.0, 1.0);
    let shapes = [
        (2, 16, SOFT, 1),
        (3, 4, HARD, 65),
        (2, 64, SOFT, 130),
        (1, 128, EITHER, 70),
        (2, 48, HARD, 33),
        (2, 32, NOTHING, 64),
        (2, 100, SOFT, 17),
    ];
    [false, true]
        .into_iter()
        .flat_map(|causal| shapes.map(|(heads, dim, gates, n)| case((heads, dim, causal, gates, n))))
        .collect()
}
