//! From `-m` to a checkpoint, and to a model with a progress bar.

use super::ModelArguments;
use super::output::{bytes_bar, one_line, say};
use kitfox::format::{self, Checkpoint};
use kitfox::session::{Device, LoadOptions, Model, Progress};
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

/// Opens and loads, with a bar on stderr. `text_for` names the command if it needs a tokenizer: without one it ends here.
pub fn load(arguments: &ModelArguments, text_for: Option<&'static str>, options: LoadOptions) -> Result<Model> {
    let options = arguments.apply(options);
    let checkpoint = open(arguments.model.as_deref())?;
    if let Some(action) = text_for.filter(|_| checkpoint.tokenizer.is_none()) {
        return Err(Error::NoTokenizer { file: checkpoint.file_name().to_owned(), action });
    }
    let bar = bytes_bar("loading", 0);
    let mut progress = |progress: Progress| {
        bar.set_length(progress.total_bytes);
        bar.set_position(progress.done_bytes);
        Ok(())
    };
    let model = pollster::block_on(Model::load(checkpoint, options, &mut progress));
    bar.finish_and_clear();
    model
}

/// Says why `auto` did not take a GPU, which kernels the one that runs did without, why nothing is pruned, and why the context is not the model's. Called
/// when the work begins, so that an error before it is the first line.
pub fn say_note(model: &Model) {
    if let Some(note) = model.device_note() {
        say(&format!("note: {note}; running on {}", model.device_name()));
    }
    if let Device::Gpu(executor) = model.device() {
        if executor.gpu().info().software {
            say(&format!("note: {} is a software adapter: the CPU device (--device cpu) is quicker", model.device_name()));
        }
        executor.gpu().notes().iter().for_each(|note| say(&format!("note: {}", one_line(note))));
    }
    for note in model.pruning_note().into_iter().chain(model.context_note()) {
        say(&format!("note: {note}"));
    }
}

/// Says what came up in a run: that the device was lost, and what `--check` found.
pub fn say_end(model: &Model) {
    if model.recoveries() > 0 {
        say(&format!(
            "note: the GPU was lost and opened again ({} times); the text is as it would have been",
            model.recoveries()
        ));
    }
    let Some(watch) = model.watched() else { return };
    say(&format!("check: {} dispatches agree with their twins", watch.dispatches()));
    if let Some((place, deviation)) = watch.worst() {
        say(&format!("check: the worst: {place}: {deviation}"));
    }
}
