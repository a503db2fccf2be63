//! The whole way out: token ids to text that may be shown.

use super::{Detokenizer, StopMatcher, Tokenizer, Unescape, Utf8Stream};
use crate::Result;

/// Detokenizer, escape rule, UTF-8 and stop strings of one stream, in a row. Stop strings come last: they are of the text that is shown, where
/// bytes that are no character are U+FFFD.
#[derive(Clone, Debug)]
pub struct TextStream {
    detokenizer: Detokenizer,
    unescape: Unescape,
    characters: Utf8Stream,
    stops: StopMatcher,
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
            characters: Utf8Stream::new(),
            stops: StopMatcher::new(stops)?,
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
        let text = self.characters.push(&bytes);
        Ok(self.release(&text))
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
        let text = self.characters.push(&bytes) + &self.characters.finish();
        let (mut text, stop) = self.release(&text);
        if stop.is_none() {
            text += &characters(&self.stops.finish());
        }
        Ok((text, stop))
    }

    fn release(&mut self, text: &str) -> (String, Option<usize>) {
        let released = self.stops.push(text.as_bytes());
        (characters(&released.bytes), released.stop)
    }
}

/// What is held back begins a stop string, and so with a character: what is let through is always whole ones.
fn characters(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
