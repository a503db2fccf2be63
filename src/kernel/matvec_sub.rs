//! The product of [`super::matvec`] for adapters with subgroups: whole blocks of 32 weights an invocation, sums by shuffles.
//!
//! Same bindings, params, twin and cases; only rows of whole blocks (k a multiple of 32) whose x fits in workgroup memory.

use super::layout::{self, N_FLAGS};
use super::matvec;
use crate::graph::{Alternative, Alternatives, Dispatch, Features, Grid, Kernel, Need, Variant};

/// As [`matvec::MATVEC`].
pub static MATVEC_SUB: Kernel = Kernel {
    name: "matvec_sub",
    wgsl: wgsl!("matvec_sub"),
    bindings: matvec::BINDINGS,
    params: matvec::PARAMS,
    flags: FLAGS,
    consts: &["WG", "LANES", "ROWS", "K"],
    twin: matvec::twin,
    alternatives: Some(Alternatives { needs: &[(SUBGROUPS, Need::Subgroups)], of: |_, _| Vec::new() }),
    cases: matvec::cases::cases,
    ..Kernel::PLAIN
};

pub(super) const SUBGROUPS: &str = "SUBGROUPS";

/// Those of the kernel that it stands for, and its own.
const FLAGS: &[&str] =
    &layout::flags::<{ N_FLAGS + 8 }>(&["NORM", "GATES", "BIAS", "RESIDUAL", "GLU", "SIGMOID", "LAST_ROW", SUBGROUPS]);

/// Weights that share a scale or are loaded together, in every type.
const BLOCK: u32 = 32;
/// Blocks of a matrix, and rows, up to which every row has a group of invocations of its own; beyond, two rows share what is read of x.
const MANY_BLOCKS: u32 = 60_000;
const FEW_ROWS: u32 = 2048;

/// Bytes of workgroup memory: x with its half sums, and the squares of each subgroup.
fn workgroup_bytes(k: u32, wg: u32) -> u32 {
    let blocks = k / BLOCK;
    128 * (blocks + 1) + 8 * blocks + wg + 64
}

/// What could take the place of a dispatch of [`matvec::MATVEC`], best first.
pub(super) fn offers(dispatch: &Dispatch, features: &Features) -> Vec<Alternative> {
    let [n_rows, n_gates, k] = ["n_rows", "n_gates", "k"].map(|param| dispatch.param(param));
    // A size that is no power of two would split the groups of invocations that share a row.
    let Some((subgroup, _)) = features.subgroups.filter(|(least, _)| *least >= 4 && least.is_power_of_two()) else {
        return Vec::new();
    };
    if !k.is_multiple_of(BLOCK) {
        return Vec::new();
    }
    // However long its rows are, a matrix of few rows needs all of its invocations to keep a large GPU at work.
    let many = n_rows > FEW_ROWS && n_rows * (k / BLOCK) > MANY_BLOCKS;
    let glu = dispatch.variant.has("GLU");
    // Invocations that share a row: more leave fewer rows to a workgroup, fewer have more to ask for one after the other.
    let wide = if !many && k / BLOCK > 16 { 32 } else { 16 };
    let rows = if many || glu { 2 } else { 1 };
    let shapes = [(128, wide, rows), (64, 16, rows), (128, 16, if glu { 2 } else { 1 })];
    let offer = |(wg, lanes, rows): (u32, u32, u32)| {
        let lanes = lanes.min(subgroup);
        let slots = wg / lanes;
        Alternative {
            kernel: &MATVEC_SUB,
            variant: Variant {
                flags: dispatch.variant.flags.iter().copied().chain([SUBGROUPS]).collect(),
                consts: MATVEC_SUB.consts.iter().copied().zip([wg, lanes, rows, k]).collect(),
            },
            grid: Grid::linear(n_rows.div_ceil(slots * rows) + n_gates.div_ceil(slots)),
            tolerance: None,
        }
    };
    let mut offers: Vec<Alternative> = Vec::new();
    for shape in shapes.into_iter().filter(|(wg, ..)| workgroup_bytes(k, *wg) <= features.max_workgroup_bytes) {
        let offer = offer(shape);
        if offers.iter().all(|known| known.variant != offer.variant) {
            offers.push(offer);
        }
    }
    offers
}
