//! Q4_K: blocks of 256 values in eight groups of 32, x = (d·s)·q − (e·m), q of four bits, a scale s and a minimum m of six bits a
//! group, d and e in f16 a block: 4.5 bits a value.
//!
//! Bytes: d, e, twelve bytes of scales and minima, then four times 32 bytes: byte j of run r holds value j of group 2r in its low
//! nibble and of group 2r + 1 in its high nibble. Groups 0 to 3 have s in the low six bits of byte g and m in those of byte g + 4;
//! groups 4 to 7 have the low nibbles of s and m in byte g + 4, their upper two bits atop bytes g − 4 and g.
//!
//! ggml's quantizer minimizes a weighted error; this one the plain squared error (`super::fit`). Every reader takes both.

use super::fit::{error, integers, scale_and_min, to_f16};
use half::f16;

/// Values of a block.
pub const BLOCK: usize = 256;
/// Bytes of a block: d and e, scales and minima, 128 pairs.
pub const BLOCK_BYTES: usize = 4 + 12 + BLOCK / 2;
/// Values of a group, and groups of a block.
const GROUP: usize = 32;
const GROUPS: usize = BLOCK / GROUP;
/// Largest q, and largest scale or minimum of a group.
const LEVELS: f32 = 15.0;
const SIX_BITS: f32 = 63.0;

/// Appends the blocks of `x`.
///
/// # Panics
/// When `x` is not a whole number of blocks.
pub fn quantize_row(x: &[f32], out: &mut Vec<u8>) {
    let (blocks, rest) = x.as_chunks::<BLOCK>();
    assert!(rest.is_empty(), "q4_k: {} values are not whole blocks", x.len());
    for block in blocks {
        let (groups, _) = block.as_chunks::<GROUP>();
        let fits: [(f32, f32); GROUPS] = std::array::from_fn(|g| scale_and_min(&groups[g], LEVELS));
        let largest = |part: fn(&(f32, f32)) -> f32| fits.iter().map(part).fold(0f32, f32::max);
        let d = to_f16(largest(|fit| fit.0) / SIX_BITS);
        let e = to_f16(largest(|fit| fit.1) / SIX_BITS);
        let (mut scales, mut minima) = ([0; GROUPS], [0; GROUPS]);
        let mut q = [[0f32; GROUP]; GROUPS];
        for g in 0..GROUPS {
            (scales[g], minima[g], q[g]) = round_group(&groups[g], fits[g], [d.to_f32(), e.to_f32()]);
        }
        out.extend(d.to_le_bytes());
        out.extend(e.to_le_bytes());
        out.extend(pack(&scales, &minima));
        for [low, high] in q.as_chunks::<2>().0 {
            out.extend(low.iter().zip(high).map(|(a, b)| *a as u8 | (*b as u8) << 4));
        }
    }
}

/// The six-bit scale and minimum around the fitted ones that make the smallest error with the stored d and e, and the integers.
fn round_group(x: &[f32; GROUP], (a, m): (f32, f32), [d, e]: [f32; 2]) -> (u8, u8, [f32; GROUP]) {
    let near = |value: f32, unit: f32| {
        let nearest = if unit > 0.0 { (value / unit).round().min(SIX_BITS) } else { 0.0 };
        [nearest - 1.0, nearest, nearest + 1.0].map(|v| v.clamp(0.0, SIX_BITS))
    };
    let mut best = (f32::INFINITY, 0.0, 0.0, [0f32; GROUP]);
    for s in near(a, d) {
        for m in near(m, e) {
            let (scale, min) = (d * s, e * m);
            let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            let q = integers(x, inverse, min * inverse, [0.0, LEVELS]);
            let error = error(x, &q, scale, -min);
            if error < best.0 {
                best = (error, s, m, q);
            }
        }
    }
    (best.1 as u8, best.2 as u8, best.3)
}

fn pack(scales: &[u8; GROUPS], minima: &[u8; GROUPS]) -> [u8; 12] {
    std::array::from_fn(|ix| match ix {
        0..4 => scales[ix] | scales[ix + 4] >> 4 << 6,
        4..8 => minima[ix - 4] | minima[ix] >> 4 << 6,
        _ => scales[ix - 4] & 15 | minima[ix - 4] << 4,
    })
}

/// Scale and minimum of group `g`.
fn unpack(packed: &[u8], g: usize) -> (u8, u8) {
    if g < 4 {
        return (packed[g] & 63, packed[g + 4] & 63);
    }
    (packed[g + 4] & 15 | packed[g - 4] >> 6 << 4, packed[g + 4] >> 4 | packed[g] >> 6 << 4)
}

/// Appends the floats of `bytes`.
///
/// # Panics
/// When `bytes` is not a whole number of blocks.
pub fn dequantize_row(bytes: &[u8], out: &mut Vec<f32>) {
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    assert!(rest.is_empty(), "q4_k: {} bytes are not whole blocks", bytes.len());
    for [d0, d1, e0, e1, rest @ ..] in blocks {
        let (d, e) = (f16::from_le_bytes([*d0, *d1]).to_f32(), f16::from_le_bytes([*e0, *e1]).to_f32());
        let (packed, pairs) = rest.split_at(12);
        for g in 0..GROUPS {
            let (s, m) = unpack(packed, g);
            let (scale, min) = (d * f32::from(s), e * f32::from(m));
            let run = &pairs[g / 2 * GROUP..][..GROUP];
            out.extend(run.iter().map(|pair| scale * f32::from(pair >> (g % 2 * 4) & 15) - min));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_bit_pairs_come_back() {
        let scales = [0, 63, 17, 42, 5, 32, 63, 16];
        let minima = [63, 0, 33, 7, 48, 63, 15, 31];
        let packed = pack(&scales, &minima);
        for g in 0..GROUPS {
            assert_eq!(unpack(&packed, g), (scales[g], minima[g]));
        }
    }
}
