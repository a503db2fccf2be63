//! Gates and norms alone and together, dead pages.

use super::{AttnMerge, TOLERANCE};
use crate::graph::compare::GUARD;
use crate::graph::{Case, Compare, Dispatch, Step};
use crate::kernel::attention::cases::{Fixture, Gates};
use crate::kernel::attention::{GateAct, Heads, MAX_SPLITS, PAGE, PARTIAL_HEAD};
use crate::kernel::{inputs, page_ends};

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

/// Two splits through the parts of a variant; with `PRUNE` a page is completed, and some are dead.
pub(super) fn probe(dispatch: &Dispatch) -> Case {
    let has = |flag: &str| dispatch.variant.has(flag);
    let act = if has("GATE_SILU") { GateAct::Silu } else { GateAct::Sigmoid };
    case(Special {
        head_dim: dispatch.variant.get("HEAD_DIM") as usize,
        n_splits: 2,
        act: has("GATE").then_some(act),
        norm: has("OUT_NORM"),
        prune: has("PRUNE").then_some((1, Gates::Soft, 255, 0.5)),
    })
}

pub(super) fn cases() -> Vec<Case> {
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
