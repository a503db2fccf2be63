//! The block types: how ggml lays out their bytes (ggml-common.h, ggml-quants.c), and what their numbers are.

use super::block::{Affine, Block, Halves};
use super::planes::RUN;

fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// 16 bytes to 32 integers: low nibbles, then high ones.
fn split_nibbles(bytes: &[u8], integers: &mut [u8]) {
    let (low, high) = integers.split_at_mut(bytes.len());
    for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
        (*low, *high) = (byte & 15, byte >> 4);
    }
}

/// f16 scale, 32 signed bytes.
pub struct Q8_0;

impl Block for Q8_0 {
    const WEIGHTS: usize = 32;
    const BYTES: usize = 34;
    const BITS: usize = 8;
    const HALVES: usize = 1;
    const ZERO: f32 = 0.0;
    const SAMPLE_SCALES: &'static [(usize, f32)] = &[(0, 127.0)];

    fn split(block: &[u8], integers: &mut [u8], halves: &mut [u16]) {
        halves[0] = u16_at(block, 0);
        integers.copy_from_slice(&block[2..]);
    }
}

/// f16 scale, 16 bytes of nibbles: integers 0 to 15, then 16 to 31.
pub struct Q4_0;

impl Block for Q4_0 {
    const WEIGHTS: usize = 32;
    const BYTES: usize = 18;
    const BITS: usize = 4;
    const HALVES: usize = 1;
    const ZERO: f32 = 8.0;
    const SAMPLE_SCALES: &'static [(usize, f32)] = &[(0, 8.0)];

    fn split(block: &[u8], integers: &mut [u8], halves: &mut [u16]) {
        halves[0] = u16_at(block, 0);
        split_nibbles(&block[2..], integers);
    }
}

/// f16 scale, 32 fifth bits, 16 bytes of nibbles as in Q4_0.
pub struct Q5_0;

impl Block for Q5_0 {
    const WEIGHTS: usize = 32;
    const BYTES: usize = 22;
    const BITS: usize = 5;
    const HALVES: usize = 1;
    const ZERO: f32 = 16.0;
    const SAMPLE_SCALES: &'static [(usize, f32)] = &[(0, 16.0)];

    fn split(block: &[u8], integers: &mut [u8], halves: &mut [u16]) {
        halves[0] = u16_at(block, 0);
        split_nibbles(&block[6..], integers);
        for (byte, integers) in block[2..6].iter().zip(integers.as_chunks_mut::<8>().0) {
            for (bit, integer) in integers.iter_mut().enumerate() {
                *integer |= (byte >> bit & 1) << 4;
            }
        }
    }
}

/// f16 d and dmin, eight 6-bit pairs (s, m), 128 bytes of nibbles, 32 low ones before 32 high ones: weight = d·s·q - dmin·m.
///
/// In `scales`: d, dmin, a byte for each pair with the lower four bits of s and of m, a nibble each with the upper two.
#[allow(non_camel_case_types, reason = "GGUF's name")]
pub struct Q4_K;

impl Block for Q4_K {
    const WEIGHTS: usize = 256;
    const BYTES: usize = 144;
    const BITS: usize = 4;
    const HALVES: usize = 8;
    const ZERO: f32 = 0.0;
    const OFFSETS: bool = true;
    const SAMPLE_SCALES: &'static [(usize, f32)] = &[(0, 15.0 * 63.0), (2, 63.0)];

    fn split(block: &[u8], integers: &mut [u8], halves: &mut [u16]) {
        let pairs = &block[4..16];
        halves.fill(0);
        (halves[0], halves[1]) = (u16_at(block, 0), u16_at(block, 2));
        for run in 0..8 {
            // Four s, four m, four bytes with the lower bits of the other four of both, whose upper bits lie above the first.
            let (s, m) = if run < 4 {
                (pairs[run] & 63, pairs[4 + run] & 63)
            } else {
                let low = pairs[4 + run];
                (low & 15 | pairs[run - 4] >> 6 << 4, low >> 4 | pairs[run] >> 6 << 4)
            };
            halves[2 + run / 2] |= u16::from(s & 15 | m << 4) << (run % 2 * 8);
            halves[6 + run / 4] |= u16::from(s >> 4 | m >> 4 << 2) << (run % 4 * 4);
        }
        for (bytes, integers) in block[16..].chunks_exact(RUN).zip(integers.chunks_exact_mut(2 * RUN)) {
            split_nibbles(bytes, integers);
        }
    }

    #[inline(always)]
    fn affine(halves: Halves<'_>, run: usize) -> Affine {
        let low = halves.bits(2 + run / 2) >> (run % 2 * 8);
        let high = halves.bits(6 + run / 4) >> (run % 4 * 4);
        let (s, m) = (low & 15 | (high & 3) << 4, low >> 4 & 15 | (high & 12) << 2);
        Affine { scales: [halves.float(0) * s as f32; 2], offset: halves.float(1) * m as f32 }
    }
}

/// 128 bytes of lower nibbles, 64 of upper pairs of bits, 16 signed scales for 16 weights each, f16 d: weight = d·s·(q - 32).
///
/// In `scales`: d, then the signed bytes.
#[allow(non_camel_case_types, reason = "GGUF's name")]
pub struct Q6_K;

impl Block for Q6_K {
    const WEIGHTS: usize = 256;
    const BYTES: usize = 210;
    const BITS: usize = 6;
    const HALVES: usize = 9;
    const ZERO: f32 = 32.0;
    // Of the size that real weights have: many d are subnormal.
    const SAMPLE_SCALES: &'static [(usize, f32)] = &[(208, 1280.0)];

    fn split(block: &[u8], integers: &mut [u8], halves: &mut [u16]) {
        for (half, integers) in integers.chunks_exact_mut(4 * RUN).enumerate() {
            let (lower, upper) = (&block[64 * half..][..2 * RUN], &block[128 + RUN * half..][..RUN]);
            for (run, integers) in integers.chunks_exact_mut(RUN).enumerate() {
                for ((integer, lower), upper) in integers.iter_mut().zip(&lower[run % 2 * RUN..]).zip(upper) {
                    *integer = lower >> (run / 2 * 4) & 15 | (upper >> (2 * run) & 3) << 4;
                }
            }
        }
        halves[0] = u16_at(block, 208);
        for run in 0..8 {
            halves[1 + run] = u16_at(block, 192 + 2 * run);
        }
    }

    #[inline(always)]
    fn affine(halves: Halves<'_>, run: usize) -> Affine {
        let (d, pair) = (halves.float(0), halves.bits(1 + run));
        Affine { scales: [pair as u8, (pair >> 8) as u8].map(|s| d * f32::from(s as i8)), offset: 0.0 }
    }
}

/// 64 bytes of four 2-bit integers, 32 weights apart, f16 scale: weight = d·(q - 1).
pub struct TQ2_0;

impl Block for TQ2_0 {
    const WEIGHTS: usize = 256;
    const BYTES: usize = 66;
    const BITS: usize = 2;
    const HALVES: usize = 1;
    const ZERO: f32 = 1.0;
    const SAMPLE_SCALES: &'static [(usize, f32)] = &[(64, 2.0)];

    fn split(block: &[u8], integers: &mut [u8], halves: &mut [u16]) {
        for (bytes, integers) in block.chunks_exact(RUN).zip(integers.chunks_exact_mut(4 * RUN)) {
            for (run, integers) in integers.chunks_exact_mut(RUN).enumerate() {
                for (integer, byte) in integers.iter_mut().zip(bytes) {
                    *integer = byte >> (2 * run) & 3;
                }
            }
        }
        halves[0] = u16_at(block, 64);
    }
}
