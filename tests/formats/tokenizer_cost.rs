//! What a tokenizer.json makes of a long text: the worst files that anyone thought of, each with the text made for it. A file is refused by
//! name, or takes no more than it may. What grows by the square of a text's length shows at 100 KB.

use crate::hostile_input::seeds;
use cpu_time::ThreadTime;
use kitfox::text::Tokenizer;
use serde_json::{Map, Value, json};

/// Bytes of a text, about.
const LENGTH: usize = 100_000;
/// Time of a thread for a byte: twice what is estimated at most (`MAX_NS` of src/text/tokenizer_file.rs), as machines differ.
const MOST_NS: f64 = 12_000.0;
/// Memory for a byte of what the steps make of a text, as SECURITY.md says: about 120, where each character is a part of its own 400.
const MOST_BYTES: usize = 400;

fn file(model: &Value, steps: &[(&str, Value)], added: &Value) -> String {
    let mut file = json!({ "version": "1.0", "model": model, "added_tokens": added });
    steps.iter().for_each(|(key, step)| file[key] = step.clone());
    file.to_string()
}

fn words() -> (&'static str, Value) {
    ("pre_tokenizer", json!({ "type": "WhitespaceSplit" }))
}

fn word_piece(most: usize, prefix: &str, unknown: &str) -> String {
    let vocab = json!({ "a": 0, format!("{prefix}a"): 1, unknown: 2 });
    let model = json!({ "type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": prefix, "max_input_chars_per_word": most,
        "vocab": vocab });
    file(&model, &[words()], &json!([]))
}

fn unigram(lengths: impl Iterator<Item = usize>, steps: &[(&str, Value)]) -> String {
    let vocab: Vec<Value> = [1].into_iter().chain(lengths).map(|n| json!(["a".repeat(n), -1.0])).collect();
    file(&json!({ "type": "Unigram", "unk_id": 0, "vocab": vocab }), steps, &json!([]))
}

/// A BPE of these tokens beside `a`, these merges and options.
fn bpe(tokens: &[String], merges: &[(String, String)], options: &[(&str, Value)], steps: &[(&str, Value)]) -> String {
    let all = ["a".to_owned()].into_iter().chain(tokens.iter().cloned());
    let vocab: Map<String, Value> = all.enumerate().map(|(id, token)| (token, json!(id))).collect();
    let mut model = json!({ "type": "BPE", "vocab": vocab, "merges": merges });
    options.iter().for_each(|(key, value)| model[key] = value.clone());
    file(&model, steps, &json!([]))
}

fn with_added(tokens: &[(&str, &str)], normalizer: Value) -> String {
    let token = |(ix, (content, flags)): (usize, &(&str, &str))| {
        let mut token = json!({ "id": ix + 1, "content": content, "special": false });
        for flag in ["single_word", "lstrip", "rstrip", "normalized"] {
            token[flag] = json!(flags.contains(flag));
        }
        token
    };
    let added: Vec<Value> = tokens.iter().enumerate().map(token).collect();
    file(&json!({ "type": "BPE", "vocab": { "z": 0 }, "merges": [] }), &[("normalizer", normalizer)], &json!(added))
}

fn replace(pattern: &str, content: &str) -> Value {
    json!({ "type": "Replace", "pattern": { "String": pattern }, "content": content })
}

fn in_row(key: &'static str, steps: &str, step: &Value, n: usize) -> (&'static str, Value) {
    (key, json!({ "type": "Sequence", steps: vec![step; n] }))
}

fn filled(part: &str) -> String {
    part.repeat(LENGTH / part.len())
}

