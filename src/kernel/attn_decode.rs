//! Attention of one token, its keys split among workgroups: partial sums for `attn_merge`.
//!
//! One dispatch does what takes prefill nine: the shift of k and v, the norms and the rotation of q and k, the forget gate, the
//! append and the attention. What it stores is what `token_shift`, `rms_norm`, `rope`, `forget_gate` and `kv_append` would store,
//! and the new key counts as it was rounded, so that a token sees the same numbers whichever way it comes in. Every split computes the query and
//! Λ_t anew: cheaper than a dispatch. The partial row of (head, split) is its maximum, Σ p and Σ p·v.

use super::attention::pages::read_row;
use super::attention::prologue::Prologue;
use super::attention::{
    Heads, Kv, MAX_SPLITS, PAGE, PARTIAL_HEAD, Proj, QK_NORM_EPS, Vectors, fast, forget_flag, forget_params, head_dim_variant,
    lambda,
};
use crate::graph::{Args, BindingDecl, BufferId, Elem, Extent, Grid, Kernel, Recorder, Tolerance};

mod cases;

/// One row of the stacked projection and the pages to `partials: [n_heads, MAX_SPLITS, 2 + HEAD_DIM]`.
pub static ATTN_DECODE: Kernel = Kernel {
    name: "attn_decode",
    wgsl: wgsl!("attn_decode"),
    bindings: &[
        BindingDecl::read("proj", Elem::F32),
        BindingDecl::read("vectors", Elem::F32).only_if(&["VECTORS"]),
        BindingDecl::write("k_pages", Elem::U32x4),
        BindingDecl::write("v_pages", Elem::U32x4),
        BindingDecl::write("lam_pages", Elem::U32x2),
        BindingDecl::read("page_table", Elem::U32),
        BindingDecl::write("shift_rows", Elem::F32).only_if(&["SHIFT"]),
        BindingDecl::write("partials", Elem::F32),
    ],
    params: &[
        "n_kv_heads",
        "n_layers",
        "layer",
        "group",
        "q",
        "k",
        "v",
        "f",
        "k_shift",
        "v_shift",
        "q_norm",
        "k_norm",
        "f_bias",
        "period",
        "rope",
        "window",
        "live",
        "scale",
        "qk_eps",
    ],
    flags: &[
        "VECTORS", "SHIFT", "K_SHIFT", "V_SHIFT", "QK_NORM", "ROPE", "F_FULL", "F_BIAS", "F_TABLE", "F_NONE", "KV_F16", "PRUNE",
    ],
    consts: &["HEAD_DIM", "MAX_SPLITS"],
    twin,
    fast: Some(fast::decode),
    cases: cases::cases,
    probe: Some(cases::probe),
    ..Kernel::PLAIN
};

/// A page's sum has up to 64 terms p·v up to 2, each off by the δ of its score as in `attn_prefill`, 5e-6: 6e-4 if all were off the
/// same way. Held at a third of that, little above the worst seen (1.3e-4 on lavapipe): a newest value that is not rounded to f16
/// is off by 5e-4, and must not pass.
const TOLERANCE: Tolerance = Tolerance { nmse: 1e-11, max_abs: 2e-4 };
/// A norm's roundings, and a step of f16, which WGSL lets a device round either way: 2^-10 of each key, which are up to 4.
const STORED: Tolerance = Tolerance { nmse: Tolerance::F16_STEP, max_abs: 4e-3 };
/// As `forget_gate`: 16 units of one m up to 60.
const LAMBDA: Tolerance = Tolerance { nmse: 1e-10, max_abs: 6e-5 };

/// The state and weights that a token's attention works on.
#[derive(Clone, Copy, Debug)]
pub struct AttnDecode<'a> {
    /// Which heads.
    pub heads: &'a Heads,
    /// The projection's row.
    pub proj: BufferId,
    /// Its columns.
    pub columns: &'a Proj,
    /// Norms and biases.
    pub vectors: &'a Vectors,
    /// The pages.
    pub kv: &'a Kv,
    /// `[SHIFT_SLOTS, 2 (k, v), d]`; bound only when k or v is shifted.
    pub shift_rows: BufferId,
    /// [`Heads::partial_words`] words.
    pub partials: BufferId,
}

