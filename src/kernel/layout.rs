//! How a weight matrix lies in GPU memory, and the way there from GGUF's bytes.
//!
//! GGUF keeps a block's scales beside its integers: 34 bytes (Q8_0) or 210 (Q6_K), so nothing is aligned. Here the integers and
//! the scales are two arrays: `data` has the integers of 32 weights in whole words ([`planes`]), `scales` the 16-bit words of each
//! block, two in a word. F32, F16 and BF16 are kept as they are. Words are little-endian, as WGSL and all its platforms are.
//!
//! A block type is one `impl` in [`blocks`], one line of the table below, and one section of `shaders/shared/weights.wgsl`.

use crate::graph::{MAX_BINDING_WORDS, MAX_GROUPS, Variant};
use block::Halves;
use format::Format;

pub mod block;
pub mod blocks;
pub mod format;
mod part;
pub mod planes;
mod samples;
#[cfg(test)]
mod tests;

pub use part::Part;
pub use samples::{sample, sample_bytes, sample_part};

macro_rules! weight_types {
    ($($(#[$doc:meta])* $name:ident: $format:expr,)*) => {
        /// The types of weights that the kernels read, by GGUF's names.
        #[allow(non_camel_case_types, reason = "GGUF's names")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum WeightType {
            $($(#[$doc])* $name,)*
        }

        const NAMES: [&str; [$(stringify!($name)),*].len()] = [$(stringify!($name)),*];

        static FORMATS: [Format; NAMES.len()] = [$($format),*];

        /// The flags of a kernel with weights: one for each type, and two that several types have.
        const FLAGS: [&str; NAMES.len() + 2] = [$(concat!("W_", stringify!($name)),)* SCALES, PLANES];

        impl WeightType {
            /// Every type.
            pub const ALL: [Self; NAMES.len()] = [$(Self::$name),*];
        }
    };
}

weight_types! {
    /// One word a weight.
    F32: Format::F32,
    /// Two weights a word, the first in the low half.
    F16: Format::F16,
    /// Two weights a word, the first in the low half.
    BF16: Format::BF16,
    /// Blocks of 32: i8 · f16 scale.
    Q8_0: Format::blocks::<blocks::Q8_0>(),
    /// Blocks of 32: (4 bits - 8) · f16 scale.
    Q4_0: Format::blocks::<blocks::Q4_0>(),
    /// Blocks of 32: (5 bits - 16) · f16 scale.
    Q5_0: Format::blocks::<blocks::Q5_0>(),
    /// Blocks of 256: 4 bits · scale - offset, both of 32 weights, f16 times 6 bits.
    Q4_K: Format::blocks::<blocks::Q4_K>(),
    /// Blocks of 256: (6 bits - 32) · scale of 16 weights, f16 times i8.
    Q6_K: Format::blocks::<blocks::Q6_K>(),
    /// Blocks of 256: (2 bits - 1) · f16 scale.
    TQ2_0: Format::blocks::<blocks::TQ2_0>(),
}

/// The flag of the types that have scales.
pub const SCALES: &str = "SCALES";
/// The flag of the types whose integers lie in planes of bits.
pub const PLANES: &str = "PLANES";
/// Fewest rows that a workgroup of a product with many tokens takes.
pub const MIN_TILE: usize = 32;
/// How many flags [`flags`] adds.
pub const N_FLAGS: usize = FLAGS.len();

/// The flags of a kernel with weights, and its own behind them: `N` is [`N_FLAGS`] more than its own.
pub const fn flags<const N: usize>(own: &[&'static str]) -> [&'static str; N] {
    assert!(N == N_FLAGS + own.len(), "a flag for each type, and the kernel's own");
    let mut all = [""; N];
    let mut ix = 0;
    while ix < N {
        all[ix] = if ix < N_FLAGS { FLAGS[ix] } else { own[ix - N_FLAGS] };
        ix += 1;
    }
    all
}

impl WeightType {
    /// Its row of the table.
    pub fn format(self) -> &'static Format {
        &FORMATS[self as usize]
    }

    /// The flag of the shaders for this type alone.
    pub fn flag(self) -> &'static str {
        FLAGS[self as usize]
    }

    /// The flags of the shaders for this type.
    pub fn variant(self) -> Variant {
        Variant::new().flag(self.flag()).flag_if(self.has_scales(), SCALES).flag_if(self.format().bits < 8, PLANES)
    }

    /// The type behind a variant's flag.
    pub fn of(has: impl Fn(&str) -> bool) -> Self {
        let found = Self::ALL.into_iter().find(|ty| has(ty.flag()));
        found.unwrap_or_else(|| unreachable!("a kernel with weights is recorded with their type's flag"))
    }

    /// GGUF's name.
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// Whether there is a buffer of scales.
    pub fn has_scales(self) -> bool {
        self.format().halves > 0
    }

    /// A row's length must be a multiple of this.
    pub fn block(self) -> usize {
        self.format().block.max(4)
    }

    /// `k` rounded up to whole blocks.
    pub fn padded(self, k: usize) -> usize {
        k.next_multiple_of(self.block())
    }

    /// Bytes of a row of `k` weights in GGUF.
    pub fn gguf_row_bytes(self, k: usize) -> usize {
        k / self.format().block * self.format().block_bytes
    }

    /// Words of one row of `k` weights.
    pub fn row_words(self, k: usize) -> usize {
        k / 4 * self.format().bits / 8
    }

    /// Words of the data buffer of a `[rows, k]` matrix: its rows, rounded up to whole `vec4<u32>`.
    pub fn data_words(self, rows: usize, k: usize) -> usize {
        (rows * self.row_words(k)).next_multiple_of(4)
    }

    /// 16-bit words that `rows` rows of `k` weights have in the scales buffer.
    pub fn scale_halves(self, rows: usize, k: usize) -> usize {
        rows * (k / self.format().block) * self.format().halves
    }

    /// Words of the scales buffer of a `[rows, k]` matrix; 0 when there is none.
    pub fn scale_words(self, rows: usize, k: usize) -> usize {
        self.scale_halves(rows, k).div_ceil(2)
    }

    /// The most rows of `k` weights that one binding holds under WebGPU's default limits, and that one dispatch covers by tiles of
    /// [`MIN_TILE`] rows; even, so that the next part starts at a whole word of scales.
    pub fn max_rows(self, k: usize) -> usize {
        (MAX_BINDING_WORDS / self.row_words(k).max(1)).min(MAX_GROUPS as usize * MIN_TILE) & !1
    }
}

/// Appends whole rows of `k` weights, in GGUF's bytes, to `data` and `scales`.
///
/// A matrix may come in pieces: each but the last must hold an even number of rows, since an odd last half word of scales is
/// filled up with 0.
///
/// # Panics
/// When `bytes` are no whole rows: the loader cuts by [`WeightType::gguf_row_bytes`].
pub fn repack(ty: WeightType, k: usize, bytes: &[u8], data: &mut Vec<u32>, scales: &mut Vec<u32>) {
    assert!(bytes.len().is_multiple_of(ty.gguf_row_bytes(k)), "{} bytes are no whole {} rows of {k}", bytes.len(), ty.name());
    let mut halves = Vec::new();
    (ty.format().repack)(bytes, data, &mut halves);
    scales.extend(halves.chunks(2).map(|pair| u32::from(pair[0]) | pair.get(1).map_or(0, |high| u32::from(*high) << 16)));
}

/// The words and scales of a row, of a matrix's.
pub(super) fn row_of<'a>(ty: WeightType, k: usize, data: &'a [u32], scales: &'a [u32], row: usize) -> (&'a [u32], Halves<'a>) {
    let words = ty.row_words(k);
    (&data[row * words..(row + 1) * words], Halves::new(scales, ty.scale_halves(row, k)))
}

/// Dequantizes row `row`, for the twins: one weight after the other, by the definition of its type.
pub fn read_row(ty: WeightType, k: usize, data: &[u32], scales: &[u32], row: usize) -> Vec<f32> {
    let (words, halves) = row_of(ty, k, data, scales, row);
    (0..k).map(|at| (ty.format().weight)(words, halves, at)).collect()
}
