//! Every type at every edge, every flag alone and as the model combines them.

use super::{Bias, Epilogue, Gates, GluAct, MatVec, Norm};
use crate::graph::{BufferId, Case, Compare, Dispatch, Expect, Program, Role, Step, Tolerance};
use crate::kernel::inputs;
use crate::kernel::layout::{self, WeightType};

/// Products of k ≤ 1280 terms in f32: each sum of k / lanes terms has a relative error of about √(k / lanes) · 6e-8 of its
/// size, below 1e-6; the squares of x likewise.
const TOLERANCE: Tolerance = Tolerance { nmse: 1e-12, max_abs: 1e-5 };

/// What is special about a case.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernel) struct Special {
    pub(in crate::kernel) ty: WeightType,
    pub(in crate::kernel) rows: usize,
    pub(in crate::kernel) k: usize,
    pub(in crate::kernel) norm: bool,
    pub(in crate::kernel) n_gates: usize,
    pub(in crate::kernel) bias: bool,
    pub(in crate::kernel) epilogue: Epilogue,
    /// 0: x is one row.
    pub(in crate::kernel) tokens: usize,
}

/// What a dispatch does, with few rows.
pub(in crate::kernel) fn probe(dispatch: &Dispatch) -> Case {
    let has = |flag: &str| dispatch.variant.has(flag);
    let act = if has("SIGMOID") { GluAct::Sigmoid } else { GluAct::Silu };
    let epilogue = match (has("GLU"), has("RESIDUAL")) {
        (true, _) => Epilogue::Glu(act),
        (false, true) => Epilogue::Residual,
        (false, false) => Epilogue::Store,
    };
    case(Special {
        ty: WeightType::of(has),
        rows: 70,
        k: dispatch.param("k") as usize,
        norm: has("NORM"),
        n_gates: if has("GATES") { 5 } else { 0 },
        bias: has("BIAS"),
        epilogue,
        tokens: if has("LAST_ROW") { 2 } else { 0 },
    })
}

pub(in crate::kernel) fn cases() -> Vec<Case> {
    let plain = |ty, rows, k| Special { ty, rows, k, norm: false, n_gates: 0, bias: false, epilogue: Epilogue::Store, tokens: 0 };
    let (silu, sigmoid) = (Epilogue::Glu(GluAct::Silu), Epilogue::Glu(GluAct::Sigmoid));
    let mut all = Vec::new();
    for ty in WeightType::ALL {
        // Narrow ones as narrow as the type allows.
        let narrow = |k: usize| k.max(ty.block());
        let fits = |(_, k): &(usize, usize)| k.is_multiple_of(ty.block());
        let edges = [(1, narrow(32)), (5, narrow(96)), (64, 512), (130, 1280), (5, 36), (37, 44), (7, 768), (4099, 64)];
        all.extend(edges.into_iter().filter(fits).map(|(rows, k)| plain(ty, rows, k)));
        for (rows, k) in [(5, narrow(96)), (130, 512)] {
            let plain = plain(ty, rows, k);
            all.push(Special { norm: true, ..plain });
            all.push(Special { n_gates: 3, ..plain });
            all.push(Special { norm: true, n_gates: 24, ..plain });
            all.push(Special { epilogue: Epilogue::Residual, ..plain });
            all.push(Special { norm: true, epilogue: Epilogue::Residual, n_gates: 1, ..plain });
            all.push(Special { tokens: 3, norm: true, ..plain });
        }
        for (rows, k) in [(2, narrow(32)), (10, narrow(96)), (130, 512), (4102, 64)].into_iter().filter(fits) {
            all.push(Special { epilogue: silu, ..plain(ty, rows, k) });
            all.push(Special { epilogue: silu, norm: true, ..plain(ty, rows, k) });
        }
    }
    // What does not mind the type.
    for (rows, k) in [(6, 96), (130, 512)] {
        let plain = plain(WeightType::F32, rows, k);
        all.push(Special { norm: true, bias: true, n_gates: 2, ..plain });
        all.push(Special { bias: true, epilogue: Epilogue::Residual, ..plain });
        all.push(Special { epilogue: sigmoid, norm: true, ..plain });
    }
    // More workgroups than one axis has.
    all.push(plain(WeightType::Q4_0, 1_050_001, 32));
    all.into_iter().map(case).collect()
}

pub(in crate::kernel) fn case(special: Special) -> Case {
    let Special { ty, rows, k, norm, n_gates, bias, epilogue, tokens } = special;
    let (out_offset, gates_offset) = (3, rows + 5);
    let x_words = (tokens + 1) * k;
    let mut program = Program::default();
    let mut contents: Vec<(BufferId, Vec<u32>)> = Vec::new();
    let part = layout::sample_part(&mut program, &mut contents, ty, rows, k);
    let mut input = |program: &mut Program, name, words, scale| {
        let buffer = program.buffer(name, words, Role::Input);
        contents.push((buffer, inputs::words(buffer.0 + 20, words, scale)));
        buffer
    };
    let x = input(&mut program, "x", x_words, 1.0);
    let y = input(&mut program, "y", gates_offset + n_gates + 2, 1.0);
    let norm_weight = norm.then(|| input(&mut program, "norm_weight", k, 1.5));
    let bias = bias.then(|| Bias { buffer: input(&mut program, "bias", rows + 9, 1.0), offset: 7 });
    let gates = (n_gates > 0).then(|| input(&mut program, "gates", n_gates * k, 0.1));
    let mut r = program.record("matvec");
    let norm = norm_weight.map(|weight| Norm { weight, eps: 1e-6 });
    let gates = gates.map(|weight| Gates { weight, n_gates, out_offset: gates_offset });
    MatVec { part, x, y, out_offset, norm, gates, bias, epilogue, last_row: tokens > 0 }.record(&mut r);
    r.finish();
    Case {
        name: format!("{special:?}"),
        program,
        contents,
        step: Step { n_tokens: tokens.max(1) as u32, ..Step::default() },
        expect: vec![Expect { buffer: y, compare: Compare::F32(TOLERANCE) }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Extent;

    #[test]
    fn the_largest_case_is_folded_over_two_axes() {
        let cases = cases();
        let largest = &cases[cases.len() - 1].program.graphs[0].dispatches[0];
        assert!(matches!(largest.grid.0[1], Extent::Fixed(y) if y > 1), "{:?}", largest.grid);
    }
}
