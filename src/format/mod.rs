//! Checkpoints on disk: GGUF (our own format of choice: one file, streamable, quantized) and the Hugging Face directory that the
//! authors of FoX publish.
//!
//! [`open`] or [`read`] give a [`Checkpoint`]: the configuration under the keys of Hugging Face's `config.json`, the tokenizer's
//! text, and where each tensor lies, under GGUF's names. No weight has been read yet: [`Checkpoint::read_rows`] does that, in
//! whatever pieces a loader can hold. Whether these tensors are the model's is not known here; `model` says that.
//!
//! It knows bytes, JSON and number formats; never a network, a kernel, a device or how a text is cut into tokens. Only `source` opens a
//! file by its path; all else reads from a [`Source`], so that a page can hand one over.
//!
//! Every number of a file is distrusted: [`limits`] says how large each may be, all arithmetic on them is checked, and no memory is
//! set aside for what a file merely claims.

pub mod convert;
pub mod gguf;
pub mod gguf_read;
pub mod gguf_write;
pub mod gpt2;
pub mod hugging_face;
pub mod keys;
pub mod layer;
pub mod layer_gguf;
pub mod limits;
pub mod manifest;
pub mod names;
pub mod random;
pub mod safetensors;
pub mod source;
pub mod tensor_type;

pub use convert::{Converted, Fallback, Quant, convert};
pub use source::{BoxFuture, BytesSource, Source};
pub use tensor_type::{TensorType, from_f32, to_f32};

#[cfg(not(target_arch = "wasm32"))]
pub use source::FileSource;

use crate::{Error, Result};

/// One tensor of a checkpoint: what it is and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// GGUF's name (`blk.0.attn_q.weight`); a tensor that no name is known for keeps its own.
    pub name: String,
    /// Name in the file.
    pub origin: String,
    /// How its numbers are stored.
    pub ty: TensorType,
    /// Outermost first: `[rows, width]` for a matrix. One to four dimensions, none of them 0.
    pub shape: Vec<usize>,
    /// Index into [`Checkpoint::files`].
    pub file: usize,
    /// First byte in that file.
    pub offset: u64,
    /// Bytes in that file.
    pub bytes: u64,
}

impl Tensor {
    /// Length of a row: the last dimension.
    pub fn width(&self) -> usize {
        self.shape.last().copied().unwrap_or_else(|| unreachable!("a tensor has at least one dimension"))
    }

    /// Number of rows: the product of the other dimensions, 1 for a vector.
    pub fn n_rows(&self) -> usize {
        self.shape[..self.shape.len() - 1].iter().product()
    }

    /// Number of values.
    pub fn n_values(&self) -> u64 {
        self.n_rows() as u64 * self.width() as u64
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        (self.width() / self.ty.block()) as u64 * self.ty.block_bytes() as u64
    }
}

/// What a checkpoint was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One GGUF file.
    Gguf,
    /// A directory with `config.json` and safetensors files.
    HuggingFace,
    /// Made-up numbers.
    Random,
}

/// A checkpoint whose headers are read and checked, and whose weights are still in its files.
pub struct Checkpoint {
    /// What the model calls itself: `general.name`, or the directory's name.
    pub name: String,
    /// GGUF or Hugging Face.
    pub kind: Kind,
    /// The weights' files.
    pub files: Vec<Box<dyn Source>>,
    /// The configuration, under the keys of `config.json`.
    pub config: serde_json::Map<String, serde_json::Value>,
    /// Where the configuration came from, for error messages.
    pub config_file: String,
    /// `config.json`, letter for letter, where there was one.
    pub source_config: Option<String>,
    /// The text of `tokenizer.json`.
    pub tokenizer: Option<String>,
    /// Where it came from, for error messages.
    pub tokenizer_file: String,
    /// By file, then by offset: read in this order, every file is read forward only.
    pub tensors: Vec<Tensor>,
}

impl Checkpoint {
    /// The first weights file, or the checkpoint's own name: for error messages.
    pub fn file_name(&self) -> &str {
        self.files.first().map_or(&self.name, |file| file.name())
    }

    /// The types of its matrices that keep fewer bits than f16 does, if there are any.
    pub fn quantized(&self) -> Option<String> {
        let blocks = self.tensors.iter().map(|tensor| tensor.ty).filter(|ty| ty.block() > 1);
        let names: std::collections::BTreeSet<String> = blocks.map(|ty| ty.to_string()).collect();
        (!names.is_empty()).then(|| names.into_iter().collect::<Vec<_>>().join(", "))
    }

    /// Whether the model's text is JSON-escaped before it is tokenized.
    ///
    /// # Errors
    /// [`Error::Config`] when the configuration's `json_escaped_text` is no bool.
    pub fn json_escaped_text(&self) -> Result<bool> {
        match self.config.get(keys::JSON_ESCAPED_TEXT) {
            None | Some(serde_json::Value::Null) => Ok(false),
            Some(serde_json::Value::Bool(escaped)) => Ok(*escaped),
            Some(other) => Err(Error::config(keys::JSON_ESCAPED_TEXT, "true or false", other).in_file(&self.config_file)),
        }
    }

