//! The matrices F and A of a text as pictures and tables need them: the largest value of each block of tokens, one row in full, or all of it.

use kitfox::model::Forgetting;
use kitfox::session::AttentionRow;
use std::ops::Range;

/// Which of the paper's matrices.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// F: what the gates between leave of a key, from 0 to 1
    #[default]
    F,
    /// A: the attention weights; a row sums to 1
    A,
}

impl Which {
    /// As the paper has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F => "F",
            Self::A => "A",
        }
    }
}

/// What is looked at: layers, heads of each, tokens, and the row that is shown in full.
#[derive(Clone, Debug)]
pub struct Selection {
    pub layers: Range<usize>,
    pub heads: Range<usize>,
    pub n_tokens: usize,
    pub row: usize,
}

impl Selection {
    /// Layers and heads that are looked at, head after head in layer after layer.
    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<'_> {
        self.layers.clone().flat_map(|layer| self.heads.clone().map(move |head| (layer, head)))
    }

    /// How many.
    pub fn n_pairs(&self) -> usize {
        self.layers.len() * self.heads.len()
    }

    /// Whether a head is looked at.
    pub fn has(&self, layer: usize, head: usize) -> bool {
        self.ix(layer, head).is_some()
    }

    fn ix(&self, layer: usize, head: usize) -> Option<usize> {
        let inside = self.layers.contains(&layer) && self.heads.contains(&head);
        inside.then(|| (layer - self.layers.start) * self.heads.len() + head - self.heads.start)
    }
}

/// One head's matrix, `n` × `n` cells of `block` × `block` tokens: the largest value in each. Cells above the diagonal hold 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    pub n: usize,
    pub block: usize,
    pub cells: Vec<f32>,
}

impl Matrix {
    fn empty(n_tokens: usize, most: usize) -> Self {
        let block = n_tokens.div_ceil(most.max(1)).max(1);
        let n = n_tokens.div_ceil(block);
        Self { n, block, cells: vec![0.0; n * n] }
    }

    fn raise(&mut self, i: usize, j: usize, value: f64) {
        let cell = &mut self.cells[i / self.block * self.n + j / self.block];
        *cell = cell.max(value as f32);
    }
}

/// Of each head that is looked at: its matrix, and one row of it.
pub struct Seen {
    selection: Selection,
    /// `[layers, heads]`.
    pub matrices: Vec<Matrix>,
    /// Mean over the heads of row `selection.row`, by key.
    pub row: Vec<f64>,
}

impl Seen {
    /// Nothing so far; matrices of at most `most` × `most` cells.
    pub fn new(selection: &Selection, most: usize) -> Self {
        let matrices = vec![Matrix::empty(selection.n_tokens, most); selection.n_pairs()];
        Self { selection: selection.clone(), matrices, row: vec![0.0; selection.row + 1] }
    }

    /// All of F.
    pub fn of_f(forgetting: &Forgetting<'_>, selection: &Selection, most: usize) -> Self {
        let mut seen = Self::new(selection, most);
        for (matrix, (layer, head)) in seen.matrices.iter_mut().zip(selection.pairs()) {
            let Matrix { n, block, .. } = *matrix;
            for (row, column) in (0..n).flat_map(|row| (0..=row).map(move |column| (row, column))) {
                // What is nearest has faded least: the block's first row and last key.
                let i = row * block;
                matrix.raise(i, column * block, forgetting.f(layer, head, i, ((column + 1) * block - 1).min(i)));
            }
            for (sum, f) in seen.row.iter_mut().zip(forgetting.row(layer, head, selection.row)) {
                *sum += f / selection.n_pairs() as f64;
            }
        }
        seen
    }

    /// A row of A.
    pub fn take(&mut self, row: &AttentionRow) {
        let Some(ix) = self.selection.ix(row.layer, row.head) else { return };
        for (j, weight) in (row.first..).zip(&row.weights) {
            self.matrices[ix].raise(row.i, j, *weight);
            if row.i == self.selection.row {
                self.row[j] += weight / self.selection.n_pairs() as f64;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use kitfox::model::Gates;

    fn selection(n_tokens: usize) -> Selection {
        Selection { layers: 1..2, heads: 0..2, n_tokens, row: n_tokens - 1 }
    }

    /// log f of 2 layers, 2 heads and 7 tokens, no two alike.
    fn gates() -> Gates {
        let log_f = (0..28).map(|ix| -(((ix * 11) % 29) as f32) / 40.0).collect();
        Gates::new([2, 2, 7], log_f, None).unwrap()
    }

    #[test]
    fn cells_hold_the_largest_value_of_their_block() {
        let gates = gates();
        for window in [None, Some(3)] {
            let forgetting = Forgetting::new(&gates, window);
            for most in [1, 2, 3, 4, 7, 50] {
                let seen = Seen::of_f(&forgetting, &selection(7), most);
                for (matrix, head) in seen.matrices.iter().zip([0, 1]) {
                    assert!(matrix.n <= most && matrix.n * matrix.block >= 7);
                    let mut want = Matrix::empty(7, most);
                    for i in 0..7 {
                        forgetting.row(1, head, i).enumerate().for_each(|(j, f)| want.raise(i, j, f));
                    }
                    assert_eq!(*matrix, want, "at most {most}, window {window:?}");
                }
            }
        }
    }

    #[test]
    fn rows_of_other_heads_are_left_out_and_the_row_is_a_mean() {
        let mut seen = Seen::new(&selection(3), 3);
        let row = |layer, head, i, first, weights: &[f64]| AttentionRow { layer, head, i, first, weights: weights.to_vec() };
        seen.take(&row(0, 0, 2, 0, &[9.0, 9.0, 9.0]));
        seen.take(&row(1, 0, 1, 0, &[0.25, 0.75]));
        seen.take(&row(1, 0, 2, 0, &[0.5, 0.25, 0.25]));
        seen.take(&row(1, 1, 2, 1, &[0.5, 0.5]));
        assert_eq!(seen.matrices[0].cells, [0.0, 0.0, 0.0, 0.25, 0.75, 0.0, 0.5, 0.25, 0.25]);
        assert_eq!(seen.matrices[1].cells[6..], [0.0, 0.5, 0.5]);
        assert_eq!(seen.row, [0.25, 0.375, 0.375]);
    }
}
