//! Reads safetensors headers: a length u64, that many bytes of JSON (name → type, shape, range), the data. The crate checks that
//! the ranges follow one another without holes and that shapes fit them; here we check what it needs the whole file for.

use super::limits::{MAX_COUNT, MAX_FILE, MAX_ORIGIN, MAX_SAFETENSORS_HEADER, MAX_SAFETENSORS_VALUES};
use super::source::{Source, Window};
use super::{Tensor, TensorType, check_name};
use crate::{Error, Result, json};
use safetensors::{
    Dtype,
    tensor::{Metadata, TensorInfo},
};
use serde::Deserialize;
use serde_json::Value;

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
    if n > MAX_SAFETENSORS_HEADER {
        return Err(fail("length of the header", "at most 100000000 bytes (is this a safetensors file?)", &n));
    }
    // A header of many tensors has a long file behind it.
    let len = usize::try_from(window.source_len().unwrap_or(n)).unwrap_or(usize::MAX);
    let most = json::most_bytes(len).min(MAX_SAFETENSORS_VALUES);
    let header = window.take(n, "header").await?;
    let header = json::parse_within(header, most).map_err(|e| fail("header", "a safetensors header", &e))?;
    let n_entries = header.as_object().map_or(0, serde_json::Map::len) as u64;
    if n_entries > MAX_COUNT {
        return Err(fail("header", &format!("at most {MAX_COUNT} tensors"), &n_entries));
    }
    check_texts(&name, &header)?;
    let metadata = Metadata::deserialize(&header).map_err(|e| culprit(&name, &header, &e))?;
    drop(header);
    let data = window.pos();
    let Some(end) = (metadata.data_len() as u64).checked_add(data).filter(|end| *end <= MAX_FILE) else {
        return Err(fail(
            "length of the file",
            &format!("at most {MAX_FILE} bytes"),
            &format_args!("{} of data", metadata.data_len()),
        ));
    };
    if let Some(len) = window.source_len().filter(|len| *len != end) {
        let expected = format!("{} bytes of data", metadata.data_len());
        let got = format_args!("{} (cut short, or not this file)", len.saturating_sub(data)).to_string();
        return Err(fail("length of the file", &expected, &got));
    }
    let mut tensors = Vec::new();
    for name in metadata.offset_keys() {
        check_name(window.name(), "name of a tensor", &name)?;
        let info = metadata.info(&name).unwrap_or_else(|| unreachable!("the header lists this name"));
        let place = format!("tensor {name}");
        if name.len() > MAX_ORIGIN {
            return Err(fail(&place, &format!("a name of at most {MAX_ORIGIN} bytes"), &name.len()));
        }
        let ty = match info.dtype {
            Dtype::F32 => TensorType::F32,
            Dtype::F16 => TensorType::F16,
            Dtype::BF16 => TensorType::BF16,
            other => return Err(fail(&place, TYPES, &format_args!("{other:?}"))),
        };
        if info.shape.is_empty() || info.shape.len() > 4 || info.shape.contains(&0) {
            return Err(fail(&place, "1 to 4 dimensions above 0", &format_args!("{:?}", info.shape)));
        }
        // The crate has compared the range with shape and type, and the last one ends where the file does.
        let offset = data + info.data_offsets.0 as u64;
        let bytes = (info.data_offsets.1 - info.data_offsets.0) as u64;
        tensors.push(Tensor { origin: name.clone(), name, ty, shape: info.shape.clone(), file, offset, bytes });
    }
    Ok((window.into_source(), tensors))
}

/// Refuses long texts where none belong: the crate's errors would repeat them whole and escaped.
fn check_texts(file: &str, header: &Value) -> Result<()> {
    fn is_long(value: &Value) -> bool {
        match value {
            Value::String(text) => text.len() > MAX_ORIGIN,
            Value::Array(values) => values.iter().any(is_long),
            Value::Object(entries) => entries.values().any(is_long),
            _ => false,
        }
    }
    let mut entries = header.as_object().into_iter().flatten();
    let long = entries.find(|(name, info)| if *name == "__metadata__" { info.is_string() } else { is_long(info) });
    match long.map_or(header.as_str().map(|_| ("header", header)), |(name, info)| Some((name, info))) {
        None => Ok(()),
        Some((name, info)) => {
            let expected = format_args!("dtype, shape and data_offsets, no text of more than {MAX_ORIGIN} bytes");
            Err(Error::format(file, format_args!("tensor {name}"), expected, info))
        }
    }
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
