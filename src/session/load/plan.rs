//! What a model will take, from its file's header alone: the network is declared and its graphs are recorded as for a load, and then the
//! buffers are counted and not made.

use super::{Checkpoint, Declared, Error, LoadOptions, Prepared, Result, Shape};
use super::{chunk, declare, fits_in_bindings, matrix_types, prepare, record};
use crate::graph::liveness;
use crate::session::pages::pool_bytes;

/// What a load would take.
#[derive(Debug)]
pub struct Plan {
    /// Bytes of the file, as far as its tensors reach.
    pub file_bytes: u64,
    /// Bytes of all tensors.
    pub tensor_bytes: u64,
    /// Bytes of weights, state and work space on the device; a GPU adds less than a MB for parameters and a buffer to read back by.
    pub device_bytes: u64,
    /// Bytes of those for keys and values.
    pub kv_bytes_pool: u64,
    /// Tokens that memory for keys and values is set aside for.
    pub context: usize,
    /// Tokens of the prompt that are read at once, at most.
    pub chunk: usize,
    /// Size of the vocabulary.
    pub vocab: usize,
    /// The types of the matrices, that of most bytes first.
    pub matrix_types: String,
    /// Whether the file has a tokenizer.
    pub has_tokenizer: bool,
    /// Why it cannot be loaded so, if it cannot.
    pub refusal: Option<Error>,
}

/// Plans the load of a checkpoint on the CPU or a software adapter, or on a GPU in `hardware`.
///
/// # Errors
/// What [`crate::session::Model::load`] finds wrong with the file or the options; what only does not fit is part of the plan.
pub fn plan(checkpoint: &Checkpoint, options: &LoadOptions, hardware: bool) -> Result<Plan> {
    let Prepared { config, shape, .. } = prepare(checkpoint, options)?;
    let Shape { context, chunk: least, kv_f16, .. } = shape;
    let mut refusal = fits_in_bindings(&declare(checkpoint, &config, shape)?.program, context).err();
    // What does not fit cannot be recorded: its work space is not counted.
    let chunk = if refusal.is_none() { chunk(hardware, checkpoint, &config, shape, options.chunk)? } else { least };
    let Declared { mut program, pages, network, .. } = declare(checkpoint, &config, Shape { chunk, ..shape })?;
    refusal = refusal.or_else(|| fits_in_bindings(&program, context).err());
    if refusal.is_none() {
        record(&network, &mut program, options.scores);
    }
    Ok(Plan {
        file_bytes: checkpoint.tensors.iter().map(|tensor| tensor.offset + tensor.bytes).max().unwrap_or(0),
        tensor_bytes: checkpoint.tensors.iter().map(|tensor| tensor.bytes).sum(),
        device_bytes: liveness::words(&program) as u64 * 4,
        kv_bytes_pool: pool_bytes(&config, &pages, kv_f16),
        context,
        chunk,
        vocab: config.vocab,
        matrix_types: matrix_types(checkpoint),
        has_tokenizer: checkpoint.tokenizer.is_some(),
        refusal,
    })
}
