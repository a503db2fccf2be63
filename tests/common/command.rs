//! The built binary as a test runs it: what it prints, and how it ends.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// An empty folder of one test.
pub fn folder(suite: &str, test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(suite).join(test);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

pub fn kitfox(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kitfox"));
    if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        // Mesa complains of that on stderr, before anything of ours.
        command.env("XDG_RUNTIME_DIR", env!("CARGO_TARGET_TMPDIR"));
    }
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Runs what must succeed; its stdout.
pub fn stdout_of(arguments: &[&str]) -> String {
    succeeds(arguments).0
}

/// Runs what must succeed; its stdout and stderr.
pub fn succeeds(arguments: &[&str]) -> (String, String) {
    let output = kitfox(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    (String::from_utf8(output.stdout).unwrap(), stderr)
}

/// Runs what must fail with this code, nothing on stdout, and a first line on stderr that names all of `named`.
pub fn assert_fails(code: i32, named: &[&str], arguments: &[&str]) {
    let output = kitfox(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed {:?}", String::from_utf8_lossy(&output.stdout));
    let line = stderr.lines().next().unwrap_or_default();
    assert!(line.starts_with("error: "), "{arguments:?}: {stderr}");
    for name in named {
        assert!(line.contains(name), "{arguments:?}: no {name:?} in {line:?}");
    }
}
