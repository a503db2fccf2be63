//! How a weight matrix lies in GPU memory, and the way there from GGUF's bytes.
//!
//! GGUF keeps a block's scale beside its integers: 34 bytes (Q8_0) or 18 bytes (Q4_0) for 32 weights, so nothing is aligned.
//! Here the integers and the scales are two arrays: an invocation reads 16 bytes of integers at once, and two f16 scales share
//! a word. F32 and F16 are kept as they are. Words are little-endian, as WGSL and all its platforms are.

use super::inputs;
use crate::graph::{Binding, BufferId, MAX_BINDING_WORDS, Program, Recorder, Role};
use half::f16;

/// The types of weights that the kernels read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightType {
    /// One word a weight.
    F32,
    /// Two weights a word, the first in the low half.
    F16,
    /// Blocks of 32: i8 · f16 scale; 8 words of integers.
    Q8_0,
    /// Blocks of 32: (nibble - 8) · f16 scale; 4 words, byte j holds weight j (low nibble) and j + 16 (high nibble).
    Q4_0,
}

/// The flags of the weight types, one of which every variant of a kernel with weights has.
pub const WEIGHT_FLAGS: [&str; 4] = ["W_F32", "W_F16", "W_Q8_0", "W_Q4_0"];

impl WeightType {
    /// Every type.
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Q8_0, Self::Q4_0];

    /// The variant flag of the shaders.
    pub fn flag(self) -> &'static str {
        WEIGHT_FLAGS[self as usize]
    }

    /// The type behind a variant's flag.
    pub fn of(has: impl Fn(&str) -> bool) -> Self {
        let found = Self::ALL.into_iter().find(|ty| has(ty.flag()));
        found.unwrap_or_else(|| unreachable!("a kernel with weights is recorded with their type's flag"))
    }

    /// GGUF's name.
    pub fn name(self) -> &'static str {
        &self.flag()[2..]
    }

    /// Whether there is a scale for every 32 weights.
    pub fn has_scales(self) -> bool {
        matches!(self, Self::Q8_0 | Self::Q4_0)
    }

    /// A row's length must be a multiple of this.
    pub fn block(self) -> usize {
        if self.has_scales() { 32 } else { 4 }
    }

    /// `k` rounded up to whole blocks.
    pub fn padded(self, k: usize) -> usize {
        k.next_multiple_of(self.block())
    }

    /// Bytes of a row of `k` weights in GGUF.
    pub fn gguf_row_bytes(self, k: usize) -> usize {
        match self {
            Self::F32 => k * 4,
            Self::F16 => k * 2,
            Self::Q8_0 => k / 32 * 34,
            Self::Q4_0 => k / 32 * 18,
        }
    }

    /// Words of one row of `k` weights.
    pub fn row_words(self, k: usize) -> usize {
        match self {
            Self::F32 => k,
            Self::F16 => k / 2,
            Self::Q8_0 => k / 4,
            Self::Q4_0 => k / 8,
        }
    }

    /// Words of the data buffer of a `[rows, k]` matrix: its rows, rounded up to whole `vec4<u32>`.
    pub fn data_words(self, rows: usize, k: usize) -> usize {
        (rows * self.row_words(k)).next_multiple_of(4)
    }

    /// Words of the scales buffer of a `[rows, k]` matrix; 0 when there is none.
    pub fn scale_words(self, rows: usize, k: usize) -> usize {
        if self.has_scales() { (rows * (k / 32)).div_ceil(2) } else { 0 }
    }

    /// The most rows of `k` weights that one binding holds under WebGPU's default limits; even, so that the next part starts
    /// at a whole word of scales.
    pub fn max_rows(self, k: usize) -> usize {
        (MAX_BINDING_WORDS / self.row_words(k).max(1)) & !1
    }
}

/// A matrix `[n_rows, k]`, or some rows of one that is too large for a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Type of the weights.
    pub ty: WeightType,
    /// Rows: outputs.
    pub n_rows: usize,
    /// Columns: inputs; a multiple of [`WeightType::block`].
    pub k: usize,
    /// [`WeightType::data_words`] words.
    pub data: BufferId,
    /// [`WeightType::scale_words`] words; for the types that have scales.
    pub scales: Option<BufferId>,
}

