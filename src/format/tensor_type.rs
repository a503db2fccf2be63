//! How the numbers of a tensor are stored: one row of a table for each type, so that all that files say of it stands in one place.
//! What else a new one takes (its module in [`num`], the kernels): CONTRIBUTING.md.

use crate::num::{self, F16_OVERFLOW};
use std::fmt;

/// How the numbers of a tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types, reason = "GGUF's names")]
pub enum TensorType {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// Upper half of an IEEE single.
    BF16,
    /// 8.5 bits a value ([`num::q8_0`]).
    Q8_0,
    /// 6.5625 bits a value ([`num::q6_k`]).
    Q6_K,
    /// 5.5 bits a value ([`num::q5_0`]).
    Q5_0,
    /// 4.5 bits a value ([`num::q4_k`]).
    Q4_K,
    /// 4.5 bits a value ([`num::q4_0`]).
    Q4_0,
    /// Ternary, 2.0625 bits a value ([`num::tq2_0`]).
    TQ2_0,
}

/// What is known of a type.
struct Row {
    ty: TensorType,
    /// As GGUF tools print it.
    name: &'static str,
    /// Its number in GGUF.
    id: u32,
    /// GGUF's `general.file_type` of a file whose matrices are of this type.
    file_type: u32,
    /// Values that are stored together, and their bytes.
    block: usize,
    block_bytes: usize,
    /// Where the f16 scales of a block are, in bytes.
    scales: &'static [usize],
    /// No value of this magnitude or above can be stored: its scale, or the value itself, would be infinite.
    limit: f32,
    /// What holds rows that are no whole blocks: about as good, in smaller blocks.
    fallback: TensorType,
    quantize: fn(&[f32], &mut Vec<u8>),
    dequantize: fn(&[u8], &mut Vec<f32>),
}

/// A row of the table from a module of [`num`].
macro_rules! row {
    ($ty:ident, $module:ident, $id:literal, $file_type:literal, $blocks:expr, $scales:expr, $limit:expr, $fallback:ident) => {
        Row {
            ty: TensorType::$ty,
            name: stringify!($ty),
            id: $id,
            file_type: $file_type,
            block: $blocks.0,
            block_bytes: $blocks.1,
            scales: &$scales,
            limit: $limit,
            fallback: TensorType::$fallback,
            quantize: num::$module::quantize_row,
            dequantize: num::$module::dequantize_row,
        }
    };
}

/// `BLOCK` and `BLOCK_BYTES` of a module of [`num`].
macro_rules! blocks {
    ($module:ident) => {
        (num::$module::BLOCK, num::$module::BLOCK_BYTES)
    };
}

/// From here on bf16 rounds to infinity: halfway from its largest value to 2^128.
const BF16_OVERFLOW: f32 = f32::from_bits(0x7f7f_8000);

/// In the order of the enum.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    row!(F32, f32, 0, 0, (1, 4), [], f32::INFINITY, F32),
    row!(F16, f16, 1, 1, (1, 2), [], F16_OVERFLOW, F16),
    row!(BF16, bf16, 30, 32, (1, 2), [], BF16_OVERFLOW, BF16),
    row!(Q8_0, q8_0, 8, 7, blocks!(q8_0), [0], F16_OVERFLOW * 127.0, F16),
    row!(Q6_K, q6_k, 14, 18, blocks!(q6_k), [208], F16_OVERFLOW * 128.0 * 31.0, Q8_0),
    row!(Q5_0, q5_0, 6, 8, blocks!(q5_0), [0], F16_OVERFLOW * 16.0, F16),
    row!(Q4_K, q4_k, 12, 14, blocks!(q4_k), [0, 2], F16_OVERFLOW * 63.0, Q5_0),
    row!(Q4_0, q4_0, 2, 2, blocks!(q4_0), [0], F16_OVERFLOW * 8.0, F16),
    row!(TQ2_0, tq2_0, 35, 37, blocks!(tq2_0), [64], F16_OVERFLOW, Q4_0),
];

impl TensorType {
    /// All of them.
    pub const ALL: [Self; ROWS.len()] = {
        let (mut all, mut ix) = ([Self::F32; ROWS.len()], 0);
        while ix < all.len() {
            all[ix] = ROWS[ix].ty;
            ix += 1;
        }
        all
    };

    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// Values that are stored together; the width of a row is a multiple of it.
    pub fn block(self) -> usize {
        self.row().block
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.row().block_bytes
    }

    /// Bytes of a tensor of this shape (outermost first); none when the row is not whole blocks or the count overflows.
    pub fn tensor_bytes(self, shape: &[usize]) -> Option<u64> {
        let width = *shape.last()?;
        let rows = shape[..shape.len() - 1].iter().try_fold(1u64, |n, &dim| n.checked_mul(dim as u64))?;
        let blocks = width.is_multiple_of(self.block()).then(|| (width / self.block()) as u64)?;
        rows.checked_mul(blocks)?.checked_mul(self.block_bytes() as u64)
    }

    /// Its name, as GGUF tools print it.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Its number in GGUF.
    pub fn gguf_id(self) -> u32 {
        self.row().id
    }

