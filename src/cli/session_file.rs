//! The file of a session (`generate --session`): read if it is there, and written again at the end. The bytes are those of `Model::save`.

use super::input;
use super::new_file::NewFile;
use super::output::file_error;
use kitfox::session::{GenerateOptions, Generation, Model};
use kitfox::{Error, Result};
use std::io::Write;
use std::path::Path;

/// The prompt behind the session of the file; behind nothing where there is no file.
pub fn begin(model: &mut Model, path: &Path, prompt: &str, options: GenerateOptions) -> Result<Generation> {
    let mut ids = match input::optional(path, model.max_session_bytes()).map_err(longer)? {
        Some(bytes) => {
            let pending = pollster::block_on(model.restore(&bytes)).map_err(|error| in_file(error, path))?;
            [model.history(), &pending].concat()
        }
        None => Vec::new(),
    };
    if ids.is_empty() {
        model.reset();
        ids.extend(model.bos());
    }
    ids.extend(model.tokenizer("generate")?.encode(prompt)?);
    Generation::behind(model, ids, options)
}

/// Keeps a session with the answer so far.
pub fn keep(model: &mut Model, file: &NewFile<'_>, generation: &Generation) -> Result<()> {
    let ids = [generation.prompt_ids(), generation.generated_ids()].concat();
    // Of an answer that was left, later tokens may be read already.
    let common = model.history().iter().zip(&ids).take_while(|(a, b)| a == b).count();
    if common < model.pos() {
        pollster::block_on(model.rewind_to(common))?;
    }
    let bytes = pollster::block_on(model.save(&ids[model.pos()..]))?;
    file.write(|out, name| out.write_all(&bytes).map_err(|error| file_error(name, "write", &error)))
}

/// A file that is too long may be a session of this model with a larger context.
fn longer(error: Error) -> Error {
    match error {
        Error::Format { file, place, expected, got } => {
            Error::format(file, place, format_args!("{expected} (a larger -c may take it)"), got)
        }
        other => other,
    }
}

fn in_file(error: Error, path: &Path) -> Error {
    match error {
        Error::Format { place, expected, got, .. } => Error::format(path.display(), place, expected, got),
        other => other,
    }
}
