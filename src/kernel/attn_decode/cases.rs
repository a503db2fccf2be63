//! Every head width at every edge of a page, every part alone and together, dead pages.

use super::{AttnDecode, LAMBDA, STORED, TOLERANCE};
use crate::graph::{Case, Compare, Dispatch, Step, Variant};
use crate::kernel::attention::cases::{Fixture, Gates};
use crate::kernel::attention::{Heads, PAGE, Proj, SHIFT_SLOTS, Vectors};

/// What is special about a case. Like attn_prefill's but for what the two kernels vary: each list of cases is read on its own.
#[derive(Clone, Copy, Debug)]
struct Special {
    head_dim: usize,
    group: usize,
    f16: bool,
    gates: Gates,
    pos: usize,
    pages_per_split: u32,
    window: Option<usize>,
    tau: Option<f32>,
    parts: &'static str,
}

const PARTS: [&str; 6] =
    ["all", "bias only, k shift", "v shift, norms, no forgetting", "full gate alone", "nothing", "rotations alone"];

/// Everything, with the gates of a table.
const REPLAYED: &str = "all, replayed gates";

pub(super) fn cases() -> Vec<Case> {
    let plain = Special {
        head_dim: 64,
        group: 1,
        f16: true,
        gates: Gates::Soft,
        pos: 200,
        pages_per_split: 1,
        window: None,
        tau: None,
        parts: "all",
    };
    let positions = [(0, 1), (1, 4), (63, 1), (64, 1), (65, 2), (200, 1), (200, 3)];
    let mut all = Vec::new();
    for (ix, head_dim) in Heads::HEAD_DIMS.into_iter().enumerate() {
        for (n, (pos, pages_per_split)) in positions.into_iter().enumerate() {
            let (f16, gates, parts) = ((ix + n) % 2 == 0, Gates::ALL[n % 3], PARTS[(n + ix) % PARTS.len()]);
            all.push(Special { head_dim, f16, gates, pos, pages_per_split, parts, ..plain });
        }
    }
    all.push(Special { gates: Gates::Hard, ..plain });
    all.push(Special { pages_per_split: 4, ..plain });
    // Widths whose rows are no divisor of a page, keys that heads share, sliding windows.
    for (n, head_dim) in [24, 48, 80, 96, 120].into_iter().enumerate() {
        all.push(Special { head_dim, f16: n % 2 == 0, pos: 130, parts: PARTS[n], ..plain });
        all.push(Special { head_dim, f16: n % 2 == 1, pos: 64, group: 1 + n % 3, ..plain });
    }
    for (group, window, pos, f16) in
        [(2, 1, 64, true), (3, 48, 200, false), (1, 65, 200, true), (2, 201, 200, true), (1, 500, 63, false)]
    {
        all.push(Special { group, window: Some(window), pos, f16, ..plain });
        all.push(Special { group, window: Some(window), pos, f16: !f16, pages_per_split: 2, parts: "full gate alone", ..plain });
    }
    // Dead pages: none, some, all but the newest; splits with and without a share.
    for (group, gates, pos, tau) in [
        (1, Gates::Soft, 200, 1e6),
        (1, Gates::Soft, 320, 0.5),
        (2, Gates::Soft, 447, 1.5),
        (1, Gates::Hard, 0, 1.0),
        (3, Gates::Hard, 300, 300.0),
        (1, Gates::Hard, 64 * 9, 40.0),
        (1, Gates::Saturated, 321, 1.0),
    ] {
        all.push(Special { group, gates, f16: pos % 2 == 0, pos, tau: Some(tau), ..plain });
    }
    // Gates of a table of 70 rows: within its first round, behind it, by several heads a key, where pages die.
    for (group, gates, pos, tau) in [(1, Gates::Soft, 65, None), (2, Gates::Hard, 200, None), (3, Gates::Soft, 447, Some(1.5))] {
        all.push(Special { group, gates, f16: pos != 200, pos, tau, parts: REPLAYED, ..plain });
    }
    all.into_iter().map(case).collect()
}

/// The parts of a variant, behind a page; with `PRUNE` some of it is dead.
pub(super) fn probe(dispatch: &Dispatch) -> Case {
    let (variant, has) = (&dispatch.variant, |flag: &str| dispatch.variant.has(flag));
    let tau = has("PRUNE").then_some(0.5);
    let special = Special {
        head_dim: variant.get("HEAD_DIM") as usize,
        group: 1,
        f16: has("KV_F16"),
        gates: Gates::Soft,
        pos: 130,
        pages_per_split: 2,
        window: None,
        tau,
        parts: "those of a variant",
    };
    case_with(special, |fixture, columns, vectors| take_flags(variant, fixture, columns, vectors))
}

