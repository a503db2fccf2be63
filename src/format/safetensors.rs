//! Reads safetensors headers: a length u64, that many bytes of JSON (name → type, shape, range), the data. The crate checks that
//! the ranges follow one another without holes and that shapes fit them; here we check what it needs the whole file for.

use super::json::Strict;
use super::source::{Source, Window};
use super::{Tensor, TensorType};
use crate::{Error, Result};
use safetensors::{
    Dtype,
    tensor::{Metadata, TensorInfo},
};
use serde::Deserialize;
use serde_json::Value;

/// The limit of the safetensors library itself.
const MAX_HEADER: u64 = 100_000_000;

/// What a tensor of weights may be.
const TYPES: &str = "type F32, F16 or BF16";

/// Tensors of one file, under their own names and in file order, and the source again. `file` is their [`Tensor::file`].
///
/// # Errors
/// [`Error::Format`] and what the source reports.
pub async fn read(source: Box<dyn Source>, file: usize) -> Result<(Box<dyn Source>, Vec<Tensor>)> {
    let mut window = Window::new(source);
    let name = window.name().to_owned();
    let fail = |place: &str, expected: &str, got: &dyn std::fmt::Display| Error::format(&name, place, expected, got);
    let n = u64::from_le_bytes(window.array("length of the header").await?);
    if n > MAX_HEADER {
        return Err(fail("length of the header", "at most 100000000 bytes (is this a safetensors file?)", &n));
    }
    let json = window.take(n, "header").await?;
    let Strict(json) = serde_json::from_slice(json).map_err(|e| fail("header", "a safetensors header", &e))?;
    let metadata = Metadata::deserialize(&json).map_err(|e| culprit(&name, &json, &e))?;
    let data = window.pos();
    let expected = (metadata.data_len() as u64).checked_add(data);
    if let Some(len) = window.source_len().filter(|len| Some(*len) != expected) {
        let expected = format!("{} bytes of data", metadata.data_len());
        return Err(fail("length of the file", &expected, &format_args!("{} (cut short, or not this file)", len - data)));
    }
    let mut tensors = Vec::new();
    for name in metadata.offset_keys() {
        let info = metadata.info(&name).unwrap_or_else(|| unreachable!("the header lists this name"));
        let place = format!("tensor {name}");
        let ty = match info.dtype {
            Dtype::F32 => TensorType::F32,
            Dtype::F16 => TensorType::F16,
            Dtype::BF16 => TensorType::BF16,
            other => return Err(fail(&place, TYPES, &format_args!("{other:?}"))),
        };
        if info.shape.is_empty() || info.shape.len() > 4 || info.shape.contains(&0) {
            return Err(fail(&place, "1 to 4 dimensions above 0", &format_args!("{:?}", info.shape)));
        }
        let offset = data.checked_add(info.data_offsets.0 as u64);
        let offset = offset.ok_or_else(|| fail(&place, "an offset in the file", &info.data_offsets.0))?;
        // The crate has compared the range with shape and type.
        let bytes = (info.data_offsets.1 - info.data_offsets.0) as u64;
        tensors.push(Tensor { origin: name.clone(), name, ty, shape: info.shape.clone(), file, offset, bytes });
    }
    Ok((window.into_source(), tensors))
}

/// The tensor that makes a header unreadable, or the header as a whole.
fn culprit(file: &str, header: &Value, error: &serde_json::Error) -> Error {
    let entries = header.as_object().into_iter().flatten().filter(|(name, _)| *name != "__metadata__");
    for (name, info) in entries {
        let place = format!("tensor {name}");
        if let Some(dtype) = info.get("dtype").filter(|dtype| Dtype::deserialize(*dtype).is_err()) {
            return Error::format(file, place, TYPES, dtype);
        }
        let info = match TensorInfo::deserialize(info) {
            Ok(info) => info,
            Err(error) => return Error::format(file, place, "dtype, shape and data_offsets", error),
        };
        let bits = info.shape.iter().try_fold(info.dtype.bitsize(), |bits, &dim| bits.checked_mul(dim));
        let (start, end) = info.data_offsets;
        if end.checked_sub(start).and_then(|bytes| bytes.checked_mul(8)).is_none_or(|held| Some(held) != bits) {
            let expected = format!("the bytes of {:?} {:?}", info.shape, info.dtype);
            return Error::format(file, place, expected, format_args!("data_offsets {start} to {end}"));
        }
    }
    Error::format(file, "header", "a safetensors header", error)
}
