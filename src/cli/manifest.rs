//! `kitfox manifest`: the SHA-256 of a file in pieces of 4 MiB, as `FILE.manifest.json` beside it, so that a browser can check each
//! piece as it arrives (web/manifest.ts reads it).

use super::new_file::NewFile;
use super::output::{Done, bytes_bar, file_error, print_line};
use clap::Args;
use kitfox::{Error, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Bytes of a piece, but for the last.
const PIECE_BYTES: usize = 4 << 20;

#[derive(Args)]
pub struct Arguments {
    /// The file to describe: a GGUF file, or a part of one
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Done {
    write(&arguments.file)
}

/// Writes the manifest of a file beside it, and says so.
pub fn write(file: &Path) -> Done {
    let mut name = file.as_os_str().to_owned();
    name.push(".manifest.json");
    let out = PathBuf::from(name);
    let new = NewFile::new(&out, &[file])?;
    let manifest = read(file)?;
    new.write(|to, part| writeln!(to, "{manifest:#}").map_err(|error| file_error(part, "write", &error)))?;
    print_line(&format!(
        "{}: {} bytes in pieces of {PIECE_BYTES}, SHA-256 {}",
        out.display(),
        manifest["bytes"],
        manifest["whole"]
    ))
}

/// The manifest of a file.
fn read(path: &Path) -> Result<Value> {
    // Before it is opened: to open a pipe is to wait for its writer.
    let metadata = std::fs::metadata(path).map_err(|error| file_error(path, "open", &error))?;
    if !metadata.is_file() {
        return Err(Error::Io { file: path.display().to_string(), action: "open", reason: "not a regular file".into() });
    }
    let file = File::open(path).map_err(|error| file_error(path, "open", &error))?;
    let bar = bytes_bar("hashing", metadata.len());
    let (mut pieces, mut whole, mut bytes) = (Vec::new(), Sha256::new(), 0);
    let mut piece = Vec::new();
    loop {
        piece.clear();
        let read = (&file).take(PIECE_BYTES as u64).read_to_end(&mut piece);
        if read.map_err(|error| file_error(path, "read", &error))? == 0 {
            break;
        }
        whole.update(&piece);
        pieces.push(hex(&Sha256::digest(&piece)));
        bytes += piece.len() as u64;
        bar.set_position(bytes);
    }
    bar.finish_and_clear();
    if bytes == 0 {
        return Err(Error::format(path.display(), "length", "at least one byte", "0"));
    }
    let name = path.file_name().map(|name| name.to_string_lossy());
    Ok(json!({
        "version": 1, "file": name, "bytes": bytes, "piece_bytes": PIECE_BYTES, "sha256": pieces, "whole": hex(&whole.finalize()),
    }))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
