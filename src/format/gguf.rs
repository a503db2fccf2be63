//! GGUF version 3: the constants that reader and writer share.
//!
//! Layout, little-endian: `GGUF`, version u32, number of tensors u64, number of metadata pairs u64; per pair a key (string), a
//! value type u32 and the value; per tensor its name (string), number of dimensions u32, dimensions u64 **innermost first**, type
//! u32, offset u64; padding to `general.alignment` (32 unless said); the data, from which offsets count. A string is a length u64
//! and UTF-8; an array is an element type u32, a length u64 and the elements.

use super::TensorType;
use std::fmt;

/// First bytes of a file.
pub const MAGIC: [u8; 4] = *b"GGUF";
/// The version that is read and written.
pub const VERSION: u32 = 3;
/// `general.architecture` of a Forgetting Transformer.
pub const ARCHITECTURE: &str = "fox";
/// Alignment of a file that does not say.
pub const ALIGNMENT: u64 = 32;

/// Value types of metadata.
pub const STRING: u32 = 8;
/// See [`STRING`].
pub const ARRAY: u32 = 9;

/// A single value of the metadata. Integers of one and two bytes are widened.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// `uint8`, `uint16`, `uint32`.
    U32(u32),
    /// `uint64`.
    U64(u64),
    /// `int8` to `int64`.
    I64(i64),
    /// `float32`.
    F32(f32),
    /// `float64`.
    F64(f64),
    /// `bool`.
    Bool(bool),
    /// `string`.
    String(String),
}

impl Scalar {
    /// The value type that it is written with.
    pub fn type_id(&self) -> u32 {
        match self {
            Self::U32(_) => 4,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::String(_) => STRING,
            Self::U64(_) => 10,
            Self::I64(_) => 11,
            Self::F64(_) => 12,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U32(v) => write!(f, "{v}"),
            Self::U64(v) => write!(f, "{v}"),
            Self::I64(v) => write!(f, "{v}"),
            Self::F32(v) => write!(f, "{v:?}"),
            Self::F64(v) => write!(f, "{v:?}"),
            Self::Bool(v) => write!(f, "{v}"),
            Self::String(v) if v.chars().count() > 40 => write!(f, "{:?}…", v.chars().take(40).collect::<String>()),
            Self::String(v) => write!(f, "{v:?}"),
        }
    }
}

/// A value of the metadata as it was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A single value.
    Scalar(Scalar),
    /// An array: passed over, since no key that is read has one.
    Array {
        /// Elements in it.
        n: u64,
    },
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(scalar) => scalar.fmt(f),
            Self::Array { n } => write!(f, "an array of {n}"),
        }
    }
}

/// Names of tensor types by number, to name what cannot be read.
const TYPE_NAMES: [&str; 31] = [
    "F32", "F16", "Q4_0", "Q4_1", "Q4_2", "Q4_3", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_K",
    "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8", "I16", "I32", "I64", "F64", "IQ1_M",
    "BF16",
];

/// The tensor type of a number, or its name for the error.
pub fn type_from_id(id: u32) -> Result<TensorType, String> {
    TensorType::ALL.into_iter().find(|ty| ty.gguf_id() == id).ok_or_else(|| match TYPE_NAMES.get(id as usize) {
        Some(name) => format!("{name} (type {id})"),
        None => format!("type {id}"),
    })
}

/// The first multiple of `alignment` (a power of two) from `at` on.
pub fn align(at: u64, alignment: u64) -> Option<u64> {
    Some(at.checked_add(alignment - 1)? & !(alignment - 1))
}
