//! A layer of the encoder family in GGUF: architecture `fox-layer`, five matrices and a bias under the names of a model's layer.
//!
//! Ternary matrices are TQ2_0 with d = 1 in every block and rows padded with zeros to whole blocks of 256. What such a block cannot
//! say stands in the metadata: `fox-layer.attn_q.width`, the true length of a row, and `fox-layer.attn_q.scale`, mean|W|.

use super::gguf::{ALIGNMENT, Scalar, Value};
use super::gguf_read::{Header, Metadata, header};
use super::gguf_write::{Info, Writer};
use super::layer::{Layer, LayerConfig, MATRICES, Mode, Weights};
use super::source::{Source, read_exact};
use super::{Tensor, TensorType, keys, to_f32};
use crate::num::ternary;
use crate::{Error, Result};
use std::io::Write;
use std::sync::Arc;

/// `general.architecture` of a layer.
pub const ARCHITECTURE: &str = "fox-layer";

/// GGUF's stems of [`MATRICES`]: `.weight` follows.
const STEMS: [&str; MATRICES.len()] = ["attn_q", "attn_k", "attn_v", "attn_fgate", "attn_output"];
const BIAS: &str = "attn_fgate.bias";
const HIDDEN: &str = "fox-layer.embedding_length";
const HEADS: &str = "fox-layer.attention.head_count";
const MODE: &str = "fox-layer.mode";
const MODES: [(&str, Mode); 2] = [("encoder", Mode::Encoder), ("decoder", Mode::Decoder)];

/// Writes a layer; `name` is what it calls itself, `out_name` is for error messages. Gives the length of the file in bytes.
///
/// # Errors
/// [`Error::Io`] when writing fails.
pub fn write(layer: &Layer, name: &str, out: &mut dyn Write, out_name: &str) -> Result<u64> {
    let config = layer.config();
    let d = config.hidden_size;
    let whole = |n: usize| Scalar::U32(n as u32); // at most MAX_HIDDEN
    let word = |text: &str| Scalar::String(text.into());
    let mode = MODES.iter().find(|(_, mode)| *mode == config.mode).map_or("", |(word, _)| word);
    let mut metadata = vec![
        ("general.architecture".to_owned(), word(ARCHITECTURE)),
        ("general.name".to_owned(), word(name)),
        ("general.alignment".to_owned(), Scalar::U32(ALIGNMENT as u32)),
        (HIDDEN.to_owned(), whole(d)),
        (HEADS.to_owned(), whole(config.num_heads)),
        (MODE.to_owned(), word(mode)),
    ];
    let mut tensors = Vec::new();
    for (ix, weights) in layer.matrices().iter().enumerate() {
        let (ty, width) = match weights {
            Weights::Floats(_) => (TensorType::F32, d),
            Weights::Ternary { scale, .. } => {
                metadata.push((width_key(ix), whole(d)));
                metadata.push((scale_key(ix), Scalar::F32(*scale)));
                (TensorType::TQ2_0, d.next_multiple_of(TensorType::TQ2_0.block()))
            }
        };
        tensors.push(Info { name: format!("{}.weight", STEMS[ix]), ty, shape: vec![config.n_rows(ix), width] });
    }
    tensors.push(Info { name: BIAS.into(), ty: TensorType::F32, shape: vec![config.num_heads] });
    let mut writer = Writer::start(out, out_name, &metadata, &tensors)?;
    for weights in layer.matrices() {
        match weights {
            Weights::Floats(values) => writer.data(&bytes_of(values))?,
            Weights::Ternary { blocks, .. } => writer.data(blocks)?,
        }
    }
    writer.data(&bytes_of(layer.f_bias()))?;
    writer.finish()
}

/// Reads a layer; matrices that are not ternary may be of any other type.
///
/// # Errors
/// [`Error::Format`] for a file that is no layer, or whose keys or ternary blocks are not what they must be; [`Error::Tensors`] for
/// tensors that are missing, left over or of another shape, all at once; [`Error::NotFinite`] naming a tensor; what the source
/// reports.
pub async fn read(source: Box<dyn Source>) -> Result<Layer> {
    let Header { file, metadata, tensors, mut source } = header(source, ARCHITECTURE).await?;
    let bitnet = tensors.iter().any(|tensor| tensor.ty == TensorType::TQ2_0);
    let config = config(&file, &metadata, bitnet)?;
    check_tensors(&file, &config, &tensors)?;
    let mut matrices = [const { Weights::Floats(Vec::new()) }; MATRICES.len()];
    let mut f_bias = Vec::new();
    for tensor in &tensors {
        let place = format!("tensor {}", tensor.name);
        let n =
            usize::try_from(tensor.bytes).map_err(|_| Error::format(&file, &place, "bytes in memory's range", tensor.bytes))?;
        let bytes = read_exact(source.as_mut(), tensor.offset, n, &place).await?;
        match STEMS.iter().position(|stem| tensor.name.strip_suffix(".weight") == Some(stem)) {
            Some(ix) if bitnet => matrices[ix] = ternary_matrix(&file, &metadata, ix, config.hidden_size, bytes)?,
            Some(ix) => matrices[ix] = Weights::Floats(floats(&file, &place, tensor.ty, &bytes)?),
            None => f_bias = floats(&file, &place, tensor.ty, &bytes)?,
        }
    }
    Ok(Layer { config, matrices: Arc::new(matrices), f_bias })
}

