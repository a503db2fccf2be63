//! The splits of `attn_decode` become the attention's output, through the per-head output norm and the output gate.
//!
//! o = Σ_s w_s·sum_s / Σ_s w_s·total_s with w_s = exp(top_s − highest); a split of no weight (w = 0) adds nothing.

use super::attention::{GateAct, Heads, Kv, MAX_SPLITS, PARTIAL_HEAD, Proj, Vectors, head_dim_variant, prune};
use crate::graph::{Args, BindingDecl, BufferId, Elem, Extent, Grid, Kernel, Recorder, Tolerance};

mod cases;

/// `partials: [n_heads, MAX_SPLITS, 2 + HEAD_DIM]` to `o: [n_heads · HEAD_DIM]`.
pub static ATTN_MERGE: Kernel = Kernel {
    name: "attn_merge",
    wgsl: wgsl!("attn_merge"),
    bindings: &[
        BindingDecl::read("partials", Elem::F32),
        BindingDecl::read("proj", Elem::F32).only_if(&["GATE"]),
        BindingDecl::read("vectors", Elem::F32).only_if(&["VECTORS"]),
        BindingDecl::write("o", Elem::F32),
        BindingDecl::write("lam_pages", Elem::U32x2).only_if(&["PRUNE"]),
        BindingDecl::write("page_table", Elem::U32).only_if(&["PRUNE"]),
    ],
    params: &["gate", "out_norm", "eps", "n_kv_heads", "n_layers", "layer", "group", "live", "ends", "prune"],
    flags: &["GATE", "GATE_SILU", "VECTORS", "OUT_NORM", "PRUNE"],
    consts: &["HEAD_DIM", "MAX_SPLITS"],
    twin,
    cases: cases::cases,
    probe: Some(cases::probe),
    ..Kernel::PLAIN
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
    /// The pages, if some die: it keeps track of them.
    pub kv: &'a Kv,
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
        let prune = self.kv.prune;
        if out_norm.is_some() || prune.is_some() {
            variant = variant.flag("VECTORS").flag_if(out_norm.is_some(), "OUT_NORM").flag_if(prune.is_some(), "PRUNE");
            buffers.push(self.vectors.buffer);
        }
        buffers.push(self.o);
        let mut n_groups = self.heads.n_heads;
        if prune.is_some() {
            buffers.extend([self.kv.lam_pages, self.kv.page_table]);
            n_groups += self.heads.n_kv_heads;
        }
        let bindings: Vec<_> = buffers.into_iter().map(|buffer| r.whole(buffer)).collect();
        let mut params = vec![gate.unwrap_or(0) as u32, out_norm.unwrap_or(0) as u32, self.eps.to_bits()];
        let [live, ends] = self.kv.prune_params();
        let rest = [self.heads.group(), live, ends, prune.map_or(0, |prune| prune.tau)];
        params.extend(self.heads.table_params().into_iter().chain(rest).map(|param| param as u32));
        r.dispatch(&ATTN_MERGE, variant, &bindings, &params, Grid::x(Extent::Fixed(n_groups as u32)));
    }
}

fn twin(args: &mut Args<'_>) {
    let (h, n_splits) = (args.constant("HEAD_DIM"), args.step.n_splits as usize);
    let n_heads = args.param("n_kv_heads") * args.param("group");
    let (gate, out_norm, eps) = (args.param("gate"), args.param("out_norm"), f64::from(args.param_f32("eps")));
    let silu = args.has("GATE_SILU");
    let proj = args.has("GATE").then(|| args.take_f32("proj"));
    let vectors = args.has("VECTORS").then(|| &*args.take_f32("vectors"));
    if let Some(vectors) = vectors.filter(|_| args.has("PRUNE")) {
        let (lam_pages, page_table) = (args.take("lam_pages"), args.take("page_table"));
        prune::twin(args, vectors, lam_pages, page_table);
    }
    let vectors = vectors.filter(|_| args.has("OUT_NORM"));
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
