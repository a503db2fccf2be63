//! Writes GGUF front to back, so that any `Write` will do: the header needs only names, types and shapes, the data follow in
//! pieces.

use super::gguf::{ALIGNMENT, MAGIC, Scalar, VERSION, align};
use super::{Tensor, TensorType};
use crate::{Error, Result};
use std::io::Write;

/// ggml keeps names in 64 bytes with a closing zero; longer ones make a file that its tools refuse.
const MAX_TENSOR_NAME: usize = 63;

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// GGUF's name.
    pub name: String,
    /// How its numbers are stored.
    pub ty: TensorType,
    /// Outermost first.
    pub shape: Vec<usize>,
}

impl Info {
    /// The same tensor, stored as `ty`.
    pub fn of(tensor: &Tensor, ty: TensorType) -> Self {
        Self { name: tensor.name.clone(), ty, shape: tensor.shape.clone() }
    }
}

/// A file being written: [`Writer::start`], then for each tensor in order [`Writer::data`] until it is whole, then
/// [`Writer::finish`].
pub struct Writer<'a> {
    out: &'a mut dyn Write,
    file: &'a str,
    written: u64,
    /// Bytes of each tensor, the next to be written last.
    waiting: Vec<u64>,
    /// Bytes that the tensor being written still lacks.
    missing: u64,
}

impl<'a> Writer<'a> {
    /// Writes the header. `file` is for error messages.
    ///
    /// # Errors
    /// [`Error::Format`] for a tensor that GGUF cannot hold, [`Error::Io`] when writing fails.
    pub fn start(out: &'a mut dyn Write, file: &'a str, metadata: &[(String, Scalar)], tensors: &[Info]) -> Result<Self> {
        let mut header = Vec::new();
        header.extend(MAGIC);
        header.extend(VERSION.to_le_bytes());
        header.extend((tensors.len() as u64).to_le_bytes());
        header.extend((metadata.len() as u64).to_le_bytes());
        for (key, value) in metadata {
            string(&mut header, key);
            header.extend(value.type_id().to_le_bytes());
            scalar(&mut header, value);
        }
        let mut offset = 0;
        let mut waiting = Vec::new();
        for tensor in tensors {
            let fail = |expected: &str, got: &dyn std::fmt::Display| {
                Error::format(file, format_args!("tensor {}", tensor.name), expected, got)
            };
            if tensor.name.len() > MAX_TENSOR_NAME {
                return Err(fail("a name of at most 63 bytes", &tensor.name.len()));
            }
            let bytes = tensor.ty.tensor_bytes(&tensor.shape);
            let next = bytes.and_then(|bytes| align(bytes.checked_add(offset)?, ALIGNMENT));
            let (Some(bytes), Some(next)) = (bytes, next) else {
                return Err(fail("rows of whole blocks", &format_args!("{} {:?}", tensor.ty, tensor.shape)));
            };
            string(&mut header, &tensor.name);
            header.extend((tensor.shape.len() as u32).to_le_bytes());
            header.extend(tensor.shape.iter().rev().flat_map(|&dim| (dim as u64).to_le_bytes()));
            header.extend(tensor.ty.gguf_id().to_le_bytes());
            header.extend(offset.to_le_bytes());
            waiting.push(bytes);
            offset = next;
        }
        waiting.reverse();
        let mut writer = Self { out, file, written: 0, waiting, missing: 0 };
        writer.write(&header)?;
        writer.pad()?;
        writer.missing = writer.waiting.pop().unwrap_or(0);
        Ok(writer)
    }

    /// The next bytes of the tensor whose turn it is; after its last byte the next tensor's turn comes.
    ///
    /// # Errors
    /// [`Error::Io`] when writing fails.
    ///
    /// # Panics
    /// When there are more bytes than the tensor has.
    pub fn data(&mut self, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() as u64 <= self.missing, "{} bytes for a tensor that lacks {}", bytes.len(), self.missing);
        self.write(bytes)?;
        self.missing -= bytes.len() as u64;
        if self.missing == 0 {
            self.pad()?;
            self.missing = self.waiting.pop().unwrap_or(0);
        }
        Ok(())
    }

    /// Flushes; the length of the file in bytes.
    ///
    /// # Errors
    /// [`Error::Io`] when writing fails.
    ///
    /// # Panics
    /// When tensors lack bytes.
    pub fn finish(self) -> Result<u64> {
        assert!(self.missing == 0 && self.waiting.is_empty(), "every tensor is written before finish");
        self.out.flush().map_err(|e| Error::Io { file: self.file.into(), action: "write", reason: e.to_string() })?;
        Ok(self.written)
    }

    fn pad(&mut self) -> Result<()> {
        let padding = (ALIGNMENT - self.written % ALIGNMENT) % ALIGNMENT;
        self.write(&[0; ALIGNMENT as usize][..padding as usize])
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let done = self.out.write_all(bytes);
        done.map_err(|e| Error::Io { file: self.file.into(), action: "write", reason: e.to_string() })?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn scalar(out: &mut Vec<u8>, value: &Scalar) {
    match value {
        Scalar::U32(v) => out.extend(v.to_le_bytes()),
        Scalar::U64(v) => out.extend(v.to_le_bytes()),
        Scalar::I64(v) => out.extend(v.to_le_bytes()),
        Scalar::F32(v) => out.extend(v.to_le_bytes()),
        Scalar::F64(v) => out.extend(v.to_le_bytes()),
        Scalar::Bool(v) => out.push(u8::from(*v)),
        Scalar::String(v) => string(out, v),
    }
}
