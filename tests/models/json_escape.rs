//! The escape rule of LongCrawl64: token for token with Python (tests/fixtures/json_escape/make.py), back again for every way to cut
//! the stream, and stated from `tokenizer_config.json` through GGUF to the tokenizer of a loaded model.
//!
//! `KITFOX_ESCAPE_FIXTURE=FOLDER` tests another folder that make.py wrote (`npm run evidence json_escape` does, with GPT-2's vocabulary).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::tiny::Tiny;
use crate::common::tokenizers;
use kitfox::format;
use kitfox::text::{TextStream, Tokenizer, Unescape, escape};
use pollster::block_on;
use proptest::prelude::*;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn fixture() -> PathBuf {
    let ours = || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/json_escape");
    std::env::var_os("KITFOX_ESCAPE_FIXTURE").map_or_else(ours, PathBuf::from)
}

fn cases(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(fixture().join("cases.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()[name].as_array().unwrap().clone()
}

/// A directory of its own in the official layout, with GPT-2's files for a tokenizer; `spoil` changes its configuration.
fn directory(name: &str, spoil: impl FnOnce(&mut Value)) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("json_escape").join(name);
    let mut tiny = Tiny::new(None);
    spoil(&mut tiny.config);
    tiny.write(&folder);
    for file in ["vocab.json", "merges.txt"] {
        std::fs::copy(fixture().join(file), folder.join(file)).unwrap();
    }
    folder
}

/// The tokenizer as a model gets it.
fn tokenizer_of(path: &Path) -> Tokenizer {
    let checkpoint = block_on(format::open(path)).unwrap();
    let json = checkpoint.tokenizer.as_ref().unwrap();
    Tokenizer::from_json("fixture", json).unwrap().with_json_escape(checkpoint.json_escaped_text().unwrap())
}

fn streamed(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut stream = TextStream::new(&[]).unwrap();
    let mut text: String = ids.iter().map(|&id| stream.push(tokenizer, id).unwrap().0).collect();
    text += &stream.finish(tokenizer).unwrap().0;
    text
}

fn unescaped(spelled: &str) -> String {
    let mut stream = Unescape::new();
    let mut bytes = stream.push(spelled.as_bytes());
    bytes.extend(stream.finish());
    String::from_utf8(bytes).unwrap()
}

#[test]
fn hard_text_has_pythons_tokens_and_comes_back() {
    let tokenizer = tokenizer_of(&directory("table", |config| config["json_escaped_text"] = true.into()));
    let (mut n_lines, mut n_tokens) = (0, 0);
    for case in cases("encode") {
        let text = case[0].as_str().unwrap();
        let ids: Vec<u32> = serde_json::from_value(case[1].clone()).unwrap();
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
        // A special token is no text, so the user's text that spells one is gone.
        let back = text.replace("<|endoftext|>", "");
        assert_eq!(tokenizer.decode(&ids).unwrap(), back);
        assert_eq!(streamed(&tokenizer, &ids), back);
        (n_lines, n_tokens) = (n_lines + 1, n_tokens + ids.len());
    }
    println!("{n_lines} lines, {n_tokens} tokens: all equal to Python's, all back");
}

#[test]
fn what_a_model_may_write_decodes_as_in_the_official_code() {
    for case in cases("decode") {
        assert_eq!(unescaped(case[0].as_str().unwrap()), case[1].as_str().unwrap(), "{}", case[0]);
    }
}

#[test]
fn our_own_answers_where_python_has_none() {
    let cases = [
        ("\\ud83d", "\u{fffd}"),
        ("\\ud83d\\ud83d\\ude00", "\u{fffd}😀"),
        ("\\ud83d x", "\u{fffd} x"),
        ("\\ud83d\\n", "\u{fffd}\n"),
        ("\\N{BULLET}", "\\N{BULLET}"),
        ("\\/\\q", "/\\q"),
        ("é\"\\u00e9", "é\"é"),
    ];
    for (spelled, expected) in cases {
        assert_eq!(unescaped(spelled), expected, "{spelled}");
    }
}

#[test]
fn only_an_open_escape_and_a_lone_high_surrogate_are_held_back() {
    let mut stream = Unescape::new();
    let pieces = ["ab\\", "u", "d83d", "\\ude", "00c", "\\u00", "e9", "\\ud83d", "x"];
    let out: Vec<_> = pieces.iter().map(|piece| String::from_utf8(stream.push(piece.as_bytes())).unwrap()).collect();
    assert_eq!(out, ["ab", "", "", "", "😀c", "", "é", "", "\u{fffd}x"]);
}

#[test]
fn stop_strings_are_matched_in_the_text_and_not_in_its_escapes() {
    let tokenizer = Tokenizer::from_json("bytes", &tokenizers::byte_level()).unwrap().with_json_escape(true);
    let ids = tokenizer.encode("say \"n\u{e9}\"\nBob: no").unwrap();
    let mut stream = TextStream::new(&["\nBob:".into(), "\\n".into()]).unwrap();
    let (mut text, mut stop) = (String::new(), None);
    for id in ids {
        let (piece, found) = stream.push(&tokenizer, id).unwrap();
        text += &piece;
        stop = stop.or(found);
    }
    assert_eq!((text.as_str(), stop), ("say \"né\"", Some(0)));
}

#[test]
fn the_rule_is_stated_by_the_config_the_tokenizer_class_or_the_command_and_kept_in_gguf() {
    let states = |path: &Path| block_on(format::open(path)).unwrap().json_escaped_text().unwrap();
    let plain = directory("plain", |_| {});
    assert!(!states(&plain));
    assert!(states(&directory("config", |config| config["json_escaped_text"] = true.into())));
    let class = directory("class", |_| {});
    std::fs::write(class.join("tokenizer_config.json"), r#"{ "tokenizer_class": "JSONGPT2Tokenizer" }"#).unwrap();
    assert!(states(&class));
    let denied = directory("denied", |config| config["json_escaped_text"] = false.into());
    std::fs::copy(class.join("tokenizer_config.json"), denied.join("tokenizer_config.json")).unwrap();
    assert!(!states(&denied), "config.json has the last word");
    let wrong = directory("wrong", |config| config["json_escaped_text"] = "yes".into());
    let error = block_on(format::open(&wrong)).unwrap().json_escaped_text().unwrap_err().to_string();
    assert!(error.contains("json_escaped_text") && error.contains("yes"), "{error}");

    // Of a vocabulary that fits the tiny model.
    let small = Tiny::new(Some(tokenizers::byte_level())).write(&plain.with_file_name("small"));
    let gguf = small.join("small.gguf");
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_kitfox")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let (small, out) = (small.to_str().unwrap(), gguf.to_str().unwrap());
    run(&["convert", small, "-o", out, "--quant", "f16", "--json-escaped"]);
    assert!(states(&gguf));
    run(&["convert", out, "-o", &format!("{out}.2"), "--quant", "q8_0"]);
    assert!(states(Path::new(&format!("{out}.2"))), "from GGUF to GGUF");
    let summary: Value =
        serde_json::from_str(&run(&["generate", "-m", out, "--device", "cpu", "-p", "a\n", "-n", "0", "--json"])).unwrap();
    assert_eq!(summary["prompt_ids"], serde_json::json!([256, 97, 92, 110]));
}

/// Text that has everything: ASCII, what must be escaped, any character.
fn any_text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "[ -~]{0,4}",
        "[\"\\\\/bnu0-9a-f]{0,6}",
        proptest::collection::vec(any::<char>(), 0..4).prop_map(String::from_iter)
    ];
    proptest::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

/// What a model may write: escapes whole, nearly whole, and pieces of them.
fn nearly_escaped() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "[a-f0-9u\\\\x\"n/é😀\n]{0,3}",
        Just("\\ud83d".to_owned()),
        Just("\\ude00".to_owned()),
        Just("\\u00e9".to_owned()),
        Just("\\U0001f600".to_owned()),
        any_text().prop_map(|text| escape(&text)),
    ];
    proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_text_through_tokens_comes_back(text in any_text()) {
        let tokenizer = Tokenizer::from_json("bytes", &tokenizers::byte_level()).unwrap().with_json_escape(true);
        let ids = tokenizer.encode(&text).unwrap();
        prop_assert_eq!(tokenizer.decode(&ids).unwrap(), text.clone());
        prop_assert_eq!(streamed(&tokenizer, &ids), text);
    }

    #[test]
    fn escaped_text_is_ascii_and_is_what_json_reads(text in any_text()) {
        let escaped = escape(&text);
        prop_assert!(escaped.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        prop_assert_eq!(serde_json::from_str::<String>(&format!("\"{escaped}\"")).unwrap(), text);
    }

    #[test]
    fn what_json_reads_is_read_the_same(spelled in nearly_escaped()) {
        if let Ok(text) = serde_json::from_str::<String>(&format!("\"{spelled}\"")) {
            prop_assert_eq!(unescaped(&spelled), text);
        }
    }

    #[test]
    fn the_pieces_of_any_cut_are_those_of_the_whole(spelled in nearly_escaped(), cuts in proptest::collection::vec(any::<usize>(), 0..12)) {
        let mut ends: Vec<_> = cuts.iter().map(|cut| cut % (spelled.len() + 1)).collect();
        ends.push(spelled.len());
        ends.sort_unstable();
        let (mut stream, mut bytes, mut start) = (Unescape::new(), Vec::new(), 0);
        for end in ends {
            bytes.extend(stream.push(&spelled.as_bytes()[start..end]));
            start = end;
        }
        bytes.extend(stream.finish());
        prop_assert_eq!(String::from_utf8(bytes).unwrap(), unescaped(&spelled));
    }

    #[test]
    fn any_ids_stream_as_they_decode(ids in proptest::collection::vec(0..270u32, 0..24), escapes in nearly_escaped()) {
        let tokenizer = Tokenizer::from_json("bytes", &tokenizers::byte_level()).unwrap().with_json_escape(true);
        let ids: Vec<u32> = ids.into_iter().chain(escapes.bytes().map(u32::from)).collect();
        prop_assert_eq!(streamed(&tokenizer, &ids), tokenizer.decode(&ids).unwrap());
    }
}
