//! From `-m` to a checkpoint, and to a model with a progress bar.

use super::ModelArguments;
use super::output::{Done, bytes_bar, say};
use kitfox::format::{self, Checkpoint};
use kitfox::session::{LoadOptions, Model};
use kitfox::{Error, Result};
use std::path::Path;

#[cfg(kitfox_demo)]
static DEMO: Option<&[u8]> = Some(include_bytes!("../../www/models/demo.gguf"));
#[cfg(not(kitfox_demo))]
static DEMO: Option<&[u8]> = None;

/// Opens a file or directory, or the embedded demo model. Reads headers only.
pub fn open(path: Option<&Path>) -> Result<Checkpoint> {
    let Some(path) = path else {
        let Some(bytes) = DEMO else {
            let reason = "none is embedded in this build; give a .gguf file or a Hugging Face directory with -m";
            return Err(Error::Io { file: "demo model".into(), action: "open", reason: reason.into() });
        };
        return pollster::block_on(format::read(Box::new(format::BytesSource::new("demo model", bytes))));
    };
    pollster::block_on(format::open(path))
}

/// Opens and loads, with a bar on stderr, and says why `auto` did not take a GPU.
pub fn load(arguments: &ModelArguments, options: LoadOptions) -> Done<Model> {
    let options = LoadOptions { device: arguments.device.into(), ..options };
    let checkpoint = open(arguments.model.as_deref())?;
    let bar = bytes_bar("loading", 0);
    let mut progress = |progress: kitfox::session::Progress| {
        bar.set_length(progress.total_bytes);
        bar.set_position(progress.done_bytes);
        Ok(())
    };
    let model = pollster::block_on(Model::load(checkpoint, options, &mut progress));
    bar.finish_and_clear();
    let model = model?;
    if let Some(note) = model.device_note() {
        say(&format!("note: {note}"));
    }
    Ok(model)
}
