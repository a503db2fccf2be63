//! The product of [`super::matmul`] by cooperative matrices, which multiply f16 and add in f32.
//!
//! Same bindings, params and twin; for weights narrower than f32 but bf16 (whose numbers f16 does not reach), in rows of whole blocks of 32. The weights and
//! x are rounded to f16 on their way into workgroup memory (x beyond ±65504 to that), so f32 models never come here and stay as exact as they are.

use super::layout::{self, N_FLAGS, WeightType};
use super::matmul;
use crate::graph::{Alternative, Alternatives, CoopScalar, CoopShape, Dispatch, Features, Kernel, Need, Tolerance};

/// As [`matmul::MATMUL`].
pub static MATMUL_COOP: Kernel = Kernel {
    name: "matmul_coop",
    wgsl: wgsl!("matmul_coop"),
    bindings: matmul::BINDINGS,
    params: matmul::PARAMS,
    flags: &layout::flags::<{ N_FLAGS + 3 }>(&["BIAS", "RESIDUAL", COOP]),
    consts: &["ROWS"],
    twin: matmul::twin,
    alternatives: Some(Alternatives {
        needs: &[
            (COOP, Need::Coop(SHAPE)),
            (COOP, Need::F16),
            (COOP, Need::Subgroups),
            (COOP, Need::WorkgroupBytes(WORKGROUP_BYTES)),
        ],
        of: |_, _| Vec::new(),
    }),
    cases: matmul::cases::cases,
    ..Kernel::PLAIN
};

const COOP: &str = "COOP";
const SHAPE: CoopShape = CoopShape { m: 16, n: 16, k: 16, ab: CoopScalar::F16, c: CoopScalar::F32 };

/// Both factors of a product are rounded to f16, by 2^-11 of themselves at most and, over all mantissas, by 2^-11/√3 · 0.7 in the
/// mean square: together 2 · 4e-8 of the square of the sum, since roundings are independent. Twice that, for small samples. The
/// largest of 20,000 sums is off by five standard deviations: of the widest sums of the cases, of rms 1.5, 5 · √8e-8 · 1.5.
const TOLERANCE: Tolerance = Tolerance { nmse: 1.7e-7, max_abs: 3e-3 };

/// Rows and tokens of a tile.
const ROWS: u32 = 128;
const TOKENS: u32 = 128;
/// A row of 40 f16 for each row and token, and 16 × 16 f32 for each subgroup.
const WORKGROUP_BYTES: u32 = 80 * (ROWS + TOKENS) + 32 * ROWS;
/// Weights that are brought together.
const BLOCK: u32 = 32;
/// Invocations of a subgroup: a larger or smaller one gives wrong numbers, and is found out before it is used.
const SUBGROUP: u32 = 32;

/// In the place of a dispatch of [`matmul::MATMUL`].
pub(super) fn offer(dispatch: &Dispatch, features: &Features) -> Option<Alternative> {
    let subgroup = features.subgroups.is_some_and(|(least, most)| (least..=most).contains(&SUBGROUP));
    // f32 stays exact, and bf16 has numbers that f16 does not reach.
    let narrow = ![WeightType::F32, WeightType::BF16].iter().any(|ty| dispatch.variant.has(ty.flag()));
    let offer = matmul::offered(dispatch, &MATMUL_COOP, &[COOP], &[ROWS], [ROWS, TOKENS]);
    (subgroup && narrow && dispatch.param("k").is_multiple_of(BLOCK))
        .then_some(Alternative { tolerance: Some(TOLERANCE), ..offer })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::inputs;
    use half::f16;

    /// The two roundings alone, everything else in f64: what no shader can be better than.
    #[test]
    fn roundings_to_f16_are_within_the_tolerance_and_near_it() {
        let [rows, tokens] = [133, 130];
        let rounded = |x: &f32| f16::from_f32(*x).to_f64();
        for ty in WeightType::ALL {
            for k in [96, 1280].map(|k| ty.padded(k)) {
                let (data, scales) = layout::sample(ty, rows, k, 11);
                let x = inputs::floats(8, tokens * k, 1.0);
                let (mut error, mut all, mut worst) = (0.0, 0.0, 0.0f64);
                for row in 0..rows {
                    let w = layout::read_row(ty, k, &data, &scales, row);
                    for x in x.chunks_exact(k) {
                        let want: f64 = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                        let got: f64 = w.iter().zip(x).map(|(w, x)| rounded(w) * rounded(x)).sum();
                        error += (got - want).powi(2);
                        all += want * want;
                        worst = worst.max((got - want).abs());
                    }
                }
                let nmse = error / all;
                println!("{} k={k}: nmse {nmse:.1e}, worst {worst:.1e}", ty.name());
                assert!(nmse < TOLERANCE.nmse && worst < TOLERANCE.max_abs, "{} k={k}: {nmse:e}, {worst:e}", ty.name());
            }
        }
    }
}