fn refused(text: &str, words: &[&str]) {
    let said = Tokenizer::from_json("file", text).map(drop).unwrap_err().to_string();
    assert!(said.starts_with("file: ") && words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
}

/// Tokenizes a text, and holds time and memory to what they may be; `growth`: how many times as long the steps make the text.
fn within(name: &str, file: &str, text: &str, growth: usize) {
    let tokenizer = Tokenizer::from_json(name, file).unwrap();
    // Tables that a first text makes are no text's cost.
    drop(tokenizer.encode("a 1"));
    let started = ThreadTime::now();
    let mut n_ids = 0;
    let memory = allocation_counter::measure(|| n_ids = tokenizer.encode(text).map_or(0, |ids| ids.len()));
    let ns = started.elapsed().as_nanos() as f64 / text.len() as f64;
    let bytes = memory.bytes_max as usize / text.len();
    println!("{name}, {} KB: {ns:.0} ns and {bytes} bytes for each, {n_ids} ids", file.len().div_ceil(1000));
    assert!(ns < MOST_NS, "{name}: {ns:.0} ns for a byte of a text of {} KB", text.len() / 1000);
    assert!(bytes <= MOST_BYTES * growth, "{name}: {bytes} bytes for a byte of a text, {growth} times as long");
}

#[test]
fn words_of_word_piece_take_what_they_may() {
    refused(&word_piece(101, "##", "u"), &["model.max_input_chars_per_word", "at most 100", "101"]);
    refused(&word_piece(100, &"#".repeat(17), "u"), &["model.continuing_subword_prefix", "at most 16 bytes", "17"]);
    refused(&word_piece(100, &"#".repeat(1 << 19), "u"), &["model.continuing_subword_prefix", "524288"]);
    refused(&word_piece(100, "##", &"u".repeat(1 << 20)), &["model.unk_token", "at most 32 bytes", "1048576"]);
    let level = json!({ "type": "WordLevel", "unk_token": "u".repeat(33), "vocab": { "u".repeat(33): 0 } });
    refused(&file(&level, &[words()], &json!([])), &["model.unk_token", "at most 32 bytes", "33"]);
    let worst = word_piece(100, &"#".repeat(16), &"u".repeat(32));
    for part in ["a".repeat(100) + " ", "a".repeat(99) + "b ", "é".repeat(100) + " ", "a".repeat(999) + " ", "b ".to_owned()] {
        within(&format!("WordPiece, {part:.4}… of {}", part.len()), &worst, &filled(&part), 1);
    }
    let wide = json!({ "type": "Replace", "pattern": { "String": "b" }, "content": "aa" });
    let text = word_piece(100, "##", "u").replace("\"pre_tokenizer\"", &format!("\"normalizer\":{wide},\"pre_tokenizer\""));
    refused(&text, &["model, and the steps before it", "at most 6000 ns"]);
}

#[test]
fn tokens_of_unigram_that_begin_one_another_take_what_they_may() {
    let of = |lengths: std::ops::RangeInclusive<usize>| unigram(lengths, &[]);
    refused(&of(129..=129), &["model.vocab", "at most 128 bytes", "129"]);
    refused(&of(2..=33), &["model.vocab", "at most 32 tokens of Unigram that begin one another", "33 at"]);
    refused(&unigram((2..=16).chain(800..1000), &[]), &["model.vocab", "at most 128 bytes"]);
    let grows = [("normalizer", replace("a", "aa"))];
    refused(&unigram(97..=127, &grows), &["model, and the steps before it", "at most 6000 ns"]);
    // As many in all as a large vocabulary has, no more than 32 of them nested.
    for (name, text) in [("2 to 16", of(2..=16)), ("98 to 128", of(98..=128)), ("128", of(128..=128))] {
        within(&format!("Unigram of a and {name}"), &text, &filled("a"), 1);
    }
    let metaspace = json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true });
    within("Unigram as T5's", &unigram(2..=16, &[("pre_tokenizer", metaspace)]), &filled("aaaa a "), 2);
}

#[test]
fn merges_of_bpe_take_what_they_may() {
    let repeated = |n: usize| "a".repeat(n);
    let doubled: Vec<(String, String)> = (0..16).map(|ix| (repeated(1 << ix), repeated(1 << ix))).collect();
    let chain: Vec<(String, String)> = (1..1000).rev().map(|n| (repeated(n), "a".to_owned())).collect();
    let unions = |merges: &[(String, String)]| merges.iter().map(|(a, b)| a.clone() + b).collect::<Vec<_>>();
    for (name, merges) in [("doubled", &doubled), ("a chain of 1,000", &chain)] {
        within(&format!("BPE, {name}"), &bpe(&unions(merges), merges, &[], &[]), &filled("a"), 1);
    }
    for key in ["continuing_subword_prefix", "end_of_word_suffix"] {
        for n in [17, 1 << 19] {
            refused(
                &bpe(&[], &[], &[(key, json!("#".repeat(n)))], &[]),
                &[&format!("model.{key}"), "at most 16 bytes", &n.to_string()],
            );
        }
        let both = [(key, json!("#")), ("byte_fallback", json!(true))];
        refused(&bpe(&[], &[], &both, &[]), &["model.byte_fallback", "without prefixes and suffixes"]);
        within(&format!("BPE, {key}"), &bpe(&[], &[], &[(key, json!("#".repeat(16)))], &[words()]), &filled("a b "), 1);
    }
    let unknown = |n: usize| bpe(&["u".repeat(n)], &[], &[("unk_token", json!("u".repeat(n)))], &[]);
    refused(&unknown(1 << 20), &["model.unk_token", "at most 32 bytes", "1048576"]);
    within("BPE, unknown", &unknown(32), &filled("b"), 1);
    let bytes: Vec<String> = (0..=255u8).map(|byte| format!("<0x{byte:02X}>")).collect();
    within("BPE, bytes", &bpe(&bytes, &[], &[("byte_fallback", json!(true))], &[]), &filled("é"), 1);
}

