//! o = o · sigmoid(g) or o · silu(g): the output gate in prefill (decode does it while merging splits).

use super::attention::cases::{Fixture, Gates};
use super::attention::{GateAct, Heads, Proj};
use super::{exp, parallel};
use fearless_simd::{Level, dispatch};

use crate::graph::{Args, BindingDecl, BufferId, Case, Compare, Elem, Extent, Grid, Kernel, Recorder, Step, Tolerance, Variant};

/// Columns of `proj: [tokens, stride]`, and `o: [tokens, width]` in place.
pub static OUTPUT_GATE: Kernel = Kernel {
    name: "output_gate",
    wgsl: wgsl!("output_gate"),
    bindings: &[BindingDecl::read("proj", Elem::F32), BindingDecl::write("o", Elem::F32)],
    params: &["width", "stride", "column"],
    flags: &["GATE_SILU"],
    twin,
    fast: Some(fast),
    cases,
    ..Kernel::PLAIN
};

/// An exponential, a division and two products, of numbers up to 4.
const TOLERANCE: Tolerance = Tolerance { nmse: 1e-12, max_abs: 4e-6 };

/// Records it on `o: [tokens, d]`.
///
/// # Panics
/// When `columns` has no gate.
pub fn record(r: &mut Recorder<'_>, heads: &Heads, proj: BufferId, columns: &Proj, act: GateAct, o: BufferId) {
    let column = columns.gate.unwrap_or_else(|| unreachable!("an output gate is recorded only for a model that has it"));
    let width = heads.d() as u32;
    let grid = Grid::xy(Extent::Fixed(width.div_ceil(64)), Extent::Tokens { per: 1 });
    let bindings = [r.whole(proj), r.whole(o)];
    let params = [width, columns.stride as u32, column as u32];
    r.dispatch(&OUTPUT_GATE, Variant::new().flag_if(act == GateAct::Silu, "GATE_SILU"), &bindings, &params, grid);
}

fn twin(args: &mut Args<'_>) {
    let [width, stride, column] = ["width", "stride", "column"].map(|name| args.param(name));
    let silu = args.has("GATE_SILU");
    let (proj, o) = (args.take_f32("proj"), args.take_f32("o"));
    for t in 0..args.step.n_tokens as usize {
        for c in 0..width {
            let gate = GateAct::apply(silu, f64::from(proj[t * stride + column + c]));
            o[t * width + c] = (f64::from(o[t * width + c]) * gate) as f32;
        }
    }
}

/// Tokens that a core takes at a time.
const TOKENS_PER_TASK: usize = 16;

fn fast(args: &mut Args<'_>) {
    let [width, stride, column] = ["width", "stride", "column"].map(|name| args.param(name));
    let silu = args.has("GATE_SILU");
    let n_tokens = args.step.n_tokens as usize;
    let (proj, o) = (&*args.take_f32("proj"), args.take_f32("o"));
    parallel::for_chunks(&mut o[..n_tokens * width], TOKENS_PER_TASK * width, |first, o| {
        dispatch!(Level::new(), _ => {
            for (t, o) in (first / width..).zip(o.chunks_exact_mut(width)) {
                for (o, gate) in o.iter_mut().zip(&proj[t * stride + column..]) {
                    *o *= exp::gate(silu, *gate);
                }
            }
        });
    });
}

fn cases() -> Vec<Case> {
    let case = |(head_dim, n_heads, n_tokens, act): (usize, usize, usize, GateAct)| {
        let heads = Heads { n_heads, n_kv_heads: n_heads, head_dim, n_layers: 1, layer: 0 };
        let mut fixture = Fixture::new(heads, true, Gates::Soft, 0, 1);
        let (proj, columns) = fixture.proj(n_tokens);
        let o = fixture.floats("o", n_tokens * heads.d(), 2.0);
        let name = format!("width={} tokens={n_tokens} {act:?}", heads.d());
        let step = Step { n_tokens: n_tokens as u32, ..Step::default() };
        let expect = [(o, Compare::F32(TOLERANCE))];
        fixture.case(name, step, &expect, |r| record(r, &heads, proj, &columns, act, o))
    };
    [(16, 3, 1, GateAct::Sigmoid), (64, 2, 5, GateAct::Silu), (128, 1, 65, GateAct::Sigmoid)].map(case).into()
}
