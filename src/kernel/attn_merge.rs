//! The splits of `attn_decode` become the attention's output, through the per-head output norm and the output gate.
//!
//! o = Σ_s w_s·sum_s / Σ_s w_s·total_s with w_s = exp(top_s − highest); a split of no weight (w = 0) adds nothing.

use super::attention::cases::{Fixture, Gates};
use super::attention::{GateAct, Heads, Kv, MAX_SPLITS, PAGE, PARTIAL_HEAD, Proj, Vectors, head_dim_variant, prune};
use crate::graph::compare::GUARD;
use crate::graph::{Args, BindingDecl, BufferId, Case, Compare, Elem, Extent, Grid, Kernel, Recorder, Step, Tolerance};
use crate::kernel::{inputs, page_ends};

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
    cases,
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

/// What is special about a case.
#[derive(Clone, Copy, Debug)]
struct Special {
    head_dim: usize,
    n_splits: usize,
    act: Option<GateAct>,
    norm: bool,
    /// Group of heads, gates, position and τ.
    prune: Option<(usize, Gates, usize, f32)>,
}

fn cases() -> Vec<Case> {
    let plain = |head_dim, n_splits, act, norm| Special { head_dim, n_splits, act, norm, prune: None };
    let pruned = |group, gates, pos, tau| Special {
        prune: Some((group, gates, pos, tau)),
        ..plain(32, 3, (pos % 2 == 0).then_some(GateAct::Sigmoid), group == 1)
    };
    let all = [
        plain(16, 1, None, false),
        plain(32, 2, Some(GateAct::Silu), false),
        plain(64, 7, Some(GateAct::Sigmoid), true),
        plain(64, 1, Some(GateAct::Sigmoid), false),
        plain(128, MAX_SPLITS, None, true),
        // A page is completed, or not; no, some and many pages die at once.
        pruned(1, Gates::Soft, 0, 1.0),
        pruned(1, Gates::Soft, 63, 1.0),
        pruned(2, Gates::Soft, 64, 0.2),
        pruned(2, Gates::Soft, 255, 0.5),
        pruned(3, Gates::Hard, 300, 200.0),
        pruned(1, Gates::Hard, 64 * 70 + 5, 1.0),
        pruned(2, Gates::Saturated, 447, 1.0),
    ];
    all.map(case).into()
}

fn case(special: Special) -> Case {
    let Special { head_dim, n_splits, act, norm, prune } = special;
    let (group, gates, pos, tau) = prune.unwrap_or((1, Gates::Soft, 0, 0.0));
    let heads = Heads { n_heads: 3 * group, n_kv_heads: 3, head_dim, n_layers: 1, layer: 0 };
    let n_keys = if prune.is_some() { pos + 1 } else { 0 };
    let mut fixture = Fixture::new(heads, true, gates, n_keys, pos + 1);
    let (proj, mut columns) = fixture.proj(1);
    let mut vectors = fixture.vectors(0);
    if prune.is_some() {
        fixture.prune(&vectors, tau, pos / PAGE * PAGE);
    }
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
    let pos = pos as u32;
    let n_splits = n_splits as u32;
    let step = Step { pos, n_tokens: 1, n_splits, pages_per_split: 1, shift_in: 7, shift_out: 8, ..Step::default() };
    let kv = fixture.kv;
    let mut expect = vec![(o, Compare::F32(TOLERANCE))];
    if prune.is_some() {
        expect.extend([(kv.lam_pages, Compare::Fixed64(page_ends::ENDS)), (kv.page_table, Compare::Exact)]);
    }
    fixture.case(format!("{special:?}"), step, &expect, |r| {
        let (columns, vectors, act) = (&columns, &vectors, act.unwrap_or(GateAct::Sigmoid));
        AttnMerge { heads: &heads, partials, proj, columns, vectors, eps: 1e-6, act, kv: &kv, o }.record(r);
    })
}
