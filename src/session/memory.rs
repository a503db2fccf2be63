//! What a model's buffers are sized for, and what cannot be.

use crate::error::{Error, Result};
use crate::graph::{MAX_BINDING_WORDS, Program, liveness};
use crate::kernel::attention::PAGE;

/// Tokens of a prefill replay at most when the caller names none: on the CPU and on software adapters more do not pay.
pub const DEFAULT_CHUNK: usize = 128;
/// The same where logits of every position are asked for, which take a row of the vocabulary for each token.
pub const DEFAULT_SCORES_CHUNK: usize = 256;
/// Largest chunk that can be asked for.
pub const MAX_CHUNK: usize = 4096;
/// Largest chunk of a caller who names none.
const MEASURED_CHUNK: usize = 1024;
/// Bytes that the largest chunk may take between two dispatches, where the caller names none: WebGPU tells nobody what a device has, and
/// more than weights of this size would be out of proportion on a small one.
const SCRATCH_BYTES: usize = 256 << 20;

/// Tokens of a prefill replay for which there is room on a GPU in hardware: `declare` gives the program of a chunk.
pub(super) fn largest_chunk(declare: &dyn Fn(usize) -> Result<Program>) -> Result<usize> {
    let mut chunk = MEASURED_CHUNK;
    while chunk > DEFAULT_CHUNK {
        let program = declare(chunk)?;
        let scratch_words: usize = liveness::plan(&program).slot_words.iter().sum();
        if scratch_words * 4 <= SCRATCH_BYTES && program.buffers.iter().all(|buffer| buffer.words <= MAX_BINDING_WORDS) {
            break;
        }
        chunk /= 2;
    }
    Ok(chunk)
}

/// The chunk of a caller who wants the scores of every token: those of a chunk must fit in a binding.
pub(super) fn scores_chunk(hardware: bool, vocab: usize) -> usize {
    let pays = if hardware { DEFAULT_SCORES_CHUNK } else { DEFAULT_CHUNK };
    pays.min((MAX_BINDING_WORDS / vocab).max(1))
}

/// Buffers that are bound whole must fit in a binding: a context too long for the KV pools is refused with the bytes.
pub(super) fn fits_in_bindings(program: &Program, context: usize) -> Result<()> {
    let limit = MAX_BINDING_WORDS;
    // The largest of all says what fits.
    let Some(buffer) = program.buffers.iter().filter(|buffer| buffer.words > limit).max_by_key(|buffer| buffer.words) else {
        return Ok(());
    };
    let fits = if buffer.name.ends_with("_pages") {
        let column_words = buffer.words.div_ceil(context.div_ceil(PAGE));
        format!("a context of at most {} tokens fits", limit / column_words * PAGE)
    } else {
        "a shorter context or a smaller chunk fits".to_owned()
    };
    let reason = format!("WebGPU binds at most {} bytes; {fits}", limit * 4);
    Err(Error::OutOfMemory { what: buffer.name.clone(), bytes: buffer.words as u64 * 4, reason })
}

/// A refusal of memory, with what would help.
pub(super) fn advised(error: Error, program: &Program, context: usize) -> Error {
    let Error::OutOfMemory { what, bytes, reason } = error else { return error };
    let pages = program.buffers.iter().filter(|buffer| buffer.name.ends_with("_pages"));
    let page_bytes: u64 = pages.map(|buffer| buffer.words as u64 * 4).sum();
    let advice = format!(
        "keys and values of a context of {context} tokens take {page_bytes} bytes, those of a shorter one (-c / context) less"
    );
    Error::OutOfMemory { what, bytes, reason: format!("{reason}; {advice}") }
}
