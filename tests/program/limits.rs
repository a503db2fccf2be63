//! A file of 100 GB, of which the disk holds nothing, in the place of every file that a verb reads whole, and a stdin without an end: each is
//! refused by name with its limit, in a process that may have no more than 4 GB.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::command::{folder, text};
use crate::common::tiny::Tiny;
use crate::common::tokenizers;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const HUGE: u64 = 100_000_000_000;

/// Goes when the test ends: whoever copies this folder would copy 100 GB.
struct Sparse(PathBuf);

impl Drop for Sparse {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs what must fail, and gives the first line that it says.
fn refused(arguments: &[&str], stdin: Stdio) -> String {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -v 4000000 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_kitfox")]).args(arguments);
    // A stack and an arena for each of many cores would be more than 4 GB of addresses.
    limited.env("RAYON_NUM_THREADS", "2").env("MALLOC_ARENA_MAX", "2");
    let output = limited.stdin(stdin).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{arguments:?}: {:?} {said}", output.status);
    said.lines().next().unwrap_or_default().to_owned()
}

/// A copy of a model's folder in which some files are links to others.
fn with(model: &Path, name: &str, links: &[(&str, &Path)]) -> String {
    let folder = model.with_file_name(name);
    std::fs::create_dir(&folder).unwrap();
    for entry in std::fs::read_dir(model).unwrap().map(Result::unwrap) {
        if links.iter().all(|(link, _)| entry.file_name() != *link) {
            std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
        }
    }
    links.iter().for_each(|(link, to)| symlink(to, folder.join(link)).unwrap());
    text(&folder)
}

#[test]
fn no_verb_reads_a_file_without_an_end() {
    let folder = folder("limits", "huge");
    let sparse = Sparse(folder.join("huge"));
    File::create(&sparse.0).unwrap().set_len(HUGE).unwrap();
    let (huge, directory) = (text(&sparse.0), Tiny::new(Some(tokenizers::byte_level())).write(&folder.join("model")));
    let model = text(&directory);
    let path = |name: &str| text(&folder.join(name));
    let link = |name: &str| {
        symlink(&sparse.0, folder.join(name)).unwrap();
        path(name)
    };
    let (journal, manifest, plain) = (link("loss.csv.journal"), link("plain.manifest.json"), path("plain"));
    std::fs::write(&plain, "hello, hello. ".repeat(9)).unwrap();
    let no_index = |links: &[(&str, &Path)], name: &str| {
        let made = with(&directory, name, links);
        let _ = std::fs::remove_file(Path::new(&made).join("model.safetensors"));
        made
    };
    let cut =
        |name: &str, file: &str| (with(&directory, name, &[(file, &sparse.0)]), format!("{file}: length: expected at most"));
    let (config, tokenizer) = (cut("config", "config.json"), cut("tokenizer", "tokenizer.json"));
    let index = no_index(&[("model.safetensors.index.json", &sparse.0)], "index");
    let (out, csv) = (path("out.safetensors"), path("loss.csv"));
    let cases: [(&[&str], &str); 17] = [
        (&["perplexity", "-m", &model, "-f", &huge], "huge: length: expected at most 16777216 bytes, got 100000000000"),
        (
            &["eval", "per-token-loss", "-m", &model, "-f", &huge, "-o", &path("a.csv")],
            "huge: length: expected at most 16777216 bytes",
        ),
        (
            &["eval", "per-token-loss", "-m", &model, "-f", &plain, "-o", &csv, "-c", "8", "--bins", "2"],
            &format!("{journal}: line 1: expected at most 1048576 bytes"),
        ),
        (&["eval", "niah", "-m", &model, "-f", &huge, "-o", &path("b.csv")], "huge: length: expected at most 16777216 bytes"),
        (
            &["eval", "live-keys", "-m", &model, "-f", &huge, "-o", &path("e.csv")],
            "huge: length: expected at most 16777216 bytes",
        ),
        (&["inspect", "gates", "-m", &model, "-f", &huge, "-o", &path("c.csv")], "huge: length: expected at most 16777216 bytes"),
        (&["logits", "-m", &model, "--ids-file", &huge, "-o", &out], "huge: length: expected at most 67108864 bytes"),
        (
            &["bench", "--shape", "64,1,1", "--vocab", "64", "--gates", &huge, "-c", "8", "-n", "1"],
            "huge: length: expected at most 1073741824 bytes",
        ),
        (&["generate", "-m", &model, "-p", "a", "--session", &huge], "(a larger -c may take it), got 100000000000"),
        (&["generate", "-m", &huge, "-p", "a"], "huge: magic"),
        (&["inspect", "-m", &huge], "huge: magic"),
        (&["convert", &config.0, "-o", &path("d.gguf"), "--quant", "f32"], &config.1),
        (&["convert", &tokenizer.0, "-o", &path("d.gguf"), "--quant", "f32"], &tokenizer.1),
        (
            &["convert", &index, "-o", &path("d.gguf"), "--quant", "f32"],
            "model.safetensors.index.json: length: expected at most 16777216 bytes",
        ),
        (
            &[
                "convert",
                &with(&directory, "weights", &[("model.safetensors", &sparse.0)]),
                "-o",
                &path("d.gguf"),
                "--quant",
                "f32",
            ],
            "model.safetensors: ",
        ),
        (&["manifest", &plain, "--check"], &format!("{manifest}: length: expected at most 16777216 bytes")),
        (&["generate", "-m", &model, "-p", "-"], "stdin: length: expected at most 16777216 bytes, got more"),
    ];
    for (arguments, says) in cases {
        let device = if matches!(arguments[0], "convert" | "manifest") || arguments[..2] == ["inspect", "-m"] {
            &[][..]
        } else {
            &["--device", "cpu"]
        };
        let line = refused(&[arguments, device].concat(), File::open("/dev/zero").unwrap().into());
        assert!(line.starts_with("error: ") && line.contains(says), "{arguments:?}: expected {says:?}, got {line:?}");
    }
}

/// Without a tokenizer.json it is made of GPT-2's files.
#[test]
fn no_file_of_a_tokenizer_is_read_without_an_end() {
    let folder = folder("limits", "tokenizer");
    let sparse = Sparse(folder.join("huge"));
    File::create(&sparse.0).unwrap().set_len(HUGE).unwrap();
    let model = Tiny::new(None).write(&folder.join("model"));
    let out = text(&folder.join("out.gguf"));
    let files = [("vocab.json", "{\"a\":0}"), ("merges.txt", ""), ("tokenizer_config.json", "{}")];
    for (file, _) in files {
        let made = with(&model, &format!("of_{file}"), &[(file, &sparse.0)]);
        for (other, text) in files.iter().filter(|(other, _)| *other != file) {
            std::fs::write(Path::new(&made).join(other), text).unwrap();
        }
        let line = refused(&["convert", &made, "-o", &out, "--quant", "f32"], Stdio::null());
        let says = format!("{file}: length: expected at most 16777216 bytes, got 100000000000");
        assert!(line.starts_with("error: ") && line.contains(&says), "{line:?}");
    }
}
