//! What the attention kernels share: the shape of a layer's heads, where its keys lie, and the columns of the stacked projection.
//!
//! o_i = Σ_{j ≤ i} softmax_j(q_i·k_j/√h − (Λ_i − Λ_j)) v_j with Λ = −λ = Σ −log f (docs/model.md, section 1), kept as unsigned 32.32 fixed
//! point ([`lambda`]). Keys, values and Λ lie in pages of 64 keys, one layer and key head each, found through one page table
//! `[max_pages, n_layers, n_kv_heads]`; a page id is valid in the three pools of its layer. Where several query heads share their
//! keys, each has a Λ of its own, and a page holds the Λ of all of them. With a sliding window w, query i sees keys i − w + 1 to i.
//!
//! Prefill is `token_shift` (k, v) → norms → `rope` → `kv_append` and `forget_gate` → `attn_prefill` → norm, `output_gate`.
//! Decode is `attn_decode` → `attn_merge`. Where pages die ([`prune`]) both skip the dead ones; `page_ends` behind `forget_gate`, and
//! `attn_merge`, find out which.

pub mod cases;
pub mod columns;
pub mod fast;
pub mod lambda;
pub(super) mod pages;
pub(super) mod prologue;
pub mod prune;
#[cfg(test)]
mod tests;

pub use columns::{GateAct, GateTable, Proj, Vectors};
pub(super) use columns::{forget_flag, forget_params};
pub(super) use pages::Pages;
pub use prune::Prune;

use crate::graph::{BufferId, Variant};

/// Keys of a page.
pub const PAGE: usize = 64;

/// Most workgroups a head that share the keys in decode: rows of the partial sums. `step.n_splits` may not pass it.
pub const MAX_SPLITS: usize = 32;
/// Slots of the shift rows: those of the last tokens, so that a sequence can go back by as many less one.
pub const SHIFT_SLOTS: usize = 32;

/// Epsilon of the norms of q and k, whatever `norm_eps` says (docs/model.md, section 2).
pub const QK_NORM_EPS: f32 = 1e-5;

/// Below every score, and finite: the maximum of no keys.
pub(super) const LOWEST: f64 = -1e30;

/// Words of a partial sum before its `head_dim` channels: the maximum and Σ p.
pub const PARTIAL_HEAD: usize = 2;

/// The heads of one layer.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Query heads of a layer.
    pub n_heads: usize,
    /// Key heads of a layer: a divisor of `n_heads`.
    pub n_kv_heads: usize,
    /// Channels of a head: a multiple of 8 from 16 to 128.
    pub head_dim: usize,
    /// Layers of the model (for the page table).
    pub n_layers: usize,
    /// This layer.
    pub layer: usize,
}

impl Heads {
    /// Head widths that the kernels' cases go through: the usual ones.
    pub const HEAD_DIMS: [usize; 4] = [16, 32, 64, 128];

    /// Channels of all query heads: the model's width.
    pub fn d(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Channels of all key heads.
    pub fn kv_width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// Query heads that share a key head.
    pub fn group(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }

    /// The params of every kernel that reads the page table, in this order: `n_kv_heads`, `n_layers`, `layer`.
    pub(super) fn table_params(&self) -> [usize; 3] {
        [self.n_kv_heads, self.n_layers, self.layer]
    }

    /// 1/√head_dim, as the bits of a param.
    pub(super) fn scale_bits(&self) -> u32 {
        ((1.0 / (self.head_dim as f64).sqrt()) as f32).to_bits()
    }

    /// Words of the partial sums of `attn_decode`: `[n_heads, MAX_SPLITS, 2 + head_dim]`.
    pub fn partial_words(&self) -> usize {
        self.n_heads * MAX_SPLITS * (PARTIAL_HEAD + self.head_dim)
    }

    /// Words of one layer's shift rows: `[SHIFT_SLOTS, 2 (k, v), kv_width]`.
    pub fn shift_words(&self) -> usize {
        SHIFT_SLOTS * 2 * self.kv_width()
    }

    /// Words of the Λ of a page: `[group, 64]` pairs.
    pub fn lam_words(&self) -> usize {
        2 * self.group() * PAGE
    }

    /// Words of the ends of a page: `[group]` pairs.
    pub fn end_words(&self) -> usize {
        2 * self.group()
    }
}

/// The cached keys of one layer.
#[derive(Clone, Copy, Debug)]
pub struct Kv {
    /// `[n_pages, 64, row]`, row = head_dim/2 words of f16 pairs or head_dim words of f32.
    pub k_pages: BufferId,
    /// The same shape.
    pub v_pages: BufferId,
    /// `[n_pages, group, 64]` pairs of words; behind them, with `prune`, `[n_pages, group]` pairs.
    pub lam_pages: BufferId,
    /// `[max_pages, n_layers, n_kv_heads]` page ids; behind them, with `prune`, the first live pages.
    pub page_table: BufferId,
    /// Whether keys and values are f16 (else f32).
    pub f16: bool,
    /// Pages of a head in the page table.
    pub max_pages: usize,
    /// Keys that a query sees, its own the last; all without.
    pub window: Option<usize>,
    /// Where dead pages are kept track of; none dies without.
    pub prune: Option<Prune>,
}

impl Kv {
    /// The param `window`: no sequence has as many tokens as this where there is none.
    pub(super) fn window_param(&self) -> u32 {
        self.window.map_or(u32::MAX, |window| u32::try_from(window).unwrap_or(u32::MAX))
    }

    /// The params `live` and `ends`.
    pub(super) fn prune_params(&self) -> [usize; 2] {
        self.prune.map_or([0; 2], |prune| [prune.live, prune.ends])
    }

    /// Words of one key (or value) in its page.
    pub fn row_words(head_dim: usize, f16: bool) -> usize {
        if f16 { head_dim / 2 } else { head_dim }
    }
}

/// The variant's constant for the kernels that are compiled for a head width.
pub(super) fn head_dim_variant(heads: &Heads) -> Variant {
    let h = heads.head_dim;
    assert!((16..=128).contains(&h) && h.is_multiple_of(8), "head_dim {h} is refused by the model's configuration");
    assert!(heads.n_heads.is_multiple_of(heads.n_kv_heads), "so are {} heads over {}", heads.n_heads, heads.n_kv_heads);
    Variant::new().constant("HEAD_DIM", heads.head_dim as u32)
}
