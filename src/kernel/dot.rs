//! Products of weight rows and vectors on the CPU, for the `fast` code of matvec and matmul, in the widest vectors that the CPU has:
//! the binary is built for its oldest CPUs, and fearless_simd picks at run time. wasm has its one width.
//!
//! Neighbouring words of a row, shifted alike, give several weights at once, but not neighbouring ones. So the vector is put into
//! the order of the weights, once for all rows ([`arrange`]); a dot product does not mind.
//!
//! Every function that takes a `Simd` is inlined into the one `dispatch!` above it: only there may the compiler use what the CPU has.

mod pairs;
#[cfg(test)]
mod tests;

pub use pairs::{BF16, F16, Pairs};

use std::marker::PhantomData;
use std::ops::Range;

use fearless_simd::{Level, dispatch, f32x4, f32x8, i32x8, prelude::*};

use super::layout::block::{Affine, Block, Halves};
use super::layout::planes::{self, RUN};
use super::layout::{self, WeightType};

/// Independent sums of a dot product, and the weights unpacked together.
const LANES: usize = 8;

/// Rows of a matrix in kernel layout.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    pub ty: WeightType,
    pub k: usize,
    pub data: &'a [u32],
    pub scales: &'a [u32],
}

impl Matrix<'_> {
    /// The products of the rows from `first` on, as many as `out` has, and an arranged `x`.
    pub fn dot_rows(&self, first: usize, x: &[f32], out: &mut [f32]) {
        (self.ty.format().dot_rows)(self, first, x, out);
    }

    /// Some rows' weights in arranged order: `[rows, k]`.
    pub fn unpack_rows(&self, rows: Range<usize>, out: &mut [f32]) {
        (self.ty.format().unpack_rows)(self, rows, out);
    }

    fn row(&self, row: usize) -> (&[u32], Halves<'_>) {
        layout::row_of(self.ty, self.k, self.data, self.scales, row)
    }
}

/// `x` in the order in which a row's weights are unpacked.
pub fn arrange(ty: WeightType, x: &[f32]) -> Vec<f32> {
    let format = ty.format();
    let mut out = Vec::with_capacity(x.len());
    for x in x.chunks(format.group) {
        // The last half group of a row of 16 bits a weight keeps its order.
        out.extend((0..x.len()).map(|at| x[if x.len() == format.group { (format.source)(at) } else { at }]));
    }
    out
}

/// The sum of products, in several independent sums.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    dispatch!(Level::new(), simd => dot_simd(simd, a, b))
}

/// [`dot`] inside code that is dispatched already.
#[inline(always)]
pub fn dot_simd<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    let (a, a_rest) = a.as_chunks::<{ 4 * LANES }>();
    let (b, b_rest) = b.as_chunks::<{ 4 * LANES }>();
    let mut sums = [f32x8::splat(simd, 0.0); 4];
    for (a, b) in a.iter().zip(b) {
        for (at, sum) in sums.iter_mut().enumerate() {
            let part = |row: &[f32]| f32x8::from_slice(simd, &row[at * LANES..(at + 1) * LANES]);
            *sum = part(a).mul_add(part(b), *sum);
        }
    }
    let tail: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sum_of((sums[0] + sums[1]) + (sums[2] + sums[3])) + tail
}

#[inline(always)]
fn sum_of<S: Simd>(lanes: f32x8<S>) -> f32 {
    let (low, high) = lanes.split();
    (low + high).reduce_sum()
}

