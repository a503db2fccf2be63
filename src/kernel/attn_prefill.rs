//! o_i = Σ_j softmax_j(q_i·k_j/√h − (Λ_i − Λ_j)) v_j over j ≤ i, or the last keys of a sliding window, for a chunk of queries (fox.md 1).
//!
//! Tiles of keys and values go through workgroup memory, the softmax is online (running maximum and sum in f32): no buffer grows
//! with tokens². D = Λ_i − Λ_j is an exact difference of fixed-point numbers, rounded once. Masks compare positions.

use super::attention::cases::{Fixture, Gates};
use super::attention::pages::read_row;
use super::attention::{Heads, Kv, PAGE, Pages, fast, head_dim_variant, lambda, prune};
use super::{Rows, attn_prefill_wide};
use crate::graph::{
    Alternatives, Args, BindingDecl, BufferId, Case, Compare, Dispatch, Elem, Extent, Grid, Kernel, Recorder, Step, Tolerance,
};

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
    uses_step: true,
    flags: &["KV_F16", "PRUNE"],
    consts: &["HEAD_DIM", "TILE"],
    twin,
    fast: Some(fast::prefill),
    alternatives: Some(Alternatives { needs: &[], of: attn_prefill_wide::offers, probe }),
    cases,
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
    let [q_stride, q_column, group] = ["q_stride", "q_column", "group"].map(|name| args.param(name));
    let (n_heads, window) = (args.param("n_kv_heads") * group, args.param("window"));
    let (h, scale, is_f16) = (args.constant("HEAD_DIM"), f64::from(args.param_f32("scale")), args.has("KV_F16"));
    let pages = Pages::new(args);
    let (q, o) = (args.take_f32("q"), args.take_f32("o"));
    let (k_pages, v_pages, lam_pages) = (args.take("k_pages"), args.take("v_pages"), args.take("lam_pages"));
    let pos = args.step.pos as usize;
    let first_page = |t: usize, head: usize| {
        if !args.has("PRUNE") {
            return 0;
        }
        let first_query = pos + t / QUERIES as usize * QUERIES as usize;
        let lam = lambda::read(lam_pages, pages.lam_slot(first_query, head, group));
        let first = prune::Live::new(args).first(args, pages.table(), head / group);
        let dead = |page: &usize| prune::end_of(args, lam_pages, &pages, *page, head) < lam;
        first + (first..first_query / PAGE).take_while(dead).count()
    };
    for t in 0..args.step.n_tokens as usize {
        for head in 0..n_heads {
            let query = &q[t * q_stride + q_column + head * h..][..h];
            let lam = lambda::read(lam_pages, pages.lam_slot(pos + t, head, group));
            let slots = |j: usize| (pages.slot(j, head / group), pages.lam_slot(j, head, group));
            let first = (pos + t + 1).saturating_sub(window).max(first_page(t, head) * PAGE);
            let slots: Vec<(usize, usize)> = (first..=pos + t).map(slots).collect();
            let score = |(slot, lam_slot): &(usize, usize)| {
                let key = read_row(k_pages, *slot, h, is_f16);
                let dot: f64 = query.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(k)).sum();
                dot * scale - lambda::value(lam - lambda::read(lam_pages, *lam_slot))
            };
            let scores: Vec<f64> = slots.iter().map(score).collect();
            let top = scores.iter().copied().fold(f64::MIN, f64::max);
            let total: f64 = scores.iter().map(|score| (score - top).exp()).sum();
            let mut sums = vec![0.0; h];
            for ((slot, _), score) in slots.iter().zip(scores) {
                for (sum, v) in sums.iter_mut().zip(read_row(v_pages, *slot, h, is_f16)) {
                    *sum += (score - top).exp() / total * f64::from(v);
                }
            }
            for (o, sum) in o[(t * n_heads + head) * h..].iter_mut().zip(sums) {
                *o = sum as f32;
            }
        }
    }
}

/// What is special about a case.
#[derive(Clone, Copy, Debug)]
struct Special {
    head_dim: usize,
    group: usize,
    f16: bool,
    gates: Gates,
    pos: usize,
    tokens: usize,
    window: Option<usize>,
    tau: Option<f32>,
}

