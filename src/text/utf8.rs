//! Bytes to whole characters, incrementally.
//!
//! A token may end inside a character. UTF-8 tells from the bytes at hand whether what follows can still complete one: only such
//! bytes (at most three) wait, everything else is text at once. Invalid bytes become U+FFFD as in [`String::from_utf8_lossy`]:
//! one for each maximal part that could have begun a character.

/// The decoder of one stream.
#[derive(Clone, Debug, Default)]
pub struct Utf8Stream {
    /// The beginning of a character, at most three bytes between calls.
    waiting: Vec<u8>,
}

impl Utf8Stream {
    /// At the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// The characters that `bytes` complete. The pieces of all calls and of [`Self::finish`], joined, equal
    /// [`String::from_utf8_lossy`] of all bytes, wherever they were cut.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.waiting.extend_from_slice(bytes);
        let mut text = String::new();
        let mut rest = self.waiting.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    // Always valid; the lossy conversion then borrows and changes nothing.
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(n_invalid) = error.error_len() else {
                        rest = after;
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &after[n_invalid..];
                }
            }
        }
        let n_done = self.waiting.len() - rest.len();
        self.waiting.drain(..n_done);
        text
    }

    /// The end of the stream: U+FFFD for a character that was begun and never completed, else nothing.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.waiting).into_owned();
        self.waiting.clear();
        text
    }
}
