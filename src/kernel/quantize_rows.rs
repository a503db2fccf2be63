//! The activations of BitNet b1.58: int8 per token by the largest magnitude m of its row, q = round(x · 127 / m) to even.
//!
//! The quotient 127 / m may be off by 2.5 units in WGSL, so where x · 127 / m lies within about 3e-5 of a half, two devices may round
//! it two ways; so may two versions of the official code.

use super::{inputs, ternary};
use crate::graph::{
    Args, BindingDecl, BufferId, Case, Compare, Elem, Expect, Extent, Grid, Kernel, Program, Recorder, Role, Step, Tolerance,
    Variant,
};

/// `x: [tokens, width]` to `q: [tokens, words]` (four int8 a word) and `scales: [tokens]`.
pub static QUANTIZE_ROWS: Kernel = Kernel {
    name: "quantize_rows",
    wgsl: wgsl!("quantize_rows"),
    bindings: &[BindingDecl::read("x", Elem::F32), BindingDecl::write("q", Elem::U32), BindingDecl::write("scales", Elem::F32)],
    params: &["width", "words"],
    twin,
    cases,
    ..Kernel::PLAIN
};

/// A quotient off by 2.5 units of 2^-24.
const TOLERANCE: Tolerance = Tolerance { nmse: 1e-13, max_abs: 1e-6 };

/// Smallest m: a row of zeros has a scale too.
const MIN: f32 = 1e-5;

/// Quantized activations of the step's tokens.
#[derive(Clone, Copy, Debug)]
pub struct Activations {
    /// `[tokens, activation_words(width)]`.
    pub q: BufferId,
    /// `[tokens]`.
    pub scales: BufferId,
}

/// Records it for the step's tokens: `x` is `[tokens, width]`.
pub fn record(r: &mut Recorder<'_>, x: BufferId, to: Activations, width: usize) {
    let bindings = [x, to.q, to.scales].map(|buffer| r.whole(buffer));
    let params = [width, ternary::activation_words(width)].map(|n| n as u32);
    r.dispatch(&QUANTIZE_ROWS, Variant::new(), &bindings, &params, Grid::x(Extent::Tokens { per: 1 }));
}

fn twin(args: &mut Args<'_>) {
    let (width, words) = (args.param("width"), args.param("words"));
    let (x, q, scales) = (args.take_f32("x"), args.take("q"), args.take_f32("scales"));
    for t in 0..args.step.n_tokens as usize {
        let row = &x[t * width..(t + 1) * width];
        let m = row.iter().fold(MIN, |m, x| m.max(x.abs()));
        scales[t] = m / 127.0;
        let inverse = 127.0 / m;
        for (at, word) in q[t * words..(t + 1) * words].iter_mut().enumerate() {
            let int8 = |i: usize| row.get(i).map_or(0, |x| (x * inverse).round_ties_even().clamp(-128.0, 127.0) as i8 as u8);
            *word = u32::from_le_bytes([0, 1, 2, 3].map(|byte| int8(4 * at + byte)));
        }
    }
}

fn cases() -> Vec<Case> {
    let case = |(tokens, width, m): (usize, usize, f32)| {
        let mut program = Program::default();
        let words = tokens * ternary::activation_words(width);
        let x = program.buffer("x", tokens * width, Role::Input);
        let to =
            Activations { q: program.buffer("q", words, Role::Output), scales: program.buffer("scales", tokens, Role::Output) };
        let mut r = program.record("quantize_rows");
        record(&mut r, x, to, width);
        r.finish();
        // Steps of m / 127 and up to 0.4 of one, so that no quotient decides; with m = 127, halves, which are exact.
        let value = |(ix, unit): (usize, f32)| {
            let step = (unit * 128.0).trunc().clamp(-126.0, 126.0);
            match ix % width {
                0 if ix / width % 2 == 0 => m,
                0 => -m,
                1 => 0.0,
                _ if m == 127.0 => step + 0.5 * step.signum(),
                _ => (step + 0.4 * (unit * 999.0).fract()) * (m / 127.0),
            }
        };
        let values = inputs::floats(31, tokens * width, 1.0).into_iter().enumerate().map(value);
        let quantized = Expect { buffer: to.q, compare: Compare::Exact };
        Case {
            name: format!("tokens={tokens} width={width} largest={m}"),
            program,
            contents: vec![(x, values.map(f32::to_bits).collect())],
            step: Step { n_tokens: tokens as u32, ..Step::default() },
            expect: vec![quantized, Expect { buffer: to.scales, compare: Compare::F32(TOLERANCE) }],
        }
    };
    [(1, 4, 1.0), (3, 64, 127.0), (37, 100, 3.7), (5, 768, 1e-4), (2, 60, 0.0), (2, 64, 1e-7), (9, 300, 100.0)].map(case).into()
}