#[test]
fn added_tokens_take_what_they_may() {
    let none = || json!(null);
    for flags in ["lstrip", "rstrip", "lstrip rstrip", "lstrip normalized", "single_word rstrip"] {
        for token in [" ", "\n \t", "\u{3000}"] {
            refused(&with_added(&[(token, flags)], none()), &["added token 1", "more than white space"]);
        }
        within(&format!("added a, {flags}"), &with_added(&[("a", flags)], none()), &filled("a"), 1);
        within(&format!("added a and spaces, {flags}"), &with_added(&[("a", flags), (" ", "")], none()), &filled("   a "), 1);
        within(&format!("added a at an end, {flags}"), &with_added(&[("a", flags)], none()), &(filled(" ") + "a"), 1);
    }
    // What it is looked for as is white space.
    refused(&with_added(&[("x", "rstrip normalized")], replace("x", " ")), &["added token 1", "more than white space"]);
    refused(&with_added(&[("x", "lstrip normalized")], replace("x", "")), &["added token 1", "more than white space"]);
    let nested: Vec<String> = (1..700).map(|n| "a".repeat(n)).collect();
    let all: Vec<(&str, &str)> = nested.iter().map(|token| (token.as_str(), "single_word lstrip rstrip normalized")).collect();
    within("added, nested", &with_added(&all, none()), &filled(&("a".repeat(699) + "b")), 1);
    within("added, nested, with spaces", &with_added(&all, none()), &filled(&("a".repeat(699) + " ")), 1);
}

#[test]
fn steps_take_what_they_may() {
    let plain = |steps: &[(&'static str, Value)]| bpe(&[], &[], &[], steps);
    for n in [1025, 4097] {
        let long = "a".repeat(n - 1) + "b";
        refused(&plain(&[("normalizer", replace(&long, "c"))]), &["normalizer: pattern", "at most 1024 bytes", &n.to_string()]);
    }
    within("a text of 1,024", &plain(&[("normalizer", replace(&("a".repeat(1023) + "b"), "c"))]), &filled("a"), 1);
    for n in [19, 63] {
        refused(&plain(&[("normalizer", replace("a", &"a".repeat(n)))]), &["6000 ns for a byte"]);
    }
    within("10 times as long", &plain(&[("normalizer", replace("a", &"a".repeat(9)))]), &filled("a"), 9);
    let split = |regex: &str| json!({ "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated", "invert": false });
    let bert = json!({ "type": "BertPreTokenizer" });
    for step in
        [&bert, &json!({ "type": "Whitespace" }), &split("a"), &split(".|\n"), &json!({ "type": "FixedLength", "length": 1 })]
    {
        let many = |n: usize| plain(&[in_row("pre_tokenizer", "pretokenizers", step, n)]);
        refused(&many(21), &["at most 6000 ns"]);
        for part in ["a", "1, ", "a "] {
            within(&format!("14 of {step:.40}"), &many(14), &filled(part), 1);
        }
    }
    for step in [json!({ "type": "NFKC" }), json!({ "type": "Lowercase" })] {
        refused(&plain(&[in_row("normalizer", "normalizers", &step, 61)]), &["normalizer", "at most 6000 ns"]);
        within(&format!("50 of {step:.40}"), &plain(&[in_row("normalizer", "normalizers", &step, 50)]), &filled("a"), 1);
    }
    refused(&plain(&[in_row("decoder", "decoders", &replace("b", "a"), 61)]), &["decoder"]);
}

/// What is tried elsewhere with short texts.
#[test]
fn tokenizers_of_the_corpus_take_what_they_may() {
    for (name, bytes) in seeds::tokenizer() {
        let text = String::from_utf8(bytes).unwrap();
        if !text.contains('\u{0}') {
            for part in ["a", " ", "ab 1, é\n"] {
                within(name, &text, &filled(part), 6);
            }
        }
    }
}
