//! Ternary matrices of BitNet b1.58 (arXiv 2402.17764): W ≈ s·t, s = mean|W| over the whole matrix, t ∈ {−1, 0, 1} the nearest of W / s.
//!
//! The scale belongs to the matrix, so it is kept beside it, and the rows are TQ2_0 blocks of GGUF with d = 1: 256 weights in 64
//! bytes of two-bit codes t + 1 and one f16. Of each half block of 128, byte m holds weights m, m + 32, m + 64, m + 96, lowest bits
//! first. A row is padded with zeros to whole blocks.

use super::tq2_0::{BLOCK, BLOCK_BYTES};

/// Bytes of a block before its d.
const CODE_BYTES: usize = BLOCK / 4;
/// The f16 1.0.
const ONE: [u8; 2] = 0x3c00u16.to_le_bytes();
/// Smallest scale: a matrix of zeros has one too.
pub const MIN_SCALE: f32 = 1e-5;

/// Bytes of a row of `width` weights.
pub fn row_bytes(width: usize) -> usize {
    width.div_ceil(BLOCK) * BLOCK_BYTES
}

/// The scale of a matrix: the mean magnitude of its weights, at least [`MIN_SCALE`].
pub fn scale(weights: &[f32]) -> f32 {
    let sum: f64 = weights.iter().map(|w| f64::from(w.abs())).sum();
    ((sum / weights.len().max(1) as f64) as f32).max(MIN_SCALE)
}

/// Appends the blocks of a row: round(w / scale) to even, between −1 and 1.
pub fn quantize_row(row: &[f32], scale: f32, out: &mut Vec<u8>) {
    // One reciprocal, as the authors of BitNet do it: a division could round a weight near ±s/2 the other way.
    let inverse = 1.0 / scale;
    let code = |w: f32| ((w * inverse).round_ties_even().clamp(-1.0, 1.0) + 1.0) as u8;
    for block in row.chunks(BLOCK) {
        let mut bytes = [0x55; CODE_BYTES]; // zeros
        for (ix, w) in block.iter().enumerate() {
            let (at, shift) = place(ix);
            bytes[at] = bytes[at] & !(3 << shift) | code(*w) << shift;
        }
        out.extend(bytes);
        out.extend(ONE);
    }
}

/// The `width` weights of a row's blocks, or what is wrong with them: a code that is no ternary weight, a d that is not 1, a
/// padding that is not 0.
///
/// # Panics
/// When `bytes` is not [`row_bytes`] of `width`.
pub fn read_row(bytes: &[u8], width: usize) -> Result<Vec<i8>, String> {
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    assert!(rest.is_empty() && blocks.len() == width.div_ceil(BLOCK), "{} bytes for {width} ternary weights", bytes.len());
    let mut row = Vec::with_capacity(blocks.len() * BLOCK);
    for block in blocks {
        let (codes, d) = block.split_at(CODE_BYTES);
        if d != ONE {
            return Err(format!("a block scale of {}", half::f16::from_le_bytes([d[0], d[1]])));
        }
        for ix in 0..BLOCK {
            let (at, shift) = place(ix);
            match codes[at] >> shift & 3 {
                3 => return Err("the weight 2".into()),
                code => row.push(code as i8 - 1),
            }
        }
    }
    match row[width..].iter().find(|weight| **weight != 0) {
        Some(weight) => Err(format!("the weight {weight} behind the end of a row")),
        None => {
            row.truncate(width);
            Ok(row)
        }
    }
}

/// Byte and bit of a weight in its block.
fn place(ix: usize) -> (usize, usize) {
    (ix / 128 * 32 + ix % 32, ix % 128 / 32 * 2)
}

#[cfg(test)]
mod tests {
    use super::super::tq2_0;
    use super::*;

    #[test]
    fn rows_come_back_as_they_were() {
        for width in [1, 64, 255, 256, 257, 700] {
            let row: Vec<f32> = (0..width).map(|ix| (ix * 7 % 11) as f32 * 0.3 - 1.5).collect();
            let scale = scale(&row);
            let mut bytes = Vec::new();
            quantize_row(&row, scale, &mut bytes);
            assert_eq!(bytes.len(), row_bytes(width));
            let want: Vec<i8> = row.iter().map(|w| (w / scale).round_ties_even().clamp(-1.0, 1.0) as i8).collect();
            assert_eq!(read_row(&bytes, width).unwrap(), want, "{width}");
            // And to any reader of TQ2_0 they are the same weights, zeros behind them.
            let mut floats = Vec::new();
            tq2_0::dequantize_row(&bytes, &mut floats);
            assert!(floats[..width].iter().zip(&want).all(|(got, want)| *got == f32::from(*want)), "{width}");
            assert!(floats[width..].iter().all(|pad| *pad == 0.0), "{width}");
        }
    }

    #[test]
    fn what_is_not_ternary_is_said() {
        let mut bytes = Vec::new();
        quantize_row(&[1.0; 10], 1.0, &mut bytes);
        for (at, byte, said) in [(3, 0x57, "the weight 2"), (11, 0x56, "behind the end"), (65, 0x40, "a block scale of 2")] {
            let mut broken = bytes.clone();
            broken[at] = byte;
            assert!(read_row(&broken, 10).unwrap_err().contains(said), "{said}");
        }
    }

    #[test]
    fn a_matrix_of_zeros_has_a_scale() {
        assert_eq!((scale(&[0.0; 4]), scale(&[])), (MIN_SCALE, MIN_SCALE));
        assert_eq!(scale(&[0.5, -1.5]), 1.0);
    }
}
