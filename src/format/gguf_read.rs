//! Reads a GGUF header and distrusts every number in it: lengths, counts, dimensions and offsets are checked before they are
//! used, nothing is allocated for bytes that the file does not have, and each refusal names what it is about.

use super::gguf::{ALIGNMENT, ARCHITECTURE, ARRAY, MAGIC, STRING, Scalar, VERSION, Value, align, type_from_id};
use super::limits::{MAX_COUNT, MAX_DIMS, MAX_FILE, MAX_HEADER, MAX_KEY, MAX_TENSOR_NAME};
use super::source::{Source, Window};
use super::{Checkpoint, Kind, Tensor, TensorType, check_name, in_file_order, keys};
use crate::{Error, Result};
use std::collections::BTreeMap;

/// The metadata by key.
pub type Metadata = BTreeMap<String, Value>;

struct Reader {
    window: Window,
}

/// What a file's header says.
pub(super) struct Header {
    /// Name of the source.
    pub file: String,
    /// All pairs.
    pub metadata: Metadata,
    /// In file order, under their own names.
    pub tensors: Vec<Tensor>,
    /// The file again.
    pub source: Box<dyn Source>,
}

/// Reads and checks a model's header; the tensors stay in the source.
///
/// # Errors
/// [`Error::Format`], [`Error::Config`] and what the source reports.
pub async fn read(source: Box<dyn Source>) -> Result<Checkpoint> {
    let Header { file, mut metadata, tensors, source } = header(source, ARCHITECTURE).await?;
    // The longest text of all: it is not copied.
    let tokenizer = keys::take_tokenizer(&file, &mut metadata)?;
    let (config, source_config) = keys::from_metadata(&file, &metadata)?;
    let name = keys::text(&file, &metadata, "general.name")?.unwrap_or_else(|| ARCHITECTURE.into());
    check_name(&file, "general.name", &name)?;
    let tokenizer_file = format!("{file}: {}", keys::TOKENIZER);
    Ok(Checkpoint {
        name,
        kind: Kind::Gguf,
        files: vec![source],
        config,
        config_file: file,
        source_config,
        tokenizer,
        tokenizer_file,
        tensors,
    })
}

/// Reads and checks the header of a file of this architecture.
///
/// # Errors
/// [`Error::Format`] and what the source reports.
pub(super) async fn header(source: Box<dyn Source>, architecture: &str) -> Result<Header> {
    let mut reader = Reader { window: Window::new(source) };
    let (n_tensors, n_pairs) = reader.preamble().await?;
    let mut metadata = Metadata::new();
    for _ in 0..n_pairs {
        let (key, value) = reader.pair().await?;
        if let Some(other) = metadata.insert(key.clone(), value) {
            return Err(reader.error(key, "one value", format_args!("a second one after {other}")));
        }
    }
    // Before anything else: a file of another model has other rules.
    let file = reader.window.name().to_owned();
    match metadata.get("general.architecture") {
        Some(Value::Scalar(Scalar::String(name))) if name == architecture => {}
        other => {
            let got = other.map_or_else(|| "no such key".into(), ToString::to_string);
            return Err(reader.error("general.architecture", format_args!("{architecture:?}"), got));
        }
    }
    let alignment = match metadata.get("general.alignment") {
        None => ALIGNMENT,
        Some(Value::Scalar(Scalar::U32(n))) if n.is_power_of_two() => u64::from(*n),
        Some(other) => return Err(reader.error("general.alignment", "a power of two (uint32)", other)),
    };
    let mut tensors = Vec::new();
    for ix in 0..n_tensors {
        tensors.push(reader.tensor(ix, alignment).await?);
    }
    let header_end = reader.window.pos();
    let Some(data) = align(header_end, alignment) else {
        return Err(reader.error("general.alignment", "one that the file can hold", alignment));
    };
    place(&file, reader.window.source_len(), data, &mut tensors)?;
    let tensors = in_file_order(&[&file], tensors)?;
    Ok(Header { file, metadata, tensors, source: reader.window.into_source() })
}

/// Turns offsets in the data into offsets in the file. All must lie in it, one after the other.
fn place(file: &str, len: Option<u64>, data: u64, tensors: &mut [Tensor]) -> Result<()> {
    tensors.sort_by_key(|tensor| tensor.offset);
    let mut end: (u64, &str) = (data, "the header");
    for tensor in tensors {
        let place = || format!("tensor {}", tensor.origin);
        let range = data.checked_add(tensor.offset).and_then(|start| Some((start, start.checked_add(tensor.bytes)?)));
        let Some((start, stop)) = range.filter(|(_, stop)| *stop <= MAX_FILE) else {
            return Err(Error::format(file, place(), "an offset in the file", tensor.offset));
        };
        if start < end.0 {
            let expected = format!("its data after {}, which ends at byte {}", end.1, end.0);
            return Err(Error::format(file, place(), expected, format_args!("byte {start}: they overlap")));
        }
        if let Some(len) = len.filter(|len| stop > *len) {
            let expected = format!("{} bytes at byte {start}", tensor.bytes);
            let got = format!("{} (the file is cut short at byte {len})", len.saturating_sub(start));
            return Err(Error::format(file, place(), expected, got));
        }
        tensor.offset = start;
        end = (stop, &tensor.origin);
    }
    Ok(())
}

impl Reader {
    fn error(&self, place: impl std::fmt::Display, expected: impl std::fmt::Display, got: impl std::fmt::Display) -> Error {
        Error::format(self.window.name(), place, expected, got)
    }

