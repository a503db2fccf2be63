//! The ends of the pages that a prefill chunk completes, and the first live page of each key head as of its last token
//! ([`super::attention::prune`]). In decode `attn_merge` does this in passing.

use super::attention::cases::{Fixture, Gates};
use super::attention::{Heads, Kv, Vectors, prune};
use crate::graph::{Args, BindingDecl, Case, Compare, Elem, Extent, Grid, Kernel, Recorder, Step, Tolerance, Variant};

/// Λ in `lam_pages` and τ `[n_heads]` in `vectors` to the ends behind the Λ and the first live pages behind the page table.
pub static PAGE_ENDS: Kernel = Kernel {
    name: "page_ends",
    wgsl: wgsl!("page_ends"),
    bindings: &[
        BindingDecl::read("vectors", Elem::F32),
        BindingDecl::write("lam_pages", Elem::U32x2),
        BindingDecl::write("page_table", Elem::U32),
    ],
    params: &["n_kv_heads", "n_layers", "layer", "group", "live", "ends", "prune"],
    twin,
    cases,
    ..Kernel::PLAIN
};

/// ln G, G from 1 to some thousands of exponentials good to a few units each: 2^-21 where WGSL's log is at its worst, near 1.
pub(super) const ENDS: Tolerance = Tolerance { nmse: 1e-10, max_abs: 4e-6 };

/// Records it, behind `forget_gate`; nothing where no page ever dies.
pub fn record(r: &mut Recorder<'_>, heads: &Heads, vectors: &Vectors, kv: &Kv) {
    let Some(prune) = kv.prune else { return };
    let bindings = [vectors.buffer, kv.lam_pages, kv.page_table].map(|buffer| r.whole(buffer));
    let params = [&heads.table_params()[..], &[heads.group(), prune.live, prune.ends, prune.tau]].concat();
    let params: Vec<u32> = params.into_iter().map(|param| param as u32).collect();
    r.dispatch(&PAGE_ENDS, Variant::new(), &bindings, &params, Grid::x(Extent::Fixed(heads.n_kv_heads as u32)));
}

fn twin(args: &mut Args<'_>) {
    let (vectors, lam_pages, page_table) = (args.take_f32("vectors"), args.take("lam_pages"), args.take("page_table"));
    prune::twin(args, vectors, lam_pages, page_table);
}

fn cases() -> Vec<Case> {
    let case = |(group, gates, pos, n_tokens, tau): (usize, Gates, usize, usize, f32)| {
        let heads = Heads { n_heads: 2 * group, n_kv_heads: 2, head_dim: 16, n_layers: 3, layer: 1 };
        // The chunk's own Λ are there; its pages' ends are not.
        let mut fixture = Fixture::new(heads, true, gates, pos + n_tokens, pos + n_tokens + 70);
        let vectors = fixture.vectors(1);
        fixture.prune(&vectors, tau, pos);
        let name = format!("group={group} {gates:?} pos={pos} tokens={n_tokens} tau={tau}");
        let step = Step { pos: pos as u32, n_tokens: n_tokens as u32, shift_in: 7, shift_out: 8, ..Step::default() };
        let kv = fixture.kv;
        let expect = [(kv.lam_pages, Compare::Fixed64(ENDS)), (kv.page_table, Compare::Exact)];
        fixture.case(name, step, &expect, |r| record(r, &heads, &vectors, &kv))
    };
    let all = [
        (1, Gates::Soft, 0, 1, 1.0),
        (1, Gates::Soft, 0, 63, 1.0),
        (1, Gates::Soft, 0, 200, 0.5),
        (3, Gates::Soft, 63, 1, 0.5),
        (2, Gates::Hard, 64, 128, 40.0),
        (2, Gates::Hard, 300, 70, 300.0),
        (1, Gates::Hard, 300, 20, 1.0),
        (1, Gates::Saturated, 130, 130, 20.0),
        (1, Gates::Soft, 64 * 70, 65, 3.0),
    ];
    all.map(case).into()
}
