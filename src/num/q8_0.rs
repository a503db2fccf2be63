//! Q8_0: blocks of 32 values, one f16 scale d and 32 signed bytes: x = d·q, d = max|x| / 127, q = round(x / d).
//!
//! The division is one reciprocal of the unrounded f32 d and the rounding is half away from zero, as ggml does it: other choices
//! are as good and give other bits.

use half::f16;

/// Values of a block.
pub const BLOCK: usize = 32;
/// Bytes of a block: the scale, then the values in order.
pub const BLOCK_BYTES: usize = 2 + BLOCK;

/// Appends the blocks of `x`.
///
/// # Panics
/// When `x` is not a whole number of blocks.
pub fn quantize_row(x: &[f32], out: &mut Vec<u8>) {
    let (blocks, rest) = x.as_chunks::<BLOCK>();
    assert!(rest.is_empty(), "q8_0: {} values are not whole blocks", x.len());
    for block in blocks {
        let max = block.iter().fold(0f32, |max, v| max.max(v.abs()));
        let d = max / 127.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        out.extend(f16::from_f32(d).to_le_bytes());
        out.extend(block.iter().map(|v| (v * inverse).round() as i8 as u8));
    }
}

/// Appends the floats of `bytes`.
///
/// # Panics
/// When `bytes` is not a whole number of blocks.
pub fn dequantize_row(bytes: &[u8], out: &mut Vec<f32>) {
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    assert!(rest.is_empty(), "q8_0: {} bytes are not whole blocks", bytes.len());
    for [low, high, values @ ..] in blocks {
        let d = f16::from_le_bytes([*low, *high]).to_f32();
        out.extend(values.iter().map(|&q| f32::from(q as i8) * d));
    }
}
