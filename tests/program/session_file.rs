//! `kitfox generate --session`: a text in parts is the text in one, and a file that is no session of the model is refused and left alone.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::tiny::Tiny;
use crate::common::tokenizers;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn generate(model: &Path, session: &Path, prompt: &str, n: usize) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kitfox"));
    command.args(["generate", "--device", "cpu", "--temp", "0", "--json", "--ignore-eos", "-c", "256", "-p", prompt]);
    command.arg("-n").arg(n.to_string()).arg("-m").arg(model).arg("--session").arg(session).output().unwrap()
}

fn ids(output: &Output, name: &str) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    json[name].as_array().unwrap().clone()
}

#[test]
fn a_text_goes_on_from_its_file() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("session_file");
    let _ = std::fs::remove_dir_all(&folder);
    let model = Tiny::new(Some(tokenizers::byte_level())).write(&folder.join("model"));
    let file = folder.join("talk.kfxs");
    let first = generate(&model, &file, "hello", 7);
    let second = generate(&model, &file, " and more", 7);
    // The second prompt is all that went before, the first answer too.
    let before = [ids(&first, "prompt_ids"), ids(&first, "ids")].concat();
    assert_eq!(ids(&second, "prompt_ids")[..before.len()], before);
    let third = generate(&model, &file, "x", 1);
    assert_eq!(ids(&third, "prompt_ids").len(), ids(&second, "prompt_ids").len() + 8);

    let mut bytes = std::fs::read(&file).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let refused = generate(&model, &file, "x", 1);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("talk.kfxs: checksum"), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
    assert!(!generate(&model, &folder, "x", 1).status.success(), "a directory");

    // One of a far larger context would be too long here, and the error says what may help.
    let long = folder.join("long.kfxs");
    std::fs::File::create(&long).unwrap().set_len(1 << 30).unwrap();
    let said = String::from_utf8(generate(&model, &long, "x", 1).stderr).unwrap();
    assert!(said.contains("long.kfxs: length: expected at most") && said.contains("(a larger -c may take it)"), "{said}");
}

/// `generate … | head -c 9`: what was told is in the file, and the next run goes on behind it.
#[cfg(unix)]
#[test]
fn a_turn_whose_reader_went_away_is_kept() {
    use std::io::Read;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("session_file_pipe");
    let _ = std::fs::remove_dir_all(&folder);
    let model = Tiny::new(Some(tokenizers::byte_level())).write(&folder.join("model"));
    let file = folder.join("talk.kfxs");
    let alone = ids(&generate(&model, &folder.join("other.kfxs"), "x", 1), "prompt_ids").len();
    for (echo, n) in [(false, 0), (false, 1), (true, 0)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kitfox"));
        command.args(["generate", "--device", "cpu", "--temp", "0", "--ignore-eos", "-c", "256", "-p", "hello", "-n", "200"]);
        command.arg("-m").arg(&model).arg("--session").arg(&file).args(echo.then_some("--echo"));
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 1][..n]).unwrap();
        drop(stdout);
        assert!(child.wait().unwrap().success(), "nobody reading is no failure");
        let before = ids(&generate(&model, &file, "x", 1), "prompt_ids").len();
        assert!(before > alone, "of {before} tokens {alone} are of the second prompt");
        std::fs::remove_file(&file).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "the model and the other session are left");
    }
}
