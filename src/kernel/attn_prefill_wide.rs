//! The attention of [`super::attn_prefill`] for GPUs with many lanes and much workgroup memory: 64 queries at a page of keys, both
//! products tiled in registers as 8 × 4.
//!
//! Same bindings, params, twin and cases; for heads of up to 64 channels.

use super::attn_prefill;
use crate::graph::{Alternative, Alternatives, Dispatch, Extent, Features, Grid, Kernel, Need, Variant};

/// As [`attn_prefill::ATTN_PREFILL`].
pub static ATTN_PREFILL_WIDE: Kernel = Kernel {
    name: "attn_prefill_wide",
    wgsl: wgsl!("attn_prefill_wide"),
    bindings: attn_prefill::BINDINGS,
    params: attn_prefill::PARAMS,
    flags: &["KV_F16", "PRUNE", NARROW, WIDE],
    consts: &["HEAD_DIM", "QUERIES"],
    twin: attn_prefill::twin,
    alternatives: Some(Alternatives {
        needs: &[(NARROW, Need::WorkgroupBytes(workgroup_bytes(32))), (WIDE, Need::WorkgroupBytes(workgroup_bytes(64)))],
        of: |_, _| Vec::new(),
    }),
    cases: attn_prefill::cases::cases,
    ..Kernel::PLAIN
};

/// Heads of up to 32 channels, and of more: they differ in workgroup memory.
const NARROW: &str = "NARROW";
const WIDE: &str = "WIDE";
/// Queries of a workgroup, and keys of a page.
const QUERIES: u32 = 64;

/// Queries and values are 64 rows of so many numbers each; keys share their place with 64 × 64 numbers p.
const fn workgroup_bytes(head_dim: u32) -> u32 {
    4 * QUERIES * (2 * head_dim + QUERIES)
}

/// What could take the place of a dispatch of [`attn_prefill::ATTN_PREFILL`].
pub(super) fn offers(dispatch: &Dispatch, features: &Features) -> Vec<Alternative> {
    let head_dim = dispatch.variant.get("HEAD_DIM");
    if features.software || head_dim > 64 {
        return Vec::new();
    }
    let flags = dispatch.variant.flags.iter().copied().chain([if head_dim > 32 { WIDE } else { NARROW }]).collect();
    let consts = ATTN_PREFILL_WIDE.consts.iter().copied().zip([head_dim, QUERIES]).collect();
    let n_heads = dispatch.param("n_kv_heads") * dispatch.param("group");
    let grid = Grid::xy(Extent::Tokens { per: QUERIES }, Extent::Fixed(n_heads));
    vec![Alternative { kernel: &ATTN_PREFILL_WIDE, variant: Variant { flags, consts }, grid, tolerance: None }]
}
