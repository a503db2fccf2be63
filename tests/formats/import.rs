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
    assert!(error_of(open(&dir)).contains("config.json: open failed"));
    std::fs::write(dir.join("config.json"), "[1]").unwrap();
    assert!(error_of(open(&dir)).contains("neither"));
    let bytes = weights(Dtype::F32, |_, _| ());
    std::fs::write(dir.join("model.safetensors"), &bytes).unwrap();
    assert!(error_of(open(&dir)).contains("config.json: config: expected a JSON object"));
    assert!(error_of(open(&dir.join("model.safetensors"))).contains("magic"));
    std::fs::write(dir.join("config.json"), CONFIG).unwrap();
    let vocab = r#"{"a": 0, "b": 1, "ab": 2, "Ġ": 3, "<|endoftext|>": 4}"#;
    std::fs::write(dir.join("vocab.json"), vocab).unwrap();
    std::fs::write(dir.join("merges.txt"), "#version: 0.2\na b\n").unwrap();
    let mut checkpoint = open(&dir).unwrap();
    assert_eq!(checkpoint.name, "formats_open");
    assert_eq!(all_bits(&mut checkpoint), all_bits(&mut official(Dtype::F32)));
    let tokenizer: tokenizers::Tokenizer = checkpoint.tokenizer.unwrap().parse().unwrap();
    assert_eq!(tokenizer.encode("ab a<|endoftext|>", false).unwrap().get_ids(), [2, 3, 0, 4]);
    std::fs::write(dir.join("tokenizer.json"), TOKENIZER).unwrap();
    assert_eq!(open(&dir).unwrap().tokenizer.as_deref(), Some(TOKENIZER));
}
