//! y = s·s_t · (W · q) for a ternary matrix W and int8 activations q: integers times integers, summed exactly in i32, scaled once.
//!
//! |sum| ≤ 128 · width, so i32 holds rows of up to 2^24 weights.

use super::quantize_rows::Activations;
use super::ternary::{self, TernaryPart};
use super::{inputs, parallel};
use crate::graph::{
    Args, BindingDecl, BufferId, Case, Compare, Elem, Expect, Extent, Grid, Kernel, Program, Recorder, Role, Step, Tolerance,
    Variant,
};

/// `data: [n_rows, groups]`, `q: [tokens, groups, 4]`, `scales: [tokens]` to columns of `y: [tokens, out_stride]`.
pub static TERNARY_MATMUL: Kernel = Kernel {
    name: "ternary_matmul",
    wgsl: wgsl!("ternary_matmul"),
    bindings: &[
        BindingDecl::read("data", Elem::U32x4),
        BindingDecl::read("q", Elem::U32x4),
        BindingDecl::read("scales", Elem::F32),
        BindingDecl::write("y", Elem::F32),
    ],
    params: &["n_rows", "groups", "out_stride", "out_offset", "scale"],
    twin,
    fast: Some(fast),
    cases,
    ..Kernel::PLAIN
};

/// An exact sum below 2^24, two roundings of its scale: a relative error of 1.2e-7, of values up to about 20.
const TOLERANCE: Tolerance = Tolerance { nmse: 1e-13, max_abs: 4e-6 };

/// Rows and tokens of a workgroup; the shader has the same.
const TILE: u32 = 32;

/// Records it for the step's tokens, into columns from `out_offset` on of `y: [tokens, out_stride]`.
pub fn record(r: &mut Recorder<'_>, part: &TernaryPart, x: Activations, y: BufferId, out_stride: usize, out_offset: usize) {
    let bindings = [part.data, x.q, x.scales, y].map(|buffer| r.whole(buffer));
    let counts = [part.n_rows, ternary::groups(part.width), out_stride, out_offset].map(|n| n as u32);
    let params = [&counts[..], &[part.scale.to_bits()]].concat();
    let grid = Grid::xy(Extent::Fixed((part.n_rows as u32).div_ceil(TILE)), Extent::Tokens { per: TILE });
    r.dispatch(&TERNARY_MATMUL, Variant::new(), &bindings, &params, grid);
}

fn int8(row: &[u32], ix: usize) -> i32 {
    i32::from((row[ix / 4] >> (ix % 4 * 8)) as i8)
}

fn twin(args: &mut Args<'_>) {
    let [n_rows, groups, stride, offset] = ["n_rows", "groups", "out_stride", "out_offset"].map(|name| args.param(name));
    let scale = f64::from(args.param_f32("scale"));
    let (data, q) = (args.take("data"), args.take("q"));
    let (scales, y) = (args.take_f32("scales"), args.take_f32("y"));
    for t in 0..args.step.n_tokens as usize {
        let x = &q[t * groups * 16..(t + 1) * groups * 16];
        for row in 0..n_rows {
            let w = &data[row * groups * 4..(row + 1) * groups * 4];
            let sum: i32 = (0..groups * ternary::GROUP).map(|c| ternary::weight(w, c) * int8(x, c)).sum();
            y[t * stride + offset + row] = (f64::from(sum) * scale * f64::from(scales[t])) as f32;
        }
    }
}

/// Rows that a core unpacks at a time.
const ROWS_PER_TASK: usize = 32;

fn fast(args: &mut Args<'_>) {
    let [n_rows, groups, stride, offset] = ["n_rows", "groups", "out_stride", "out_offset"].map(|name| args.param(name));
    let scale = args.param_f32("scale");
    let (data, q) = (&*args.take("data"), args.take("q"));
    let (scales, y) = (args.take_f32("scales"), args.take_f32("y"));
    let (n_tokens, width) = (args.step.n_tokens as usize, groups * ternary::GROUP);
    let x: Vec<i16> = (0..n_tokens * width).map(|ix| int8(q, ix) as i16).collect();
    let tasks = parallel::map_ranges(n_rows, ROWS_PER_TASK, |rows| {
        let mut w = vec![0i16; width];
        let mut sums = Vec::with_capacity(rows.len() * n_tokens);
        for row in rows {
            let packed = &data[row * groups * 4..(row + 1) * groups * 4];
            for (c, w) in w.iter_mut().enumerate() {
                *w = ternary::weight(packed, c) as i16;
            }
            let dot = |x: &[i16]| -> i32 { x.iter().zip(&w).map(|(x, w)| i32::from(*x) * i32::from(*w)).sum() };
            sums.extend(x.chunks_exact(width).map(dot));
        }
        sums
    });
    for (row, sums) in tasks.iter().flat_map(|sums| sums.chunks_exact(n_tokens.max(1))).enumerate() {
        for (t, sum) in sums.iter().enumerate() {
            y[t * stride + offset + row] = *sum as f32 * (scale * scales[t]);
        }
    }
}

fn cases() -> Vec<Case> {
    let case = |(n_rows, width, tokens): (usize, usize, usize)| {
        let (stride, offset) = (n_rows + 7, 3);
        let mut program = Program::default();
        let mut contents = Vec::new();
        let part = ternary::sample_part(&mut program, &mut contents, n_rows, width);
        // Any bytes are activations, −128 too; behind the true width W is 0.
        let random = |seed, n| inputs::floats(seed, n, 1.0).into_iter().map(|x| ((x + 1.0) * 2e9) as u32);
        let words: Vec<u32> = random(22, tokens * ternary::activation_words(width)).collect();
        let x = Activations {
            q: program.buffer("q", words.len(), Role::Input),
            scales: program.buffer("scales", tokens, Role::Input),
        };
        contents.push((x.q, words));
        contents.push((x.scales, inputs::words(23, tokens, 0.01)));
        let y = program.buffer("y", tokens * stride, Role::Output);
        let mut r = program.record("ternary_matmul");
        record(&mut r, &part, x, y, stride, offset);
        r.finish();
        Case {
            name: format!("rows={n_rows} width={width} tokens={tokens}"),
            program,
            contents,
            step: Step { n_tokens: tokens as u32, ..Step::default() },
            expect: vec![Expect { buffer: y, compare: Compare::F32(TOLERANCE) }],
        }
    };
    [(1, 4, 1), (4, 64, 37), (33, 100, 3), (64, 768, 65), (130, 1280, 33)].map(case).into()
}
