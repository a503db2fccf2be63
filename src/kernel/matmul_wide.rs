//! The product of [`super::matmul`] for GPUs with many lanes: tiles of 128 × 128, 8 × 8 of them an invocation.
//!
//! Same bindings, params and twin. It runs everywhere; where lanes are few the smaller tiles are quicker.

use super::layout::{self, N_FLAGS};
use super::matmul;
use crate::graph::{Alternative, Dispatch, Kernel};

/// As [`matmul::MATMUL`].
pub static MATMUL_WIDE: Kernel = Kernel {
    name: "matmul_wide",
    wgsl: wgsl!("matmul_wide"),
    bindings: matmul::BINDINGS,
    params: matmul::PARAMS,
    flags: &layout::flags::<{ N_FLAGS + 2 }>(&["BIAS", "RESIDUAL"]),
    twin: matmul::twin,
    cases: matmul::cases::cases,
    ..Kernel::PLAIN
};

/// Rows, and tokens.
const TILE: u32 = 128;

/// In the place of a dispatch of [`matmul::MATMUL`].
pub(super) fn offer(dispatch: &Dispatch) -> Alternative {
    matmul::offered(dispatch, &MATMUL_WIDE, &[], &[], [TILE; 2])
}
