//! Hugging Face directories: shards, indices and tokenizers, whole and broken.

use crate::tiny::{CONFIG, SHAPES, TOKENIZER, all_bits, checkpoint_of, error_of, official, weights};
use kitfox::format::gpt2::{self, Files, Text};
use kitfox::format::hugging_face::Index;
use kitfox::format::{self, BytesSource, Source};
use pollster::block_on;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;

#[test]
fn shards_are_joined_and_the_index_is_held_to() {
    let whole = weights(Dtype::F32, |_, _| ());
    let tensors = SafeTensors::deserialize(&whole).unwrap();
    let shard = |first: bool| {
        let views = tensors.tensors().into_iter().filter(|(name, _)| name.contains("layers") == first);
        safetensors::serialize(views, None).unwrap()
    };
    let file_of = |name: &str| if name.contains("layers") { "a.safetensors" } else { "b.safetensors" };
    let mut map: BTreeMap<&str, &str> = SHAPES.iter().map(|(name, _)| (*name, file_of(name))).collect();
    let index = |map: &BTreeMap<&str, &str>| Index::parse("index", &serde_json::json!({ "weight_map": map }).to_string());
    let load = |index: Index| {
        assert_eq!(index.shards(), ["a.safetensors", "b.safetensors"]);
        let files: [Box<dyn Source>; 2] =
            [Box::new(BytesSource::new("a", shard(true))), Box::new(BytesSource::new("b", shard(false)))];
        checkpoint_of(files.into(), Some(index))
    };
    let mut joined = load(index(&map).unwrap()).unwrap();
    assert_eq!(all_bits(&mut joined), all_bits(&mut official(Dtype::F32)));
    map.insert("lm_head.weight", "a.safetensors");
    assert!(
        error_of(load(index(&map).unwrap())).contains("tensor lm_head.weight: expected in a.safetensors, got in b.safetensors")
    );
    map.insert("lm_head.weight", "b.safetensors");
    map.insert("other", "b.safetensors");
    assert!(error_of(load(index(&map).unwrap())).contains("tensor other"));
    map.remove("other");
    // A tensor in two shards, a shard too few, a tensor that is listed twice.
    let both = |files: Vec<Vec<u8>>| {
        let sources =
            files.into_iter().zip(["a", "b"]).map(|(bytes, name)| Box::new(BytesSource::new(name, bytes)) as Box<dyn Source>);
        error_of(checkpoint_of(sources.collect(), Some(index(&map).unwrap())))
    };
    let error = both(vec![whole.clone(), shard(false)]);
    assert!(error.starts_with("index: tensor ") && error.contains("got in a.safetensors and b.safetensors"), "{error}");
    let error = both(vec![shard(true)]);
    assert!(error.contains("index: weight_map: expected the files a.safetensors, b.safetensors, got 1 files"), "{error}");
    let twice = r#"{"weight_map": {"lm_head.weight": "a.safetensors", "lm_head.weight": "b.safetensors"}}"#;
    assert!(
        error_of(Index::parse("index", twice)).contains("index: index: expected a JSON object, got the key \"lm_head.weight\"")
    );
    map.insert("other", "../b.safetensors");
    assert!(error_of(index(&map)).contains("other: expected the name of a .safetensors file"));
    assert!(error_of(Index::parse("index", "{}")).contains("weight_map"));
}

