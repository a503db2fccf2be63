//! The splits of `attn_decode` become the attention's output, through the per-head output norm and the output gate.
//!
//! o = Σ_s w_s·sum_s / Σ_s w_s·total_s with w_s = exp(top_s − highest); a split of no weight (w = 0) adds nothing.

use super::attention::cases::{Fixture, Gates};
use super::attention::{GateAct, Heads, MAX_SPLITS, PARTIAL_HEAD, Proj, Vectors, head_dim_variant};
use crate::graph::compare::GUARD;
use crate::graph::{Args, BindingDecl, BufferId, Case, Compare, Elem, Extent, Grid, Kernel, Recorder, Step, Tolerance};
use crate::kernel::inputs;

/// `partials: [n_heads, MAX_SPLITS, 2 + HEAD_DIM]` to `o: [n_heads · HEAD_DIM]`.
pub static ATTN_MERGE: Kernel = Kernel {
    name: "attn_merge",
    wgsl: include_str!("../../shaders/attn_merge.wgsl"),
    bindings: &[
        BindingDecl::read("partials", Elem::F32),
        BindingDecl::read("proj", Elem::F32).only_if(&["GATE"]),
        BindingDecl::read("vectors", Elem::F32).only_if(&["OUT_NORM"]),
        BindingDecl::write("o", Elem::F32),
    ],
    params: &["gate", "out_norm", "eps"],
    uses_step: true,
    flags: &["GATE", "GATE_SILU", "OUT_NORM"],
    consts: &["HEAD_DIM", "MAX_SPLITS"],
    twin,
    fast: None,
    alternatives: None,
    cases,
};

/// Sums of up to 32 terms, two exponentials, a norm and a gate, of numbers up to 8.
const TOLERANCE: Tolerance = Tolerance { nmse: 1e-11, max_abs: 2e-5 };

/// The parts that the output goes through.
#[derive(Clone, Copy, Debug)]
pub struct AttnMerge<'a> {
    /// Which heads.
    pub heads: &'a Heads,
    /// What `attn_decode` left.
    pub partials: BufferId,
    /// The projection's row.
    pub proj: BufferId,
    /// Its columns; with a `gate` the output is gated.
    pub columns: &'a Proj,
    /// With an `out_norm` the output is normed first.
    pub vectors: &'a Vectors,
    /// Epsilon of that norm: the model's `norm_eps`.
    pub eps: f32,
    /// What the gate is passed through.
    pub act: GateAct,
    /// `[d]`.
    pub o: BufferId,
}

impl AttnMerge<'_> {
    /// Records it.
    pub fn record(&self, r: &mut Recorder<'_>) {
        let (gate, out_norm) = (self.columns.gate, self.vectors.out_norm);
        let mut variant = head_dim_variant(self.heads).constant("MAX_SPLITS", MAX_SPLITS as u32);
        let mut buffers = vec![self.partials];
        if gate.is_some() {
            variant = variant.flag("GATE").flag_if(self.act == GateAct::Silu, "GATE_SILU");
            buffers.push(self.proj);
        }
        if out_norm.is_some() {
            variant = variant.flag("OUT_NORM");
            buffers.push(self.vectors.buffer);
        }
        buffers.push(self.o);
        let bindings: Vec<_> = buffers.into_iter().map(|buffer| r.whole(buffer)).collect();
        let params = [gate.unwrap_or(0) as u32, out_norm.unwrap_or(0) as u32, self.eps.to_bits()];
        r.dispatch(&ATTN_MERGE, variant, &bindings, &params, Grid::x(Extent::Fixed(self.heads.n_heads as u32)));
    }
}

fn twin(args: &mut Args<'_>) {
    let (h, n_heads, n_splits) = (args.constant("HEAD_DIM"), args.groups[0] as usize, args.step.n_splits as usize);
    let (gate, out_norm, eps) = (args.param("gate"), args.param("out_norm"), f64::from(args.param_f32("eps")));
    let silu = args.has("GATE_SILU");
    let proj = args.has("GATE").then(|| args.take_f32("proj"));
    let vectors = args.has("OUT_NORM").then(|| args.take_f32("vectors"));
    let (partials, o) = (args.take_f32("partials"), args.take_f32("o"));
    for head in 0..n_heads {
        let rows: Vec<Vec<f64>> = partials[head * MAX_SPLITS * (PARTIAL_HEAD + h)..]
            .chunks_exact(PARTIAL_HEAD + h)
            .take(n_splits)
            .map(|row| row.iter().map(|x| f64::from(*x)).collect())
            .collect();
        let highest = rows.iter().map(|row| row[0]).fold(f64::MIN, f64::max);
        let weighted = |n: usize| rows.iter().map(|row| (row[0] - highest).exp() * row[n]).sum::<f64>();
        let mut merged: Vec<f64> = (0..h).map(|c| weighted(PARTIAL_HEAD + c) / weighted(1)).collect();
        if let Some(vectors) = &vectors {
            let mean = merged.iter().map(|x| x * x).sum::<f64>() / h as f64;
            for (c, x) in merged.iter_mut().enumerate() {
                *x *= f64::from(vectors[out_norm + head * h + c]) / (mean + eps).sqrt();
            }
        }
        for (c, x) in merged.into_iter().enumerate() {
            let at = head * h + c;
            let factor = proj.as_ref().map_or(1.0, |proj| GateAct::apply(silu, f64::from(proj[gate + at])));
            o[at] = (x * factor) as f32;
        }
    }
}

fn cases() -> Vec<Case> {
    let case = |(head_dim, n_splits, act, norm): (usize, usize, Option<GateAct>, bool)| {
        let heads = Heads { n_heads: 3, n_kv_heads: 3, head_dim, n_layers: 1, layer: 0 };
        let mut fixture = Fixture::new(heads, true, Gates::Soft, 0, 1);
        let (proj, mut columns) = fixture.proj(1);
        let mut vectors = fixture.vectors(0);
        if act.is_none() {
            columns.gate = None;
        }
        if !norm {
            vectors.out_norm = None;
        }
        let partials = fixture.output("partials", heads.partial_words());
        let mut words = vec![GUARD; heads.partial_words()]; // the rows of other splits are not read
        for (ix, row) in words.chunks_exact_mut(PARTIAL_HEAD + head_dim).enumerate() {
            if ix % MAX_SPLITS < n_splits {
                row.copy_from_slice(&inputs::words(ix as u32, row.len(), 20.0));
                row[1] = (f32::from_bits(row[1]).abs() + 10.0).to_bits(); // Σ p is at least 1
            }
        }
        fixture.contents.push((partials, words));
        let o = fixture.output("o", heads.d());
        let name = format!("head_dim={head_dim} splits={n_splits} {act:?} norm={norm}");
        let step = Step { n_tokens: 1, n_splits: n_splits as u32, pages_per_split: 1, ..Step::default() };
        let act = act.unwrap_or(GateAct::Sigmoid);
        fixture.case(name, step, &[(o, Compare::F32(TOLERANCE))], |r| {
            let (columns, vectors) = (&columns, &vectors);
            AttnMerge { heads: &heads, partials, proj, columns, vectors, eps: 1e-6, act, o }.record(r);
        })
    };
    let all = [
        (16, 1, None, false),
        (32, 2, Some(GateAct::Silu), false),
        (64, 7, Some(GateAct::Sigmoid), true),
        (64, 1, Some(GateAct::Sigmoid), false),
        (128, MAX_SPLITS, None, true),
    ];
    all.map(case).into()
}
