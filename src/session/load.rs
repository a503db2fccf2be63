//! From a checkpoint to a model on a device: configuration, then every tensor compared with what the network wants, all
//! differences at once, then the weights in file order in pieces of at most 4 MiB. The file never sits whole in memory.

use super::device::{Device, DeviceChoice, Opened};
use super::model::{Graphs, Model};
use crate::error::{Error, Result};
use crate::format::{Checkpoint, TensorType, to_f32};
use crate::graph::Program;
use crate::kernel::attention::PAGE;
use crate::kernel::layout::{Part, WeightType, repack};
use crate::model::{Config, Fox, Pages, Place, Segment, Wanted, fox};
use crate::text::Tokenizer;
use std::borrow::Cow;
use std::collections::HashMap;

/// Element type of the KV cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvType {
    /// Half the memory; rounding of 2⁻¹¹ on keys and values.
    #[default]
    F16,
    /// Exact.
    F32,
}

/// How to load a model.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Where it runs.
    pub device: DeviceChoice,
    /// Tokens that a session can hold; `None`: what the model states, else [`DEFAULT_CONTEXT`].
    pub context: Option<usize>,
    /// Element type of the KV cache.
    pub kv: KvType,
    /// Whether [`Model::score`] can be called (costs a [chunk, V] buffer).
    pub scores: bool,
    /// Tokens of a prefill replay at most; `None`: [`DEFAULT_CHUNK`].
    pub chunk: Option<usize>,
}

/// Context of a model that states none.
pub const DEFAULT_CONTEXT: usize = 4096;
/// Longest context: λ as 32.32 fixed point holds the sum of this many gates of the largest kind (2¹⁴ each).
pub const MAX_CONTEXT: usize = 1 << 18;
/// Tokens of a prefill replay when the caller names none.
pub const DEFAULT_CHUNK: usize = 128;
/// Largest chunk: its scores buffer must stay within a binding for common vocabularies.
pub const MAX_CHUNK: usize = 1024;

const PIECE_BYTES: usize = 4 << 20;
/// Copies on their way to the device before the load waits for them.
const FLUSH_BYTES: u64 = 64 << 20;

/// How far a load has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of weights on the device.
    pub done_bytes: u64,
    /// Bytes of weights in all.
    pub total_bytes: u64,
}

impl Model {
    /// Loads a checkpoint onto a device.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::Tensors`] (every difference at once), [`Error::Io`], [`Error::Format`], [`Error::Tokenizer`],
    /// [`Error::NoGpu`], [`Error::OutOfMemory`], and what the progress callback returns.
    pub async fn load(
        mut checkpoint: Checkpoint,
        options: LoadOptions,
        progress: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<Self> {
        let config = Config::from_json(&checkpoint.config)?;
        let file = checkpoint.file_name().to_owned();
        let context = options.context.or(config.context).unwrap_or(DEFAULT_CONTEXT);
        if !(1..=MAX_CONTEXT).contains(&context) {
            return Err(Error::argument("context", format!("1 to {MAX_CONTEXT} tokens"), context));
        }
        let chunk = options.chunk.unwrap_or(DEFAULT_CHUNK);
        if !(1..=MAX_CHUNK).contains(&chunk) {
            return Err(Error::argument("chunk", format!("1 to {MAX_CHUNK} tokens"), chunk));
        }
        let chunk = chunk.min(context);
        let tokenizer = checkpoint.tokenizer.take().map(|json| Tokenizer::from_json(&file, &json)).transpose()?;
        if let Some(tokenizer) = tokenizer.as_ref().filter(|tokenizer| tokenizer.vocab_size() > config.vocab) {
            return Err(Error::format(
                &file,
                "tokenizer",
                format!("at most {} ids (vocab_size)", config.vocab),
                tokenizer.vocab_size(),
            ));
        }

        let types: HashMap<&str, TensorType> =
            checkpoint.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.ty)).collect();
        let type_of = |name: &str| types.get(name).map_or(WeightType::F32, |ty| in_memory(*ty));
        let max_pages = context.div_ceil(PAGE);
        let pages = Pages::new(&config, max_pages, chunk);
        let mut program = Program::default();
        let kv_f16 = options.kv == KvType::F16;
        let fox_options = fox::Options { type_of: &type_of, chunk, kv_f16, scores: options.scores };
        let (network, wanted) = Fox::declare(&mut program, &config, &pages, &fox_options);
        let moves = match_tensors(&file, wanted, &checkpoint)?;
        fits_in_bindings(&program)?;
        let graphs = Graphs {
            decode: network.record_decode(&mut program),
            prefill: network.record_prefill(&mut program, false),
            score: options.scores.then(|| network.record_prefill(&mut program, true)),
        };

