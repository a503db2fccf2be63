//! Weights of 16 bits, two in a word.

use super::{LANES, Unpack, sum_of};
use crate::kernel::layout::block::{Halves, half_to_f32};
use fearless_simd::{f32x8, prelude::*};
use std::marker::PhantomData;

/// How one of two weights in a word is read.
pub trait Half {
    /// The weight in the low half.
    fn low(word: u32) -> f32;
}

/// IEEE half.
pub struct F16;

impl Half for F16 {
    #[inline(always)]
    fn low(word: u32) -> f32 {
        half_to_f32(word)
    }
}

/// Upper half of an IEEE single.
pub struct BF16;

impl Half for BF16 {
    #[inline(always)]
    fn low(word: u32) -> f32 {
        f32::from_bits(word << 16)
    }
}

/// Two weights a word. Plain loops: with the CPU's instructions allowed, the compiler finds the vectors.
pub struct Pairs<H>(PhantomData<H>);

impl<H: Half> Unpack for Pairs<H> {
    #[inline(always)]
    fn dot<S: Simd>(simd: S, words: &[u32], _: Halves<'_>, x: &[f32]) -> f32 {
        let mut sums = f32x8::splat(simd, 0.0);
        let (groups, rest) = words.as_chunks();
        let (xs, x_rest) = x.as_chunks::<LANES>();
        for (words, x) in groups.iter().zip(xs) {
            sums = f32x8::from_slice(simd, &pairs::<H>(words)).mul_add(f32x8::from_slice(simd, x), sums);
        }
        let tail: f32 = rest_of_pairs::<H>(rest).zip(x_rest).map(|(w, x)| w * x).sum();
        sum_of(sums) + tail
    }

    #[inline(always)]
    fn unpack<S: Simd>(_: S, words: &[u32], _: Halves<'_>, out: &mut [f32]) {
        let (groups, rest) = words.as_chunks();
        let (outs, out_rest) = out.as_chunks_mut::<LANES>();
        for (words, out) in groups.iter().zip(outs) {
            *out = pairs::<H>(words);
        }
        for (weight, out) in rest_of_pairs::<H>(rest).zip(out_rest) {
            *out = weight;
        }
    }
}

#[inline(always)]
fn pairs<H: Half>(words: &[u32; 4]) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    for i in 0..4 {
        out[i] = H::low(words[i]);
        out[4 + i] = H::low(words[i] >> 16);
    }
    out
}

/// A row whose length is an odd multiple of 4 ends in half a group, in natural order.
#[inline(always)]
fn rest_of_pairs<H: Half>(words: &[u32]) -> impl Iterator<Item = f32> {
    words.iter().flat_map(|word| [H::low(*word), H::low(*word >> 16)])
}
