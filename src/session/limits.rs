//! What the surfaces take from their callers at most, before it is read or copied: a file, or what a page hands over.

use super::Model;

/// Bytes of a text in wasm, which has 4 GB: the longest novel. Tokenizing takes 120 times as much memory, 400 times where each character is a
/// part of its own.
const MAX_WASM_TEXT: usize = 8 << 20;

/// Bytes of a text.
pub const MAX_TEXT: usize = if cfg!(target_arch = "wasm32") { MAX_WASM_TEXT } else { 2 * MAX_WASM_TEXT };

impl Model {
    /// Bytes of a saved session for [`Model::restore`]: four times what the cache takes, so that a session of another model is told as that,
    /// and not as too long.
    pub fn max_session_bytes(&self) -> u64 {
        self.kv_bytes_pool().saturating_mul(4).saturating_add(64 << 20)
    }
}