    async fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.window.array(what).await?))
    }

    async fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.window.array(what).await?))
    }

    async fn string(&mut self, what: &str, limit: u64) -> Result<String> {
        let n = self.u64(what).await?;
        if n > limit {
            return Err(self.error(what, format_args!("at most {limit} bytes"), n));
        }
        let bytes = self.window.take(n, what).await?.to_vec();
        String::from_utf8(bytes).map_err(|e| self.error(what, "UTF-8", e.utf8_error()))
    }

    /// Numbers of tensors and of metadata pairs.
    async fn preamble(&mut self) -> Result<(u64, u64)> {
        let magic: [u8; 4] = self.window.array("magic").await?;
        if magic != MAGIC {
            let expected = "\"GGUF\" (a GGUF file; a Hugging Face checkpoint is given by its directory)";
            return Err(self.error("magic", expected, format_args!("\"{}\"", magic.escape_ascii())));
        }
        let version = self.u32("version").await?;
        if version != VERSION {
            let swapped = if version == VERSION.swap_bytes() { " (a big-endian file)" } else { "" };
            return Err(self.error("version", VERSION, format_args!("{version}{swapped}")));
        }
        let n_tensors = self.u64("number of tensors").await?;
        let n_pairs = self.u64("number of metadata pairs").await?;
        for (n, what) in [(n_tensors, "number of tensors"), (n_pairs, "number of metadata pairs")] {
            if n > MAX_COUNT {
                return Err(self.error(what, format_args!("at most {MAX_COUNT}"), n));
            }
        }
        Ok((n_tensors, n_pairs))
    }

    async fn pair(&mut self) -> Result<(String, Value)> {
        let key = self.string("metadata key", MAX_KEY).await?;
        let ty = self.u32(&key).await?;
        if ty != ARRAY {
            let scalar = self.scalar(&key, ty).await?;
            return Ok((key, Value::Scalar(scalar)));
        }
        let element = self.u32(&key).await?;
        let n = self.u64(&key).await?;
        match scalar_bytes(element) {
            Some(bytes) => {
                let Some(total) = n.checked_mul(bytes) else {
                    return Err(self.error(key, "an array that the file can hold", format_args!("{n} elements")));
                };
                self.window.skip(total, &key).await?;
            }
            None if element == STRING => {
                for _ in 0..n {
                    let bytes = self.u64(&key).await?;
                    self.window.skip(bytes, &key).await?;
                }
            }
            None => return Err(self.error(key, "an array of numbers, bools or strings", format_args!("element type {element}"))),
        }
        Ok((key, Value::Array { n }))
    }

    async fn scalar(&mut self, key: &str, ty: u32) -> Result<Scalar> {
        let window = &mut self.window;
        Ok(match ty {
            0 => Scalar::U32(u8::from_le_bytes(window.array(key).await?).into()),
            1 => Scalar::I64(i8::from_le_bytes(window.array(key).await?).into()),
            2 => Scalar::U32(u16::from_le_bytes(window.array(key).await?).into()),
            3 => Scalar::I64(i16::from_le_bytes(window.array(key).await?).into()),
            4 => Scalar::U32(u32::from_le_bytes(window.array(key).await?)),
            5 => Scalar::I64(i32::from_le_bytes(window.array(key).await?).into()),
            6 => Scalar::F32(f32::from_le_bytes(window.array(key).await?)),
            7 => match window.array::<1>(key).await?[0] {
                byte @ 0..=1 => Scalar::Bool(byte == 1),
                byte => return Err(self.error(key, "a bool (0 or 1)", byte)),
            },
            STRING => Scalar::String(self.string(key, MAX_HEADER).await?),
            10 => Scalar::U64(u64::from_le_bytes(window.array(key).await?)),
            11 => Scalar::I64(i64::from_le_bytes(window.array(key).await?)),
            12 => Scalar::F64(f64::from_le_bytes(window.array(key).await?)),
            other => return Err(self.error(key, "a value type from 0 to 12", other)),
        })
    }

    /// A tensor's entry; its offset still counts from the start of the data.
    async fn tensor(&mut self, ix: u64, alignment: u64) -> Result<Tensor> {
        let name = self.string(&format!("name of tensor {ix}"), MAX_TENSOR_NAME).await?;
        check_name(self.window.name(), &format!("name of tensor {ix}"), &name)?;
        let place = format!("tensor {name}");
        let n_dims = self.u32(&place).await?;
        if !(1..=MAX_DIMS).contains(&n_dims) {
            return Err(self.error(place, format_args!("1 to {MAX_DIMS} dimensions"), n_dims));
        }
        let mut shape = Vec::new();
        for _ in 0..n_dims {
            match self.u64(&place).await? {
                0 => return Err(self.error(place, "dimensions above 0", "a dimension of 0")),
                dim => shape.push(usize::try_from(dim).map_err(|_| self.error(&place, "dimensions in memory's range", dim))?),
            }
        }
        shape.reverse();
        let id = self.u32(&place).await?;
        let ty = type_from_id(id).map_err(|got| {
            let known = TensorType::ALL.map(TensorType::name).join(", ");
            self.error(&place, format_args!("one of the types {known}"), got)
        })?;
        let offset = self.u64(&place).await?;
        if !offset.is_multiple_of(alignment) {
            return Err(self.error(place, format_args!("an offset that is a multiple of {alignment}"), offset));
        }
        // Also that their product is a usize: rows are counted in it.
        let countable = shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim)).is_some();
        let Some(bytes) = ty.tensor_bytes(&shape).filter(|_| countable) else {
            let expected = format!("a shape of {ty} (rows of whole blocks of {}, a size that can be counted)", ty.block());
            return Err(self.error(place, expected, format_args!("{shape:?}")));
        };
        Ok(Tensor { origin: name.clone(), name, ty, shape, file: 0, offset, bytes })
    }
}

/// Bytes of a value type of fixed size.
fn scalar_bytes(ty: u32) -> Option<u64> {
    match ty {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}
