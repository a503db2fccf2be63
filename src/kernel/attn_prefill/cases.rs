//! Every head width at every edge of a page and a tile, shared keys, windows, dead pages.

use super::{TOLERANCE, record};
use crate::graph::{Case, Compare, Dispatch, Step};
use crate::kernel::Rows;
use crate::kernel::attention::Heads;
use crate::kernel::attention::cases::{Fixture, Gates};

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
pub(in crate::kernel) fn probe(dispatch: &Dispatch) -> Case {
    let (head_dim, f16) = (dispatch.variant.get("HEAD_DIM") as usize, dispatch.variant.has("KV_F16"));
    let tau = dispatch.variant.has("PRUNE").then_some(0.5);
    case(Special { head_dim, group: 1, f16, gates: Gates::Soft, pos: 70, tokens: 66, window: None, tau })
}

pub(in crate::kernel) fn cases() -> Vec<Case> {
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
