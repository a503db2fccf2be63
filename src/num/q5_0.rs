//! Q5_0: blocks of 32 values, one f16 scale d and 32 integers of five bits: x = d·(q − 16), d = m / −16 where m is the value of
//! largest magnitude with its sign, q = min(31, ⌊x / d + 16.5⌋).
//!
//! After the scale come four bytes of fifth bits (bit j of the word belongs to value j), then sixteen bytes of the lower four: byte j
//! holds value j in its low nibble and value j + 16 in its high nibble.

use half::f16;

/// Values of a block.
pub const BLOCK: usize = 32;
/// Bytes of a block: the scale, the fifth bits, then 16 pairs.
pub const BLOCK_BYTES: usize = 2 + 4 + BLOCK / 2;

/// Appends the blocks of `x`.
///
/// # Panics
/// When `x` is not a whole number of blocks.
pub fn quantize_row(x: &[f32], out: &mut Vec<u8>) {
    let (blocks, rest) = x.as_chunks::<BLOCK>();
    assert!(rest.is_empty(), "q5_0: {} values are not whole blocks", x.len());
    for block in blocks {
        // The first of equals, as in Q4_0.
        let max = block.iter().fold(block[0], |max, &v| if v.abs() > max.abs() { v } else { max });
        let d = max / -16.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        let q = block.map(|v| ((v * inverse + 16.5) as u8).min(31));
        let fifth = q.iter().enumerate().fold(0u32, |bits, (j, q)| bits | u32::from(q >> 4) << j);
        out.extend(f16::from_f32(d).to_le_bytes());
        out.extend(fifth.to_le_bytes());
        let (low, high) = q.split_at(BLOCK / 2);
        out.extend(low.iter().zip(high).map(|(a, b)| a & 15 | b << 4));
    }
}

/// Appends the floats of `bytes`.
///
/// # Panics
/// When `bytes` is not a whole number of blocks.
pub fn dequantize_row(bytes: &[u8], out: &mut Vec<f32>) {
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    assert!(rest.is_empty(), "q5_0: {} bytes are not whole blocks", bytes.len());
    for [d0, d1, h0, h1, h2, h3, pairs @ ..] in blocks {
        let d = f16::from_le_bytes([*d0, *d1]).to_f32();
        let fifth = u32::from_le_bytes([*h0, *h1, *h2, *h3]);
        let nibbles = pairs.iter().map(|pair| pair & 15).chain(pairs.iter().map(|pair| pair >> 4));
        out.extend(nibbles.enumerate().map(|(j, nibble)| {
            let q = nibble | ((fifth >> j & 1) as u8) << 4;
            d * (f32::from(q) - 16.0)
        }));
    }
}