        let opened = Opened::open(options.device).await?;
        let (device_name, device_note) = (opened.name(), opened.note().map(str::to_owned));
        let mut device = opened.hold(&program).await?;
        stream(&mut checkpoint, &moves, &mut device, progress).await?;
        for (buffer, at, numbers) in network.constants() {
            device.write(buffer, at, bytemuck::cast_slice(&numbers));
        }
        let mut model =
            Self { file, config, tokenizer, device, device_name, device_note, program, network, graphs, pages, context, chunk };
        model.warm_up().await?;
        Ok(model)
    }
}

/// The element type that a tensor has on the device.
fn in_memory(ty: TensorType) -> WeightType {
    match ty {
        TensorType::F32 | TensorType::BF16 => WeightType::F32,
        TensorType::F16 => WeightType::F16,
        TensorType::Q8_0 => WeightType::Q8_0,
        TensorType::Q4_0 => WeightType::Q4_0,
    }
}

/// Pairs each wanted tensor with the checkpoint's, in file order; reports everything missing, left over or of another shape.
fn match_tensors(file: &str, wanted: Vec<Wanted>, checkpoint: &Checkpoint) -> Result<Vec<(usize, Wanted)>> {
    let mut by_name: HashMap<&str, usize> =
        checkpoint.tensors.iter().enumerate().map(|(ix, tensor)| (tensor.name.as_str(), ix)).collect();
    let (mut moves, mut problems) = (Vec::new(), Vec::new());
    for want in wanted {
        match by_name.remove(want.name.as_str()) {
            None => problems.push(format!("{} {:?} is missing", want.name, want.shape)),
            Some(ix) if checkpoint.tensors[ix].shape != want.shape => {
                problems.push(format!("{}: expected shape {:?}, got {:?}", want.name, want.shape, checkpoint.tensors[ix].shape));
            }
            Some(ix) => moves.push((ix, want)),
        }
    }
    let mut left_over: Vec<usize> = by_name.into_values().collect();
    left_over.sort_unstable();
    problems.extend(left_over.into_iter().map(|ix| format!("{} is not part of this model", checkpoint.tensors[ix].origin)));
    if !problems.is_empty() {
        return Err(Error::Tensors { file: file.to_owned(), problems });
    }
    moves.sort_by_key(|(ix, _)| (checkpoint.tensors[*ix].file, checkpoint.tensors[*ix].offset));
    Ok(moves)
}

/// Buffers that are bound whole must fit in a binding: a context too long for the KV pools is refused with the bytes.
fn fits_in_bindings(program: &Program) -> Result<()> {
    let limit = crate::graph::MAX_BINDING_WORDS;
    match program.buffers.iter().find(|buffer| buffer.words > limit) {
        None => Ok(()),
        Some(buffer) => Err(Error::OutOfMemory {
            what: buffer.name.clone(),
            bytes: buffer.words as u64 * 4,
            reason: format!("WebGPU binds at most {} bytes; a shorter context or a smaller chunk fits", limit * 4),
        }),
    }
}

