//! Every type at every edge of the tiles, with and without bias and residual.

use super::{Bias, MatMul, TOLERANCE};
use crate::graph::{Case, Compare, Dispatch, Expect, Program, Role, Step};
use crate::kernel::inputs;
use crate::kernel::layout::{self, WeightType};

pub(in crate::kernel) fn cases() -> Vec<Case> {
    let shapes = [
        (1, 32, 1),
        (5, 96, 3),
        (64, 512, 64),
        (130, 1280, 65),
        (5, 36, 9),
        (37, 44, 33),
        (7, 768, 5),
        (1030, 64, 65),
        (1024, 96, 3),
        // More than a large tile on both sides; y's rows have 7 words more than W's: of 517 rows they are whole vec4.
        (517, 64, 131),
        (526, 96, 130),
    ];
    // A bias does not mind the type.
    let mut cases: Vec<Case> = shapes.iter().map(|shape| case(WeightType::F32, *shape, shape.2 > 9, true)).collect();
    cases.extend([case(WeightType::Q4_0, (517, 64, 131), false, true), case(WeightType::F16, (526, 96, 130), true, true)]);
    for ty in WeightType::ALL {
        // Narrow ones as narrow as the type allows.
        let shapes = shapes.map(|(rows, k, tokens)| (rows, k.max(ty.block()), tokens));
        let fits = shapes.into_iter().filter(|(_, k, _)| k.is_multiple_of(ty.block()));
        cases.extend(fits.flat_map(|shape| [case(ty, shape, false, false), case(ty, shape, true, false)]));
    }
    cases
}

/// Of enough rows for the alternatives, some of them beyond a large tile; wide tiles are recorded for 1024 rows and more.
pub(in crate::kernel) fn probe(dispatch: &Dispatch) -> Case {
    let ty = WeightType::of(|flag| dispatch.variant.has(flag));
    let rows = if dispatch.variant.has("WIDE") { 1030 } else { 517 };
    case(ty, (rows, ty.padded(64), 33), dispatch.variant.has("RESIDUAL"), dispatch.variant.has("BIAS"))
}

/// A plain product of `[rows, k]` weights with `tokens` rows of x, as a model has it: for measurements.
pub fn sample(ty: WeightType, [rows, k, tokens]: [usize; 3]) -> Case {
    case_in((rows, 0), ty, (rows, k, tokens), false, false)
}

pub(in crate::kernel) fn case(ty: WeightType, shape: (usize, usize, usize), residual: bool, has_bias: bool) -> Case {
    let out_stride = shape.0 + 7;
    let out_offset = if out_stride.is_multiple_of(4) { 4 } else { 3 };
    case_in((out_stride, out_offset), ty, shape, residual, has_bias)
}

fn case_in(
    (out_stride, out_offset): (usize, usize),
    ty: WeightType,
    (rows, k, tokens): (usize, usize, usize),
    residual: bool,
    has_bias: bool,
) -> Case {
    let mut program = Program::default();
    let mut contents = Vec::new();
    let part = layout::sample_part(&mut program, &mut contents, ty, rows, k);
    // Room for a token more than the step has.
    let x = program.buffer("x", (tokens + 1) * k, Role::Input);
    let y = program.buffer("y", (tokens + 1) * out_stride, Role::Output);
    let bias = has_bias.then(|| Bias { buffer: program.buffer("bias", rows + 9, Role::Weight), offset: 7 });
    contents.extend(bias.map(|bias| (bias.buffer, inputs::words(10, rows + 9, 1.0))));
    let mut r = program.record("matmul");
    MatMul { part, x, y, out_stride, out_offset, bias, residual }.record(&mut r);
    r.finish();
    contents.push((x, inputs::words(8, (tokens + 1) * k, 1.0)));
    contents.push((y, inputs::words(9, (tokens + 1) * out_stride, 1.0)));
    Case {
        name: format!("{} rows={rows} k={k} tokens={tokens} residual={residual} bias={has_bias}", ty.name()),
        program,
        contents,
        step: Step { n_tokens: tokens as u32, ..Step::default() },
        expect: vec![Expect { buffer: y, compare: Compare::F32(TOLERANCE) }],
    }
}
