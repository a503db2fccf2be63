//! Λ_t = Σ_{s ≤ t} m_s, m = −log(sigmoid(z) + 1e-6): the forget gates of the encoder family's layer, summed over a whole sequence.
//!
//! As in [`super::attention::lambda`], 32.32 fixed point, so that sums are exact and differences too. Here it is signed: a gate
//! that forgets nothing has sigmoid(z) + 1e-6 > 1 and m = −1e-6. m ≤ 13.9, so that 2^31 is out of reach of any sequence.

use super::attention::lambda;
use super::inputs;
use crate::graph::{
    Args, BindingDecl, BufferId, Case, Compare, Elem, Expect, Extent, Grid, Kernel, Program, Recorder, Role, Step, Tolerance,
    Variant,
};

/// Columns of `x: [tokens, stride]` and `bias: [n_heads]` to `lam: [tokens, n_heads]`.
pub static FORGET_SUM: Kernel = Kernel {
    name: "forget_sum",
    wgsl: wgsl!("forget_sum"),
    bindings: &[BindingDecl::read("x", Elem::F32), BindingDecl::read("bias", Elem::F32), BindingDecl::write("lam", Elem::U32x2)],
    params: &["stride", "column", "n_heads"],
    twin,
    cases,
    ..Kernel::PLAIN
};

/// What the layer's authors add to the gate before its logarithm.
const SHIFT: f64 = 1e-6;

/// Records it for the step's tokens: `n_heads` columns from `column` on of `x: [tokens, stride]`.
pub fn record(r: &mut Recorder<'_>, x: BufferId, stride: usize, column: usize, bias: BufferId, lam: BufferId, n_heads: usize) {
    let bindings = [x, bias, lam].map(|buffer| r.whole(buffer));
    let params = [stride, column, n_heads].map(|n| n as u32);
    r.dispatch(&FORGET_SUM, Variant::new(), &bindings, &params, Grid::x(Extent::Fixed(n_heads as u32)));
}

/// −log(sigmoid(z) + 1e-6), on the grid, in two's complement.
pub(super) fn forgotten(z: f64) -> u64 {
    let m = -(1.0 / (1.0 + (-z).exp()) + SHIFT).ln();
    (m * (1u64 << 32) as f64).round_ties_even() as i64 as u64
}

fn twin(args: &mut Args<'_>) {
    let [stride, column, n_heads] = ["stride", "column", "n_heads"].map(|name| args.param(name));
    let (x, bias, lam) = (args.take_f32("x"), args.take_f32("bias"), args.take("lam"));
    for head in 0..n_heads {
        let mut sum = 0u64;
        for t in 0..args.step.n_tokens as usize {
            sum = sum.wrapping_add(forgotten(f64::from(x[t * stride + column + head]) + f64::from(bias[head])));
            lambda::write(lam, t * n_heads + head, sum);
        }
    }
}

fn cases() -> Vec<Case> {
    // Middle and spread of z, and the largest m.
    let case = |(name, middle, spread, largest, n_heads, tokens): (&str, f32, f32, f64, usize, usize)| {
        let (stride, column) = (n_heads + 5, 2);
        let mut program = Program::default();
        let x = program.buffer("x", tokens * stride, Role::Input);
        let bias = program.buffer("bias", n_heads, Role::Weight);
        let lam = program.buffer("lam", 2 * tokens * n_heads, Role::Output);
        let mut r = program.record("forget_sum");
        record(&mut r, x, stride, column, bias, lam, n_heads);
        r.finish();
        let z = inputs::floats(41, tokens * stride, spread).into_iter().map(|z| (z + middle).to_bits());
        // An exponential of WGSL may be off by 3 + 2·|z| units: 24 units of 2^-24 of the largest m, all in one direction.
        let max_abs = tokens as f64 * largest * 24.0 / f64::from(1 << 24) + 1e-9;
        let compare = Compare::Fixed64(Tolerance { nmse: 1e-10, max_abs });
        Case {
            name: format!("{name} heads={n_heads} tokens={tokens}"),
            program,
            contents: vec![(x, z.collect()), (bias, inputs::words(42, n_heads, 0.1))],
            step: Step { n_tokens: tokens as u32, ..Step::default() },
            expect: vec![Expect { buffer: lam, compare }],
        }
    };
    let all = [
        ("soft", 4.6, 1.0, 0.03, 3, 1),
        ("hard", -2.7, 1.0, 4.0, 2, 70),
        ("around 0", 0.0, 0.5, 1.0, 1, 300),
        ("forgets all", -60.0, 30.0, 14.0, 2, 65),
        ("forgets nothing", 60.0, 30.0, 1e-6, 2, 129),
        ("either", 0.0, 90.0, 14.0, 4, 64),
    ];
    all.map(case).into()
}
