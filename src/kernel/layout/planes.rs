//! Runs of 32 small integers as planes of bits, one layout for every block type.
//!
//! A b-bit integer is cut along the binary digits of b: 6 bits are a plane of 4 bits (the lower ones) and a plane of 2, 5 bits a
//! plane of 4 and one of 1. A plane of p bits is p words. Its byte i of all words together holds the integers 4j + i (j = 0..4)
//! and 16 + 4j + i: field 2j + half lies p·(2j + half) bits further on, counted through the bytes i of the plane's words.
//! So a word shifted and masked gives four neighbours, one a byte, and the same word gives the four 16 further on; the planes of
//! 4 bits are the bytes of Q4_0 as they are. 8 bits are signed and in natural order.

use fearless_simd::{prelude::*, u32x4, u32x8};

/// Integers of a run.
pub const RUN: usize = 32;

/// The planes, the lower bits first. Of b bits the planes are those p with `b & p != 0`.
const PLANES: [usize; 3] = [4, 2, 1];

/// Bits in the planes before `plane`, and also their words: 8 - 2p is the sum of the planes larger than p.
const fn before(bits: usize, plane: usize) -> usize {
    bits & (8 - 2 * plane)
}

/// The lowest `plane` bits.
const fn mask(plane: usize) -> u32 {
    (1 << plane) - 1
}

/// Appends a run: `bits` words.
pub fn pack(bits: usize, integers: &[u8; RUN], out: &mut Vec<u32>) {
    let quads: [u32; 8] = std::array::from_fn(|quad| {
        let at = quad * 4;
        u32::from_le_bytes([integers[at], integers[at + 1], integers[at + 2], integers[at + 3]])
    });
    if bits == 8 {
        out.extend(quads);
        return;
    }
    for plane in PLANES.into_iter().filter(|plane| bits & plane != 0) {
        let fields = 8 / plane;
        for word in 0..plane {
            let field = |at: usize| {
                let field = word * fields + at;
                let quad = quads[field / 2 + field % 2 * 4] >> before(bits, plane);
                (quad & (0x0101_0101 * mask(plane))) << (at * plane)
            };
            out.push((0..fields).map(field).fold(0, |word, field| word | field));
        }
    }
}

/// Integer `at` of a run, one field after the other.
pub fn integer(bits: usize, words: &[u32], at: usize) -> i32 {
    if bits == 8 {
        return i32::from((words[at / 4] >> (at % 4 * 8)) as i8);
    }
    let (field, byte) = (at % 16 / 4 * 2 + at / 16, at % 4);
    let part = |plane: usize| {
        let (before, bit) = (before(bits, plane), field * plane);
        (words[before + bit / 8] >> (byte * 8 + bit % 8) & mask(plane)) << before
    };
    PLANES.into_iter().filter(|plane| bits & plane != 0).map(part).sum::<u32>() as i32
}

/// A run as SIMD finds it: word `lane` of the vector has integer [`source`]`(bits, byte * 8 + lane)` in its byte `byte`. The first
/// four words are of the first 16 integers, the others of the second.
#[inline(always)] // so that `bits` is a constant and the result stays in registers
pub fn packed<S: Simd>(simd: S, bits: usize, words: &[u32]) -> u32x8<S> {
    if bits == 8 {
        return u32x8::from_slice(simd, &words[..8]);
    }
    // As in the shader: four integers of each half and j, one a byte.
    let fields = |plane: usize, words: [u32; 4]| -> u32x8<S> {
        let words = u32x4::simd_from(simd, words);
        let halves = words.combine(words >> plane as u32);
        (halves & (0x0101_0101 * mask(plane))) << before(bits, plane) as u32
    };
    let word = |plane: usize, at: usize| words[before(bits, plane) + at];
    let mut packed = u32x8::splat(simd, 0);
    if bits & 4 != 0 {
        packed |= fields(4, [word(4, 0), word(4, 1), word(4, 2), word(4, 3)]);
    }
    if bits & 2 != 0 {
        packed |= fields(2, [word(2, 0), word(2, 0) >> 4, word(2, 1), word(2, 1) >> 4]);
    }
    if bits & 1 != 0 {
        packed |= fields(1, [word(1, 0), word(1, 0) >> 2, word(1, 0) >> 4, word(1, 0) >> 6]);
    }
    packed
}

/// Which integer of a run is at `at` of the order in which [`packed`] has them: byte by byte, word by word.
pub fn source(bits: usize, at: usize) -> usize {
    if bits == 8 { at % 8 * 4 + at / 8 } else { at % 4 * 4 + at / 8 + at / 4 % 2 * 16 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fearless_simd::{Level, dispatch};

    /// Byte `at` of [`packed`], with a sign if there are 8 bits.
    fn byte(bits: usize, words: &[u32], at: usize) -> i32 {
        let packed: [u32; 8] = dispatch!(Level::new(), simd => packed(simd, bits, words).into());
        let byte = (packed[at % 8] >> (at / 8 * 8)) as u8;
        if bits == 8 { i32::from(byte as i8) } else { i32::from(byte) }
    }

    #[test]
    fn every_width_comes_back_in_both_orders() {
        for bits in 1..=8 {
            let integers: [u8; RUN] = std::array::from_fn(|at| (at * 37 + 11) as u8 & (0xff >> (8 - bits)));
            let value = |at: usize| if bits == 8 { i32::from(integers[at] as i8) } else { i32::from(integers[at]) };
            let mut words = Vec::new();
            pack(bits, &integers, &mut words);
            assert_eq!(words.len(), bits);
            for at in 0..RUN {
                assert_eq!(integer(bits, &words, at), value(at), "{bits} bits, {at}");
                assert_eq!(byte(bits, &words, at), value(source(bits, at)), "{bits} bits, {at}");
                assert_eq!(at % 8 / 4, source(bits, at) / 16, "{bits} bits, {at}");
            }
        }
    }

    #[test]
    fn four_bits_are_the_bytes_of_q4_0() {
        let bytes: [u8; 16] = std::array::from_fn(|at| (at * 29 + 5) as u8);
        let integers = std::array::from_fn(|at| if at < 16 { bytes[at] & 15 } else { bytes[at - 16] >> 4 });
        let mut words = Vec::new();
        pack(4, &integers, &mut words);
        assert_eq!(bytemuck::cast_slice::<u32, u8>(&words), bytes);
    }
}
