//! `kitfox manifest`: the hashes are those of other programs, and what cannot be described is refused.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::tiny::Tiny;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Of one zero byte, of 4 MiB of them, and of one more, by `sha256sum`.
const ONE: &str = "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d";
const PIECE: &str = "bb9f8df61474d25e71fa00722318cd387396ca1736605e1248821cc0de3d3af8";
const PIECE_AND_ONE: &str = "95e441ca65cd41fa01b2a71799e79fd60db59ed34f13af32a91e85f90378676c";

fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("manifest").join(test);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn kitfox<const N: usize>(arguments: [&Path; N]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kitfox")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn manifest(file: &Path) -> Value {
    let output = kitfox([Path::new("manifest"), file]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    read(file)
}

fn read(file: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(format!("{}.manifest.json", file.display())).unwrap()).unwrap()
}

#[test]
fn a_file_is_described_piece_by_piece() {
    let folder = folder("pieces");
    for (bytes, pieces, whole) in
        [(1, vec![ONE], ONE), (4 << 20, vec![PIECE], PIECE), ((4 << 20) + 1, vec![PIECE, ONE], PIECE_AND_ONE)]
    {
        let file = folder.join("zeros.gguf");
        std::fs::write(&file, vec![0; bytes]).unwrap();
        let expected = serde_json::json!({
            "version": 1, "file": "zeros.gguf", "bytes": bytes, "piece_bytes": 4 << 20, "sha256": pieces, "whole": whole,
        });
        assert_eq!(manifest(&file), expected);
    }
}

#[test]
fn convert_writes_the_manifest_of_what_it_wrote() {
    let folder = folder("convert");
    let (model, out) = (Tiny::new(None).write(&folder.join("model")), folder.join("out.gguf"));
    let [convert, to, quant, q8_0, flag] = ["convert", "-o", "--quant", "q8_0", "--manifest"].map(Path::new);
    let output = kitfox([convert, &model, to, &out, quant, q8_0, flag]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let written = read(&out);
    assert_eq!(written["bytes"], std::fs::metadata(&out).unwrap().len());
    assert_eq!(written, manifest(&out));
}

#[test]
fn what_is_no_file_is_refused() {
    let folder = folder("refused");
    let (empty, missing) = (folder.join("empty.gguf"), folder.join("missing.gguf"));
    std::fs::write(&empty, "").unwrap();
    for (file, named) in [(&empty, "at least one byte"), (&missing, "open failed"), (&folder, "not a regular file")] {
        let output = kitfox([Path::new("manifest"), file]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(named) && told.lines().count() == 1, "{told}");
        assert!(!Path::new(&format!("{}.manifest.json", file.display())).exists());
    }
}

#[test]
fn a_file_is_compared_with_the_manifest_beside_it() {
    let folder = folder("check");
    let file = folder.join("zeros.gguf");
    let check = || {
        let output = kitfox([Path::new("manifest"), &file, Path::new("--check")]);
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    std::fs::write(&file, vec![0; (4 << 20) + 1]).unwrap();
    let (code, told) = check();
    assert!(code == Some(1) && told.contains("manifest.json: open failed"), "{told}");
    manifest(&file);
    let (code, told) = check();
    assert!(code == Some(0) && told.contains(&format!("4194305 bytes, SHA-256 {PIECE_AND_ONE}, as its manifest says")), "{told}");
    let mut bytes = vec![0; (4 << 20) + 1];
    bytes[4 << 20] = 1;
    std::fs::write(&file, &bytes).unwrap();
    let (code, told) = check();
    assert!(code == Some(1) && told.contains("zeros.gguf: piece 1 (from byte 4194304)") && told.contains(ONE), "{told}");
    std::fs::write(&file, &bytes[1..]).unwrap();
    assert!(check().1.contains("length: expected 4194305 bytes"));
}
