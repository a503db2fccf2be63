//! y = silu(gate) · value, rows of the stacked gate/up product (prefill; decode does it in the product's epilogue).

use super::inputs;
use crate::graph::{
    Args, BindingDecl, BufferId, Case, Compare, Elem, Expect, Extent, Grid, Kernel, Program, Recorder, Role, Step, Tolerance,
    Variant,
};

/// `gate_up: [tokens, 2·width]` to `y: [tokens, width]`.
pub static SILU_GATE: Kernel = Kernel {
    name: "silu_gate",
    wgsl: include_str!("../../shaders/silu_gate.wgsl"),
    bindings: &[BindingDecl::read("gate_up", Elem::F32), BindingDecl::write("y", Elem::F32)],
    params: &["width"],
    uses_step: true,
    flags: &[],
    consts: &[],
    twin,
    fast: None,
    cases,
};

/// Two exponentials and a product: 4 roundings.
const TOLERANCE: Tolerance = Tolerance { nmse: 1e-12, max_abs: 4e-6 };

/// Records it for up to the step's tokens.
pub fn record(r: &mut Recorder<'_>, gate_up: BufferId, y: BufferId, width: usize) {
    let bindings = [r.whole(gate_up), r.whole(y)];
    let grid = Grid::xy(Extent::Fixed((width as u32).div_ceil(64)), Extent::Tokens { per: 1 });
    r.dispatch(&SILU_GATE, Variant::new(), &bindings, &[width as u32], grid);
}

fn twin(args: &mut Args<'_>) {
    let width = args.param("width");
    let (gate_up, y) = (args.take_f32("gate_up"), args.take_f32("y"));
    for t in 0..args.step.n_tokens as usize {
        let (gate, up) = gate_up[t * 2 * width..(t + 1) * 2 * width].split_at(width);
        for i in 0..width {
            y[t * width + i] = gate[i] / (1.0 + (-gate[i]).exp()) * up[i];
        }
    }
}

fn cases() -> Vec<Case> {
    let case = |(tokens, width): (usize, usize)| {
        let mut program = Program::default();
        let gate_up = program.buffer("gate_up", tokens * 2 * width, Role::Input);
        let y = program.buffer("y", tokens * width, Role::Output);
        let mut r = program.record("silu_gate");
        record(&mut r, gate_up, y, width);
        r.finish();
        Case {
            name: format!("tokens={tokens} width={width}"),
            program,
            contents: vec![(gate_up, inputs::words(7, tokens * 2 * width, 8.0))],
            step: Step { n_tokens: tokens as u32, ..Step::default() },
            expect: vec![Expect { buffer: y, compare: Compare::F32(TOLERANCE) }],
        }
    };
    [(1, 64), (3, 100), (17, 192)].map(case).into()
}