    /// GGUF's `general.file_type` of a file whose matrices are of this type.
    pub fn file_type(self) -> u32 {
        self.row().file_type
    }

    /// This type, or what holds rows of `width` values instead when they are no whole blocks.
    pub fn for_width(self, width: usize) -> Self {
        if width.is_multiple_of(self.block()) { self } else { self.row().fallback.for_width(width) }
    }

    /// No finite value of this magnitude or above can be stored.
    pub fn limit(self) -> f32 {
        self.row().limit
    }

    /// The first value in `bytes` (whole blocks) that is NaN or infinite, or the first value of a block whose scale is; its index.
    /// Looks at exponents only, so that a loader can afford it for every weight.
    pub fn first_not_finite(self, bytes: &[u8]) -> Option<usize> {
        let f16 = |b: &[u8]| b[1] & 0x7c == 0x7c;
        let of_wide = |b: &[u8], n: usize| b[n - 1] & 0x7f == 0x7f && b[n - 2] & 0x80 == 0x80;
        let blocks = bytes.chunks_exact(self.block_bytes());
        let block = match self {
            // The exponents of f32 and bf16 are in their last two bytes.
            Self::F32 => blocks.into_iter().position(|b| of_wide(b, 4)),
            Self::BF16 => blocks.into_iter().position(|b| of_wide(b, 2)),
            Self::F16 => blocks.into_iter().position(f16),
            _ => blocks.into_iter().position(|b| self.row().scales.iter().any(|&at| f16(&b[at..]))),
        };
        block.map(|block| block * self.block())
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Appends the values of `bytes`, whole blocks of `ty`, as floats.
///
/// # Panics
/// When `bytes` is not whole blocks.
pub fn to_f32(ty: TensorType, bytes: &[u8], out: &mut Vec<f32>) {
    (ty.row().dequantize)(bytes, out);
}

/// Appends the bytes of `values`, whole blocks of `ty`.
///
/// # Panics
/// When `values` is not whole blocks.
pub fn from_f32(ty: TensorType, values: &[f32], out: &mut Vec<u8>) {
    (ty.row().quantize)(values, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum_and_its_numbers_differ() {
        for (ty, row) in TensorType::ALL.into_iter().zip(ROWS) {
            assert_eq!((ty, ty as usize), (row.ty, row.ty as usize));
            assert!(ROWS.iter().filter(|other| other.id == row.id || other.file_type == row.file_type).count() == 1);
        }
    }

    #[test]
    fn rows_fall_back_to_smaller_blocks_then_to_f16() {
        use TensorType::{BF16, F16, F32, Q4_0, Q4_K, Q5_0, Q6_K, Q8_0, TQ2_0};
        for (asked, at_256, at_32, at_2) in [
            (Q4_K, Q4_K, Q5_0, F16),
            (Q6_K, Q6_K, Q8_0, F16),
            (TQ2_0, TQ2_0, Q4_0, F16),
            (Q5_0, Q5_0, Q5_0, F16),
            (Q8_0, Q8_0, Q8_0, F16),
            (Q4_0, Q4_0, Q4_0, F16),
            (F32, F32, F32, F32),
            (F16, F16, F16, F16),
            (BF16, BF16, BF16, BF16),
        ] {
            assert_eq!([512, 1184, 1282].map(|width| asked.for_width(width)), [at_256, at_32, at_2]);
        }
    }

    #[test]
    fn what_is_not_finite_is_found_in_every_type() {
        for ty in TensorType::ALL {
            let values: Vec<f32> = (0..512).map(|ix| ix as f32 - 255.0).collect();
            let mut bytes = Vec::new();
            from_f32(ty, &values, &mut bytes);
            assert_eq!(ty.first_not_finite(&bytes), None, "{ty}");
            let last = bytes.len() - ty.block_bytes();
            let (at, bad): (usize, &[u8]) = match ty {
                TensorType::F32 => (0, &[1, 0, 0x80, 0xff]),
                TensorType::BF16 => (0, &[0x80, 0x7f]),
                TensorType::F16 => (0, &[0, 0xfc]),
                _ => (ty.row().scales[ty.row().scales.len() - 1], &[1, 0x7c]),
            };
            bytes[last + at..][..bad.len()].copy_from_slice(bad);
            assert_eq!(ty.first_not_finite(&bytes), Some(512 - ty.block()), "{ty}");
        }
    }

    #[test]
    fn what_is_below_the_limit_comes_back_finite_and_close() {
        for ty in TensorType::ALL {
            for sign in [1.0, -1.0] {
                let mut values = [0.0; 256];
                values[100] = sign * ty.limit().next_down();
                let (mut bytes, mut back) = (Vec::new(), Vec::new());
                from_f32(ty, &values, &mut bytes);
                to_f32(ty, &bytes, &mut back);
                assert!(back.iter().all(|v| v.is_finite()), "{ty}");
                assert!((back[100] / values[100] - 1.0).abs() < 0.1, "{ty}: {} for {}", back[100], values[100]);
            }
        }
    }
}
