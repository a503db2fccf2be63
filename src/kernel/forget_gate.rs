//! Λ_t = Λ_{t−1} + m_t, m = −log sigmoid(z): the forget gates of a chunk, summed into the pages as 32.32 fixed point.
//!
//! m = softplus(−z) = max(−z, 0) + log1p(exp(−|z|)) holds for any z; log(sigmoid(z)) would be −inf from z = −104 on and 0 from
//! z = 17 on. Each m is rounded to 2^-32 once and summed by integers: chunks of any size give the same bits.

use super::attention::cases::{Fixture, Gates};
use super::attention::{Heads, Kv, Pages, Proj, Vectors, forget_flag, forget_params, lambda};
use crate::graph::{Args, BindingDecl, BufferId, Case, Compare, Elem, Extent, Grid, Kernel, Recorder, Step, Tolerance, Variant};

/// Columns of `proj: [tokens, stride]` and a bias `[n_heads]` to Λ in `lam_pages`.
pub static FORGET_GATE: Kernel = Kernel {
    name: "forget_gate",
    wgsl: wgsl!("forget_gate"),
    bindings: &[
        BindingDecl::read("proj", Elem::F32).only_if(&["F_FULL"]),
        BindingDecl::read("vectors", Elem::F32).only_if(&["F_FULL", "F_BIAS", "F_TABLE"]),
        BindingDecl::write("lam_pages", Elem::U32x2),
        BindingDecl::read("page_table", Elem::U32),
    ],
    params: &["stride", "column", "bias", "n_kv_heads", "n_layers", "layer", "group", "period"],
    flags: &["F_FULL", "F_BIAS", "F_TABLE", "F_NONE"],
    twin,
    cases,
    ..Kernel::PLAIN
};

/// Records it: gates from `columns.f` and `vectors.f_bias`, from the bias alone, from `vectors.f_table`, or none at all (Λ stays
/// what it is).
pub fn record(r: &mut Recorder<'_>, heads: &Heads, proj: BufferId, columns: &Proj, vectors: &Vectors, kv: &Kv) {
    let flag = forget_flag(columns, vectors);
    let mut bindings = Vec::new();
    if flag == "F_FULL" {
        bindings.push(r.whole(proj));
    }
    if flag != "F_NONE" {
        bindings.push(r.whole(vectors.buffer));
    }
    bindings.extend([r.whole(kv.lam_pages), r.whole(kv.page_table)]);
    let (column, [bias, period]) = (columns.f.unwrap_or(0), forget_params(vectors));
    let params = [&[columns.stride, column, bias][..], &heads.table_params(), &[heads.group(), period]].concat();
    let params: Vec<u32> = params.into_iter().map(|param| param as u32).collect();
    r.dispatch(&FORGET_GATE, Variant::new().flag(flag), &bindings, &params, Grid::x(Extent::Fixed(heads.n_heads as u32)));
}

fn twin(args: &mut Args<'_>) {
    let [stride, column, bias] = ["stride", "column", "bias"].map(|name| args.param(name));
    let group = args.param("group");
    let n_heads = args.param("n_kv_heads") * group;
    let proj = args.has("F_FULL").then(|| args.take_f32("proj"));
    let vectors = (!args.has("F_NONE")).then(|| args.take_f32("vectors"));
    let pages = Pages::new(args);
    let lam_pages = args.take("lam_pages");
    let pos = args.step.pos as usize;
    for head in 0..n_heads {
        let mut lam = if pos == 0 { 0 } else { lambda::read(lam_pages, pages.lam_slot(pos - 1, head, group)) };
        for t in 0..args.step.n_tokens as usize {
            if let Some(table) = vectors.as_ref().filter(|_| args.has("F_TABLE")) {
                lam = lam.wrapping_add(lambda::known(table[bias + (pos + t) % args.param("period") * n_heads + head]));
            } else if let Some(vectors) = &vectors {
                let projected = proj.as_ref().map_or(0.0, |proj| f64::from(proj[t * stride + column + head]));
                lam = lam.wrapping_add(lambda::forgotten(projected + f64::from(vectors[bias + head])));
            }
            lambda::write(lam_pages, pages.lam_slot(pos + t, head, group), lam);
        }
    }
}

fn cases() -> Vec<Case> {
    let case = |(group, n_kv_heads, layer, gates, kind, pos, n_tokens): (usize, usize, usize, Gates, &str, usize, usize)| {
        let n_heads = n_kv_heads * group;
        let heads = Heads { n_heads, n_kv_heads, head_dim: 16, n_layers: 3, layer };
        let mut fixture = Fixture::new(heads, true, gates, pos, pos + n_tokens);
        let (proj, mut columns) = fixture.proj(n_tokens);
        let mut vectors = fixture.vectors(0);
        if kind != "F_FULL" {
            columns.f = None;
        }
        if kind == "F_NONE" {
            vectors.f_bias = None;
        }
        if kind == "F_TABLE" {
            fixture.gate_table(&mut vectors, 70);
        }
        // An exponential of WGSL may be off by 3 + 2·|z| units, a sum z of two numbers by one: 16 units of 2^-24 of the
        // largest m, all in one direction.
        let largest = if kind == "F_FULL" { lambda::value(lambda::forgotten(f64::from(gates.z(-1.0)))) } else { 1.0 };
        let max_abs = n_tokens as f64 * largest * 16.0 / f64::from(1 << 24) + 1e-9;
        let tolerance = Tolerance { nmse: 1e-10, max_abs };
        let name = format!("{kind} {gates:?} heads={n_heads} kv_heads={n_kv_heads} layer={layer} pos={pos} tokens={n_tokens}");
        let step = Step { pos: pos as u32, n_tokens: n_tokens as u32, ..Step::default() };
        let kv = fixture.kv;
        // What is known is on the grid: its sums have no error.
        let exact = matches!(kind, "F_NONE" | "F_TABLE");
        let compare = if exact { Compare::Exact } else { Compare::Fixed64(tolerance) };
        fixture.case(name, step, &[(kv.lam_pages, compare)], |r| record(r, &heads, proj, &columns, &vectors, &kv))
    };
    let all = [
        (1, 3, 0, Gates::Soft, "F_FULL", 0, 1),
        (1, 3, 2, Gates::Hard, "F_FULL", 1, 63),
        (1, 2, 1, Gates::Saturated, "F_FULL", 63, 130),
        (1, 1, 2, Gates::Soft, "F_FULL", 200, 65),
        (3, 2, 1, Gates::Soft, "F_BIAS", 65, 64),
        (1, 2, 1, Gates::Hard, "F_NONE", 64, 3),
        (1, 2, 0, Gates::Soft, "F_NONE", 0, 66),
        (2, 2, 1, Gates::Soft, "F_FULL", 63, 66),
        (1, 3, 0, Gates::Soft, "F_TABLE", 0, 150),
        (2, 2, 2, Gates::Hard, "F_TABLE", 65, 130),
        (1, 2, 1, Gates::Saturated, "F_TABLE", 200, 1),
    ];
    all.map(case).into()
}
