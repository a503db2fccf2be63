//! TQ2_0: blocks of 256 values in {−d, 0, d}, two bits each and one f16 scale: x = d·(q − 1), d = max|x|, q = round(x / d) + 1.
//!
//! Two halves of 32 bytes, then the scale. Byte j of a half holds its values j, j + 32, j + 64 and j + 96, the first in the lowest
//! bits. Made for weights that were trained ternary; others lose most of what they are.

use half::f16;

/// Values of a block.
pub const BLOCK: usize = 256;
/// Bytes of a block: four values a byte, then the scale.
pub const BLOCK_BYTES: usize = BLOCK / 4 + 2;
/// Values of a half, and its bytes.
const HALF: usize = BLOCK / 2;
const HALF_BYTES: usize = HALF / 4;

/// Appends the blocks of `x`.
///
/// # Panics
/// When `x` is not a whole number of blocks.
pub fn quantize_row(x: &[f32], out: &mut Vec<u8>) {
    let (blocks, rest) = x.as_chunks::<BLOCK>();
    assert!(rest.is_empty(), "tq2_0: {} values are not whole blocks", x.len());
    for block in blocks {
        let d = block.iter().fold(0f32, |max, v| max.max(v.abs()));
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        let q = block.map(|v| ((v * inverse).round() as i8 + 1) as u8);
        for half in q.chunks_exact(HALF) {
            out.extend((0..HALF_BYTES).map(|j| half[j] | half[j + 32] << 2 | half[j + 64] << 4 | half[j + 96] << 6));
        }
        out.extend(f16::from_f32(d).to_le_bytes());
    }
}

/// Appends the floats of `bytes`.
///
/// # Panics
/// When `bytes` is not a whole number of blocks.
pub fn dequantize_row(bytes: &[u8], out: &mut Vec<f32>) {
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    assert!(rest.is_empty(), "tq2_0: {} bytes are not whole blocks", bytes.len());
    for [halves @ .., low, high] in blocks {
        let d = f16::from_le_bytes([*low, *high]).to_f32();
        for half in halves.chunks_exact(HALF_BYTES) {
            for shift in [0, 2, 4, 6] {
                out.extend(half.iter().map(|byte| d * (f32::from(byte >> shift & 3) - 1.0)));
            }
        }
    }
}
