//! o_i = Σ_j softmax_j(q_i·k_j/√h − (Λ_i − Λ_j)) v_j over j ≤ i, or the last keys of a sliding window, for a chunk of queries (docs/model.md, section 1).
//!
//! Tiles of keys and values go through workgroup memory, the softmax is online (running maximum and sum in f32): no buffer grows
//! with tokens². D = Λ_i − Λ_j is an exact difference of fixed-point numbers, rounded once. Masks compare positions.

use super::attention::pages::read_row;
use super::attention::{Heads, Kv, PAGE, Pages, fast, head_dim_variant, lambda, prune};
use super::{Rows, attn_prefill_wide};
use crate::graph::{Alternatives, Args, BindingDecl, BufferId, Elem, Extent, Grid, Kernel, Recorder, Tolerance};

pub(super) mod cases;

pub(super) const BINDINGS: &[BindingDecl] = &[
    BindingDecl::read("q", Elem::F32),
    BindingDecl::read("k_pages", Elem::U32x4),
    BindingDecl::read("v_pages", Elem::U32x4),
    BindingDecl::read("lam_pages", Elem::U32x2),
    BindingDecl::read("page_table", Elem::U32),
    BindingDecl::write("o", Elem::F32x4),
];
pub(super) const PARAMS: &[&str] =
    &["q_stride", "q_column", "n_kv_heads", "n_layers", "layer", "group", "window", "scale", "live", "ends"];

/// Columns of `q: [tokens, q_stride]` and the pages to `o: [tokens, n_heads · HEAD_DIM]`.
pub static ATTN_PREFILL: Kernel = Kernel {
    name: "attn_prefill",
    wgsl: wgsl!("attn_prefill"),
    bindings: BINDINGS,
    params: PARAMS,
    flags: &["KV_F16", "PRUNE"],
    consts: &["HEAD_DIM", "TILE"],
    twin,
    fast: Some(fast::prefill),
    alternatives: Some(Alternatives { needs: &[], of: attn_prefill_wide::offers }),
    probe: Some(cases::probe),
    cases: cases::cases,
    ..Kernel::PLAIN
};

/// o is a mean of values up to 2, so it moves by 2·δ when the scores move by δ: an f32 dot product of up to 128 terms, a rounded
/// D near 20 (2e-6; beyond, p is 0) and an exponential of up to 3 + 2·20 units give δ up to 5e-6.
const TOLERANCE: Tolerance = Tolerance { nmse: 1e-11, max_abs: 1e-5 };

/// Queries of a workgroup; the shader has the same, and `attn_prefill_wide` twice as many. Pages that are dead for the first of them are passed over by all.
const QUERIES: u32 = 32;

/// Keys of a tile, which divides a page: keys and values of a tile in f32 have 16 KiB of workgroup memory.
fn tile(head_dim: usize) -> u32 {
    [64, 32, 16].into_iter().find(|keys| keys * head_dim as u32 <= 2048).unwrap_or(16)
}

/// Records it: `q` already shifted, normed and rotated as the model asks, its keys already in the pages; `o: [tokens, d]`.
pub fn record(r: &mut Recorder<'_>, heads: &Heads, q: &Rows, kv: &Kv, o: BufferId) {
    let variant = head_dim_variant(heads).constant("TILE", tile(heads.head_dim)).flag_if(kv.f16, "KV_F16");
    let variant = variant.flag_if(kv.prune.is_some(), "PRUNE");
    let bindings = [q.buffer, kv.k_pages, kv.v_pages, kv.lam_pages, kv.page_table, o].map(|buffer| r.whole(buffer));
    let counts = [&[q.stride, q.column][..], &heads.table_params(), &[heads.group()]].concat();
    let mut params: Vec<u32> = counts.into_iter().map(|param| param as u32).collect();
    params.extend([kv.window_param(), heads.scale_bits()].into_iter().chain(kv.prune_params().map(|param| param as u32)));
    let grid = Grid::xy(Extent::Tokens { per: QUERIES }, Extent::Fixed(heads.n_heads as u32));
    r.dispatch(&ATTN_PREFILL, variant, &bindings, &params, grid);
}

