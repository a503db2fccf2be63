//! Keys and values of a chunk into the pages, in f16 or f32 (prefill; decode does it inside its attention).
//!
//! k comes from the projection, or shifted or normed from a buffer of its own, and so does v; a buffer may be bound only once, so
//! a variant says whether v has its own. f16 is rounded to nearest where the
//! device does so (WGSL leaves that to it); numbers beyond ±65504 become ±65504.

use super::Rows;
use super::attention::cases::{Fixture, Gates};
use super::attention::pages::write_row;
use super::attention::{Heads, Kv, Pages};
use crate::graph::{Args, BindingDecl, Case, Compare, Elem, Extent, Grid, Kernel, Recorder, Step, Tolerance, Variant};

/// WGSL lets `pack2x16float` round either way: a step of f16, 2^-10 of each number at most and 32 of the largest.
const STORED: Tolerance = Tolerance { nmse: Tolerance::F16_STEP, max_abs: 32.0 };

/// Columns of `k: [tokens, k_stride]` and of `v` (or of `k` again) to `k_pages` and `v_pages`.
pub static KV_APPEND: Kernel = Kernel {
    name: "kv_append",
    wgsl: wgsl!("kv_append"),
    bindings: &[
        BindingDecl::read("k", Elem::F32),
        BindingDecl::read("v", Elem::F32).only_if(&["V_OWN"]),
        BindingDecl::write("k_pages", Elem::U32),
        BindingDecl::write("v_pages", Elem::U32),
        BindingDecl::read("page_table", Elem::U32),
    ],
    params: &["k_stride", "k_column", "v_stride", "v_column", "row", "n_kv_heads", "n_layers", "layer"],
    flags: &["V_OWN", "KV_F16"],
    twin,
    cases,
    ..Kernel::PLAIN
};

/// Records it; `k` and `v` are `[tokens, kv_width]` inside rows of one buffer or of two.
pub fn record(r: &mut Recorder<'_>, heads: &Heads, k: &Rows, v: &Rows, kv: &Kv) {
    let row = Kv::row_words(heads.head_dim, kv.f16);
    let v_own = k.buffer != v.buffer;
    let variant = Variant::new().flag_if(v_own, "V_OWN").flag_if(kv.f16, "KV_F16");
    let mut bindings = vec![r.whole(k.buffer)];
    if v_own {
        bindings.push(r.whole(v.buffer));
    }
    bindings.extend([kv.k_pages, kv.v_pages, kv.page_table].map(|buffer| r.whole(buffer)));
    let params = [&[k.stride, k.column, v.stride, v.column, row][..], &heads.table_params()].concat();
    let params: Vec<u32> = params.into_iter().map(|param| param as u32).collect();
    let grid = Grid::xy(Extent::Fixed(((heads.n_kv_heads * row) as u32).div_ceil(64)), Extent::Tokens { per: 1 });
    r.dispatch(&KV_APPEND, variant, &bindings, &params, grid);
}

fn twin(args: &mut Args<'_>) {
    let [k_stride, k_column, v_stride] = ["k_stride", "k_column", "v_stride"].map(|name| args.param(name));
    let [v_column, row, n_kv_heads] = ["v_column", "row", "n_kv_heads"].map(|name| args.param(name));
    let is_f16 = args.has("KV_F16");
    let head_dim = if is_f16 { 2 * row } else { row };
    let pages = Pages::new(args);
    let k: &[f32] = args.take_f32("k");
    let v: &[f32] = if args.has("V_OWN") { args.take_f32("v") } else { k };
    let (k_pages, v_pages) = (args.take("k_pages"), args.take("v_pages"));
    for t in 0..args.step.n_tokens as usize {
        for head in 0..n_kv_heads {
            let slot = pages.slot(args.step.pos as usize + t, head);
            let (from_k, from_v) = (t * k_stride + k_column + head * head_dim, t * v_stride + v_column + head * head_dim);
            write_row(k_pages, slot, &k[from_k..from_k + head_dim], is_f16);
            write_row(v_pages, slot, &v[from_v..from_v + head_dim], is_f16);
        }
    }
}

fn cases() -> Vec<Case> {
    let case = |(head_dim, f16, k_own, v_own, pos, n_tokens): (usize, bool, bool, bool, usize, usize)| {
        let heads = Heads { n_heads: 3, n_kv_heads: 3, head_dim, n_layers: 2, layer: 1 };
        let mut fixture = Fixture::new(heads, f16, Gates::Soft, pos, pos + n_tokens);
        let (proj, columns) = fixture.proj(n_tokens);
        // Beyond the largest f16 too.
        let own = |fixture: &mut Fixture, name| fixture.floats(name, n_tokens * heads.d(), 70_000.0);
        let in_proj = |column| Rows { buffer: proj, stride: columns.stride, column };
        let (k_buffer, v_buffer) = (own(&mut fixture, "k"), own(&mut fixture, "v"));
        let k = if k_own { fixture.rows(k_buffer) } else { in_proj(columns.k) };
        let v = if v_own { fixture.rows(v_buffer) } else { in_proj(columns.v) };
        let name = format!("head_dim={head_dim} f16={f16} k_own={k_own} v_own={v_own} pos={pos} tokens={n_tokens}");
        let step = Step { pos: pos as u32, n_tokens: n_tokens as u32, ..Step::default() };
        let kv = fixture.kv;
        let stored = if f16 { Compare::F16x2(STORED) } else { Compare::Exact };
        let expect = [(kv.k_pages, stored), (kv.v_pages, stored)];
        fixture.case(name, step, &expect, |r| record(r, &heads, &k, &v, &kv))
    };
    let all = [
        (16, true, false, false, 0, 1),
        (32, true, true, false, 1, 63),
        (64, true, false, true, 63, 66),
        (128, true, true, true, 64, 2),
        (16, false, false, false, 65, 64),
        (64, false, true, true, 200, 5),
    ];
    all.map(case).into()
}