impl Part {
    /// The windows of `data` and, if it has them, `scales`.
    pub fn bindings(&self, r: &Recorder<'_>) -> Vec<Binding> {
        assert!(self.k > 0 && self.k.is_multiple_of(self.ty.block()), "{} rows of {} weights", self.ty.name(), self.k);
        assert!(self.scales.is_some() == self.ty.has_scales(), "scales belong to the block types alone");
        std::iter::once(self.data).chain(self.scales).map(|buffer| r.whole(buffer)).collect()
    }
}

/// Appends whole rows of `k` weights, in GGUF's bytes, to `data` and `scales`.
///
/// A matrix may come in pieces: each but the last must hold an even number of blocks, since an odd last block is followed by a
/// scale of 0 that fills the word.
///
/// # Panics
/// When `bytes` are no whole rows: the loader cuts by [`WeightType::gguf_row_bytes`].
pub fn repack(ty: WeightType, k: usize, bytes: &[u8], data: &mut Vec<u32>, scales: &mut Vec<u32>) {
    assert!(bytes.len().is_multiple_of(ty.gguf_row_bytes(k)), "{} bytes are no whole {} rows of {k}", bytes.len(), ty.name());
    let block_bytes = if ty.has_scales() { ty.gguf_row_bytes(32) } else { bytes.len().max(1) };
    let scale_bytes = if ty.has_scales() { 2 } else { 0 };
    for (ix, block) in bytes.chunks_exact(block_bytes).enumerate() {
        let (scale, integers) = block.split_at(scale_bytes);
        data.extend(integers.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])));
        match (scale, scales.last_mut()) {
            ([low, high], Some(word)) if ix % 2 == 1 => *word |= u32::from_le_bytes([0, 0, *low, *high]),
            ([low, high], _) => scales.push(u32::from_le_bytes([*low, *high, 0, 0])),
            _ => {}
        }
    }
}

/// Dequantizes row `row`, for the twins: one weight after the other, by the definition of its type.
pub fn read_row(ty: WeightType, k: usize, data: &[u32], scales: &[u32], row: usize) -> Vec<f32> {
    let words = &data[row * ty.row_words(k)..];
    let byte = |at: usize| (words[at / 4] >> (at % 4 * 8)) as u8;
    let half = |words: &[u32], at: usize| f16::from_bits((words[at / 2] >> (at % 2 * 16)) as u16).to_f32();
    let scale = |c: usize| half(scales, row * (k / 32) + c / 32);
    let weight = |c: usize| match ty {
        WeightType::F32 => f32::from_bits(words[c]),
        WeightType::F16 => half(words, c),
        WeightType::Q8_0 => f32::from(byte(c) as i8) * scale(c),
        WeightType::Q4_0 => {
            let pair = byte(c / 32 * 16 + c % 16);
            let nibble = if c % 32 < 16 { pair & 15 } else { pair >> 4 };
            (f32::from(nibble) - 8.0) * scale(c)
        }
    };
    (0..k).map(weight).collect()
}

/// A seeded `[rows, k]` matrix in GGUF's bytes, for test cases: weights about in (-0.1, 0.1); among the scales are negative
/// ones, a subnormal and 0.
pub fn sample_bytes(ty: WeightType, rows: usize, k: usize, seed: u32) -> Vec<u8> {
    let floats = inputs::floats(seed, rows * k, 0.1);
    if !ty.has_scales() {
        let bytes = |weight: f32| {
            if ty == WeightType::F32 { weight.to_le_bytes().to_vec() } else { f16::from_f32(weight).to_le_bytes().to_vec() }
        };
        return floats.into_iter().flat_map(bytes).collect();
    }
    let integers = ty.gguf_row_bytes(32) - 2;
    let largest = if ty == WeightType::Q8_0 { 127.0 } else { 8.0 };
    let block = |(ix, block): (usize, &[f32])| {
        let scale = match ix % 13 {
            5 => f16::from_bits(0x0003),
            11 => f16::ZERO,
            _ => f16::from_f32(block[31] / largest),
        };
        // Any byte is valid: the bits of the floats below the leading ones are as good as random.
        let random = block.iter().map(|x| (x.to_bits() >> 7) as u8).take(integers);
        scale.to_le_bytes().into_iter().chain(random).collect::<Vec<_>>()
    };
    floats.chunks_exact(32).enumerate().flat_map(block).collect()
}

