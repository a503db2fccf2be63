//! Where bytes come from: a file, bytes in memory, or whatever a surface brings (in the browser, a fetch stream).
//!
//! A stream cannot go back. So a reader asks for bytes in increasing order only: the header in pieces through a [`Window`], which
//! then hands over what it read too far, and after that the tensors in file order.

use super::limits::MAX_HEADER;
use crate::{Error, Result};
use std::{borrow::Cow, future::Future, pin::Pin};

/// A future of this thread: nothing in kitfox asks for `Send`, because a browser's promises have none.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Bytes of one file.
pub trait Source {
    /// Path or URL, for error messages.
    fn name(&self) -> &str;
    /// Length in bytes, when it is known.
    fn len(&self) -> Option<u64>;
    /// `n` bytes from byte `at`; fewer only where the data ends.
    fn read<'a>(&'a mut self, at: u64, n: usize) -> BoxFuture<'a, Result<Vec<u8>>>;
    /// Makes it ready to be read once more from its start. A source that gives any byte at any time is so already.
    fn reopen(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
    /// Whether it is known to have no byte.
    fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

/// Exactly `n` bytes from byte `at`, or an error that says what they were for. They are asked for in pieces: a source may set aside what it is
/// asked for, and a file whose length nobody knows may claim anything.
pub async fn read_exact(source: &mut dyn Source, at: u64, n: usize, what: &str) -> Result<Vec<u8>> {
    const PIECE_BYTES: usize = 4 << 20;
    let mut bytes = source.read(at, n.min(PIECE_BYTES)).await?;
    while bytes.len() < n && bytes.len().is_multiple_of(PIECE_BYTES) && !bytes.is_empty() {
        let more = source.read(at.saturating_add(bytes.len() as u64), (n - bytes.len()).min(PIECE_BYTES)).await?;
        if more.is_empty() {
            break;
        }
        bytes.extend(more);
    }
    if bytes.len() == n { Ok(bytes) } else { Err(wrong_length(source.name(), what, at, n as u64, bytes.len() as u64)) }
}

fn wrong_length(file: &str, what: &str, at: u64, expected: u64, got: u64) -> Error {
    let hint = if got < expected { " (the file is cut short)" } else { "" };
    Error::format(file, what, format_args!("{expected} bytes at byte {at}"), format_args!("{got}{hint}"))
}

/// Bytes in memory.
pub struct BytesSource {
    name: String,
    bytes: Cow<'static, [u8]>,
}

impl BytesSource {
    /// Over bytes that are part of the program, or were handed over.
    pub fn new(name: impl Into<String>, bytes: impl Into<Cow<'static, [u8]>>) -> Self {
        Self { name: name.into(), bytes: bytes.into() }
    }
}

impl Source for BytesSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }

    fn read<'a>(&'a mut self, at: u64, n: usize) -> BoxFuture<'a, Result<Vec<u8>>> {
        let start = usize::try_from(at).unwrap_or(usize::MAX).min(self.bytes.len());
        let end = start.saturating_add(n).min(self.bytes.len());
        let bytes = self.bytes[start..end].to_vec();
        Box::pin(async move { Ok(bytes) })
    }
}

/// A file of the file system.
#[cfg(not(target_arch = "wasm32"))]
pub struct FileSource {
    name: String,
    file: std::fs::File,
    len: u64,
}

#[cfg(not(target_arch = "wasm32"))]
impl FileSource {
    /// Opens it.
    ///
    /// # Errors
    /// [`Error::Io`] when there is no such file, it is a directory, or the system refuses.
    pub fn open(path: &std::path::Path) -> Result<Self> {
        let name = path.display().to_string();
        let fail = |reason: String| Error::Io { file: name.clone(), action: "open", reason };
        // Before it is opened: to open a pipe is to wait for its writer.
        let metadata = std::fs::metadata(path).map_err(|e| fail(e.to_string()))?;
        if !metadata.is_file() {
            return Err(fail("not a regular file".into()));
        }
        let file = std::fs::File::open(path).map_err(|e| fail(e.to_string()))?;
        Ok(Self { name, file, len: metadata.len() })
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl Source for FileSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Option<u64> {
        Some(self.len)
    }

    fn read<'a>(&'a mut self, at: u64, n: usize) -> BoxFuture<'a, Result<Vec<u8>>> {
        use std::io::{Read, Seek, SeekFrom};
        Box::pin(async move {
            let mut bytes = Vec::new();
            let read = self.file.seek(SeekFrom::Start(at)).and_then(|_| (&self.file).take(n as u64).read_to_end(&mut bytes));
            read.map_err(|e| Error::Io { file: self.name.clone(), action: "read", reason: e.to_string() })?;
            Ok(bytes)
        })
    }
}

/// A whole text of at most `limit` bytes (a configuration, a tokenizer).
///
/// # Errors
/// [`Error::Format`] when it is longer or not UTF-8, and what the source reports.
pub async fn read_text(source: &mut dyn Source, limit: u64) -> Result<String> {
    let name = source.name().to_owned();
    let Some(len) = source.len() else {
        return Err(Error::format(name, "length", "a known length", "none"));
    };
    if len > limit {
        return Err(Error::format(name, "length", format_args!("at most {limit} bytes"), format_args!("{len}")));
    }
    let bytes = read_exact(source, 0, len as usize, "text").await?;
    String::from_utf8(bytes).map_err(|e| Error::format(name, "text", "UTF-8", e.utf8_error()))
}

