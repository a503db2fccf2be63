//! Q4_0: blocks of 32 values, one f16 scale d and 32 nibbles: x = d·(q − 8), d = m / −8 where m is the value of largest magnitude
//! with its sign (so that m itself is met exactly, at q = 0), q = min(15, ⌊x / d + 8.5⌋).
//!
//! Byte j holds value j in its low nibble and value j + 16 in its high nibble.

use half::f16;

/// Values of a block.
pub const BLOCK: usize = 32;
/// Bytes of a block: the scale, then 16 pairs.
pub const BLOCK_BYTES: usize = 2 + BLOCK / 2;

/// Appends the blocks of `x`.
///
/// # Panics
/// When `x` is not a whole number of blocks.
pub fn quantize_row(x: &[f32], out: &mut Vec<u8>) {
    let (blocks, rest) = x.as_chunks::<BLOCK>();
    assert!(rest.is_empty(), "q4_0: {} values are not whole blocks", x.len());
    for block in blocks {
        // The first of equals. An all-zero block gives d = −0, or +0 when it opens with −0 (there ggml's C and Python differ).
        let max = block.iter().fold(block[0], |max, &v| if v.abs() > max.abs() { v } else { max });
        let d = max / -8.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        out.extend(f16::from_f32(d).to_le_bytes());
        let nibble = |v: f32| ((v * inverse + 8.5) as u8).min(15);
        let (low, high) = block.split_at(BLOCK / 2);
        out.extend(low.iter().zip(high).map(|(&a, &b)| nibble(a) | nibble(b) << 4));
    }
}

/// Appends the floats of `bytes`.
///
/// # Panics
/// When `bytes` is not a whole number of blocks.
pub fn dequantize_row(bytes: &[u8], out: &mut Vec<f32>) {
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    assert!(rest.is_empty(), "q4_0: {} bytes are not whole blocks", bytes.len());
    for [low, high, pairs @ ..] in blocks {
        let d = f16::from_le_bytes([*low, *high]).to_f32();
        let value = |nibble: u8| d * (f32::from(nibble) - 8.0);
        out.extend(pairs.iter().map(|&pair| value(pair & 15)));
        out.extend(pairs.iter().map(|&pair| value(pair >> 4)));
    }
}