    /// States that the model's text is JSON-escaped before it is tokenized.
    pub fn set_json_escaped_text(&mut self) {
        self.config.insert(keys::JSON_ESCAPED_TEXT.into(), true.into());
    }

    /// Index of the tensor with this (canonical) name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.tensors.iter().position(|tensor| tensor.name == name)
    }

    /// The bytes of rows `first_row .. first_row + n_rows` of tensor `ix`, as they are in the file ([`to_f32`] reads them).
    ///
    /// # Errors
    /// [`Error::Argument`] when there are no such rows, [`Error::Format`] when the file is shorter than its header says, and what
    /// the source reports.
    pub async fn read_rows(&mut self, ix: usize, first_row: usize, n_rows: usize) -> Result<Vec<u8>> {
        let Some(tensor) = self.tensors.get(ix) else {
            return Err(Error::argument("tensor", format_args!("an index below {}", self.tensors.len()), ix));
        };
        if first_row.checked_add(n_rows).is_none_or(|end| end > tensor.n_rows()) {
            let expected = format!("rows of {} (0 to {})", tensor.name, tensor.n_rows());
            return Err(Error::argument("rows", expected, format_args!("{n_rows} from row {first_row}")));
        }
        let row = tensor.row_bytes();
        self.read_bytes(ix, first_row as u64 * row, n_rows as u64 * row).await
    }

    /// `n` bytes of a tensor from its byte `at`.
    async fn read_bytes(&mut self, ix: usize, at: u64, n: u64) -> Result<Vec<u8>> {
        let tensor = &self.tensors[ix];
        let source = self.files[tensor.file].as_mut();
        let n = usize::try_from(n).map_err(|_| Error::argument("rows", "bytes that fit the address space", n))?;
        source::read_exact(source, tensor.offset + at, n, &format!("tensor {}", tensor.origin)).await
    }
}

impl Checkpoint {
    /// Refuses a NaN or an infinity in `bytes`: whole blocks of tensor `ix`, from its value `first` on.
    ///
    /// # Errors
    /// [`Error::NotFinite`] naming file, tensor and element.
    pub fn check_finite(&self, ix: usize, first: u64, bytes: &[u8]) -> Result<()> {
        let tensor = &self.tensors[ix];
        let Some(block) = tensor.ty.first_not_finite(bytes) else { return Ok(()) };
        let mut values = Vec::new();
        to_f32(tensor.ty, &bytes[block / tensor.ty.block() * tensor.ty.block_bytes()..][..tensor.ty.block_bytes()], &mut values);
        let (at, value) = values.iter().enumerate().find(|(_, value)| !value.is_finite()).unwrap_or((0, &f32::NAN));
        Err(self.not_finite(ix, format_args!("{value} at element {}", first + (block + at) as u64)))
    }

    fn not_finite(&self, ix: usize, got: impl std::fmt::Display) -> Error {
        let tensor = &self.tensors[ix];
        Error::not_finite(format_args!("{}: tensor {}", self.files[tensor.file].name(), tensor.origin), got)
    }
}

/// Reads a GGUF file's header.
///
/// # Errors
/// [`Error::Format`] naming file, place, expected and got; [`Error::Config`] for a value that a key cannot have; what the source
/// reports.
pub async fn read(source: Box<dyn Source>) -> Result<Checkpoint> {
    gguf_read::read(source).await
}

/// Opens a GGUF file or a Hugging Face directory.
///
/// # Errors
/// As [`read`], and [`Error::Io`] for a file that is not there.
#[cfg(not(target_arch = "wasm32"))]
pub async fn open(path: &std::path::Path) -> Result<Checkpoint> {
    if path.is_dir() { hugging_face::open(path).await } else { read(Box::new(FileSource::open(path)?)).await }
}

/// Refuses a name that a terminal would obey.
fn check_name(file: &str, place: &str, name: &str) -> Result<()> {
    if name.chars().any(char::is_control) {
        return Err(Error::format(file, place, "a name without control characters", format_args!("{name:?}")));
    }
    Ok(())
}

/// Sorts by file and offset; two tensors of one name are an error.
fn in_file_order(files: &[&str], mut tensors: Vec<Tensor>) -> Result<Vec<Tensor>> {
    tensors.sort_by_key(|tensor| (tensor.file, tensor.offset));
    let mut seen = std::collections::HashMap::new();
    for tensor in &tensors {
        if let Some(other) = seen.insert(tensor.name.as_str(), tensor) {
            let got = format!("two: {} in {} and {} in {}", other.origin, files[other.file], tensor.origin, files[tensor.file]);
            let place = format_args!("tensor {}", tensor.name).to_string();
            return Err(Error::format(files[other.file], place, "one tensor of this name", got));
        }
    }
    Ok(tensors)
}
