//! The whole way out: token ids to text that may be shown.

use super::{Detokenizer, StopMatcher, Tokenizer, Unescape, Utf8Stream};
use crate::Result;

/// Detokenizer, escape rule, stop strings and UTF-8 of one stream, in a row.
#[derive(Clone, Debug)]
pub struct TextStream {
    detokenizer: Detokenizer,
    unescape: Unescape,
    stops: StopMatcher,
    characters: Utf8Stream,
}

impl TextStream {
    /// A stream that ends at the first of these stop strings.
    ///
    /// # Errors
    /// [`crate::Error::Argument`] for an empty stop string.
    pub fn new(stops: &[String]) -> Result<Self> {
        Ok(Self {
            detokenizer: Detokenizer::new(),
            unescape: Unescape::new(),
            stops: StopMatcher::new(stops)?,
            characters: Utf8Stream::new(),
        })
    }

    /// The text that this token lets through, and the index of the stop string that it completes. After that nothing comes any more.
    ///
    /// # Errors
    /// [`crate::Error::Tokenizer`] when the decoder refuses the token.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<(String, Option<usize>)> {
        let mut bytes = self.detokenizer.push(tokenizer, id)?;
        if tokenizer.is_json_escaped() {
            bytes = self.unescape.push(&bytes);
        }
        Ok(self.release(&bytes))
    }

    /// The end of the stream: the text that was held back, and the stop string that it turned out to end with.
    ///
    /// # Errors
    /// [`crate::Error::Tokenizer`] when the decoder refuses the tokens.
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> Result<(String, Option<usize>)> {
        let mut bytes = self.detokenizer.finish(tokenizer)?;
        if tokenizer.is_json_escaped() {
            bytes = self.unescape.push(&bytes);
            bytes.extend(self.unescape.finish());
        }
        let (mut text, stop) = self.release(&bytes);
        if stop.is_none() {
            text += &self.characters.push(&self.stops.finish());
            text += &self.characters.finish();
        }
        Ok((text, stop))
    }

    fn release(&mut self, bytes: &[u8]) -> (String, Option<usize>) {
        let released = self.stops.push(bytes);
        let mut text = self.characters.push(&released.bytes);
        if released.stop.is_some() {
            text += &self.characters.finish();
        }
        (text, released.stop)
    }
}