/// A reader of headers: takes bytes in order, reads ahead in pieces, holds no more than it must.
pub struct Window {
    source: Box<dyn Source>,
    /// File position of `held[0]`.
    at: u64,
    held: Vec<u8>,
    /// Bytes of `held` that are taken.
    used: usize,
}

impl Window {
    /// A header is read in pieces of this size, or of what a long string still needs.
    const PIECE: usize = 64 << 10;
    const LARGE_PIECE: usize = 4 << 20;

    /// At the first byte of a source.
    pub fn new(source: Box<dyn Source>) -> Self {
        Self { source, at: 0, held: Vec::new(), used: 0 }
    }

    /// Name of the source.
    pub fn name(&self) -> &str {
        self.source.name()
    }

    /// Length of the source, when it is known.
    pub fn source_len(&self) -> Option<u64> {
        self.source.len()
    }

    /// Position of the next byte.
    pub fn pos(&self) -> u64 {
        self.at + self.used as u64
    }

    /// The next `n` bytes; `what` they are, for the error. Never allocates ahead of what the source has delivered.
    pub async fn take(&mut self, n: u64, what: &str) -> Result<&[u8]> {
        let pos = self.pos();
        let known = self.source.len().map(|len| len.saturating_sub(pos));
        if let Some(left) = known.filter(|left| *left < n) {
            return Err(wrong_length(self.name(), what, pos, n, left));
        }
        if pos.checked_add(n).is_none_or(|end| end > MAX_HEADER) {
            let limit = format!("a header of at most {MAX_HEADER} bytes");
            return Err(Error::format(self.name(), what, limit, format_args!("{n} bytes more at byte {pos}")));
        }
        // Below MAX_HEADER, so a usize everywhere.
        let n = n as usize;
        if self.held.len() - self.used < n {
            self.held.drain(..self.used);
            (self.at, self.used) = (pos, 0);
            // Of a long string nothing is kept once it is taken.
            self.held.shrink_to(Self::LARGE_PIECE);
        }
        while self.held.len() < self.used + n {
            let missing = self.used + n - self.held.len();
            let from = self.at + self.held.len() as u64;
            let left = self.source.len().map_or(u64::MAX, |len| len.saturating_sub(from));
            let piece = (missing.clamp(Self::PIECE, Self::LARGE_PIECE) as u64).min(left) as usize;
            let bytes = self.source.read(from, piece).await?;
            if bytes.is_empty() {
                let got = (self.held.len() - self.used) as u64;
                return Err(wrong_length(self.name(), what, pos, n as u64, got));
            }
            if bytes.len() > piece {
                return Err(wrong_length(self.name(), what, from, piece as u64, bytes.len() as u64));
            }
            self.held.extend(bytes);
        }
        self.used += n;
        Ok(&self.held[self.used - n..self.used])
    }

    /// The next `N` bytes as an array.
    pub async fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let bytes = self.take(N as u64, what).await?;
        Ok(bytes.try_into().unwrap_or_else(|_| unreachable!("take gives exactly what it was asked for")))
    }

    /// Passes over `n` bytes.
    pub async fn skip(&mut self, mut n: u64, what: &str) -> Result<()> {
        while n > 0 {
            let piece = n.min(Self::PIECE as u64);
            self.take(piece, what).await?;
            n -= piece;
        }
        Ok(())
    }

    /// The source again, with what was read beyond the header still at hand.
    pub fn into_source(mut self) -> Box<dyn Source> {
        self.held.drain(..self.used);
        Box::new(ReadAhead { at: self.at + self.used as u64, source: self.source, held: self.held })
    }
}

/// A source whose bytes from `at` were partly read already.
struct ReadAhead {
    source: Box<dyn Source>,
    at: u64,
    held: Vec<u8>,
}

impl Source for ReadAhead {
    fn name(&self) -> &str {
        self.source.name()
    }

    fn len(&self) -> Option<u64> {
        self.source.len()
    }

    fn reopen(&mut self) -> BoxFuture<'_, Result<()>> {
        self.held = Vec::new();
        self.source.reopen()
    }

    fn read<'a>(&'a mut self, at: u64, n: usize) -> BoxFuture<'a, Result<Vec<u8>>> {
        let skip = at.checked_sub(self.at).and_then(|skip| usize::try_from(skip).ok());
        let Some(skip) = skip.filter(|skip| *skip < self.held.len()) else {
            if at > self.at {
                self.held = Vec::new();
            }
            return self.source.read(at, n);
        };
        let here = (self.held.len() - skip).min(n);
        let mut bytes = self.held[skip..skip + here].to_vec();
        Box::pin(async move {
            if here < n {
                bytes.extend(self.source.read(at + here as u64, n - here).await?);
            }
            Ok(bytes)
        })
    }
}