async fn stream(
    checkpoint: &mut Checkpoint,
    moves: &[(usize, Wanted)],
    device: &mut Device,
    progress: &mut dyn FnMut(Progress) -> Result<()>,
) -> Result<()> {
    let total_bytes = moves.iter().map(|(ix, _)| checkpoint.tensors[*ix].bytes).sum();
    let (mut done_bytes, mut in_flight) = (0, 0);
    progress(Progress { done_bytes, total_bytes })?;
    for (ix, want) in moves {
        match &want.place {
            Place::Words { buffer, at_word, repeat } => {
                let bytes = checkpoint.read_rows(*ix, 0, rows(&want.shape)).await?;
                let words: Vec<u32> = floats(checkpoint, *ix, &bytes)?.into_iter().map(f32::to_bits).collect();
                for copy in 0..*repeat {
                    device.write(*buffer, at_word + copy * words.len(), &words);
                }
                done_bytes += bytes.len() as u64;
            }
            Place::Rows(segments) => {
                let row_bytes = (checkpoint.tensors[*ix].bytes as usize / want.shape[0]).max(1);
                // An even number of rows: packed scales of two pieces never share a word.
                let rows_per_piece = (PIECE_BYTES / row_bytes).max(2) & !1;
                for (segment, piece) in segments.iter().flat_map(|segment| pieces(segment, rows_per_piece)) {
                    let bytes = checkpoint.read_rows(*ix, segment.first_row + piece.start, piece.len()).await?;
                    write_rows(checkpoint, *ix, &bytes, segment, piece.start, device)?;
                    done_bytes += bytes.len() as u64;
                    in_flight += bytes.len() as u64;
                    if in_flight > FLUSH_BYTES {
                        device.flush().await?;
                        in_flight = 0;
                    }
                    progress(Progress { done_bytes, total_bytes })?;
                }
            }
        }
    }
    device.flush().await?;
    progress(Progress { done_bytes, total_bytes })
}

fn rows(shape: &[usize]) -> usize {
    if shape.len() > 1 { shape[0] } else { 1 }
}

fn pieces(segment: &Segment, rows_per_piece: usize) -> impl Iterator<Item = (&Segment, std::ops::Range<usize>)> {
    (0..segment.n_rows).step_by(rows_per_piece).map(move |first| (segment, first..segment.n_rows.min(first + rows_per_piece)))
}

fn floats(checkpoint: &Checkpoint, ix: usize, bytes: &[u8]) -> Result<Vec<f32>> {
    let tensor = &checkpoint.tensors[ix];
    let mut values = Vec::new();
    to_f32(tensor.ty, bytes, &mut values);
    match values.iter().find(|value| !value.is_finite()) {
        None => Ok(values),
        Some(value) => {
            Err(Error::NotFinite { place: format!("{}: {}", checkpoint.file_name(), tensor.origin), got: value.to_string() })
        }
    }
}

/// Repacks whole rows for the kernels and writes them behind `first` rows of the segment.
fn write_rows(
    checkpoint: &Checkpoint,
    ix: usize,
    bytes: &[u8],
    segment: &Segment,
    first: usize,
    device: &mut Device,
) -> Result<()> {
    let Segment { part, at_row, .. } = segment;
    let (mut data, mut scales) = (Vec::new(), Vec::new());
    let width = checkpoint.tensors[ix].width();
    if checkpoint.tensors[ix].ty == TensorType::BF16 {
        let values = floats(checkpoint, ix, bytes)?;
        repack(part.ty, part.k, &padded(part, width, bytemuck::cast_slice(&values)), &mut data, &mut scales);
    } else {
        repack(part.ty, part.k, &padded(part, width, bytes), &mut data, &mut scales);
    }
    let row = at_row + first;
    device.write(part.data, row * part.ty.row_words(part.k), &data);
    if let Some(buffer) = part.scales {
        let block = row * part.k / part.ty.block();
        assert!(block.is_multiple_of(2), "pieces and parts start at even rows");
        device.write(buffer, block / 2, &scales);
    }
    Ok(())
}

/// Rows of `width` weights filled up with zeros to the part's width: only types without blocks have rows that need it, and zero
/// bytes are a zero weight in each of them.
fn padded<'a>(part: &Part, width: usize, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    if width == part.k {
        return Cow::Borrowed(bytes);
    }
    let row_bytes = part.ty.gguf_row_bytes(part.k);
    let (held, rest) = (row_bytes / part.k * width, row_bytes / part.k * (part.k - width));
    Cow::Owned(bytes.chunks_exact(held).flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(0, rest))).collect())
}
