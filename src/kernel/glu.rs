//! y = act(gate) · value, rows of the stacked gate/up product (prefill; decode does it in the product's epilogue).

use super::matvec::GluAct;
use super::{exp, inputs, parallel};
use fearless_simd::{Level, dispatch};

use crate::graph::{
    Args, BindingDecl, BufferId, Case, Compare, Elem, Expect, Extent, Grid, Kernel, Program, Recorder, Role, Step, Tolerance,
    Variant,
};

/// `gate_up: [tokens, 2·width]` to columns `offset..offset + width` of `y: [tokens, stride]`.
pub static GLU: Kernel = Kernel {
    name: "glu",
    wgsl: wgsl!("glu"),
    bindings: &[BindingDecl::read("gate_up", Elem::F32), BindingDecl::write("y", Elem::F32)],
    params: &["width", "stride", "offset"],
    flags: &["SIGMOID"],
    twin,
    fast: Some(fast),
    cases,
    ..Kernel::PLAIN
};

/// Two exponentials and a product: 4 roundings.
const TOLERANCE: Tolerance = Tolerance { nmse: 1e-12, max_abs: 4e-6 };

/// What to record.
#[derive(Clone, Copy, Debug)]
pub struct Glu {
    /// `[tokens, 2·width]`.
    pub gate_up: BufferId,
    /// `[tokens, stride]`.
    pub y: BufferId,
    /// Pairs.
    pub width: usize,
    /// Words from a token's row of y to the next.
    pub stride: usize,
    /// Column of the first pair in y.
    pub offset: usize,
    /// What the gate rows are passed through.
    pub act: GluAct,
}

impl Glu {
    /// Records it for the step's tokens.
    pub fn record(&self, r: &mut Recorder<'_>) {
        let bindings = [r.whole(self.gate_up), r.whole(self.y)];
        let grid = Grid::xy(Extent::Fixed((self.width as u32).div_ceil(64)), Extent::Tokens { per: 1 });
        let params = [self.width, self.stride, self.offset].map(|n| n as u32);
        let variant = Variant::new().flag_if(self.act == GluAct::Sigmoid, "SIGMOID");
        r.dispatch(&GLU, variant, &bindings, &params, grid);
    }
}

fn twin(args: &mut Args<'_>) {
    let [width, stride, offset] = ["width", "stride", "offset"].map(|name| args.param(name));
    let sigmoid = args.has("SIGMOID");
    let (gate_up, y) = (args.take_f32("gate_up"), args.take_f32("y"));
    for t in 0..args.step.n_tokens as usize {
        let (gate, up) = gate_up[t * 2 * width..(t + 1) * 2 * width].split_at(width);
        for i in 0..width {
            let numerator = if sigmoid { 1.0 } else { gate[i] };
            y[t * stride + offset + i] = numerator / (1.0 + (-gate[i]).exp()) * up[i];
        }
    }
}

/// Tokens that a core takes at a time.
const TOKENS_PER_TASK: usize = 16;

fn fast(args: &mut Args<'_>) {
    let [width, stride, offset] = ["width", "stride", "offset"].map(|name| args.param(name));
    let silu = !args.has("SIGMOID");
    let n_tokens = args.step.n_tokens as usize;
    let (gate_up, y) = (&*args.take_f32("gate_up"), args.take_f32("y"));
    parallel::for_chunks(&mut y[..n_tokens * stride], TOKENS_PER_TASK * stride, |first, y| {
        dispatch!(Level::new(), _ => {
            let rows = gate_up[first / stride * 2 * width..].chunks_exact(2 * width);
            for (y, row) in y.chunks_exact_mut(stride).zip(rows) {
                let (gates, up) = row.split_at(width);
                for ((y, gate), up) in y[offset..offset + width].iter_mut().zip(gates).zip(up) {
                    *y = exp::gate(silu, *gate) * up;
                }
            }
        });
    });
}

fn cases() -> Vec<Case> {
    let case = |(tokens, width, offset, act): (usize, usize, usize, GluAct)| {
        let stride = width + 2 * offset;
        let mut program = Program::default();
        let gate_up = program.buffer("gate_up", tokens * 2 * width, Role::Input);
        let y = program.buffer("y", tokens * stride, Role::Output);
        let mut r = program.record("glu");
        Glu { gate_up, y, width, stride, offset, act }.record(&mut r);
        r.finish();
        Case {
            name: format!("tokens={tokens} width={width} offset={offset} {act:?}"),
            program,
            contents: vec![(gate_up, inputs::words(7, tokens * 2 * width, 8.0))],
            step: Step { n_tokens: tokens as u32, ..Step::default() },
            expect: vec![Expect { buffer: y, compare: Compare::F32(TOLERANCE) }],
        }
    };
    [(1, 64, 0, GluAct::Silu), (3, 100, 0, GluAct::Sigmoid), (17, 192, 3, GluAct::Silu)].map(case).into()
}
