//! Files that commands write. Each is written beside its final name, as `OUT.part`, and renamed when it is whole: a run that fails
//! leaves what was there before. A name that cannot be meant is refused before any work: a directory, one in a folder that is not
//! there, a device (the rename would put a file in its place), and the run's own inputs, which are read while the output is written.

use super::output::file_error;
use kitfox::{Error, Result};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// The name of a file to be written.
pub struct NewFile<'a> {
    path: &'a Path,
    part: PathBuf,
}

impl<'a> NewFile<'a> {
    /// # Errors
    /// [`Error::Argument`] when there is something else than a file, or it is one of `inputs`; so for the part beside it. [`Error::Io`] when
    /// there is no folder for it.
    pub fn new(path: &'a Path, inputs: &[&Path]) -> Result<Self> {
        let part = part_of(path);
        // The parent of a bare name is the empty path: the folder we are in.
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
            let missing = std::io::Error::new(std::io::ErrorKind::NotFound, format!("no folder {}", folder.display()));
            return Err(file_error(path, "create", &missing));
        }
        for name in [path, &part] {
            let refuse =
                |expected: &str, got: &str| Err(Error::argument("output", expected, format!("{} ({got})", name.display())));
            let Ok(metadata) = fs::metadata(name) else { continue };
            if metadata.is_dir() {
                return refuse("the name of a file", "a directory");
            }
            if !metadata.is_file() {
                return refuse("the name of a file", "not a regular file");
            }
            let Ok(full) = name.canonicalize() else { continue };
            if inputs.iter().any(|input| input.canonicalize().is_ok_and(|input| input == full)) {
                return refuse("another file than the input", "an input");
            }
        }
        Ok(Self { path, part })
    }

    /// Writes it whole or not at all. `write` also gets the name that it has meanwhile, for errors.
    ///
    /// # Errors
    /// Those of `write`, and [`Error::Io`].
    pub fn write<T>(&self, write: impl FnOnce(&mut BufWriter<File>, &Path) -> Result<T>) -> Result<T> {
        let written = self.write_part(write).and_then(|written| {
            fs::rename(&self.part, self.path).map_err(|error| file_error(self.path, "rename", &error))?;
            Ok(written)
        });
        if written.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_file(&self.part);
        }
        written
    }

    fn write_part<T>(&self, write: impl FnOnce(&mut BufWriter<File>, &Path) -> Result<T>) -> Result<T> {
        let file = File::create(&self.part).map_err(|error| file_error(&self.part, "create", &error))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let written = write(&mut out, &self.part)?;
        let flushed = out.flush().and_then(|()| out.get_ref().sync_all());
        flushed.map_err(|error| file_error(&self.part, "write", &error))?;
        Ok(written)
    }
}

/// `OUT.part`.
fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}
