//! The file of a session (`generate --session`): read if it is there, and written again at the end. The bytes are those of `Model::save`.

use super::new_file::NewFile;
use super::output::file_error;
use kitfox::session::{GenerateOptions, Generation, Model};
use kitfox::{Error, Result};
use std::io::Write;
use std::path::Path;

/// The prompt behind the session of the file; behind nothing where there is no file.
pub fn begin(model: &mut Model, path: &Path, prompt: &str, options: GenerateOptions) -> Result<Generation> {
    let mut ids = match std::fs::read(path) {
        Ok(bytes) => {
            let pending = pollster::block_on(model.restore(&bytes)).map_err(|error| in_file(error, path))?;
            [model.history(), &pending].concat()
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(file_error(path, "read", &error)),
    };
    if ids.is_empty() {
        model.reset();
        ids.extend(model.bos());
    }
    ids.extend(model.tokenizer("generate")?.encode(prompt)?);
    Generation::behind(model, ids, options)
}

/// Keeps a session with the answer that has ended.
pub fn keep(model: &mut Model, file: &NewFile<'_>, generation: &Generation) -> Result<()> {
    let ids = [generation.prompt_ids(), generation.generated_ids()].concat();
    let bytes = pollster::block_on(model.save(&ids[model.pos()..]))?;
    file.write(|out, name| out.write_all(&bytes).map_err(|error| file_error(name, "write", &error)))
}

fn in_file(error: Error, path: &Path) -> Error {
    match error {
        Error::Format { place, expected, got, .. } => Error::format(path.display(), place, expected, got),
        other => other,
    }
}