fn width_key(matrix: usize) -> String {
    format!("{ARCHITECTURE}.{}.width", STEMS[matrix])
}

fn scale_key(matrix: usize) -> String {
    format!("{ARCHITECTURE}.{}.scale", STEMS[matrix])
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn wrong(file: &str, key: &str, expected: &str, got: Option<&Value>) -> Error {
    Error::format(file, key, expected, got.map_or_else(|| "no such key".to_owned(), ToString::to_string))
}

fn whole(file: &str, metadata: &Metadata, key: &str) -> Result<usize> {
    match metadata.get(key) {
        Some(Value::Scalar(Scalar::U32(n))) => Ok(*n as usize),
        other => Err(wrong(file, key, "a whole number (uint32)", other)),
    }
}

fn config(file: &str, metadata: &Metadata, bitnet: bool) -> Result<LayerConfig> {
    let word = keys::text(file, metadata, MODE)?;
    let mode = MODES.iter().find(|(known, _)| word.as_deref() == Some(known));
    let Some((_, mode)) = mode else { return Err(wrong(file, MODE, "\"encoder\" or \"decoder\"", metadata.get(MODE))) };
    let (hidden_size, num_heads) = (whole(file, metadata, HIDDEN)?, whole(file, metadata, HEADS)?);
    let config = LayerConfig { hidden_size, num_heads, mode: *mode, bitnet };
    match config.check() {
        Ok(()) => Ok(config),
        Err(Error::Argument { option, expected, got }) => {
            Err(Error::format(file, if option == "num_heads" { HEADS } else { HIDDEN }, expected, got))
        }
        Err(other) => Err(other),
    }
}

fn check_tensors(file: &str, config: &LayerConfig, tensors: &[Tensor]) -> Result<()> {
    let d = config.hidden_size;
    let width = if config.bitnet { d.next_multiple_of(TensorType::TQ2_0.block()) } else { d };
    let matrix = |(ix, stem): (usize, &&str)| (format!("{stem}.weight"), vec![config.n_rows(ix), width], config.bitnet);
    let mut wanted: Vec<_> = STEMS.iter().enumerate().map(matrix).collect();
    wanted.push((BIAS.to_owned(), vec![config.num_heads], false));
    let mut problems = Vec::new();
    for (name, shape, ternary) in &wanted {
        match tensors.iter().find(|tensor| tensor.name == *name) {
            None => problems.push(format!("{name} {shape:?} is missing")),
            Some(tensor) if tensor.shape != *shape => {
                problems.push(format!("{name}: expected shape {shape:?}, got {:?}", tensor.shape));
            }
            Some(tensor) if (tensor.ty == TensorType::TQ2_0) != *ternary => {
                problems.push(format!("{name}: expected {}, got {}", if *ternary { "TQ2_0" } else { "another type" }, tensor.ty));
            }
            Some(_) => {}
        }
    }
    let unknown = tensors.iter().filter(|tensor| wanted.iter().all(|(name, ..)| *name != tensor.name));
    problems.extend(unknown.map(|tensor| format!("{} is not part of a layer", tensor.name)));
    if problems.is_empty() { Ok(()) } else { Err(Error::Tensors { file: file.to_owned(), problems }) }
}

fn floats(file: &str, place: &str, ty: TensorType, bytes: &[u8]) -> Result<Vec<f32>> {
    let mut values = Vec::new();
    to_f32(ty, bytes, &mut values);
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(Error::not_finite(format_args!("{file}: {place}"), format_args!("{} at element {at}", values[at]))),
        None => Ok(values),
    }
}

fn ternary_matrix(file: &str, metadata: &Metadata, ix: usize, d: usize, blocks: Vec<u8>) -> Result<Weights> {
    let width = whole(file, metadata, &width_key(ix))?;
    if width != d {
        return Err(Error::format(file, width_key(ix), d, width));
    }
    let scale = match metadata.get(&scale_key(ix)) {
        Some(Value::Scalar(Scalar::F32(scale))) if scale.is_finite() && *scale > 0.0 => *scale,
        other => return Err(wrong(file, &scale_key(ix), "a finite number above 0 (float32)", other)),
    };
    for (row, bytes) in blocks.chunks_exact(ternary::row_bytes(d)).enumerate() {
        let place = || format!("tensor {}.weight, row {row}", STEMS[ix]);
        ternary::read_row(bytes, d).map_err(|got| Error::format(file, place(), "weights −1, 0, 1 in blocks with d = 1", got))?;
    }
    Ok(Weights::Ternary { blocks, scale })
}
