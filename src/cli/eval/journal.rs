//! What a run has done so far, beside the table that it will become: `OUT.csv.journal`, a line for the run and one for each finished
//! step. A run that finds the journal of the same run goes on behind it; the journal of another run is an error, never a mixture.

use super::write_file;
use crate::cli::input;
use crate::cli::output::file_error;
use kitfox::session::Model;
use kitfox::{Error, Result};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// An open journal.
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens the journal of this run beside `output`, or begins it. Gives the lines of the steps that are done.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Format`] when it is the journal of another run.
    pub fn open(output: &Path, run: &Value) -> Result<(Self, Vec<String>)> {
        let mut path = output.as_os_str().to_owned();
        path.push(".journal");
        let path = PathBuf::from(path);
        let header = run.to_string();
        let bytes = input::optional(&path, input::MAX_JOURNAL)?.unwrap_or_default();
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        // A line without its end was cut off by what ended the run.
        text.truncate(text.rfind('\n').map_or(0, |at| at + 1));
        let mut lines = text.lines();
        if lines.next().is_some_and(|line| line != header) {
            let what = difference(&header, text.lines().next().unwrap_or_default());
            let expected = "the journal of this very run, to go on with (remove it to begin anew, or name another -o)";
            return Err(Error::format(path.display(), "line 1", expected, what));
        }
        let done = lines.map(str::to_owned).collect();
        if text.is_empty() {
            text = header + "\n";
        }
        // Through a file of its own: an end between truncating and writing would lose all.
        write_file(&path, text.as_bytes())?;
        let file = File::options().append(true).open(&path).map_err(|error| file_error(&path, "open", &error))?;
        Ok((Self { path, file }, done))
    }

    /// Adds a finished step.
    pub fn push(&mut self, line: &str) -> Result<()> {
        let written = self.file.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| file_error(&self.path, "write", &error))
    }

    /// The error of a line that is not what its step writes.
    pub fn bad_line(&self, step: usize, expected: &str, line: &str) -> Error {
        Error::format(self.path.display(), format!("line {}", step + 2), expected, line)
    }

    /// Writes the table in place and removes the journal.
    pub fn finish(self, output: &Path, table: &str) -> Result<()> {
        write_file(output, table.as_bytes())?;
        fs::remove_file(&self.path).map_err(|error| file_error(&self.path, "remove", &error))
    }
}

/// In what another run's first line differs: the names, and what it has of them.
fn difference(ours: &str, other: &str) -> String {
    let object = |line: &str| serde_json::from_str::<serde_json::Map<String, Value>>(line).unwrap_or_default();
    let (mut ours, mut other) = (object(ours), object(other));
    if other.is_empty() {
        return "no journal".to_owned();
    }
    for run in [&mut ours, &mut other] {
        let Some(Value::Object(options)) = run.remove("options") else { continue };
        run.extend(options);
    }
    let differs =
        other.iter().filter(|(name, value)| ours.get(*name) != Some(*value)).map(|(name, value)| format!("{name} {value}"));
    let lacks = ours.keys().filter(|name| !other.contains_key(*name)).map(|name| format!("no {name}"));
    match differs.chain(lacks).collect::<Vec<_>>().join(", ") {
        same if same.is_empty() => "the same in another form".to_owned(),
        unlike => format!("that of a run with {unlike}"),
    }
}

/// What makes a run the same run: this program, the model's file, the device, and everything that changes the numbers.
pub fn run_of(command: &str, model: &Model, options: Value) -> Value {
    let metadata = fs::metadata(model.file()).ok();
    let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok());
    json!({
        "command": command,
        "version": env!("CARGO_PKG_VERSION"),
        "model": model.file(),
        "model_bytes": metadata.map(|metadata| metadata.len()),
        "model_modified_ms": modified.map(|time| time.as_millis() as u64),
        "device": model.device_name(),
        "options": options,
    })
}

/// FNV-1a of token ids: whether a text is the same text.
pub fn hash(ids: &[u32]) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = ids.iter().flat_map(|id| id.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, step);
    format!("{hash:016x}")
}
