//! Small tokenizers, as the text of their `tokenizer.json`.

use serde_json::{Value, json};

/// GPT-2's spelling of a byte.
fn spelled(byte: u8) -> char {
    let printable = |byte: u8| (b'!'..=b'~').contains(&byte) || (0xa1..=0xac).contains(&byte) || byte >= 0xae;
    if printable(byte) {
        return char::from(byte);
    }
    let n_before = (0..byte).filter(|&other| !printable(other)).count();
    ('\u{100}'..).nth(n_before).unwrap_or(' ')
}

fn file(vocab: Value, merges: Value, decoder: Value, pre_tokenizer: Value, byte_fallback: bool) -> String {
    let added = json!([
        { "id": 256, "content": "<|end|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true },
        { "id": 257, "content": "<plain one>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false }
    ]);
    let model = json!({ "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": byte_fallback, "ignore_merges": false,
        "vocab": vocab, "merges": merges });
    let truncation = json!({ "direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0 });
    json!({ "version": "1.0", "truncation": truncation, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": decoder, "model": model })
    .to_string()
}

/// A byte-level vocabulary of these tokens, ids in their order; no text is encoded with it.
pub fn byte_level_of(tokens: &[Vec<u8>]) -> String {
    let spell = |token: &Vec<u8>| token.iter().copied().map(spelled).collect::<String>();
    let vocab: serde_json::Map<String, Value> = tokens.iter().enumerate().map(|(id, token)| (spell(token), json!(id))).collect();
    let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    json!({ "version": "1.0", "added_tokens": [], "decoder": byte_level, "model": { "type": "BPE", "vocab": vocab, "merges": [] } })
        .to_string()
}

/// Id = byte, plus `<|end|>` = 256 (special), `<plain one>` = 257, and four longer tokens.
pub fn byte_level() -> String {
    let mut vocab: serde_json::Map<String, Value> = (0..=255u8).map(|byte| (spelled(byte).to_string(), json!(byte))).collect();
    vocab.extend([("<|end|>".into(), json!(256)), ("<plain one>".into(), json!(257))]);
    let merges = json!([["Ġ", "a"], ["h", "e"], ["l", "l"], ["he", "ll"]]);
    vocab.extend([("Ġa".into(), json!(258)), ("he".into(), json!(259)), ("ll".into(), json!(260)), ("hell".into(), json!(261))]);
    let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    file(vocab.into(), merges, byte_level.clone(), byte_level, false)
}

/// As Llama's: `▁` for a space, `<0xE2>` for bytes; ids 0-255 are the bytes.
pub fn byte_fallback() -> String {
    let mut vocab: serde_json::Map<String, Value> = (0..=255u8).map(|byte| (format!("<0x{byte:02X}>"), json!(byte))).collect();
    vocab.extend([("<|end|>".into(), json!(256)), ("<plain one>".into(), json!(257))]);
    for (id, token) in ["▁", "a", "b", "▁a", "▁b", "é", "日"].iter().enumerate() {
        vocab.insert((*token).to_owned(), json!(258 + id));
    }
    let merges = json!([["▁", "a"], ["▁", "b"]]);
    let decoder = json!({ "type": "Sequence", "decoders": [
        { "type": "Replace", "pattern": { "String": "▁" }, "content": " " }, { "type": "ByteFallback" }, { "type": "Fuse" },
        { "type": "Strip", "content": " ", "start": 1, "stop": 0 } ] });
    let metaspace = json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false });
    file(vocab.into(), merges, decoder, metaspace, true)
}
