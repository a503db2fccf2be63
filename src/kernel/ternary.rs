//! How a ternary matrix lies in GPU memory: two bits a weight, code t + 1 for t ∈ {−1, 0, 1}.
//!
//! A group of 64 weights is a `vec4<u32>`: weight 16n + 4w + b is the pair of bits n of byte b of word w. So `(group >> 2n) & 3` a
//! byte is 16 neighbouring weights in the order of 16 int8 activations. Rows are padded with zeros to whole groups.

use super::inputs;
use crate::graph::{BufferId, Program, Role};

/// Weights of a group.
pub const GROUP: usize = 64;

/// Groups of a row of `width` weights.
pub fn groups(width: usize) -> usize {
    width.div_ceil(GROUP)
}

/// Words of a row of `width` weights.
pub fn row_words(width: usize) -> usize {
    groups(width) * 4
}

/// Words of `width` int8 activations, padded to the groups of the weights.
pub fn activation_words(width: usize) -> usize {
    groups(width) * GROUP / 4
}

/// A ternary matrix on a device.
#[derive(Clone, Copy, Debug)]
pub struct TernaryPart {
    /// Rows: outputs.
    pub n_rows: usize,
    /// Columns: inputs.
    pub width: usize,
    /// `[n_rows, row_words]`.
    pub data: BufferId,
    /// What every weight is multiplied by.
    pub scale: f32,
}

/// Appends a row of weights −1, 0, 1.
pub fn pack_row(row: &[i8], data: &mut Vec<u32>) {
    for group in row.chunks(GROUP) {
        let mut words = [0x5555_5555; 4]; // zeros
        for (ix, weight) in group.iter().enumerate() {
            let (word, shift) = place(ix);
            words[word] = words[word] & !(3 << shift) | u32::from((weight + 1) as u8) << shift;
        }
        data.extend(words);
    }
}

/// Weight `ix` of a packed row.
pub fn weight(row: &[u32], ix: usize) -> i32 {
    let (word, shift) = place(ix % GROUP);
    (row[ix / GROUP * 4 + word] >> shift & 3) as i32 - 1
}

/// Word and bit of a weight in its group.
fn place(ix: usize) -> (usize, usize) {
    (ix % 16 / 4, ix % 4 * 8 + ix / 16 * 2)
}

/// Declares a seeded `[n_rows, width]` matrix in a case's program.
pub fn sample_part(program: &mut Program, contents: &mut Vec<(BufferId, Vec<u32>)>, n_rows: usize, width: usize) -> TernaryPart {
    let mut words = Vec::new();
    for row in inputs::floats(21, n_rows * width, 1.5).chunks(width) {
        pack_row(&row.iter().map(|w| w.round() as i8).map(|w| w.clamp(-1, 1)).collect::<Vec<_>>(), &mut words);
    }
    let data = program.buffer("data", words.len(), Role::Weight);
    contents.push((data, words));
    TernaryPart { n_rows, width, data, scale: 0.037 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_rows_are_two_bits_a_weight_and_come_back() {
        for width in [4, 64, 100, 768usize] {
            let row: Vec<i8> = (0..width).map(|ix| (ix * 5 % 7 % 3) as i8 - 1).collect();
            let mut words = Vec::new();
            pack_row(&row, &mut words);
            assert_eq!(words.len(), width.next_multiple_of(64) / 16);
            assert_eq!(row, (0..width).map(|ix| weight(&words, ix) as i8).collect::<Vec<_>>());
        }
    }
}
