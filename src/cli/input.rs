//! The command line's own inputs, whole: each up to a limit, which is held against a file's length before it is read and against what comes
//! while it is, as a pipe has no length and a file may grow. Models and manifests are read by [`kitfox::format`].

use super::output::{file_error, io_error};
use kitfox::{Error, Result};
use std::fmt::Display;
use std::fs::File;
use std::io::{Read, stdin};
use std::path::Path;

/// Bytes of a text, here and in the package.
pub const MAX_TEXT: u64 = kitfox::session::limits::MAX_TEXT as u64;
/// Bytes of a file of token ids.
pub const MAX_IDS: u64 = 64 << 20;
/// Bytes of a file of gates: those of 100,000 tokens and 48 layers of 48 heads have 922 MB.
pub const MAX_GATES: u64 = 1 << 30;
/// Bytes of what is kept about an adapter.
pub const MAX_KEPT: u64 = 1 << 20;

/// A file of at most `most` bytes; none where there is no such file.
///
/// # Errors
/// [`Error::Format`] with the file, the limit and the length when it is longer, [`Error::Io`].
pub fn optional(path: &Path, most: u64) -> Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file_error(path, "read", &error)),
    };
    let length = file.metadata().map_err(|error| file_error(path, "read", &error))?.len();
    if length > most {
        return Err(too_long(path.display(), most, length));
    }
    read(path.display(), file, most).map(Some)
}

/// A file of at most `most` bytes.
///
/// # Errors
/// As [`optional`].
pub fn bytes(path: &Path, most: u64) -> Result<Vec<u8>> {
    let missing = || file_error(path, "read", &std::io::ErrorKind::NotFound.into());
    optional(path, most)?.ok_or_else(missing)
}

/// A file of UTF-8 text of at most `most` bytes.
///
/// # Errors
/// As [`optional`], and [`Error::Format`] with the first byte that is no text.
pub fn text(path: &Path, most: u64) -> Result<String> {
    utf8(path.display(), bytes(path, most)?)
}

/// What stdin gives, UTF-8 text of at most [`MAX_TEXT`] bytes.
///
/// # Errors
/// As [`text`].
pub fn stdin_text() -> Result<String> {
    utf8("stdin", read("stdin", stdin().lock(), MAX_TEXT)?)
}

fn read(name: impl Display, from: impl Read, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| io_error(&name, "read", &error))?;
    if bytes.len() as u64 > most { Err(too_long(name, most, "more")) } else { Ok(bytes) }
}

fn too_long(name: impl Display, most: u64, got: impl Display) -> Error {
    Error::format(name, "length", format_args!("at most {most} bytes"), got)
}

fn utf8(name: impl Display, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::format(name, format!("byte {at}"), "UTF-8 text", format!("byte 0x{:02x}", error.as_bytes()[at]))
    })
}