/// [`sample_bytes`] repacked: data and scales.
pub fn sample(ty: WeightType, rows: usize, k: usize, seed: u32) -> (Vec<u32>, Vec<u32>) {
    let (mut data, mut scales) = (Vec::new(), Vec::new());
    repack(ty, k, &sample_bytes(ty, rows, k, seed), &mut data, &mut scales);
    data.resize(ty.data_words(rows, k), 0);
    (data, scales)
}

/// Declares a `[rows, k]` matrix in a case's program and adds a [`sample`] to its contents.
pub fn sample_part(
    program: &mut Program,
    contents: &mut Vec<(BufferId, Vec<u32>)>,
    ty: WeightType,
    rows: usize,
    k: usize,
) -> Part {
    let (data_words, scale_words) = sample(ty, rows, k, 11);
    let data = program.buffer("data", data_words.len(), Role::Weight);
    contents.push((data, data_words));
    let scales = ty.has_scales().then(|| program.buffer("scales", scale_words.len(), Role::Weight));
    contents.extend(scales.map(|scales| (scales, scale_words)));
    Part { ty, n_rows: rows, k, data, scales }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GGUF's own definition of a row, straight from the bytes.
    fn from_gguf(ty: WeightType, bytes: &[u8]) -> Vec<f32> {
        let half = |at: &[u8]| f16::from_le_bytes([at[0], at[1]]).to_f32();
        match ty {
            WeightType::F32 => bytes.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
            WeightType::F16 => bytes.chunks(2).map(half).collect(),
            WeightType::Q8_0 => {
                bytes.chunks(34).flat_map(|b| b[2..].iter().map(|q| half(b) * f32::from(*q as i8)).collect::<Vec<_>>()).collect()
            }
            WeightType::Q4_0 => bytes
                .chunks(18)
                .flat_map(|b| {
                    let low = b[2..].iter().map(|q| q & 15);
                    let all = low.chain(b[2..].iter().map(|q| q >> 4));
                    all.map(|q| half(b) * (f32::from(q) - 8.0)).collect::<Vec<_>>()
                })
                .collect(),
        }
    }

    #[test]
    fn repacked_rows_read_as_gguf_defines_them() {
        for ty in WeightType::ALL {
            for (rows, k) in [(1, 32), (5, 96), (4, 64), (3, 1280)] {
                let bytes = sample_bytes(ty, rows, k, 3);
                assert_eq!(bytes.len(), rows * ty.gguf_row_bytes(k));
                let (data, scales) = sample(ty, rows, k, 3);
                assert_eq!((data.len(), scales.len()), (ty.data_words(rows, k), ty.scale_words(rows, k)), "{ty:?} {rows} {k}");
                let got: Vec<f32> = (0..rows).flat_map(|row| read_row(ty, k, &data, &scales, row)).collect();
                assert_eq!(got, from_gguf(ty, &bytes), "{ty:?} {rows} {k}");
            }
        }
    }

    #[test]
    fn pieces_give_what_the_whole_gives() {
        let (ty, rows, k) = (WeightType::Q4_0, 7, 96);
        let bytes = sample_bytes(ty, rows, k, 9);
        let (mut data, mut scales) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(2 * ty.gguf_row_bytes(k)) {
            repack(ty, k, piece, &mut data, &mut scales);
        }
        assert_eq!((data, scales), sample(ty, rows, k, 9));
    }

    #[test]
    fn odd_f16_rows_fill_whole_vectors() {
        assert_eq!(WeightType::F16.data_words(3, 36), 56);
        assert_eq!(WeightType::F32.max_rows(1 << 25), 0);
        assert!(WeightType::F16.data_words(WeightType::F16.max_rows(1536), 1536) <= MAX_BINDING_WORDS);
    }
}
