//! `kitfox manifest`: the SHA-256 of a file in pieces of 4 MiB, as `FILE.manifest.json` beside it, so that a browser can check each
//! piece as it arrives (web/manifest.ts reads it); with `--check`, whether the file is still what the manifest beside it says.

use super::new_file::NewFile;
use super::output::{Done, bytes_bar, file_error, print_line};
use clap::Args;
use kitfox::format::FileSource;
use kitfox::format::limits::MAX_MANIFEST;
use kitfox::format::manifest::{Manifest, PIECE_BYTES, hex};
use kitfox::format::source::read_text;
use kitfox::{Error, Result};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Arguments {
    /// The file to describe: a GGUF file, or a part of one
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Writes nothing: reads FILE.manifest.json and compares
    #[arg(long)]
    check: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Done {
    if arguments.check { check(&arguments.file) } else { write(&arguments.file) }
}

/// Where the manifest of a file is.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".manifest.json");
    PathBuf::from(name)
}

/// Writes the manifest of a file beside it, and says so.
pub fn write(file: &Path) -> Done {
    let out = beside(file);
    let new = NewFile::new(&out, &[file])?;
    let manifest = read(file)?;
    let json = manifest.to_json();
    new.write(|to, part| writeln!(to, "{json:#}").map_err(|error| file_error(part, "write", &error)))?;
    print_line(&format!(
        "{}: {} bytes in pieces of {PIECE_BYTES}, SHA-256 {}",
        out.display(),
        manifest.bytes,
        hex(&manifest.whole)
    ))
}

/// Compares a file with the manifest beside it.
fn check(file: &Path) -> Done {
    let stated = beside(file);
    let text = pollster::block_on(async { read_text(&mut FileSource::open(&stated)?, MAX_MANIFEST).await })?;
    let stated = Manifest::parse(&stated.display().to_string(), &text)?;
    stated.check(&file.display().to_string(), &read(file)?)?;
    print_line(&format!("{}: {} bytes, SHA-256 {}, as its manifest says", file.display(), stated.bytes, hex(&stated.whole)))
}

/// The manifest of a file.
fn read(path: &Path) -> Result<Manifest> {
    // Before it is opened: to open a pipe is to wait for its writer.
    let metadata = std::fs::metadata(path).map_err(|error| file_error(path, "open", &error))?;
    if !metadata.is_file() {
        return Err(Error::Io { file: path.display().to_string(), action: "open", reason: "not a regular file".into() });
    }
    let file = File::open(path).map_err(|error| file_error(path, "open", &error))?;
    let bar = bytes_bar("hashing", metadata.len());
    let (mut sha256, mut whole, mut bytes) = (Vec::new(), Sha256::new(), 0);
    let mut piece = Vec::new();
    loop {
        piece.clear();
        let read = (&file).take(PIECE_BYTES).read_to_end(&mut piece);
        if read.map_err(|error| file_error(path, "read", &error))? == 0 {
            break;
        }
        whole.update(&piece);
        sha256.push(Sha256::digest(&piece).into());
        bytes += piece.len() as u64;
        bar.set_position(bytes);
    }
    bar.finish_and_clear();
    if bytes == 0 {
        return Err(Error::format(path.display(), "length", "at least one byte", "0"));
    }
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Ok(Manifest { file: name, bytes, sha256, whole: whole.finalize().into() })
}