#[test]
fn directories_and_files_open_or_say_what_is_missing() {
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("formats_open");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let open = |path: &std::path::Path| block_on(format::open(path));
    assert!(error_of(open(&dir.join("none.gguf"))).contains("none.gguf: open failed"));
    assert!(error_of(open(&dir)).contains("no config.json in it"));
    std::fs::write(dir.join("config.json"), "[1]").unwrap();
    assert!(error_of(open(&dir)).contains("neither"));
    let bytes = weights(Dtype::F32, |_, _| ());
    std::fs::write(dir.join("model.safetensors"), &bytes).unwrap();
    assert!(error_of(open(&dir)).contains("config.json: config: expected a JSON object"));
    assert!(error_of(open(&dir.join("model.safetensors"))).contains("magic"));
    std::fs::write(dir.join("config.json"), CONFIG).unwrap();
    std::fs::write(dir.join("vocab.json"), r#"{"a": 0, "b": 1, "ab": 2, "Ġ": 3, "<|endoftext|>": 4}"#).unwrap();
    assert!(error_of(open(&dir)).contains("merges.txt: open failed"));
    std::fs::write(dir.join("merges.txt"), "#version: 0.2\na b\n").unwrap();
    let mut checkpoint = open(&dir).unwrap();
    assert_eq!(checkpoint.name, "formats_open");
    assert!(checkpoint.tokenizer_file.ends_with("vocab.json"));
    assert_eq!(all_bits(&mut checkpoint), all_bits(&mut official(Dtype::F32)));
    let tokenizer: tokenizers::Tokenizer = checkpoint.tokenizer.unwrap().parse().unwrap();
    assert_eq!(tokenizer.encode("ab a<|endoftext|>", false).unwrap().get_ids(), [2, 3, 0, 4]);
    std::fs::write(dir.join("added_tokens.json"), r#"{"<x>": 9}"#).unwrap();
    let tokenizer: tokenizers::Tokenizer = open(&dir).unwrap().tokenizer.unwrap().parse().unwrap();
    assert_eq!(tokenizer.encode("a<x>", false).unwrap().get_ids(), [0, 9]);
    std::fs::write(dir.join("special_tokens_map.json"), r#"{"pad_token": "<pad>"}"#).unwrap();
    let error = error_of(open(&dir));
    assert!(error.contains("special_tokens_map.json: pad_token: ") && error.contains("got \"<pad>\""), "{error}");
    std::fs::write(dir.join("tokenizer.json"), TOKENIZER).unwrap();
    assert_eq!(open(&dir).unwrap().tokenizer.as_deref(), Some(TOKENIZER));
    // An index, and a shard that is not there.
    std::fs::remove_file(dir.join("model.safetensors")).unwrap();
    let index = r#"{"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}"#;
    std::fs::write(dir.join("model.safetensors.index.json"), index).unwrap();
    let error = error_of(open(&dir));
    assert!(error.contains("index.json: weight_map: expected model-00002-of-00002.safetensors beside it"), "{error}");
}

const VOCAB: &str = r#"{"a": 0, "b": 1, "ab": 2, "Ġ": 3, "<|endoftext|>": 4, "<s>": 5, "c": 6}"#;
const MERGES: &str = "#version: 0.2\na b\n";

/// The files of a tokenizer, each named by what it is.
fn files(vocab: &str, merges: &str, [added, map, config]: [Option<&str>; 3]) -> Files {
    let text = |file: &str, text: &str| Text { file: file.into(), text: text.into() };
    Files {
        vocab: text("vocab.json", vocab),
        merges: text("merges.txt", merges),
        added_tokens: added.map(|added| text("added_tokens.json", added)),
        special_tokens_map: map.map(|map| text("special_tokens_map.json", map)),
        tokenizer_config: config.map(|config| text("tokenizer_config.json", config)),
    }
}

#[test]
fn added_tokens_keep_their_ids_and_flags() {
    let added = r#"{"<x>": 9, "<y>": 7}"#;
    let map = r#"{"bos_token": "<s>", "eos_token": {"content": "<y>", "lstrip": false}, "additional_special_tokens": ["<z>"]}"#;
    let config = r#"{"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true, "pad_token": null, "unk_token": "<x>",
        "added_tokens_decoder": {"12": {"content": "<z>", "lstrip": true, "special": true}, "9": {"content": "<x>"}}}"#;
    let json = gpt2::tokenizer(&files(VOCAB, MERGES, [Some(added), Some(map), Some(config)])).unwrap();
    let tokenizer: tokenizers::Tokenizer = json.parse().unwrap();
    let ids = |text: &str| tokenizer.encode(text, false).unwrap().get_ids().to_vec();
    assert_eq!(ids("ab<x>c<y> <z>a<s><|endoftext|>"), [3, 2, 9, 3, 6, 7, 12, 3, 0, 5, 4]);
    // Special tokens are no text.
    assert_eq!(tokenizer.decode(&[0, 9, 7, 12, 5, 4, 1], true).unwrap(), "ab");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let special = json["added_tokens"].as_array().unwrap().iter().filter(|token| token["special"] == true);
    assert_eq!(special.map(|token| token["id"].as_u64().unwrap()).collect::<Vec<_>>(), [4, 5, 7, 9, 12]);
    // Without any of the three files: plain GPT-2.
    let plain: tokenizers::Tokenizer = gpt2::tokenizer(&files(VOCAB, MERGES, [None; 3])).unwrap().parse().unwrap();
    assert_eq!(plain.encode("ab<|endoftext|>", false).unwrap().get_ids(), [2, 4]);
    assert_eq!(plain.get_added_tokens_decoder().len(), 1);
}

#[test]
fn tokenizer_files_that_contradict_themselves_or_each_other_are_named() {
    let none: [Option<&str>; 3] = [None; 3];
    let added = |text| [Some(text), None, None];
    let map = |text| [None, Some(text), None];
    let config = |text| [None, None, Some(text)];
    #[rustfmt::skip]
    let cases: Vec<(Files, &[&str])> = vec![
        (files("[]", MERGES, none), &["vocab.json: content: expected a JSON object"]),
        (files(r#"{"a": 0, "b": 1, "a": 2}"#, MERGES, none), &["vocab.json", "\"a\" is listed twice"]),
        (files(r#"{"a": 0, "b": 0}"#, MERGES, none), &["vocab.json: token \"b\"", "an id of its own", "0, which is \"a\""]),
        (files(r#"{"a": -1}"#, MERGES, none), &["vocab.json: token \"a\"", "got -1"]),
        (files(r#"{"a": 4294967296}"#, MERGES, none), &["vocab.json: token \"a\"", "4294967296"]),
        (files(r#"{"a": "0"}"#, MERGES, none), &["vocab.json: token \"a\"", "\"0\""]),
        (files(VOCAB, "#version: 0.2\na b\nab\n", none), &["merges.txt: line 3", "two tokens", "got \"ab\""]),
        (files(VOCAB, "a b c\n", none), &["merges.txt: line 1", "\"a b c\""]),
        (files(VOCAB, "a q\n", none), &["merges.txt: line 1", "vocab.json", "\"a q\""]),
        (files(VOCAB, "b a\n", none), &["merges.txt: line 1", "\"b a\""]),
        (files(VOCAB, "a  b\n", none), &["merges.txt: line 1"]),
        (files(VOCAB, MERGES, added("7")), &["added_tokens.json: content"]),
        (files(VOCAB, MERGES, added(r#"{"<x>": 3}"#)), &["added_tokens.json: token \"<x>\"", "an id of its own", "\"Ġ\""]),
        (files(VOCAB, MERGES, added(r#"{"a": 7}"#)), &["added_tokens.json: token \"a\"", "its id 0", "got 7"]),
        (files(VOCAB, MERGES, map(r#"{"bos_token": "<q>"}"#)), &["special_tokens_map.json: bos_token", "got \"<q>\""]),
        (files(VOCAB, MERGES, map(r#"{"bos_token": 3}"#)), &["special_tokens_map.json: bos_token", "got 3"]),
        (files(VOCAB, MERGES, map(r#"{"bos_token": {"content": "a", "lstrip": 1}}"#)), &["special_tokens_map.json: bos_token: lstrip"]),
        (files(VOCAB, MERGES, map(r#"{"additional_special_tokens": "a"}"#)), &["additional_special_tokens", "an array"]),
        (files(VOCAB, MERGES, config(r#"{"tokenizer_class": "Qwen2Tokenizer"}"#)), &["tokenizer_config.json: tokenizer_class", "Qwen2"]),
        (files(VOCAB, MERGES, config(r#"{"add_prefix_space": "no"}"#)), &["tokenizer_config.json: add_prefix_space", "true or false"]),
        (files(VOCAB, MERGES, config(r#"{"added_tokens_decoder": []}"#)), &["tokenizer_config.json: added_tokens_decoder"]),
        (files(VOCAB, MERGES, config(r#"{"added_tokens_decoder": {"x": "<x>"}}"#)), &["added_tokens_decoder x: expected an id"]),
        (files(VOCAB, MERGES, config(r#"{"added_tokens_decoder": {"9": {}}}"#)), &["added_tokens_decoder 9: expected a token"]),
    ];
    for (files, words) in cases {
        let error = error_of(gpt2::tokenizer(&files));
        assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
    }
}
