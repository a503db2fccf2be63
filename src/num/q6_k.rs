//! Q6_K: blocks of 256 values in sixteen groups of 16, x = (d·s)·(q − 32), q of six bits, a signed byte s a group, d in f16 a
//! block: 6.5625 bits a value.
//!
//! Bytes: 128 of low nibbles, 64 of upper bit pairs, 16 scales, d. Each half of the block (128 values) has 64 bytes of nibbles and 32
//! of pairs; value v of a half, in run r = v / 32 at place j = v mod 32, has its nibble in byte 32·(r mod 2) + j, the low one for
//! r < 2, and its pair in byte j at bit 2r.
//!
//! ggml's quantizer minimizes a weighted error; this one the plain squared error (`super::fit`). Every reader takes both.

use super::fit::{error, integers, scale, to_f16};
use half::f16;

/// Values of a block.
pub const BLOCK: usize = 256;
/// Bytes of a block: nibbles, pairs of bits, scales, d.
pub const BLOCK_BYTES: usize = BLOCK / 2 + BLOCK / 4 + GROUPS + 2;
/// Values of a group, and groups of a block.
const GROUP: usize = 16;
const GROUPS: usize = BLOCK / GROUP;
/// q − 32 is in −32 ..= 31.
const LEVELS: f32 = 32.0;

/// Appends the blocks of `x`.
///
/// # Panics
/// When `x` is not a whole number of blocks.
pub fn quantize_row(x: &[f32], out: &mut Vec<u8>) {
    let (blocks, rest) = x.as_chunks::<BLOCK>();
    assert!(rest.is_empty(), "q6_k: {} values are not whole blocks", x.len());
    for block in blocks {
        let (groups, _) = block.as_chunks::<GROUP>();
        let fits: [f32; GROUPS] = std::array::from_fn(|g| scale(&groups[g], LEVELS));
        // The scale of largest magnitude becomes −128, the end that has one step more.
        let largest = fits.iter().fold(0f32, |max, &a| if a.abs() > max.abs() { a } else { max });
        let d = if largest == 0.0 { f16::ZERO } else { to_f16(largest / -128.0) };
        let mut scales = [0; GROUPS];
        let mut q = [0; BLOCK];
        for (g, place) in q.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
            (scales[g], *place) = round_group(&groups[g], fits[g], d.to_f32());
        }
        for half in q.chunks_exact(BLOCK / 2) {
            out.extend((0..64).map(|at| half[at] & 15 | half[at + 64] << 4));
        }
        for half in q.chunks_exact(BLOCK / 2) {
            out.extend((0..32).map(|j| (0..4).fold(0, |byte, r| byte | half[32 * r + j] >> 4 << (2 * r))));
        }
        out.extend(scales.map(|s| s as u8));
        out.extend(d.to_le_bytes());
    }
}

/// The scale around the fitted one that makes the smallest error with the stored d, and the integers q.
fn round_group(x: &[f32; GROUP], a: f32, d: f32) -> (i8, [u8; GROUP]) {
    let nearest = if d == 0.0 { 0.0 } else { (a / d).round().clamp(-128.0, 127.0) };
    let mut best = (f32::INFINITY, 0.0, [0f32; GROUP]);
    for s in [nearest, nearest - 1.0, nearest + 1.0].map(|s| s.clamp(-128.0, 127.0)) {
        let scale = d * s;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let q = integers(x, inverse, 0.0, [-LEVELS, LEVELS - 1.0]);
        let error = error(x, &q, scale, 0.0);
        if error < best.0 {
            best = (error, s, q);
        }
    }
    (best.1 as i8, best.2.map(|q| (q + LEVELS) as u8))
}

/// Appends the floats of `bytes`.
///
/// # Panics
/// When `bytes` is not a whole number of blocks.
pub fn dequantize_row(bytes: &[u8], out: &mut Vec<f32>) {
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    assert!(rest.is_empty(), "q6_k: {} bytes are not whole blocks", bytes.len());
    for block in blocks {
        let (nibbles, rest) = block.split_at(BLOCK / 2);
        let (pairs, rest) = rest.split_at(BLOCK / 4);
        let (scales, d) = rest.split_at(GROUPS);
        let d = f16::from_le_bytes([d[0], d[1]]).to_f32();
        out.extend((0..BLOCK).map(|ix| {
            let (half, r, j) = (ix / 128, ix % 128 / 32, ix % 32);
            let nibble = nibbles[64 * half + 32 * (r % 2) + j] >> (r / 2 * 4) & 15;
            let pair = pairs[32 * half + j] >> (2 * r) & 3;
            let scale = d * f32::from(scales[ix / GROUP] as i8);
            scale * (f32::from(nibble | pair << 4) - LEVELS)
        }));
    }
}
