//! Token ids to bytes, one token at a time.
//!
//! Byte-level vocabularies need no state. Others (SentencePiece's `▁`, byte fallback, WordPiece) decide by the neighbours: there a
//! short window of tokens is decoded again, with the tokens of the last piece before the new ones, and what is new comes out.
//! While the window's text ends in U+FFFD the next token may complete a character, so it waits. The bytes are those that the
//! vocabulary spells: of a model of JSON-escaped text, escaped.

use super::Tokenizer;
use crate::Result;

/// A character has at most four bytes, so longer runs are no character in the making but bytes that are not UTF-8.
const MAX_WAITING: usize = 16;
/// Tokens of a window: a run of tokens that stand for nothing would make it long, and each of its tokens would be decoded again and again.
const MAX_WINDOW: usize = 64;

/// The decoder of one stream of tokens.
#[derive(Clone, Debug, Default)]
pub struct Detokenizer {
    /// The tokens of the last piece, then those that wait.
    window: Vec<u32>,
    /// How many tokens of the window are out already.
    n_out: usize,
    /// The text of those.
    text_out: String,
}

impl Detokenizer {
    /// At the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes that this token adds.
    ///
    /// # Errors
    /// [`crate::Error::Tokenizer`] when the decoder refuses the token.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<Vec<u8>> {
        if let Some(bytes) = tokenizer.id_to_bytes(id) {
            return Ok(bytes);
        }
        if tokenizer.text_token(id).is_none() {
            return Ok(Vec::new());
        }
        self.window.push(id);
        let text = tokenizer.spell(&self.window)?;
        if text.ends_with(char::REPLACEMENT_CHARACTER) && self.window.len() - self.n_out < MAX_WAITING {
            return Ok(Vec::new());
        }
        self.take(tokenizer, &text)
    }

    /// Whether a token waits for the next to tell what it stands for.
    pub fn is_waiting(&self) -> bool {
        self.window.len() > self.n_out
    }

    /// The end of the stream: what still waits for its next token.
    ///
    /// # Errors
    /// [`crate::Error::Tokenizer`] when the decoder refuses the tokens.
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> Result<Vec<u8>> {
        if !self.is_waiting() {
            return Ok(Vec::new());
        }
        let text = tokenizer.spell(&self.window)?;
        self.take(tokenizer, &text)
    }

    fn take(&mut self, tokenizer: &Tokenizer, text: &str) -> Result<Vec<u8>> {
        // What is out stays out, even where a decoder would now write it differently.
        let same = text.char_indices().zip(self.text_out.chars()).take_while(|((_, new), old)| new == old);
        let fresh_at = same.last().map_or(0, |((at, new), _)| at + new.len_utf8());
        let fresh = text.as_bytes()[fresh_at..].to_vec();
        if fresh.is_empty() && self.window.len() < MAX_WINDOW {
            self.n_out = self.window.len();
        } else {
            // The first token of a text may lose its space: the tokens of this piece (of a run that stands for nothing, its last one) stay in
            // front of the next.
            let n_out = if fresh.is_empty() { self.window.len() - 1 } else { self.n_out };
            self.window.drain(..n_out);
            self.n_out = self.window.len();
            self.text_out = tokenizer.spell(&self.window)?;
        }
        Ok(fresh)
    }
}
