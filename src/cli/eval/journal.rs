//! What a run has done so far, beside the table that it will become: `OUT.csv.journal`, a line for the run and one for each finished
//! step. A run that finds the journal of the same run goes on behind it; the journal of another run is an error, never a mixture.

use super::write_file;
use crate::cli::output::file_error;
use kitfox::session::Model;
use kitfox::{Error, Result};
use serde_json::{Value, json};
use std::fs::{self, File, TryLockError};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Bytes that the first line of another run may have.
const HEADER_BYTES: usize = 1 << 20;

/// An open journal: first the lines of the steps that are done are read, one by one, then come those of new ones.
pub struct Journal {
    path: PathBuf,
    file: BufReader<File>,
    /// Bytes of a step's line at most, without its end.
    line_bytes: usize,
    /// Whole lines that were read, and their bytes.
    n_lines: usize,
    end: u64,
    is_read: bool,
}

impl Journal {
    /// Opens the journal of this run of `n_steps` beside `output`, or begins it. The line of a step has `line_bytes` at most.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Format`] when it is the journal of another run, or longer than this run makes it.
    pub fn open(output: &Path, run: &Value, n_steps: usize, line_bytes: usize) -> Result<Self> {
        let mut path = output.as_os_str().to_owned();
        path.push(".journal");
        let path = PathBuf::from(path);
        let header = run.to_string();
        let failed = |error: &std::io::Error| file_error(&path, "open", error);
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(|error| failed(&error))?;
        // Where nothing can be locked two runs at once are not told.
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            let expected = "one run at a time (wait for the other, or name another -o)";
            return Err(Error::format(path.display(), "lock", expected, "that of a run that goes on"));
        }
        let length = file.metadata().map_err(|error| failed(&error))?.len();
        let mut journal = Self { path, file: BufReader::new(file), line_bytes, n_lines: 0, end: 0, is_read: false };
        let most = HEADER_BYTES.max(header.len());
        match journal.line(most)? {
            Some(line) if line != header => {
                let expected = "the journal of this very run, to go on with (remove it to begin anew, or name another -o)";
                return Err(Error::format(journal.path.display(), "line 1", expected, difference(&header, &line)));
            }
            Some(_) => {}
            None => {
                // A part of the line was cut off by what ended the run; anything else is no journal, and somebody's.
                if !header.as_bytes().starts_with(&journal.begun(most)?) {
                    let expected = "the journal of this very run (remove it to begin anew, or name another -o)";
                    return Err(Error::format(journal.path.display(), "line 1", expected, "no journal"));
                }
                journal.end_reading()?;
                journal.push(&header)?;
                return Ok(journal);
            }
        }
        let most = (n_steps as u64).saturating_mul(line_bytes as u64 + 1).saturating_add(header.len() as u64 + 1);
        if length > most {
            let expected = format_args!("at most {most} bytes, as this run needs");
            return Err(Error::format(journal.path.display(), "length", expected, length));
        }
        Ok(journal)
    }

    /// The line of the next step that is done; none behind the last one.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Format`] for a line that is longer than a step's.
    pub fn next_line(&mut self) -> Result<Option<String>> {
        if self.is_read {
            return Ok(None);
        }
        let line = self.line(self.line_bytes)?;
        if line.is_none() {
            self.end_reading()?;
        }
        Ok(line)
    }

    /// A whole line of at most so many bytes; one without its end was cut off by what ended the run.
    fn line(&mut self, most: usize) -> Result<Option<String>> {
        let mut bytes = Vec::new();
        let read = (&mut self.file).take(most as u64 + 1).read_until(b'\n', &mut bytes);
        read.map_err(|error| file_error(&self.path, "read", &error))?;
        if bytes.last() == Some(&b'\n') {
            self.end += bytes.len() as u64;
            self.n_lines += 1;
            bytes.pop();
            return Ok(Some(String::from_utf8_lossy(&bytes).into_owned()));
        }
        if bytes.len() > most {
            let place = format!("line {}", self.n_lines + 1);
            return Err(Error::format(self.path.display(), place, format_args!("at most {most} bytes"), "more"));
        }
        Ok(None)
    }

    /// The first `most` bytes, by the handle that holds the lock.
    fn begun(&mut self, most: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = self.file.rewind().and_then(|()| (&mut self.file).take(most as u64).read_to_end(&mut bytes));
        read.map(|_| bytes).map_err(|error| file_error(&self.path, "read", &error))
    }

    /// Cuts off what is no whole line; what is written goes there.
    fn end_reading(&mut self) -> Result<()> {
        self.is_read = true;
        let cut = self.file.get_ref().set_len(self.end).and_then(|()| self.file.seek(SeekFrom::Start(self.end)));
        cut.map(drop).map_err(|error| file_error(&self.path, "write", &error))
    }

    /// Adds a finished step, behind those that were read.
    pub fn push(&mut self, line: &str) -> Result<()> {
        let file = self.file.get_mut();
        let written = file.write_all(format!("{line}\n").as_bytes()).and_then(|()| file.sync_data());
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn output(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("kitfox_journal_{test}_{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder.join("out.csv")
    }

    #[test]
    fn what_a_run_writes_it_reads_again_however_long() {
        const BYTES: usize = 3 << 20;
        let (output, run) = (output("long"), json!({ "run": 1 }));
        let line = |step: usize| format!("{step} {}", "x".repeat(BYTES - 10));
        let mut journal = Journal::open(&output, &run, 40, BYTES).unwrap();
        assert!(journal.next_line().unwrap().is_none());
        (0..25).for_each(|step| journal.push(&line(step)).unwrap());
        journal.file.get_mut().write_all(b"cut o").unwrap();
        let path = journal.path.clone();
        drop(journal);
        assert!(fs::metadata(&path).unwrap().len() > 70 << 20);
        for n_lines in [25, 26] {
            let mut journal = Journal::open(&output, &run, 40, BYTES).unwrap();
            for step in 0..n_lines {
                assert!(journal.next_line().unwrap().unwrap() == line(step), "line {step} of {n_lines}");
            }
            assert!(journal.next_line().unwrap().is_none() && journal.next_line().unwrap().is_none());
            journal.push(&line(n_lines)).unwrap();
        }
        // Longer than the run, or than a step: by name.
        let refused = Journal::open(&output, &run, 2, BYTES).err().unwrap().to_string();
        assert!(refused.contains("out.csv.journal: length: expected at most 6291468 bytes"), "{refused}");
        let refused = Journal::open(&output, &run, 40 * BYTES, 9).unwrap().next_line().unwrap_err().to_string();
        assert!(refused.contains("out.csv.journal: line 2: expected at most 9 bytes"), "{refused}");
        let held = Journal::open(&output, &run, 40, BYTES).unwrap();
        let refused = Journal::open(&output, &run, 40, BYTES).err().unwrap().to_string();
        assert!(refused.contains("lock: expected one run at a time"), "{refused}");
        drop(held);
        let refused = Journal::open(&output, &json!({ "run": 2 }), 40, BYTES).err().unwrap().to_string();
        assert!(refused.contains("line 1: expected the journal of this very run"), "{refused}");
        // What somebody else wrote without the end of a line is left alone; what was cut off is begun again.
        for (text, is_ours) in [("my notes", false), ("{\"ru", true)] {
            fs::write(&path, text).unwrap();
            assert_eq!(Journal::open(&output, &run, 40, BYTES).is_ok(), is_ours, "{text}");
            assert_eq!(fs::read_to_string(&path).unwrap() == text, !is_ours, "{text}");
        }
        fs::remove_dir_all(output.parent().unwrap()).unwrap();
    }
}