/// More queries than a tile, behind a page; with `PRUNE` some of it is dead.
pub(super) fn probe(dispatch: &Dispatch) -> Case {
    let (head_dim, f16) = (dispatch.variant.get("HEAD_DIM") as usize, dispatch.variant.has("KV_F16"));
    let tau = dispatch.variant.has("PRUNE").then_some(0.5);
    case(Special { head_dim, group: 1, f16, gates: Gates::Soft, pos: 70, tokens: 66, window: None, tau })
}

pub(super) fn cases() -> Vec<Case> {
    let plain = Special { head_dim: 64, group: 1, f16: true, gates: Gates::Soft, pos: 0, tokens: 130, window: None, tau: None };
    let mut all = vec![plain];
    for (ix, head_dim) in Heads::HEAD_DIMS.into_iter().enumerate() {
        for (n, (pos, tokens)) in [(0, 1), (1, 62), (63, 2), (64, 33), (65, 1), (200, 70)].into_iter().enumerate() {
            all.push(Special { head_dim, f16: (ix + n) % 2 == 0, gates: Gates::ALL[n % 3], pos, tokens, ..plain });
        }
    }
    // Other widths, keys that heads share, sliding windows.
    for (n, head_dim) in [24, 48, 80, 96, 120].into_iter().enumerate() {
        all.push(Special { head_dim, f16: n % 2 == 0, group: 1 + n % 3, pos: 63, tokens: 35, ..plain });
    }
    for (n, window) in [1, 3, 48, 64, 65, 100, 500].into_iter().enumerate() {
        let (pos, gates) = ([0, 200, 65][n % 3], Gates::ALL[n % 3]);
        let head_dim = [32, 64][n % 2];
        all.push(Special { head_dim, group: 1 + n % 3, f16: n % 2 == 0, gates, pos, tokens: 70, window: Some(window), ..plain });
    }
    // Dead pages: none, some, all but the newest; found by many invocations, and by one.
    for (group, gates, pos, tokens, tau) in [
        (1, Gates::Soft, 200, 70, 1e6),
        (1, Gates::Soft, 200, 70, 0.5),
        (2, Gates::Soft, 400, 33, 1.5),
        (1, Gates::Hard, 0, 130, 10.0),
        (3, Gates::Hard, 300, 70, 300.0),
        (1, Gates::Hard, 64 * 150, 1, 900.0),
        (1, Gates::Saturated, 320, 40, 1.0),
    ] {
        // Narrow ones for the devices that lack the workgroup memory for wide ones.
        for head_dim in [32, 64] {
            all.push(Special { head_dim, group, gates, f16: tau < 1.0, pos, tokens, tau: Some(tau), ..plain });
        }
    }
    all.into_iter().map(case).collect()
}

fn case(special: Special) -> Case {
    let Special { head_dim, group, f16, gates, pos, tokens, window, tau } = special;
    let heads = Heads { n_heads: 2 * group, n_kv_heads: 2, head_dim, n_layers: 3, layer: head_dim / 16 % 3 };
    let mut fixture = Fixture::new(heads, f16, gates, pos + tokens, pos + tokens + 70);
    fixture.kv.window = window;
    let (proj, columns) = fixture.proj(tokens);
    let own = fixture.floats("q", tokens * heads.d(), 2.0);
    let q = if pos % 2 == 0 { fixture.rows(own) } else { Rows { buffer: proj, stride: columns.stride, column: columns.q } };
    let o = fixture.output("o", tokens * heads.d());
    let step = Step { pos: pos as u32, n_tokens: tokens as u32, shift_in: 7, shift_out: 8, ..Step::default() };
    if let Some(tau) = tau {
        let vectors = fixture.vectors(1);
        fixture.prune(&vectors, tau, pos + tokens);
    }
    let kv = fixture.kv;
    fixture.case(format!("{special:?}"), step, &[(o, Compare::F32(TOLERANCE))], |r| record(r, &heads, &q, &kv, o))
}