impl AttnDecode<'_> {
    /// Records it.
    pub fn record(&self, r: &mut Recorder<'_>) {
        let Self { heads, columns, vectors, kv, .. } = *self;
        let qk_norm = vectors.q_norm.is_some();
        assert!(qk_norm == vectors.k_norm.is_some(), "q and k are normed together or not at all");
        let gate = forget_flag(columns, vectors);
        let rope = vectors.rope;
        let uses_vectors = qk_norm || rope.is_some() || gate != "F_NONE";
        let (k_shift, v_shift) = (columns.k_shift, columns.v_shift);
        let uses_shift = k_shift.is_some() || v_shift.is_some();
        let variant = head_dim_variant(heads)
            .constant("MAX_SPLITS", MAX_SPLITS as u32)
            .flag(gate)
            .flag_if(uses_vectors, "VECTORS")
            .flag_if(uses_shift, "SHIFT")
            .flag_if(k_shift.is_some(), "K_SHIFT")
            .flag_if(v_shift.is_some(), "V_SHIFT")
            .flag_if(qk_norm, "QK_NORM")
            .flag_if(rope.is_some(), "ROPE")
            .flag_if(kv.f16, "KV_F16")
            .flag_if(kv.prune.is_some(), "PRUNE");
        let mut buffers = vec![self.proj];
        buffers.extend(uses_vectors.then_some(vectors.buffer));
        buffers.extend([kv.k_pages, kv.v_pages, kv.lam_pages, kv.page_table]);
        buffers.extend(uses_shift.then_some(self.shift_rows));
        buffers.push(self.partials);
        let bindings: Vec<_> = buffers.into_iter().map(|buffer| r.whole(buffer)).collect();
        let [f_bias, period] = forget_params(vectors);
        let counts = [
            heads.group(),
            columns.q,
            columns.k,
            columns.v,
            columns.f.unwrap_or(0),
            k_shift.unwrap_or(0),
            v_shift.unwrap_or(0),
            vectors.q_norm.unwrap_or(0),
            vectors.k_norm.unwrap_or(0),
            f_bias,
            period,
            rope.unwrap_or(0),
        ];
        let counts = heads.table_params().into_iter().chain(counts).map(|param| param as u32);
        let live = kv.prune_params()[0] as u32;
        let params: Vec<u32> = counts.chain([kv.window_param(), live, heads.scale_bits(), QK_NORM_EPS.to_bits()]).collect();
        let grid = Grid::xy(Extent::Fixed(heads.n_heads as u32), Extent::Splits);
        r.dispatch(&ATTN_DECODE, variant, &bindings, &params, grid);
    }
}

fn twin(args: &mut Args<'_>) {
    let (h, group, is_f16) = (args.constant("HEAD_DIM"), args.param("group"), args.has("KV_F16"));
    let mut prologue = Prologue::new(args);
    let n_heads = prologue.n_heads(args);
    let (k_pages, v_pages, lam_pages) = (args.take("k_pages"), args.take("v_pages"), args.take("lam_pages"));
    let partials = args.take_f32("partials");
    let n_keys = args.step.pos as usize + 1;
    let oldest = n_keys.saturating_sub(args.param("window"));
    for head in 0..n_heads {
        let (query, lam) = prologue.head(args, head, k_pages, v_pages, lam_pages);
        let (first_page, pages_per_split) = prologue.shares(args, head);
        for split in 0..args.step.n_splits as usize {
            let keys_per_split = pages_per_split * PAGE;
            let first = first_page * PAGE + split * keys_per_split;
            let keys = first.max(oldest)..(first + keys_per_split).min(n_keys);
            let pages = prologue.pages();
            let slots = |j: usize| (pages.slot(j, head / group), pages.lam_slot(j, head, group));
            let slots: Vec<(usize, usize)> = keys.map(slots).collect();
            let score = |(slot, lam_slot): &(usize, usize)| {
                let key = read_row(k_pages, *slot, h, is_f16);
                let dot: f64 = query.iter().zip(key).map(|(q, k)| q * f64::from(k)).sum();
                dot - lambda::value(lam - lambda::read(lam_pages, *lam_slot))
            };
            let scores: Vec<f64> = slots.iter().map(score).collect();
            let top = scores.iter().copied().fold(super::attention::LOWEST, f64::max);
            let mut partial = vec![0.0; h];
            for ((slot, _), score) in slots.iter().zip(&scores) {
                for (sum, v) in partial.iter_mut().zip(read_row(v_pages, *slot, h, is_f16)) {
                    *sum += (score - top).exp() * f64::from(v);
                }
            }
            let total: f64 = scores.iter().map(|score| (score - top).exp()).sum();
            let row = &mut partials[(head * MAX_SPLITS + split) * (PARTIAL_HEAD + h)..][..PARTIAL_HEAD + h];
            for (word, number) in row.iter_mut().zip([top, total].into_iter().chain(partial)) {
                *word = number as f32;
            }
        }
    }
}
