//! What `kitfox manifest` writes beside a file, and a page checks its download by: the SHA-256 of the file in pieces. The rules are those
//! of web/manifest.ts (tests/fixtures/manifests.json holds both to them), but that equal keys are refused here.

use super::keys;
use crate::{Error, Result};
use serde_json::{Value, json};

/// Bytes of a piece, but for the last.
pub const PIECE_BYTES: u64 = 4 << 20;
/// Length of a file at most: JavaScript counts no further.
const MAX_BYTES: u64 = (1 << 53) - 1;

/// A SHA-256.
pub type Hash = [u8; 32];

/// A manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Name of the file.
    pub file: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Of each piece.
    pub sha256: Vec<Hash>,
    /// Of the whole file.
    pub whole: Hash,
}

impl Manifest {
    /// Reads its text; `name` is what it came from.
    ///
    /// # Errors
    /// [`Error::Format`] naming what is wrong.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let object = keys::parse(name, "manifest", text)?;
        let got = |key: &str| object.get(key).unwrap_or(&Value::Null);
        let wrong = |key: &str, expected: &str| Error::format(name, key, expected, got(key));
        if got("version").as_u64() != Some(1) {
            return Err(wrong("version", "1"));
        }
        let file = got("file").as_str().ok_or_else(|| wrong("file", "a name"))?;
        let bytes = got("bytes").as_u64().filter(|bytes| (1..=MAX_BYTES).contains(bytes));
        let bytes = bytes.ok_or_else(|| wrong("bytes", "a whole number above 0"))?;
        if got("piece_bytes").as_u64() != Some(PIECE_BYTES) {
            return Err(wrong("piece_bytes", &PIECE_BYTES.to_string()));
        }
        let list = got("sha256").as_array().ok_or_else(|| wrong("sha256", "a list"))?;
        if list.len() as u64 != bytes.div_ceil(PIECE_BYTES) {
            let expected = format!("{} pieces of {bytes} bytes", bytes.div_ceil(PIECE_BYTES));
            return Err(Error::format(name, "sha256", expected, list.len()));
        }
        let digits =
            |place: &str, value: &Value| hash(value).ok_or_else(|| Error::format(name, place, "64 hexadecimal digits", value));
        let pieces = list.iter().enumerate().map(|(ix, value)| digits(&format!("sha256[{ix}]"), value));
        let sha256 = pieces.collect::<Result<_>>()?;
        Ok(Self { file: file.to_owned(), bytes, sha256, whole: digits("whole", got("whole"))? })
    }

    /// As it is written.
    pub fn to_json(&self) -> Value {
        let pieces: Vec<String> = self.sha256.iter().map(hex).collect();
        json!({ "version": 1, "file": self.file, "bytes": self.bytes, "piece_bytes": PIECE_BYTES, "sha256": pieces,
            "whole": hex(&self.whole) })
    }

    /// Whether `found`, made from a file, is of the file that this one describes; their names may differ.
    ///
    /// # Errors
    /// [`Error::Format`] naming the file and the first piece that differs, with both hashes.
    pub fn check(&self, file: &str, found: &Self) -> Result<()> {
        if self.bytes != found.bytes {
            return Err(Error::format(file, "length", format_args!("{} bytes, as its manifest says", self.bytes), found.bytes));
        }
        let differ = |place: String, stated: &Hash, found: &Hash| {
            Err(Error::format(file, place, format_args!("SHA-256 {}", hex(stated)), hex(found)))
        };
        if let Some((ix, (stated, found))) = self.sha256.iter().zip(&found.sha256).enumerate().find(|(_, (a, b))| a != b) {
            return differ(format!("piece {ix} (from byte {})", ix as u64 * PIECE_BYTES), stated, found);
        }
        if self.whole == found.whole { Ok(()) } else { differ("whole".into(), &self.whole, &found.whole) }
    }
}

/// In hexadecimal.
pub fn hex(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// 64 lower-case hexadecimal digits.
fn hash(value: &Value) -> Option<Hash> {
    let digits = value.as_str().filter(|text| text.len() == 64)?.as_bytes();
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(hash)
}
