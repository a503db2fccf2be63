//! What a block type is: its bytes in GGUF taken apart, and its numbers put together again. [`super::blocks`] has an `impl` a type.
//!
//! weight = (integer - zero) · scale - offset, with a scale for 16 and an offset for 32 weights. The product of the f16 and
//! the integers has at most 24 bits where an offset follows, so that a weight is rounded once and equals ggml's whatever the
//! order of its operations, fused or not.

/// A type whose weights share scales in blocks.
pub trait Block {
    /// Weights of a block: a multiple of 32.
    const WEIGHTS: usize;
    /// Bytes of a block in GGUF.
    const BYTES: usize;
    /// Bits of an integer: 1 to 7, or 8 with a sign.
    const BITS: usize;
    /// 16-bit words of a block in `scales`.
    const HALVES: usize;
    /// The integer of weight 0 (before its offset).
    const ZERO: f32;
    /// Whether [`Affine::offset`] is ever other than 0.
    const OFFSETS: bool = false;
    /// Where the f16 scales lie in a block, and the number by which a test divides the weights' size to get each.
    const SAMPLE_SCALES: &'static [(usize, f32)];

    /// Takes a block of GGUF's bytes apart: the integers in their natural order and the words for `scales`.
    fn split(block: &[u8], integers: &mut [u8], halves: &mut [u16]);

    /// The numbers for run `run` of a block, whose words in `scales` start where `halves` does. Here: the block's one scale.
    #[inline(always)]
    fn affine(halves: Halves<'_>, _run: usize) -> Affine {
        Affine { scales: [halves.float(0); 2], offset: 0.0 }
    }
}

/// weight = (integer - zero) · scale - offset in a run of 32.
#[derive(Clone, Copy, Debug)]
pub struct Affine {
    /// Of the first 16 and of the second 16.
    pub scales: [f32; 2],
    /// Of all.
    pub offset: f32,
}

/// 16-bit words, two in a word of `scales`, the first in the low half.
#[derive(Clone, Copy, Debug)]
pub struct Halves<'a> {
    words: &'a [u32],
    first: usize,
}

impl<'a> Halves<'a> {
    /// From word `first` (of 16 bits) on.
    pub fn new(words: &'a [u32], first: usize) -> Self {
        Self { words, first }
    }

    /// From `n` words further on.
    #[inline(always)]
    pub fn skip(self, n: usize) -> Self {
        Self { first: self.first + n, ..self }
    }

    /// The bits of word `ix`.
    #[inline(always)]
    pub fn bits(self, ix: usize) -> u32 {
        let at = self.first + ix;
        self.words[at / 2] >> (at % 2 * 16) & 0xffff
    }

    /// Word `ix` as f16.
    #[inline(always)]
    pub fn float(self, ix: usize) -> f32 {
        half_to_f32(self.bits(ix))
    }
}

/// The f16 in the low half of a word, without a branch. Scales of small weights are subnormal and go through their integer: the
/// usual product of their bits with 2^112 would be one with a subnormal f32, a hundred cycles on some CPUs.
#[inline(always)]
pub fn half_to_f32(word: u32) -> f32 {
    const TWO_24: f32 = f32::from_bits((127 - 24) << 23);
    let size = word & 0x7fff;
    let normal = (size << 13) + (112 << 23);
    let subnormal = (size as i32 as f32 * TWO_24).to_bits();
    let finite = if size < 0x400 { subnormal } else { normal };
    let special = if size >= 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(finite | special | (word & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_converted_exactly() {
        for bits in 0..=u16::MAX {
            let (got, want) = (half_to_f32(u32::from(bits) | 0xabcd_0000), half::f16::from_bits(bits).to_f32());
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{bits:#06x}: {got} {want}");
        }
    }
}
