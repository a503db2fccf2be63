//! Stop strings, matched on bytes while they stream.
//!
//! The match that ends first wins, and of those that end on the same byte the longest: a rule that does not depend on where the
//! stream is cut into tokens, and that needs no token after the one that completes a stop. A byte is held back only while it is
//! part of the longest suffix that begins some stop string. One Knuth-Morris-Pratt automaton a stop keeps the length of the suffix
//! that begins it, so a byte costs amortised O(stops), whatever was held.

use crate::{Error, Result};

/// The stop strings of one stream, and what is held back of it.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Vec<Stop>,
    held: Vec<u8>,
    found: Option<usize>,
}

#[derive(Clone, Debug)]
struct Stop {
    bytes: Vec<u8>,
    /// `fallback[n]`: length of the longest proper suffix of the first `n + 1` bytes that is also a prefix.
    fallback: Vec<usize>,
    /// How many bytes of this stop the stream ends with.
    n_matched: usize,
}

impl Stop {
    fn new(stop: &str) -> Self {
        let bytes = stop.as_bytes().to_vec();
        let mut fallback = vec![0; bytes.len()];
        let mut n = 0;
        for ix in 1..bytes.len() {
            while n > 0 && bytes[n] != bytes[ix] {
                n = fallback[n - 1];
            }
            n += usize::from(bytes[n] == bytes[ix]);
            fallback[ix] = n;
        }
        Self { bytes, fallback, n_matched: 0 }
    }

    /// Takes a byte; whether it completes this stop.
    fn advance(&mut self, byte: u8) -> bool {
        while self.n_matched > 0 && self.bytes[self.n_matched] != byte {
            self.n_matched = self.fallback[self.n_matched - 1];
        }
        self.n_matched += usize::from(self.bytes[self.n_matched] == byte);
        self.n_matched == self.bytes.len()
    }
}

/// What [`StopMatcher::push`] lets through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Bytes that belong to no stop string.
    pub bytes: Vec<u8>,
    /// Index of the stop string that ended the stream.
    pub stop: Option<usize>,
}

impl StopMatcher {
    /// For these stop strings; with none, everything passes at once.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty stop string, which would match everywhere.
    pub fn new(stops: &[String]) -> Result<Self> {
        if let Some(ix) = stops.iter().position(String::is_empty) {
            return Err(Error::argument(
                "stop",
                "strings of at least one character",
                format!("an empty string (number {})", ix + 1),
            ));
        }
        Ok(Self { stops: stops.iter().map(|stop| Stop::new(stop)).collect(), held: Vec::new(), found: None })
    }

    /// Takes the next bytes. After a stop string was found nothing passes any more.
    pub fn push(&mut self, bytes: &[u8]) -> Released {
        if self.found.is_some() {
            return Released { bytes: Vec::new(), stop: self.found };
        }
        for &byte in bytes {
            self.held.push(byte);
            let mut longest = 0;
            for (ix, stop) in self.stops.iter_mut().enumerate() {
                if stop.advance(byte) && stop.bytes.len() > longest {
                    longest = stop.bytes.len();
                    self.found = Some(ix);
                }
            }
            if self.found.is_some() {
                self.held.truncate(self.held.len() - longest);
                return Released { bytes: std::mem::take(&mut self.held), stop: self.found };
            }
        }
        let n_held = self.stops.iter().map(|stop| stop.n_matched).max().unwrap_or(0);
        let held = self.held.split_off(self.held.len() - n_held);
        Released { bytes: std::mem::replace(&mut self.held, held), stop: None }
    }

    /// The end of the stream: what was held back for a stop string that did not come.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}
