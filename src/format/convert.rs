//! Writes any checkpoint as GGUF, quantized on the way: pieces of a few MiB go from the source through f32 to the output, so that
//! a model larger than memory can be converted.
//!
//! The matrices of the linear layers, the embedding and the head take the type asked for; norms, biases and the narrow gates stay
//! F32. A tensor that is of the type already passes bit for bit.

use super::gguf::{ALIGNMENT, ARCHITECTURE, Scalar};
use super::gguf_write::{Info, Writer};
use super::limits::MAX_TOKENIZER;
use super::{Checkpoint, Tensor, TensorType, from_f32, keys, names, to_f32};
use crate::{Error, Result};
use std::{fmt, io::Write, str::FromStr};

/// Values of a piece: 4 MiB as f32, and whole blocks of every type.
const PIECE: u64 = 1 << 20;

/// The types that matrices are stored in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quant {
    /// The matrices of the layers.
    layers: TensorType,
    /// Embedding and head: a few large matrices next to the text itself, worth more bits than the rest.
    ends: TensorType,
}

impl Quant {
    /// Q4_K with embedding and head in Q6_K.
    pub const Q4_K_M: Self = Self { layers: TensorType::Q4_K, ends: TensorType::Q6_K };

    /// All matrices in one type.
    pub const fn plain(ty: TensorType) -> Self {
        Self { layers: ty, ends: ty }
    }

    /// Every type, then the mixture.
    pub fn all() -> impl Iterator<Item = Self> {
        TensorType::ALL.into_iter().map(Self::plain).chain([Self::Q4_K_M])
    }

    /// The type for a matrix, by its canonical name.
    pub fn type_of(self, matrix: &str) -> TensorType {
        if matrix.starts_with("blk.") { self.layers } else { self.ends }
    }

    /// `general.file_type`, by ggml's numbers.
    fn file_type(self) -> u32 {
        // "Mostly Q4_K, medium".
        if self == Self::Q4_K_M { 15 } else { self.layers.file_type() }
    }
}

impl fmt::Display for Quant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::Q4_K_M { f.pad("q4_k_m") } else { f.pad(&self.layers.name().to_ascii_lowercase()) }
    }
}

impl FromStr for Quant {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::all().find(|quant| quant.to_string() == text.to_ascii_lowercase());
        found.ok_or_else(|| {
            let names: Vec<_> = Self::all().map(|quant| quant.to_string()).collect();
            Error::argument("quant", names.join(" or "), text)
        })
    }
}

/// A matrix that could not take the type asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// Its canonical name.
    pub tensor: String,
    /// The width of its rows, no multiple of the block.
    pub width: usize,
    /// The type that it was to have.
    pub asked: TensorType,
    /// What it was stored in instead.
    pub ty: TensorType,
}

/// What a conversion did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// Tensors written.
    pub n_tensors: usize,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Matrices stored in another type than asked for.
    pub fallbacks: Vec<Fallback>,
}