fn take_flags(variant: &Variant, fixture: &mut Fixture, columns: &mut Proj, vectors: &mut Vectors) {
    let keep = |flag: &str, part: &mut Option<usize>| *part = part.filter(|_| variant.has(flag));
    keep("K_SHIFT", &mut columns.k_shift);
    keep("V_SHIFT", &mut columns.v_shift);
    keep("QK_NORM", &mut vectors.q_norm);
    keep("QK_NORM", &mut vectors.k_norm);
    keep("ROPE", &mut vectors.rope);
    if variant.has("F_TABLE") {
        fixture.gate_table(vectors, 70);
    }
    columns.f = columns.f.filter(|_| !variant.has("F_NONE") && !variant.has("F_BIAS"));
    vectors.f_bias = vectors.f_bias.filter(|_| !variant.has("F_NONE"));
}

fn case(special: Special) -> Case {
    case_with(special, |fixture, columns, vectors| take_parts(special.parts, fixture, columns, vectors))
}

fn take_parts(parts: &str, fixture: &mut Fixture, columns: &mut Proj, vectors: &mut Vectors) {
    if parts == "bias only, k shift" {
        (columns.f, columns.v_shift) = (None, None);
    }
    if parts == "v shift, norms, no forgetting" {
        (columns.f, columns.k_shift, vectors.f_bias) = (None, None, None);
    }
    if parts == REPLAYED {
        fixture.gate_table(vectors, 70);
    }
    if !matches!(parts, "all" | REPLAYED | "v shift, norms, no forgetting") {
        (vectors.q_norm, vectors.k_norm) = (None, None);
    }
    if matches!(parts, "full gate alone" | "nothing" | "rotations alone") {
        (columns.k_shift, columns.v_shift) = (None, None);
    }
    if matches!(parts, "nothing" | "rotations alone") {
        (columns.f, vectors.f_bias) = (None, None);
    }
    if !matches!(parts, "all" | REPLAYED | "rotations alone") {
        vectors.rope = None;
    }
}

fn case_with(special: Special, take: impl FnOnce(&mut Fixture, &mut Proj, &mut Vectors)) -> Case {
    let Special { head_dim, group, f16, gates, pos, pages_per_split, window, tau, .. } = special;
    let heads = Heads { n_heads: 2 * group, n_kv_heads: 2, head_dim, n_layers: 3, layer: head_dim / 16 % 3 };
    let mut fixture = Fixture::new(heads, f16, gates, pos, pos + 70);
    fixture.kv.window = window;
    let (proj, mut columns) = fixture.proj(1);
    let mut vectors = fixture.vectors(pos + 1);
    if let Some(tau) = tau {
        fixture.prune(&vectors, tau, pos);
    }
    take(&mut fixture, &mut columns, &mut vectors);
    let shift_rows = fixture.floats("shift_rows", heads.shift_words(), 2.0);
    let partials = fixture.output("partials", heads.partial_words());
    let first_page = ((pos + 1).saturating_sub(window.unwrap_or(usize::MAX)) / PAGE) as u32;
    let n_splits = ((pos / PAGE + 1) as u32 - first_page).div_ceil(pages_per_split);
    // The fixture knows of dead pages as of slot 7.
    let turn = if tau.is_some() { 7 } else { pos };
    let [shift_in, shift_out] = [turn, turn + 1].map(|turn| (turn % SHIFT_SLOTS) as u32);
    let pos = pos as u32;
    let step = Step { pos, n_tokens: 1, n_splits, pages_per_split, shift_in, shift_out, first_page, pad: 0 };
    let kv = fixture.kv;
    let mut expect = vec![(partials, Compare::F32(TOLERANCE))];
    let stored = if f16 { Compare::F16x2(STORED) } else { Compare::F32(TOLERANCE) };
    // A gate that is known is on the grid.
    let lambda = if vectors.f_table.is_some() { Compare::Exact } else { Compare::Fixed64(LAMBDA) };
    expect.extend([(kv.k_pages, stored), (kv.v_pages, stored), (kv.lam_pages, lambda)]);
    if columns.k_shift.is_some() || columns.v_shift.is_some() {
        expect.push((shift_rows, Compare::Exact));
    }
    fixture.case(format!("{special:?}"), step, &expect, |r| {
        AttnDecode { heads: &heads, proj, columns: &columns, vectors: &vectors, kv: &kv, shift_rows, partials }.record(r);
    })
}
