//! Pages as the twins see them: the row of a position and head, and a key as floats.

use super::PAGE;
use crate::graph::Args;
use half::f16;

/// The page table of one layer.
pub(in crate::kernel) struct Pages<'a> {
    table: &'a [u32],
    n_kv_heads: usize,
    n_layers: usize,
    layer: usize,
}

impl<'a> Pages<'a> {
    /// From the binding `page_table` and the params `n_kv_heads`, `n_layers`, `layer`.
    pub fn new(args: &mut Args<'a>) -> Self {
        Self::over(args.take("page_table"), args)
    }

    /// Of a table that is taken already.
    pub fn over(table: &'a [u32], args: &Args<'_>) -> Self {
        Self { table, n_kv_heads: args.param("n_kv_heads"), n_layers: args.param("n_layers"), layer: args.param("layer") }
    }

    /// All words of the table.
    pub fn table(&self) -> &'a [u32] {
        self.table
    }

    fn page(&self, position: usize, kv_head: usize) -> usize {
        self.table[(position / PAGE * self.n_layers + self.layer) * self.n_kv_heads + kv_head] as usize
    }

    /// Row of a position in the pools of keys and values `[pages · 64, ...]`.
    pub fn slot(&self, position: usize, kv_head: usize) -> usize {
        self.page(position, kv_head) * PAGE + position % PAGE
    }

    /// Entry of a position in the pool of Λ `[pages, group, 64]`, by query head.
    pub fn lam_slot(&self, position: usize, head: usize, group: usize) -> usize {
        (self.page(position, head / group) * group + head % group) * PAGE + position % PAGE
    }
}

/// Largest finite f16: what numbers beyond it become.
const F16_MAX: f32 = 65504.0;

/// The key or value in row `slot` of a pool.
pub(in crate::kernel) fn read_row(pool: &[u32], slot: usize, head_dim: usize, is_f16: bool) -> Vec<f32> {
    if is_f16 {
        let words = &pool[slot * head_dim / 2..(slot + 1) * head_dim / 2];
        let pair = |word: &u32| [*word as u16, (*word >> 16) as u16].map(|bits| f16::from_bits(bits).to_f32());
        words.iter().flat_map(pair).collect()
    } else {
        pool[slot * head_dim..(slot + 1) * head_dim].iter().map(|bits| f32::from_bits(*bits)).collect()
    }
}

/// Stores a key or value, rounded to f16 (nearest, ties to even) or as it is.
pub(in crate::kernel) fn write_row(pool: &mut [u32], slot: usize, row: &[f32], is_f16: bool) {
    let h = row.len();
    if is_f16 {
        let bits = |x: f32| u32::from(f16::from_f32(x.clamp(-F16_MAX, F16_MAX)).to_bits());
        for (word, pair) in pool[slot * h / 2..(slot + 1) * h / 2].iter_mut().zip(row.chunks_exact(2)) {
            *word = bits(pair[0]) | bits(pair[1]) << 16;
        }
    } else {
        for (word, x) in pool[slot * h..(slot + 1) * h].iter_mut().zip(row) {
            *word = x.to_bits();
        }
    }
}