/// Writes `checkpoint` to `out` as GGUF; `out_name` is for error messages, `progress` gets bytes read and bytes in all.
///
/// # Errors
/// [`Error::NotFinite`] naming the tensor with a NaN, an infinity or a value that the type cannot hold; [`Error::Config`] for a
/// configuration that GGUF's keys cannot hold; [`Error::Format`] and [`Error::Io`] from reading and writing.
pub async fn convert(
    checkpoint: &mut Checkpoint,
    quant: Quant,
    out: &mut dyn Write,
    out_name: &str,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Converted> {
    let mut fallbacks = Vec::new();
    let types: Vec<_> = checkpoint.tensors.iter().map(|tensor| target(tensor, quant, &mut fallbacks)).collect();
    let infos: Vec<_> = checkpoint.tensors.iter().zip(&types).map(|(tensor, ty)| Info::of(tensor, *ty)).collect();
    let mut writer = Writer::start(out, out_name, &metadata(checkpoint, quant)?, &infos)?;
    let total = checkpoint.tensors.iter().map(|tensor| tensor.bytes).sum();
    let mut done = 0;
    let (mut values, mut bytes) = (Vec::new(), Vec::new());
    for (ix, to) in types.into_iter().enumerate() {
        let from = checkpoint.tensors[ix].ty;
        let n = checkpoint.tensors[ix].n_values();
        let in_file = |values: u64| values / from.block() as u64 * from.block_bytes() as u64;
        let mut first = 0;
        while first < n {
            let piece = PIECE.min(n - first);
            let read = checkpoint.read_bytes(ix, in_file(first), in_file(piece)).await?;
            values.clear();
            to_f32(from, &read, &mut values);
            check_finite(checkpoint, ix, first, &values, (from != to).then_some(to))?;
            if from == to {
                writer.data(&read)?;
            } else {
                bytes.clear();
                from_f32(to, &values, &mut bytes);
                writer.data(&bytes)?;
            }
            first += piece;
            done += read.len() as u64;
            progress(done, total);
        }
    }
    Ok(Converted { n_tensors: infos.len(), bytes: writer.finish()?, fallbacks })
}

/// The type that a tensor is written in.
fn target(tensor: &Tensor, quant: Quant, fallbacks: &mut Vec<Fallback>) -> TensorType {
    if tensor.shape.len() != 2 || !names::is_matrix(&tensor.name) {
        return TensorType::F32;
    }
    let (asked, width) = (quant.type_of(&tensor.name), tensor.width());
    let ty = asked.for_width(width);
    if ty != asked {
        fallbacks.push(Fallback { tensor: tensor.name.clone(), width, asked, ty });
    }
    ty
}

/// A value that would be stored as NaN or infinity makes every later result worthless: better no file. `to` is the type that the
/// values become, if another.
fn check_finite(checkpoint: &Checkpoint, ix: usize, first: u64, values: &[f32], to: Option<TensorType>) -> Result<()> {
    let limit = to.map_or(f32::INFINITY, TensorType::limit);
    // A NaN is below no limit.
    let holds = |v: &f32| v.is_finite() && v.abs() < limit;
    let Some(at) = values.iter().position(|v| !holds(v)) else { return Ok(()) };
    let why = to.filter(|_| values[at].is_finite()).map_or_else(String::new, |to| format!(", too large for {to}"));
    Err(checkpoint.not_finite(ix, format_args!("{} at element {}{why}", values[at], first + at as u64)))
}

/// GGUF's metadata of a checkpoint.
fn metadata(checkpoint: &Checkpoint, quant: Quant) -> Result<Vec<(String, Scalar)>> {
    let word = |key: &str, text: &str| (key.to_owned(), Scalar::String(text.into()));
    let mut pairs = vec![
        word("general.architecture", ARCHITECTURE),
        word("general.name", &checkpoint.name),
        ("general.alignment".into(), Scalar::U32(ALIGNMENT as u32)),
        ("general.file_type".into(), Scalar::U32(quant.file_type())),
        // Version 2 of ggml's block formats: f16 scales.
        ("general.quantization_version".into(), Scalar::U32(2)),
    ];
    let mut config = checkpoint.config.clone();
    // Left out in config.json it follows from hidden_ratio; a reader of GGUF need not know that rule.
    let stated = config.get("intermediate_size").is_some_and(|size| !size.is_null());
    if let Some(ix) = checkpoint.find("blk.0.ffn_down.weight").filter(|_| !stated) {
        config.insert("intermediate_size".into(), checkpoint.tensors[ix].width().into());
    }
    pairs.extend(keys::to_metadata(&config).map_err(|error| error.in_file(&checkpoint.config_file))?);
    match &checkpoint.source_config {
        Some(source) => pairs.push(word(keys::SOURCE_CONFIG, source)),
        // Not every key has one of its own.
        None => pairs.push(word(keys::SOURCE_CONFIG, &serde_json::Value::Object(config).to_string())),
    }
    if let Some(tokenizer) = &checkpoint.tokenizer {
        // One made of other files may be longer than a reader takes.
        if tokenizer.len() as u64 > MAX_TOKENIZER {
            let expected = format_args!("at most {MAX_TOKENIZER} bytes as tokenizer.json");
            return Err(Error::format(&checkpoint.tokenizer_file, "length", expected, tokenizer.len()));
        }
        pairs.push(word(keys::TOKENIZER, tokenizer));
    }
    Ok(pairs)
}
