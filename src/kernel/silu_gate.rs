//! y = silu(gate) · value, rows of the stacked gate/up product (prefill; decode does it in the product's epilogue).

use super::inputs;
use crate::graph::{
    Args, BindingDecl, BufferId, Case, Compare, Elem, Expect, Extent, Grid, Kernel, Program, Recorder, Role, Step, Tolerance,
    Variant,
};

/// `gate_up: [tokens, 2·width]` to columns `offset..offset + width` of `y: [tokens, stride]`.
pub static SILU_GATE: Kernel = Kernel {
    name: "silu_gate",
    wgsl: include_str!("../../shaders/silu_gate.wgsl"),
    bindings: &[BindingDecl::read("gate_up", Elem::F32), BindingDecl::write("y", Elem::F32)],
    params: &["width", "stride", "offset"],
    uses_step: true,
    flags: &[],
    consts: &[],
    twin,
    fast: None,
    cases,
};

/// Two exponentials and a product: 4 roundings.
const TOLERANCE: Tolerance = Tolerance { nmse: 1e-12, max_abs: 4e-6 };

/// Records it for the step's tokens: `gate_up` [tokens, 2·width] into columns of `y` [tokens, stride].
pub fn record(r: &mut Recorder<'_>, gate_up: BufferId, y: BufferId, width: usize, stride: usize, offset: usize) {
    let bindings = [r.whole(gate_up), r.whole(y)];
    let grid = Grid::xy(Extent::Fixed((width as u32).div_ceil(64)), Extent::Tokens { per: 1 });
    r.dispatch(&SILU_GATE, Variant::new(), &bindings, &[width, stride, offset].map(|n| n as u32), grid);
}

fn twin(args: &mut Args<'_>) {
    let [width, stride, offset] = ["width", "stride", "offset"].map(|name| args.param(name));
    let (gate_up, y) = (args.take_f32("gate_up"), args.take_f32("y"));
    for t in 0..args.step.n_tokens as usize {
        let (gate, up) = gate_up[t * 2 * width..(t + 1) * 2 * width].split_at(width);
        for i in 0..width {
            y[t * stride + offset + i] = gate[i] / (1.0 + (-gate[i]).exp()) * up[i];
        }
    }
}

fn cases() -> Vec<Case> {
    let case = |(tokens, width, offset): (usize, usize, usize)| {
        let stride = width + 2 * offset;
        let mut program = Program::default();
        let gate_up = program.buffer("gate_up", tokens * 2 * width, Role::Input);
        let y = program.buffer("y", tokens * stride, Role::Output);
        let mut r = program.record("silu_gate");
        record(&mut r, gate_up, y, width, stride, offset);
        r.finish();
        Case {
            name: format!("tokens={tokens} width={width} offset={offset}"),
            program,
            contents: vec![(gate_up, inputs::words(7, tokens * 2 * width, 8.0))],
            step: Step { n_tokens: tokens as u32, ..Step::default() },
            expect: vec![Expect { buffer: y, compare: Compare::F32(TOLERANCE) }],
        }
    };
    [(1, 64, 0), (3, 100, 0), (17, 192, 3)].map(case).into()
}
