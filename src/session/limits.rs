//! What the surfaces take from their callers at most, before it is read or copied: a file, or what a page hands over.

use super::Model;

/// Bytes of a text: the longest novel twice, and once in wasm, which has 4 GB: tokenizing takes 120 times as much memory, 400 times where each
/// character is a part of its own.
pub const MAX_TEXT: usize = if cfg!(target_arch = "wasm32") { 8 << 20 } else { 16 << 20 };

impl Model {
    /// Bytes of a saved session for [`Model::restore`]: four times what the cache takes, so that a session of another model is told as that,
    /// and not as too long.
    pub fn max_session_bytes(&self) -> u64 {
        self.kv_bytes_pool().saturating_mul(4).saturating_add(64 << 20)
    }
}
