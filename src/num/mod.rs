//! Numbers as bits: f16, bf16 and the block formats of GGUF, to floats and back. Knows nothing above it.
//!
//! The module of each type of a file has the same two functions: `quantize_row(x, out)` appends the bytes of `x`, `dequantize_row(bytes,
//! out)` appends the floats of `bytes`. [`ternary`] is no such type: its one scale is the matrix's. Everything is little-endian, as in the files. All floats
//! are those of Python's `gguf.quants`, bit for bit. So are the bytes of the simple block formats; where ggml itself searches (Q4_K, Q6_K) the search here is
//! another one. Of equal values, those of 0 and -0 too, the largest is the first, as in ggml's C code; numpy's `min` and `max` give the last.

mod fit;
pub mod q4_0;
pub mod q4_k;
pub mod q5_0;
pub mod q6_k;
pub mod q8_0;
pub mod ternary;
pub mod tq2_0;

/// Largest float, exclusive, that f16 holds as a finite number after rounding to nearest even: halfway from 65504 to 2^16.
pub const F16_OVERFLOW: f32 = 65520.0;

/// IEEE half precision: 10 bits of mantissa, largest value 65504.
pub mod f16 {
    /// Appends `x` as f16, rounded to nearest even.
    pub fn quantize_row(x: &[f32], out: &mut Vec<u8>) {
        out.extend(x.iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes()));
    }

    /// Appends the floats of `bytes`, two bytes each.
    ///
    /// # Panics
    /// When `bytes` is not a whole number of values.
    pub fn dequantize_row(bytes: &[u8], out: &mut Vec<f32>) {
        let (values, rest) = bytes.as_chunks::<2>();
        assert!(rest.is_empty(), "f16: {} bytes are not whole values", bytes.len());
        out.extend(values.iter().map(|&b| half::f16::from_le_bytes(b).to_f32()));
    }
}

/// The upper half of an f32: 7 bits of mantissa, the range of f32.
pub mod bf16 {
    /// Appends `x` as bf16, rounded to nearest even.
    pub fn quantize_row(x: &[f32], out: &mut Vec<u8>) {
        out.extend(x.iter().flat_map(|&v| half::bf16::from_f32(v).to_le_bytes()));
    }

    /// Appends the floats of `bytes`, two bytes each.
    ///
    /// # Panics
    /// When `bytes` is not a whole number of values.
    pub fn dequantize_row(bytes: &[u8], out: &mut Vec<f32>) {
        let (values, rest) = bytes.as_chunks::<2>();
        assert!(rest.is_empty(), "bf16: {} bytes are not whole values", bytes.len());
        out.extend(values.iter().map(|&b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)));
    }
}

/// IEEE single precision, as it is.
pub mod f32 {
    /// Appends the bytes of `x`.
    pub fn quantize_row(x: &[f32], out: &mut Vec<u8>) {
        out.extend(x.iter().flat_map(|v| v.to_le_bytes()));
    }

    /// Appends the floats of `bytes`, four bytes each.
    ///
    /// # Panics
    /// When `bytes` is not a whole number of values.
    pub fn dequantize_row(bytes: &[u8], out: &mut Vec<f32>) {
        let (values, rest) = bytes.as_chunks::<4>();
        assert!(rest.is_empty(), "f32: {} bytes are not whole values", bytes.len());
        out.extend(values.iter().map(|&b| f32::from_le_bytes(b)));
    }
}
