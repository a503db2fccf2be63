//! What the steps of a tokenizer.json and the numbers of its model may cost: a file of a few bytes names expressions, chains and lengths.

use crate::hostile_input::{Cost, target};
use kitfox::text::Tokenizer;
use serde_json::{Value, json};

fn file(steps: &[(&str, Value)]) -> String {
    let mut file =
        json!({ "version": "1.0", "model": { "type": "BPE", "vocab": { "a": 0, "b": 1, "ab": 2 }, "merges": ["a b"] } });
    steps.iter().for_each(|(key, step)| file[key] = step.clone());
    file.to_string()
}

/// As the mutations try it: a result or an error within two seconds of the thread and 64 MB.
fn tried(text: &str) -> Cost {
    target("tokenizer").measured(text.as_bytes())
}

fn refused(text: &str, words: &[&str]) {
    assert!(!tried(text).accepted, "{text:.200}");
    let said = Tokenizer::from_json("file", text).map(drop).unwrap_err().to_string();
    assert!(said.starts_with("file: ") && words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
}

fn split(regex: &str) -> Value {
    json!({ "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated", "invert": false })
}

fn replace(pattern: &str, content: &str) -> Value {
    json!({ "type": "Replace", "pattern": { "String": pattern }, "content": content })
}

fn in_row(key: &str, steps: Vec<Value>) -> Value {
    json!({ "type": "Sequence", key: steps })
}

const LLAMA_3: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// LLaMA 4's, too, and nearly Mistral's.
const GPT_4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

#[test]
fn expressions_without_an_end_are_refused_by_name() {
    for regex in
        [r"(?=(?:a|a){18}c)b|.", "(?:a|aa)+(?!b)|.", "a*b|a", r"(a+)\1|.", r"\w{200}", r"\w{2000}", "(?:a|b)*a(?:a|b){20}"]
    {
        refused(&file(&[("pre_tokenizer", split(regex))]), &["pre_tokenizer: pattern", "expression"]);
        let replace = json!({ "type": "Replace", "pattern": { "Regex": regex }, "content": "" });
        refused(&file(&[("decoder", in_row("decoders", vec![replace.clone()]))]), &["decoder: pattern", "expression"]);
        // Of a normalizer's it is tried whether they take a character: not before it is known that they end.
        refused(&file(&[("normalizer", replace.clone())]), &["normalizer: pattern", "expression"]);
        refused(&file(&[("normalizer", in_row("normalizers", vec![replace; 200]))]), &["normalizer: pattern", "expression"]);
    }
    let many = |n: usize, regex: &str| file(&[("pre_tokenizer", in_row("pretokenizers", vec![split(regex); n]))]);
    refused(&many(3, r"\w{50}"), &["pre_tokenizer: pattern", "65536 ranges"]);
    refused(&many(40, "a"), &["pre_tokenizer: pattern", "32 patterns"]);
    refused(&many(9, &"ab".repeat(500)), &["pre_tokenizer: pattern", "expression"]);
    refused(&many(20, &"[a-z]|[0-9]|".repeat(36)), &["pre_tokenizer: pattern", "8192 bytes"]);
    // Reading them is no work without an end, either.
    for part in [r"\W\pL", r"[\w--\pL&&\PN]", "(?:a|", "[[["] {
        refused(&many(1, &format!("(?i){}", part.repeat(4090 / part.len()))), &["pre_tokenizer: pattern", "expression"]);
    }
    refused(&file(&[("normalizer", in_row("normalizers", vec![json!({ "type": "NFC" }); 200]))]), &["normalizer", "128 steps"]);
    // And what is allowed is within the bounds, all of it at once.
    for (n, regex) in [(1, r"\w{60}"), (5, LLAMA_3), (14, "a")] {
        let cost = tried(&many(n, regex));
        println!("{n} times {regex:.20}: {:?}, {} KB", cost.cpu, cost.peak_bytes >> 10);
        assert!(cost.accepted, "{n} times {regex}");
    }
}

#[test]
fn steps_that_make_a_text_grow_without_an_end_are_refused_by_name() {
    let ten = || replace("a", &"a".repeat(10));
    for (key, steps) in [("normalizer", "normalizers"), ("decoder", "decoders")] {
        refused(&file(&[(key, in_row(steps, vec![ten(); 9]))]), &[key, "at most 64 times as long"]);
        let there_and_back = [replace("a", "bb"), replace("b", "aa")].into_iter().cycle().take(8).collect();
        refused(&file(&[(key, in_row(steps, there_and_back))]), &[key, "at most 64 times as long"]);
    }
    let hidden = vec![replace("b", &"A".repeat(9)), json!({ "type": "Lowercase" }), replace("a", &"b".repeat(9))];
    refused(&file(&[("normalizer", in_row("normalizers", hidden))]), &["normalizer", "at most 64 times as long"]);
    let prepend = json!({ "type": "Prepend", "prepend": "a".repeat(100) });
    refused(&file(&[("normalizer", prepend)]), &["normalizer", "at most 64 times as long"]);
    let bytes = json!({ "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": false });
    refused(&file(&[("pre_tokenizer", in_row("pretokenizers", vec![bytes; 9]))]), &["pre_tokenizer", "at most 64 times"]);
    // Nothing is found between any two characters.
    let nothing = json!({ "type": "Replace", "pattern": { "Regex": "q*" }, "content": "aa" });
    refused(&file(&[("decoder", in_row("decoders", vec![nothing; 4]))]), &["decoder", "at most 64 times"]);
    let suffix = json!({ "type": "BPEDecoder", "suffix": "" });
    refused(&file(&[("decoder", in_row("decoders", vec![suffix; 9]))]), &["decoder", "at most 64 times"]);
}

#[test]
fn numbers_of_a_model_that_cost_without_an_end_are_refused_by_name() {
    let of = |model: Value| json!({ "version": "1.0", "model": model }).to_string();
    let word_piece = |most: u64| {
        of(json!({ "type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "", "max_input_chars_per_word": most,
            "vocab": { "a": 0, "aa": 1 } }))
    };
    assert!(tried(&word_piece(100)).accepted);
    refused(&word_piece(101), &["model.max_input_chars_per_word", "at most 100", "101"]);
    let unigram = |n: usize| of(json!({ "type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0], ["a".repeat(n), -1.0]] }));
    assert!(tried(&unigram(128)).accepted);
    refused(&unigram(129), &["model.vocab", "at most 128 bytes", "129"]);
    // A text has one spelling.
    let bpe = |dropout: Value| of(json!({ "type": "BPE", "dropout": dropout, "vocab": { "a": 0 }, "merges": [] }));
    assert!(tried(&bpe(json!(null))).accepted && tried(&bpe(json!(0.0))).accepted);
    refused(&bpe(json!(0.1)), &["model.dropout", "null or 0", "0.1"]);
}

/// Nothing comes of no ids, of special ones, of ones past the vocabulary: also where a decoder looks back from the last token. Arithmetic is not
/// checked here; fuzzing checks it, with this file among its first.
#[test]
fn no_token_has_no_text_whatever_the_decoder() {
    let added = json!([{ "id": 3, "content": "<s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false }]);
    let decoders = [
        json!({ "type": "BPEDecoder", "suffix": "</w>" }),
        json!({ "type": "ByteFallback" }),
        json!({ "type": "Fuse" }),
        json!(null),
    ];
    for decoder in decoders {
        let text = file(&[("decoder", decoder), ("added_tokens", added.clone())]);
        let tokenizer = Tokenizer::from_json("file", &text).unwrap();
        for ids in [&[][..], &[3], &[99, u32::MAX], &[3, 99]] {
            assert_eq!(tokenizer.decode(ids).unwrap(), "", "{ids:?}");
        }
        assert_eq!(tokenizer.decode(&[3, 2]).unwrap(), "ab");
    }
    let ctc = json!({ "type": "CTC", "pad_token": "a", "word_delimiter_token": "b", "cleanup": true });
    refused(
        &file(&[("decoder", in_row("decoders", vec![ctc, json!({ "type": "BPEDecoder", "suffix": "</w>" })]))]),
        &["decoder: type", "CTC"],
    );
}

/// The steps of published tokenizers, as their files say them.
#[test]
fn the_steps_of_published_tokenizers_are_run() {
    let bytes = |prefix: bool, regex: bool| json!({ "type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": regex });
    let steps = |list: &[&Value]| list.iter().map(|step| (*step).clone()).collect::<Vec<_>>();
    let space = replace(" ", "▁");
    let pieces = [&replace("▁", " "), &json!({ "type": "ByteFallback" }), &json!({ "type": "Fuse" })];
    let strip = json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 });
    let metaspace = json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true });
    let digits = json!({ "type": "Digits", "individual_digits": true });
    let nfkc = json!({ "type": "NFKC" });
    let spaces = json!({ "type": "Replace", "pattern": { "Regex": "\\s+" }, "content": " " });
    let deepseek = [
        r"\p{N}{1,3}",
        r"[一-龥぀-ゟ゠-ヿ]+",
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
    ];
    let lower = json!({ "type": "Lowercase" });
    #[rustfmt::skip]
    let published = [
        ("GPT-2", vec![("pre_tokenizer", bytes(true, true)), ("decoder", bytes(true, true))]),
        ("LLaMA 2", vec![
            ("normalizer", in_row("normalizers", steps(&[&json!({ "type": "Prepend", "prepend": "▁" }), &space]))),
            ("decoder", in_row("decoders", steps(&[pieces[0], pieces[1], pieces[2], &strip])))]),
        ("LLaMA 3", vec![("pre_tokenizer", in_row("pretokenizers", vec![split(LLAMA_3), bytes(false, false)])), ("decoder", bytes(true, true))]),
        ("Qwen 2", vec![("normalizer", json!({ "type": "NFC" })), ("pre_tokenizer", in_row("pretokenizers", vec![split(&LLAMA_3.replace("{1,3}", "")), bytes(false, false)]))]),
        ("GPT-4o", vec![("pre_tokenizer", in_row("pretokenizers", vec![split(GPT_4O), bytes(false, false)])), ("decoder", bytes(true, true))]),
        ("Gemma", vec![("normalizer", space.clone()), ("pre_tokenizer", json!({ "type": "Split", "pattern": { "String": " " }, "behavior": "MergedWithPrevious", "invert": false })), ("decoder", in_row("decoders", steps(&pieces)))]),
        ("DeepSeek", vec![("pre_tokenizer", in_row("pretokenizers", deepseek.map(split).into_iter().chain([bytes(false, false)]).collect()))]),
        ("Falcon", vec![("pre_tokenizer", in_row("pretokenizers", vec![json!({ "type": "Punctuation", "behavior": "Contiguous" }), bytes(false, true), digits, split("[0-9][0-9][0-9]")]))]),
        ("CLIP", vec![("normalizer", in_row("normalizers", steps(&[&json!({ "type": "NFC" }), &spaces, &lower]))), ("decoder", json!({ "type": "BPEDecoder", "suffix": "</w>" }))]),
        ("as T5's and XLNet's", vec![("normalizer", in_row("normalizers", steps(&[&replace("``", "\""), &replace("''", "\""), &nfkc, &lower]))), ("pre_tokenizer", in_row("pretokenizers", steps(&[&json!({ "type": "WhitespaceSplit" }), &metaspace]))), ("decoder", metaspace.clone())]),
        ("as of code", vec![("normalizer", in_row("normalizers", steps(&[&replace("\n", "<n>"), &replace("\t", "<|tab|>"), &space])))]),
        ("BERT", vec![("normalizer", json!({ "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true })), ("pre_tokenizer", json!({ "type": "BertPreTokenizer" })), ("decoder", json!({ "type": "WordPiece", "prefix": "##", "cleanup": true }))]),
    ];
    for (name, steps) in published {
        let text = file(&steps);
        Tokenizer::from_json(name, &text).map(drop).unwrap();
        assert!(tried(&text).accepted, "{name}");
    }
}
