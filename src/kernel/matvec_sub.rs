//! The product of [`super::matvec`] for adapters with subgroups: whole blocks of 32 weights an invocation, sums by shuffles.
//!
//! Same bindings, params and twin; only rows of whole blocks (k a multiple of 32) whose x fits in workgroup memory.

use super::layout::WeightType;
use super::matvec::cases::{Special, case, cases as all_cases};
use super::matvec::{self, Epilogue, GluAct};
use crate::graph::{Alternative, Case, Dispatch, Features, Grid, Kernel, Variant};

/// As [`matvec::MATVEC`].
pub static MATVEC_SUB: Kernel = Kernel {
    name: "matvec_sub",
    wgsl: include_str!("../../shaders/matvec_sub.wgsl"),
    bindings: matvec::BINDINGS,
    params: matvec::PARAMS,
    uses_step: true,
    flags: matvec::FLAGS,
    consts: &["WG", "LANES", "ROWS", "K"],
    twin: matvec::twin,
    fast: None,
    cases,
    alternatives: &[],
    fits: Some(fits),
};

/// In the place of [`matvec::MATVEC`].
pub(super) const ALTERNATIVE: Alternative = Alternative { kernel: &MATVEC_SUB, plan, probe };

/// Weights that share a scale or are loaded together, in every type.
const BLOCK: u32 = 32;
const WG: u32 = 128;
/// Invocations that share a row at most: more leave too few rows to a workgroup. For the few rows of a wide matrix twice as many.
const LANES: u32 = 16;
/// Blocks of a matrix up to which every row has an invocation group of its own; beyond, groups of two share what they read of x.
const MANY_BLOCKS: u32 = 60_000;

/// The row's bytes of x with half sums, and the squares of each subgroup.
fn workgroup_bytes(k: u32, wg: u32) -> u32 {
    let blocks = k / BLOCK;
    128 * (blocks + 1) + 8 * blocks + 4 * wg / 4 + 64
}

fn fits(variant: &Variant, features: &Features) -> bool {
    variant.get("LANES") <= features.subgroup && workgroup_bytes(variant.get("K"), variant.get("WG")) <= features.workgroup_bytes
}

fn plan(dispatch: &Dispatch, features: &Features) -> Option<(Variant, Grid)> {
    let [n_rows, k] = [dispatch.param("n_rows"), dispatch.param("k")];
    if !k.is_multiple_of(BLOCK) || features.subgroup < 4 {
        return None;
    }
    let blocks = k / BLOCK;
    let many = n_rows * blocks > MANY_BLOCKS;
    let lanes = if !many && blocks > LANES { 2 * LANES } else { LANES };
    let lanes = lanes.min(features.subgroup).min(1 << features.subgroup.ilog2());
    let rows = if many || dispatch.variant.has("GLU") { 2 } else { 1 };
    let variant = with_consts(&dispatch.variant, [WG, lanes, rows, k]);
    fits(&variant, features).then(|| {
        let grid = grid(&variant, n_rows, dispatch.param("n_gates"));
        (variant, grid)
    })
}

fn with_consts(variant: &Variant, consts: [u32; 4]) -> Variant {
    Variant { flags: variant.flags.clone(), consts: MATVEC_SUB.consts.iter().copied().zip(consts).collect() }
}

fn grid(variant: &Variant, n_rows: u32, n_gates: u32) -> Grid {
    let slots = variant.get("WG") / variant.get("LANES");
    Grid::linear(n_rows.div_ceil(slots * variant.get("ROWS")) + n_gates.div_ceil(slots))
}

/// The case with its dispatch done by a variant of this kernel.
fn taken(mut case: Case, variant: &Variant) -> Case {
    let dispatch = &mut case.program.graphs[0].dispatches[0];
    let grid = grid(variant, dispatch.param("n_rows"), dispatch.param("n_gates"));
    (dispatch.kernel, dispatch.variant, dispatch.grid) = (&MATVEC_SUB, variant.clone(), grid);
    case
}

fn probe(dispatch: &Dispatch, variant: &Variant) -> Case {
    let has = |flag: &str| dispatch.variant.has(flag);
    let act = if has("SIGMOID") { GluAct::Sigmoid } else { GluAct::Silu };
    let epilogue = match (has("GLU"), has("RESIDUAL")) {
        (true, _) => Epilogue::Glu(act),
        (false, true) => Epilogue::Residual,
        (false, false) => Epilogue::Store,
    };
    let special = Special {
        ty: WeightType::of(has),
        rows: 70,
        k: dispatch.param("k") as usize,
        norm: has("NORM"),
        n_gates: if has("GATES") { 5 } else { 0 },
        bias: has("BIAS"),
        epilogue,
        tokens: if has("LAST_ROW") { 2 } else { 0 },
    };
    taken(case(special), variant)
}

/// Those of [`matvec::MATVEC`] that it can do, with every number of lanes and rows in turn.
fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (ix, case) in all_cases().into_iter().enumerate() {
        let dispatch = &case.program.graphs[0].dispatches[0];
        let (k, n_rows) = (dispatch.param("k"), dispatch.param("n_rows"));
        // Software adapters bound the turns of a loop, and a million rows on few lanes are no case of their own.
        if !k.is_multiple_of(BLOCK) || n_rows > 1 << 16 {
            continue;
        }
        let lanes = [4, 16, 8, 32][ix % 4];
        let rows = [2, 1, 4][ix % 3].max(if dispatch.variant.has("GLU") { 2 } else { 1 });
        let variant = with_consts(&dispatch.variant, [if ix % 5 == 0 { 64 } else { WG }, lanes, rows, k]);
        all.push(taken(case, &variant));
    }
    all
}
