//! The product of many tokens and a matrix on the CPU: tiles of outputs held in registers.
//!
//! A step of the innermost loop reads two vectors of tokens and [`ROWS`] weights: as many sums as the 16 registers of the smallest
//! vector units leave room for. Both are laid out in the order in which it reads them: tokens in panels, once for the whole
//! product, weights as they are unpacked.

use std::ops::Range;

use fearless_simd::{Level, dispatch, prelude::*};

use super::dot::{self, Matrix};
use super::layout::WeightType;
use super::parallel;

/// Rows of W of a tile.
pub const ROWS: usize = 6;

/// The tokens `[tokens, k]`, some of them together: `[panels, k, width]`, with zeros behind the last token.
pub struct Panels {
    n_tokens: usize,
    k: usize,
    width: usize,
    panels: Vec<Vec<f32>>,
}

impl Panels {
    /// From `x: [tokens, k]`, for the rows of a matrix of that type.
    pub fn new(ty: WeightType, k: usize, x: &[f32]) -> Self {
        let (n_tokens, width) = (x.len() / k, dispatch!(Level::new(), simd => width(simd)));
        let panels = parallel::map_ranges(n_tokens, width, |tokens| {
            let mut panel = vec![0.0; k * width];
            for (lane, x) in x[tokens.start * k..tokens.end * k].chunks_exact(k).enumerate() {
                for (to, x) in panel[lane..].iter_mut().step_by(width).zip(dot::arrange(ty, x)) {
                    *to = x;
                }
            }
            panel
        });
        Self { n_tokens, k, width, panels }
    }

    /// The products with some rows: `[tokens, rows]`.
    pub fn products(&self, matrix: &Matrix<'_>, rows: Range<usize>) -> Vec<f32> {
        let (k, n_rows) = (self.k, rows.len());
        let mut out = vec![0.0; self.n_tokens * n_rows];
        let mut unpacked = vec![0.0; ROWS * k];
        let mut tiles = vec![[0.0; ROWS]; n_rows.div_ceil(ROWS) * k];
        for (first, tile) in rows.clone().step_by(ROWS).zip(tiles.chunks_exact_mut(k)) {
            let n = (rows.end - first).min(ROWS);
            matrix.unpack_rows(first..first + n, &mut unpacked[..n * k]);
            for (row, weights) in unpacked[..n * k].chunks_exact(k).enumerate() {
                for (to, weight) in tile.iter_mut().zip(weights) {
                    to[row] = *weight;
                }
            }
        }
        // Tiles of rows inside, panels outside: a panel is in the innermost cache while it meets them.
        for (panel, out) in self.panels.iter().zip(out.chunks_mut(self.width * n_rows)) {
            dispatch!(Level::new(), simd => {
                for (tile, first) in tiles.chunks_exact(k).zip((0..n_rows).step_by(ROWS)) {
                    for (row, sums) in (first..n_rows).zip(product(simd, tile, panel)) {
                        let mut lanes = [0.0; 2 * MAX_LANES];
                        for (sums, lanes) in sums.iter().zip(lanes.chunks_exact_mut(width(simd) / 2)) {
                            sums.store_slice(lanes);
                        }
                        for (out, sum) in out.chunks_exact_mut(n_rows).zip(lanes) {
                            out[row] = sum;
                        }
                    }
                }
            });
        }
        out
    }
}

/// Floats of the widest vector.
const MAX_LANES: usize = 16;

/// Tokens of a panel.
#[inline(always)]
fn width<S: Simd>(_: S) -> usize {
    2 * S::f32s::LEN
}

/// A tile: ROWS rows by a panel's tokens.
#[inline(always)]
fn product<S: Simd>(simd: S, weights: &[[f32; ROWS]], panel: &[f32]) -> [[S::f32s; 2]; ROWS] {
    let mut sums = [[S::f32s::splat(simd, 0.0); 2]; ROWS];
    for (weights, x) in weights.iter().zip(panel.chunks_exact(width(simd))) {
        let (low, high) = x.split_at(S::f32s::LEN);
        let (low, high) = (S::f32s::from_slice(simd, low), S::f32s::from_slice(simd, high));
        for row in 0..ROWS {
            let weight = S::f32s::splat(simd, weights[row]);
            sums[row] = [weight.mul_add(low, sums[row][0]), weight.mul_add(high, sums[row][1])];
        }
    }
    sums
}