pub(super) fn twin(args: &mut Args<'_>) {
    let o = args.take_f32("o");
    let rows = AttentionRows::new(args);
    let (n_heads, h, is_f16) = (rows.n_heads(), rows.head_dim, args.has("KV_F16"));
    let v_pages = args.take("v_pages");
    for t in 0..args.step.n_tokens as usize {
        for head in 0..n_heads {
            let (first, weights) = rows.weights(args, t, head);
            let mut sums = vec![0.0; h];
            for (j, weight) in (first..).zip(weights) {
                for (sum, v) in sums.iter_mut().zip(read_row(v_pages, rows.slot(j, head), h, is_f16)) {
                    *sum += weight * f64::from(v);
                }
            }
            for (o, sum) in o[(t * n_heads + head) * h..].iter_mut().zip(sums) {
                *o = sum as f32;
            }
        }
    }
}

/// The rows of the attention matrix A of a dispatch, in f64.
pub struct AttentionRows<'a> {
    pages: Pages<'a>,
    q: &'a [f32],
    k_pages: &'a [u32],
    lam_pages: &'a [u32],
    head_dim: usize,
    group: usize,
    n_kv_heads: usize,
}

impl<'a> AttentionRows<'a> {
    /// Takes what scores are made of: the bindings `q`, `k_pages`, `lam_pages` and `page_table`.
    pub fn new(args: &mut Args<'a>) -> Self {
        let (pages, q, k_pages, lam_pages) = (Pages::new(args), args.take_f32("q"), args.take("k_pages"), args.take("lam_pages"));
        let (head_dim, group, n_kv_heads) = (args.constant("HEAD_DIM"), args.param("group"), args.param("n_kv_heads"));
        Self { pages, q, k_pages, lam_pages, head_dim, group, n_kv_heads }
    }

    /// Query heads.
    pub fn n_heads(&self) -> usize {
        self.n_kv_heads * self.group
    }

    /// The row of a key in the pools.
    fn slot(&self, j: usize, head: usize) -> usize {
        self.pages.slot(j, head / self.group)
    }

    /// The first key that token `t` of the replay looks at: the first of the window, and none in a page that is dead for the first query
    /// of its workgroup.
    fn first_key(&self, args: &Args<'_>, t: usize, head: usize) -> usize {
        let pos = args.step.pos as usize;
        let oldest = (pos + t + 1).saturating_sub(args.param("window"));
        if !args.has("PRUNE") {
            return oldest;
        }
        let first_query = pos + t / QUERIES as usize * QUERIES as usize;
        let lam = lambda::read(self.lam_pages, self.pages.lam_slot(first_query, head, self.group));
        let first = prune::Live::new(args).first(args, self.pages.table(), head / self.group);
        let dead = |page: &usize| prune::end_of(args, self.lam_pages, &self.pages, *page, head) < lam;
        oldest.max((first + (first..first_query / PAGE).take_while(dead).count()) * PAGE)
    }

    /// The softmax of the scores of token `t` of the replay: the first key, and the weights from there to the token itself.
    pub fn weights(&self, args: &Args<'_>, t: usize, head: usize) -> (usize, Vec<f64>) {
        let (h, is_f16, scale) = (self.head_dim, args.has("KV_F16"), f64::from(args.param_f32("scale")));
        let query = &self.q[t * args.param("q_stride") + args.param("q_column") + head * h..][..h];
        let (i, first) = (args.step.pos as usize + t, self.first_key(args, t, head));
        let lam = |j: usize| lambda::read(self.lam_pages, self.pages.lam_slot(j, head, self.group));
        let score = |j: usize| {
            let key = read_row(self.k_pages, self.slot(j, head), h, is_f16);
            let dot: f64 = query.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(k)).sum();
            dot * scale - lambda::value(lam(i) - lam(j))
        };
        let scores: Vec<f64> = (first..=i).map(score).collect();
        let top = scores.iter().copied().fold(f64::MIN, f64::max);
        let total: f64 = scores.iter().map(|score| (score - top).exp()).sum();
        (first, scores.into_iter().map(|score| (score - top).exp() / total).collect())
    }
}
