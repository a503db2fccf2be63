//! Files that commands write. Each is written beside its final name, as `OUT.N.part` (N: the process), and renamed when it is whole: a run
//! that fails leaves what was there before, and nothing else (one that is killed leaves its part, too); two runs at once have a part each, and the last to
//! end has its file there. A name that cannot be meant is refused before any work: a directory, one in a folder that is not there, a device (the rename would
//! put a file in its place), and the run's own inputs, which are read while the output is written.

use super::output::file_error;
use kitfox::{Error, Result};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Names that are tried for a part: those before were left behind by processes of the same number, or are somebody else's.
const MAX_PARTS: usize = 100;

/// The name of a file to be written.
pub struct NewFile<'a> {
    path: &'a Path,
}

impl<'a> NewFile<'a> {
    /// # Errors
    /// [`Error::Argument`] when there is something else than a file, or it is one of `inputs`. [`Error::Io`] when there is no folder for it.
    pub fn new(path: &'a Path, inputs: &[&Path]) -> Result<Self> {
        if !folder_of(path).is_dir() {
            let missing = format!("no folder {}", folder_of(path).display());
            return Err(file_error(path, "create", &io::Error::new(io::ErrorKind::NotFound, missing)));
        }
        let refuse = |expected: &str, got: &str| Err(Error::argument("output", expected, format!("{} ({got})", path.display())));
        let Ok(metadata) = fs::metadata(path) else { return Ok(Self { path }) };
        if metadata.is_dir() {
            return refuse("the name of a file", "a directory");
        }
        if !metadata.is_file() {
            return refuse("the name of a file", "not a regular file");
        }
        let is_same = |full: &Path| inputs.iter().any(|input| input.canonicalize().is_ok_and(|input| input == full));
        if path.canonicalize().is_ok_and(|full| is_same(&full)) {
            return refuse("another file than the input", "an input");
        }
        Ok(Self { path })
    }

    /// Writes it whole or not at all. `write` also gets the name that it has meanwhile, for errors.
    ///
    /// # Errors
    /// Those of `write`, and [`Error::Io`].
    pub fn write<T>(&self, write: impl FnOnce(&mut BufWriter<File>, &Path) -> Result<T>) -> Result<T> {
        let (file, part) = self.create_part()?;
        let written = write_part(file, &part, write).and_then(|written| {
            fs::rename(&part, self.path).map_err(|error| file_error(self.path, "rename", &error))?;
            Ok(written)
        });
        match written {
            Ok(_) => sync_folder(folder_of(self.path)),
            // The first error is the one to report.
            Err(_) => drop(fs::remove_file(&part)),
        }
        written
    }

    /// A file that was not there before.
    fn create_part(&self) -> Result<(File, PathBuf)> {
        let mut taken = io::Error::from(io::ErrorKind::AlreadyExists);
        for ix in 0..MAX_PARTS {
            let part = part_of(self.path, ix);
            match File::options().write(true).create_new(true).open(&part) {
                Ok(file) => return Ok((file, part)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
                Err(error) => return Err(file_error(&part, "create", &error)),
            }
        }
        Err(file_error(&part_of(self.path, 0), "create", &taken))
    }
}

fn write_part<T>(file: File, part: &Path, write: impl FnOnce(&mut BufWriter<File>, &Path) -> Result<T>) -> Result<T> {
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let written = write(&mut out, part)?;
    let flushed = out.flush().and_then(|()| out.get_ref().sync_all());
    flushed.map_err(|error| file_error(part, "write", &error))?;
    Ok(written)
}

/// `OUT.N.part`, or `OUT.N.ix.part`.
fn part_of(path: &Path, ix: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    if ix > 0 {
        name.push(format!(".{ix}"));
    }
    name.push(".part");
    name.into()
}

/// The folder of a name: of a bare one that which we are in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the new name last, too, where a folder can be asked to: the file itself is safe already, under one of its names.
fn sync_folder(folder: &Path) {
    if cfg!(unix) {
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("kitfox_new_file_{test}_{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn what_somebody_else_wrote_beside_it_is_left_alone() {
        let folder = folder("parts");
        let path = folder.join("out");
        let others = [folder.join("out.part"), part_of(&path, 0), part_of(&path, 1)];
        others.iter().for_each(|other| fs::write(other, "mine").unwrap());
        let fails = |_: &mut BufWriter<File>, name: &Path| -> Result<()> { Err(Error::argument("a", "b", name.display())) };
        assert!(NewFile::new(&path, &[]).unwrap().write(fails).unwrap_err().to_string().contains(".2.part"));
        let writes =
            |out: &mut BufWriter<File>, name: &Path| out.write_all(b"new").map_err(|error| file_error(name, "write", &error));
        NewFile::new(&path, &[]).unwrap().write(writes).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(others.iter().all(|other| fs::read(other).unwrap() == b"mine"));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 4);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn two_at_once_have_a_part_each() {
        let folder = folder("two");
        let path = folder.join("out");
        let of = |text: &'static [u8]| {
            move |out: &mut BufWriter<File>, name: &Path| out.write_all(text).map_err(|error| file_error(name, "write", &error))
        };
        let other = NewFile::new(&path, &[]).unwrap();
        let both = |out: &mut BufWriter<File>, name: &Path| {
            other.write(of(b"a longer one"))?;
            of(b"one")(out, name)
        };
        NewFile::new(&path, &[]).unwrap().write(both).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
