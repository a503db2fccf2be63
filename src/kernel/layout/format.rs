//! What the kernels know of a type of weights, as one row of a table: [`Format::blocks`] makes it for a [`Block`], the other
//! three are written out.

use super::block::{Block, Halves};
use super::planes::{self, RUN};
use crate::kernel::dot::{self, Matrix};
use std::ops::Range;

/// A row of the table of types.
pub struct Format {
    /// Weights of a block in GGUF.
    pub block: usize,
    /// Bytes of a block in GGUF.
    pub block_bytes: usize,
    /// Bits of a weight in `data`.
    pub bits: usize,
    /// 16-bit words of a block in `scales`.
    pub halves: usize,
    /// Appends GGUF's whole blocks to `data` and `scales`.
    pub repack: fn(&[u8], &mut Vec<u32>, &mut Vec<u16>),
    /// For the twins: weight `at` of a row's words and scales.
    pub weight: fn(&[u32], Halves<'_>, usize) -> f32,
    /// Of so many weights together, `source(at)` is the one at `at` in the order of `dot_rows` and `unpack_rows`.
    pub group: usize,
    /// See `group`.
    pub source: fn(usize) -> usize,
    /// For the `fast` code: the products of a matrix's rows from one on, as many as there is room for, and an arranged vector.
    pub dot_rows: fn(&Matrix<'_>, usize, &[f32], &mut [f32]),
    /// For the `fast` code: the weights of some rows of a matrix, arranged.
    pub unpack_rows: fn(&Matrix<'_>, Range<usize>, &mut [f32]),
    /// How test cases make a block.
    pub sample: Sample,
}

/// How a test case makes a block.
pub enum Sample {
    /// The bits of a weight.
    Weights(fn(f32) -> u32),
    /// Random bytes, with these f16 scales: [`Block::SAMPLE_SCALES`].
    Scales(&'static [(usize, f32)]),
}

/// Four bytes a word, as they are.
fn copy(bytes: &[u8], data: &mut Vec<u32>, _: &mut Vec<u16>) {
    data.extend(bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)));
}

impl Format {
    /// One word a weight.
    pub const F32: Self = Self {
        block: 1,
        block_bytes: 4,
        bits: 32,
        halves: 0,
        repack: copy,
        weight: |words, _, at| f32::from_bits(words[at]),
        group: 1,
        source: |at| at,
        dot_rows: dot::dot_rows::<dot::Words>,
        unpack_rows: dot::unpack_rows::<dot::Words>,
        sample: Sample::Weights(f32::to_bits),
    };

    /// Two weights a word, the first in the low half; `F16` and `BF16` add how 16 bits are read and written.
    const PAIRS: Self = Self {
        block: 1,
        block_bytes: 2,
        bits: 16,
        halves: 0,
        repack: copy,
        // Of 8 weights in 4 words, the low halves, then the high halves.
        group: 8,
        source: |at| at % 4 * 2 + at / 4,
        ..Self::F32
    };

    /// IEEE half.
    pub const F16: Self = Self {
        weight: |words, _, at| half::f16::from_bits((words[at / 2] >> (at % 2 * 16)) as u16).to_f32(),
        dot_rows: dot::dot_rows::<dot::Pairs<dot::F16>>,
        unpack_rows: dot::unpack_rows::<dot::Pairs<dot::F16>>,
        sample: Sample::Weights(|weight| half::f16::from_f32(weight).to_bits().into()),
        ..Self::PAIRS
    };

    /// Upper half of an IEEE single.
    pub const BF16: Self = Self {
        weight: |words, _, at| half::bf16::from_bits((words[at / 2] >> (at % 2 * 16)) as u16).to_f32(),
        dot_rows: dot::dot_rows::<dot::Pairs<dot::BF16>>,
        unpack_rows: dot::unpack_rows::<dot::Pairs<dot::BF16>>,
        sample: Sample::Weights(|weight| half::bf16::from_f32(weight).to_bits().into()),
        ..Self::PAIRS
    };

    /// A block type.
    pub const fn blocks<B: Block>() -> Self {
        Self {
            block: B::WEIGHTS,
            block_bytes: B::BYTES,
            bits: B::BITS,
            halves: B::HALVES,
            repack: repack::<B>,
            weight: weight::<B>,
            group: RUN,
            source: |at| planes::source(B::BITS, at),
            dot_rows: dot::dot_rows::<dot::Blocks<B>>,
            unpack_rows: dot::unpack_rows::<dot::Blocks<B>>,
            sample: Sample::Scales(B::SAMPLE_SCALES),
        }
    }
}

fn repack<B: Block>(bytes: &[u8], data: &mut Vec<u32>, scales: &mut Vec<u16>) {
    let mut integers = vec![0; B::WEIGHTS];
    for block in bytes.chunks_exact(B::BYTES) {
        let first = scales.len();
        scales.resize(first + B::HALVES, 0);
        B::split(block, &mut integers, &mut scales[first..]);
        for run in integers.as_chunks().0 {
            planes::pack(B::BITS, run, data);
        }
    }
}

fn weight<B: Block>(words: &[u32], halves: Halves<'_>, at: usize) -> f32 {
    let affine = B::affine(halves.skip(at / B::WEIGHTS * B::HALVES), at % B::WEIGHTS / RUN);
    let integer = planes::integer(B::BITS, &words[at / RUN * B::BITS..], at % RUN);
    (integer as f32 - B::ZERO) * affine.scales[at % RUN / 16] - affine.offset
}
