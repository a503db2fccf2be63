//! Gates in a safetensors file: `log_f` [L, H, T] and `u` [L, H], f32; without `u` where nothing bounds the scores.

use super::input;
use super::new_file::NewFile;
use super::output::file_error;
use kitfox::session::Gates;
use kitfox::{Error, Result};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::io::Write;
use std::path::Path;

/// Reads the file.
pub fn read(path: &Path) -> Result<Gates> {
    let bytes = input::bytes(path, input::MAX_GATES)?;
    let wrong = |place: &str, expected: &str, got: String| Error::format(path.display(), place, expected, got);
    let file = SafeTensors::deserialize(&bytes).map_err(|error| wrong("header", "a safetensors file", error.to_string()))?;
    let numbers = |name: &str, n_dims: usize| {
        let tensor =
            file.tensor(name).map_err(|_| wrong("tensors", &format!("one called {name}"), format!("{:?}", file.names())))?;
        let (dtype, shape) = (tensor.dtype(), tensor.shape());
        if dtype != Dtype::F32 || shape.len() != n_dims {
            return Err(wrong(name, &format!("F32 of {n_dims} dimensions"), format!("{dtype:?} {shape:?}")));
        }
        let numbers = tensor.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect::<Vec<f32>>();
        Ok((shape.to_vec(), numbers))
    };
    let (shape, log_f) = numbers("log_f", 3)?;
    let shape = [shape[0], shape[1], shape[2]];
    let bounds = match file.tensor("u") {
        Err(_) => None,
        Ok(_) => Some(numbers("u", 2)?),
    };
    if let Some((of_bounds, _)) = bounds.as_ref().filter(|(of_bounds, _)| of_bounds != &shape[..2]) {
        return Err(wrong("u", &format!("shape {:?}, as log_f has", &shape[..2]), format!("{of_bounds:?}")));
    }
    let gates = Gates::new(shape, log_f, bounds.map(|(_, bounds)| bounds));
    gates.map_err(|error| match error {
        Error::Argument { option, expected, got } => wrong(&option, &expected, got),
        other => other,
    })
}

/// Writes the file.
pub fn write(new: &NewFile<'_>, gates: &Gates) -> Result<()> {
    let bytes = |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let shape = gates.shape();
    let log_f = bytes(gates.log_f());
    let u = gates.bounds().map(bytes);
    new.write(|out, name| {
        let failed = |reason: String| Error::Io { file: name.display().to_string(), action: "write", reason };
        let view = |shape: &[usize], bytes| TensorView::new(Dtype::F32, shape.to_vec(), bytes);
        let mut views = vec![("log_f", view(&shape, &log_f).map_err(|error| failed(error.to_string()))?)];
        if let Some(u) = &u {
            views.push(("u", view(&shape[..2], u).map_err(|error| failed(error.to_string()))?));
        }
        let file = safetensors::serialize(views, None).map_err(|error| failed(error.to_string()))?;
        out.write_all(&file).map_err(|error| file_error(name, "write", &error))
    })
}