/// How weights of one type come out of a row's words. The code of a row is made for each level of SIMD, so it is a type and not a
/// function of the table: `dispatch!` has to see it.
pub trait Unpack {
    /// The product of a row and an arranged vector.
    fn dot<S: Simd>(simd: S, words: &[u32], halves: Halves<'_>, x: &[f32]) -> f32;
    /// A row's weights, arranged.
    fn unpack<S: Simd>(simd: S, words: &[u32], halves: Halves<'_>, out: &mut [f32]);
}

/// [`layout::format::Format::dot_rows`] of a type.
pub fn dot_rows<U: Unpack>(matrix: &Matrix<'_>, first: usize, x: &[f32], out: &mut [f32]) {
    dispatch!(Level::new(), simd => {
        for (at, out) in out.iter_mut().enumerate() {
            let (words, halves) = matrix.row(first + at);
            *out = U::dot(simd, words, halves, x);
        }
    });
}

/// [`layout::format::Format::unpack_rows`] of a type.
pub fn unpack_rows<U: Unpack>(matrix: &Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
    dispatch!(Level::new(), simd => {
        for (row, out) in rows.zip(out.chunks_exact_mut(matrix.k)) {
            let (words, halves) = matrix.row(row);
            U::unpack(simd, words, halves, out);
        }
    });
}

/// One word a weight.
pub struct Words;

impl Unpack for Words {
    #[inline(always)]
    fn dot<S: Simd>(simd: S, words: &[u32], _: Halves<'_>, x: &[f32]) -> f32 {
        dot_simd(simd, bytemuck::cast_slice(words), x)
    }

    #[inline(always)]
    fn unpack<S: Simd>(_: S, words: &[u32], _: Halves<'_>, out: &mut [f32]) {
        out.copy_from_slice(bytemuck::cast_slice(words));
    }
}

/// A block type.
pub struct Blocks<B>(PhantomData<B>);

impl<B: Block> Unpack for Blocks<B> {
    #[inline(always)]
    fn dot<S: Simd>(simd: S, words: &[u32], halves: Halves<'_>, x: &[f32]) -> f32 {
        let mut sums = f32x8::splat(simd, 0.0);
        let runs = words.chunks_exact(B::BITS).zip(x.as_chunks::<RUN>().0);
        for (run, (words, x)) in runs.enumerate() {
            let mut parts = f32x8::splat(simd, 0.0);
            let mut totals = parts;
            for (integers, x) in integers::<B, S>(simd, words).into_iter().zip(x.as_chunks::<LANES>().0) {
                let x = f32x8::from_slice(simd, x);
                parts = integers.mul_add(x, parts);
                if B::OFFSETS {
                    totals += x;
                }
            }
            let Affine { scales, offset } = affine::<B>(halves, run);
            sums = parts.mul_add(spread(simd, scales), sums);
            if B::OFFSETS {
                sums = totals.mul_add(-offset, sums);
            }
        }
        sum_of(sums)
    }

    #[inline(always)]
    fn unpack<S: Simd>(simd: S, words: &[u32], halves: Halves<'_>, out: &mut [f32]) {
        let runs = words.chunks_exact(B::BITS).zip(out.as_chunks_mut::<RUN>().0);
        for (run, (words, out)) in runs.enumerate() {
            let Affine { scales, offset } = affine::<B>(halves, run);
            let scales = spread(simd, scales);
            for (integers, out) in integers::<B, S>(simd, words).into_iter().zip(out.as_chunks_mut::<LANES>().0) {
                let weights = integers * scales;
                let weights = if B::OFFSETS { weights - offset } else { weights };
                weights.store_slice(out);
            }
        }
    }
}

/// A run's integers less zero, [`planes::arranged`], eight at a time.
#[inline(always)]
fn integers<B: Block, S: Simd>(simd: S, words: &[u32]) -> [f32x8<S>; RUN / LANES] {
    let packed = planes::packed(simd, B::BITS, words);
    // Bytes with a sign: those of 8 bits have no zero, and of fewer bits none is below it by more than 32.
    let signed = packed.bitcast::<fearless_simd::i8x32<S>>() - (B::ZERO as i8);
    let signed: i32x8<S> = signed.bitcast();
    // Shifts by constants, written out.
    [signed << 24 >> 24, signed << 16 >> 24, signed << 8 >> 24, signed >> 24].map(|lanes| lanes.to_float())
}

/// Each scale in half of the lanes.
#[inline(always)]
fn spread<S: Simd>(simd: S, scales: [f32; 2]) -> f32x8<S> {
    let [low, high] = scales.map(|scale| f32x4::splat(simd, scale));
    low.combine(high)
}

#[inline(always)]
fn affine<B: Block>(halves: Halves<'_>, run: usize) -> Affine {
    let runs = B::WEIGHTS / RUN;
    B::affine(halves.skip(run / runs * B::HALVES), run % runs)
}
