//! The kernels: one file per shader, registered in [`KERNELS`], or in [`ALTERNATIVE_KERNELS`] where it only stands in for another.
//! A kernel knows numbers, the graph and nothing else: no GPU, no model, no file.
//!
//! To add one: README, "Add a kernel"; `glu.rs` is a short one to begin from.

use crate::graph::{BufferId, Kernel};

/// The text of `shaders/NAME.wgsl` as build.rs leaves it: line by line the file's, without comments and indentation.
macro_rules! wgsl {
    ($name:literal) => {
        include_str!(concat!(env!("OUT_DIR"), "/shaders/", $name, ".wgsl"))
    };
}

pub mod attention;
pub mod attn_decode;
pub mod attn_full;
pub mod attn_merge;
pub mod attn_prefill;
pub mod attn_prefill_wide;
pub mod copy;
mod dot;
pub mod embed;
mod exp;
pub mod forget_gate;
pub mod forget_sum;
mod gemm;
pub mod glu;
pub mod kv_append;
pub mod layout;
pub mod matmul;
pub mod matmul_coop;
pub mod matmul_wide;
pub mod matvec;
pub mod matvec_sub;
pub mod output_gate;
pub mod page_ends;
pub mod parallel;
pub mod quantize_rows;
pub mod rms_norm;
pub mod rope;
pub mod sample;
pub mod ternary;
pub mod ternary_matmul;
pub mod token_shift;

/// Columns of a buffer of rows, one row a token.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// `[tokens, stride]`.
    pub buffer: BufferId,
    /// Floats of a row.
    pub stride: usize,
    /// First column.
    pub column: usize,
}

/// Every kernel that a graph can be recorded with, for the tests and for `kitfox check`; what may take its place is tried by its cases.
pub static KERNELS: &[&Kernel] = &[
    &attn_decode::ATTN_DECODE,
    &attn_full::ATTN_FULL,
    &attn_merge::ATTN_MERGE,
    &attn_prefill::ATTN_PREFILL,
    &copy::COPY,
    &embed::EMBED,
    &forget_gate::FORGET_GATE,
    &forget_sum::FORGET_SUM,
    &glu::GLU,
    &kv_append::KV_APPEND,
    &matmul::MATMUL,
    &matvec::MATVEC,
    &output_gate::OUTPUT_GATE,
    &page_ends::PAGE_ENDS,
    &quantize_rows::QUANTIZE_ROWS,
    &rms_norm::RMS_NORM,
    &rope::ROPE,
    &sample::SAMPLE,
    &ternary_matmul::TERNARY_MATMUL,
    &token_shift::TOKEN_SHIFT,
];

/// Kernels that take the place of others where the adapter allows it: each has the cases of the one it stands for.
pub static ALTERNATIVE_KERNELS: &[&Kernel] =
    &[&attn_prefill_wide::ATTN_PREFILL_WIDE, &matmul_coop::MATMUL_COOP, &matmul_wide::MATMUL_WIDE, &matvec_sub::MATVEC_SUB];

/// The fragments in `shaders/shared` that `#import NAME` pulls in, by name, sorted: build.rs lists them.
pub static SHARED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shaders/shared.rs"));

/// Seeded inputs for test cases: xorshift, so that a case is the same everywhere.
pub mod inputs {
    /// `n` floats, roughly uniform in (-scale, scale).
    pub fn floats(seed: u32, n: usize, scale: f32) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state
        };
        (0..n).map(|_| (next() >> 8) as f32 / (1 << 23) as f32 - 1.0).map(|unit| unit * scale).collect()
    }

    /// The bits of [`floats`].
    pub fn words(seed: u32, n: usize, scale: f32) -> Vec<u32> {
        floats(seed, n, scale).into_iter().map(f32::to_bits).collect()
    }
}
