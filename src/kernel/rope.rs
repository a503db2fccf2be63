//! Rotary positions of q or k in prefill (decode turns them inside its attention): channel c of a head's first half and channel c
//! of its second are the two sides of a right angle, turned by position · base^(−2c/h).
//!
//! Cosines and sines come from a table that the CPU makes in f64: some software adapters' own are off by 4e-4.

use super::Rows;
use super::attention::cases::{Fixture, Gates};
use super::attention::{Heads, Vectors};
use crate::graph::{Args, BindingDecl, Case, Compare, Elem, Extent, Grid, Kernel, Recorder, Step, Tolerance, Variant};

/// Columns of `x: [tokens, stride]` in place, by the rows of a table `[positions, 2, half]` in `vectors`.
pub static ROPE: Kernel = Kernel {
    name: "rope",
    wgsl: wgsl!("rope"),
    bindings: &[BindingDecl::read("vectors", Elem::F32), BindingDecl::write("x", Elem::F32)],
    params: &["pairs", "half", "stride", "column", "table"],
    twin,
    cases,
    ..Kernel::PLAIN
};

/// Two products and a sum, of numbers up to 2.
const TOLERANCE: Tolerance = Tolerance { nmse: 1e-13, max_abs: 1e-6 };

/// Records it for `n_heads` neighbouring heads of the layer's width.
///
/// # Panics
/// When `vectors` has no table.
pub fn record(r: &mut Recorder<'_>, n_heads: usize, head_dim: usize, vectors: &Vectors, x: &Rows) {
    let table = vectors.rope.unwrap_or_else(|| unreachable!("rotations are recorded only for a model that has them"));
    let half = head_dim / 2;
    let pairs = n_heads * half;
    let params = [pairs, half, x.stride, x.column, table].map(|param| param as u32);
    let bindings = [r.whole(vectors.buffer), r.whole(x.buffer)];
    let grid = Grid::xy(Extent::Fixed((pairs as u32).div_ceil(64)), Extent::Tokens { per: 1 });
    r.dispatch(&ROPE, Variant::new(), &bindings, &params, grid);
}

fn twin(args: &mut Args<'_>) {
    let [pairs, half, stride] = ["pairs", "half", "stride"].map(|name| args.param(name));
    let (column, table) = (args.param("column"), args.param("table"));
    let (vectors, x) = (args.take_f32("vectors"), args.take_f32("x"));
    for t in 0..args.step.n_tokens as usize {
        let angles = &vectors[table + (args.step.pos as usize + t) * 2 * half..][..2 * half];
        for head in x[t * stride + column..][..2 * pairs].chunks_exact_mut(2 * half) {
            for c in 0..half {
                let [cos, sin] = [angles[c], angles[half + c]].map(f64::from);
                let (first, second) = (f64::from(head[c]), f64::from(head[half + c]));
                head[c] = (first * cos - second * sin) as f32;
                head[half + c] = (second * cos + first * sin) as f32;
            }
        }
    }
}

fn cases() -> Vec<Case> {
    let case = |(head_dim, n_heads, pos, n_tokens): (usize, usize, usize, usize)| {
        let heads = Heads { n_heads, n_kv_heads: n_heads, head_dim, n_layers: 1, layer: 0 };
        let mut fixture = Fixture::new(heads, true, Gates::Soft, 0, 1);
        let (proj, columns) = fixture.proj(n_tokens);
        let vectors = fixture.vectors(pos + n_tokens);
        let rows = Rows { buffer: proj, stride: columns.stride, column: columns.k };
        let name = format!("heads={n_heads} head_dim={head_dim} pos={pos} tokens={n_tokens}");
        let step = Step { pos: pos as u32, n_tokens: n_tokens as u32, ..Step::default() };
        fixture.case(name, step, &[(proj, Compare::F32(TOLERANCE))], |r| record(r, n_heads, head_dim, &vectors, &rows))
    };
    [(16, 3, 0, 1), (64, 2, 63, 70), (24, 5, 200, 3), (128, 1, 1, 66)].map(case).into()
}
