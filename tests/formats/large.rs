//! Large files, right ones and such as are nothing but entries: reading takes four times their length and 64 MB at most, as it does of small
//! ones. Only a Unigram tokenizer may take more, for its tree.

use crate::hostile_input::most_bytes;
use kitfox::Result;
use kitfox::format::hugging_face::{Index, Parts};
use kitfox::format::manifest::{Manifest, PIECE_BYTES};
use kitfox::format::random::SplitMix64;
use kitfox::format::{self, BytesSource, Quant, TensorType, convert, gpt2, hugging_face};
use kitfox::session::{DeviceChoice, KvType, LoadOptions, Model};
use kitfox::text::Tokenizer;
use pollster::block_on;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Runs work of an input of `n` bytes, and holds what it takes beside the input to the promise.
fn held<T>(what: &str, n: usize, work: impl FnOnce() -> T) -> T {
    let mut result = None;
    let peak = allocation_counter::measure(|| result = Some(work())).bytes_max;
    let factor = peak as f64 / n as f64;
    println!("{what:<44} {:>8.2} MB took {:>8.2} MB, {factor:.1} times", n as f64 / 1e6, peak as f64 / 1e6);
    assert!(peak <= most_bytes(n), "{what}: {n} bytes took {peak} in memory");
    result.unwrap()
}

fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("large").join(test);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Words of five letters, the short ones first, each made of a shorter one and a letter; and merges that make them, of each word as many as it
/// takes to come to `n_merges`.
fn words(n: usize, n_merges: usize) -> (Vec<String>, Vec<[String; 2]>) {
    const LETTERS: [&str; 5] = ["e", "t", "a", "o", "n"];
    let mut words: Vec<String> = LETTERS.map(str::to_owned).into();
    for ix in 0.. {
        if words.len() >= n {
            break;
        }
        let longer = LETTERS.map(|letter| words[ix].clone() + letter);
        words.extend(longer);
    }
    words.truncate(n);
    let cuts =
        (1..).flat_map(|at| words.iter().filter(move |word| word.len() > at).map(move |word| word.split_at(word.len() - at)));
    let merges = cuts.take(n_merges).map(|(a, b)| [a.to_owned(), b.to_owned()]).collect();
    (words, merges)
}

fn ids(words: &[String]) -> serde_json::Map<String, Value> {
    words.iter().enumerate().map(|(id, word)| (word.clone(), json!(id))).collect()
}

fn bpe(n: usize, n_merges: usize) -> Value {
    let (words, merges) = words(n, n_merges);
    let model = json!({ "type": "BPE", "vocab": ids(&words), "merges": merges });
    json!({ "version": "1.0", "decoder": { "type": "Fuse" }, "model": model })
}

#[test]
fn large_tokenizers_take_what_small_ones_do() {
    let read = |what: &str, text: &str| held(what, text.len(), || Tokenizer::from_json("tokenizer.json", text));
    let of_gemma = bpe(262_144, 580_000);
    for (what, text, n) in [
        ("BPE of 128,000 tokens, 280,000 merges", bpe(128_000, 280_000).to_string(), 128_000),
        ("BPE of 262,144 tokens, 580,000 merges", of_gemma.to_string(), 262_144),
        ("the same, indented", format!("{of_gemma:#}"), 262_144),
        ("BPE of 400,000 tokens, indented", format!("{:#}", bpe(400_000, 840_000)), 400_000),
    ] {
        let tokenizer = read(what, &text).unwrap();
        assert_eq!((tokenizer.n_ids(), tokenizer.vocab_size()), (n, n));
        let (letters, encoded) = ("tonatoneta", tokenizer.encode("tonatoneta").unwrap());
        assert!(encoded.len() < 4 && tokenizer.decode(&encoded).unwrap() == letters, "{encoded:?}");
    }
    drop(of_gemma);
    let (words, _) = words(200_000, 0);
    let levels = json!({ "version": "1.0", "model": { "type": "WordLevel", "unk_token": "e", "vocab": ids(&words) } });
    read("WordLevel of 200,000 tokens", &levels.to_string()).unwrap();
    // As many as Gemma's, and as much text as is allowed.
    let random = |n: usize, length: usize| {
        let mut random = SplitMix64(n as u64);
        let mut letter = move || char::from(b'!' + (random.number() % 90) as u8);
        (0..n).map(|_| (0..length).map(|_| letter()).collect::<String>()).collect::<Vec<_>>()
    };
    for (n, length) in [(6414, 16), (262, 1000), (26_000, 10)] {
        let added = random(n, length).into_iter().enumerate().map(|(ix, content)| {
            json!({ "id": 5 + ix, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true })
        });
        let mut file = bpe(5, 0);
        file["added_tokens"] = added.collect();
        let tokenizer = read(&format!("{n} added tokens of {length} letters"), &file.to_string()).unwrap();
        assert_eq!(tokenizer.n_ids(), n + 5);
    }
    let scored: Vec<Value> = words[..32_000].iter().map(|word| json!([word, -9.5])).collect();
    let unigram = json!({ "version": "1.0", "model": { "type": "Unigram", "unk_id": 0, "vocab": scored } });
    read("Unigram of 32,000 tokens", &unigram.to_string()).unwrap();
}

#[test]
fn tokenizers_that_are_all_entries_are_refused_or_take_no_more() {
    let file = |model: String| format!(r#"{{"version":"1.0","model":{model}}}"#);
    let many = |n: usize, entry: &dyn Fn(usize) -> String| (0..n).map(entry).collect::<Vec<_>>().join(",");
    let (short, _) = words(500_000, 0);
    for (what, text) in [
        (
            "merges, the same again",
            file(format!(
                r#"{{"type":"BPE","vocab":{{"a":0,"aa":1}},"merges":[{}]}}"#,
                many(2_000_000, &|_| r#"["a","a"]"#.into())
            )),
        ),
        (
            "more merges than are allowed",
            file(format!(r#"{{"type":"BPE","vocab":{{"a":0,"aa":1}},"merges":[{}]}}"#, many(2_100_000, &|_| r#""a a""#.into()))),
        ),
        (
            "tokens of a few letters",
            file(format!(
                r#"{{"type":"WordLevel","unk_token":"e","vocab":{{{}}}}}"#,
                many(500_000, &|ix| format!("{:?}:0", short[ix]))
            )),
        ),
        (
            "more tokens than are allowed",
            file(format!(
                r#"{{"type":"WordLevel","unk_token":"0","vocab":{{{}}}}}"#,
                many(1_100_000, &|ix| format!("\"{ix:x}\":0"))
            )),
        ),
        (
            "one long added token",
            format!(r#"{{"version":"1.0","added_tokens":[{{"id":0,"content":"{}"}}],"model":{{}}}}"#, "ab".repeat(4 << 20)),
        ),
        (
            "an added token with another key",
            format!(
                r#"{{"version":"1.0","added_tokens":[{{"id":0,"content":"a","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true,"x":[{}]}}],"model":{{"type":"BPE","vocab":{{"a":0}},"merges":[]}}}}"#,
                "0,".repeat(4 << 20) + "0"
            ),
        ),
        (
            "steps within steps",
            format!(
                r#"{{"version":"1.0","normalizer":{{"type":"Sequence","normalizers":[{}]}},"model":{{}}}}"#,
                many(1_000_000, &|_| "[]".into())
            ),
        ),
        ("options of the model", file(format!(r#"{{"type":"BPE","x":[{}]}}"#, many(1_000_000, &|_| "[]".into())))),
        (
            "a merge of many",
            file(format!(r#"{{"type":"BPE","vocab":{{}},"merges":[[{}]]}}"#, many(1_000_000, &|_| "\"\"".into()))),
        ),
        (
            "a score for many letters",
            file(format!(r#"{{"type":"Unigram","unk_id":0,"vocab":[["{}",0]]}}"#, "ab".repeat(2 << 20))),
        ),
    ] {
        let refused = held(what, text.len(), || Tokenizer::from_json("file", &text).map(drop));
        let said = refused.as_ref().err().map_or_else(String::new, ToString::to_string);
        assert!(refused.is_ok() || (said.contains("file: ") && said.len() < 1000), "{what}: {said}");
    }
}

/// What is wrong is not repeated, nor escaped, before it is cut: of a text of 60 MB an error shows as much as of a short one.
#[test]
fn an_error_takes_no_more_for_what_it_is_about() {
    let texts = [("blanks", "a ".repeat(30_000_000)), ("control characters", "\u{7f}".repeat(16_000_000))];
    let places: [(&str, &str, &str); 21] = [
        ("the file", "", ""),
        ("version", r#"{"version":"#, "}"),
        ("a key", "{", ":0}"),
        ("model", r#"{"model":"#, "}"),
        ("type", r#"{"model":{"type":"#, r#","vocab":{},"merges":[]}}"#),
        ("a flag", r#"{"model":{"type":"BPE","byte_fallback":"#, r#","vocab":{},"merges":[]}}"#),
        ("an option", r#"{"model":{"type":"BPE","x":"#, r#","vocab":{},"merges":[]}}"#),
        ("a key of the model", r#"{"model":{"#, ":0}}"),
        ("vocab", r#"{"model":{"vocab":"#, "}}"),
        ("an id", r#"{"model":{"vocab":{"a":"#, "}}}"),
        ("a token of no id", r#"{"model":{"vocab":{"#, r#":"a"}}}"#),
        ("a score", r#"{"model":{"vocab":[["a","#, "]]}}"),
        ("a scored token", r#"{"model":{"vocab":["#, "]}}"),
        ("merges", r#"{"model":{"vocab":{},"merges":"#, "}}"),
        ("a merge", r#"{"model":{"vocab":{},"merges":["#, "]}}"),
        ("added tokens", r#"{"model":{"vocab":{},"merges":[]},"added_tokens":"#, "}"),
        ("an added token", r#"{"model":{"vocab":{},"merges":[]},"added_tokens":["#, "]}"),
        ("an added id", r#"{"model":{"vocab":{},"merges":[]},"added_tokens":[{"content":"a","id":"#, "}]}"),
        ("a key of an added token", r#"{"model":{"vocab":{},"merges":[]},"added_tokens":[{"content":"a","#, ":0}]}"),
        ("decoder", r#"{"model":{"vocab":{},"merges":[]},"decoder":"#, "}"),
        ("a step's type", r#"{"model":{"vocab":{},"merges":[]},"normalizer":{"type":"#, "}}"),
    ];
    for (kind, text) in &texts {
        for (place, before, behind) in places {
            let file = format!(r#"{before}"{text}"{behind}"#);
            let refused = held(&format!("{place}: {kind}"), file.len(), || Tokenizer::from_json("file", &file).map(drop));
            let said = refused.unwrap_err().to_string();
            assert!(said.contains("file: ") && said.len() < 1000, "{place}: {said}");
        }
        for (place, header) in [
            ("dtype", format!(r#"{{"a":{{"dtype":"{text}","shape":[1],"data_offsets":[0,4]}}}}"#)),
            ("data_offsets", format!(r#"{{"a":{{"dtype":"F32","shape":[1],"data_offsets":["{text}",4]}}}}"#)),
            ("shape", format!(r#"{{"a":{{"dtype":"F32","shape":"{text}","data_offsets":[0,4]}}}}"#)),
            ("a tensor", format!(r#"{{"a":"{text}"}}"#)),
            ("__metadata__", format!(r#"{{"__metadata__":"{text}"}}"#)),
            ("the header", format!(r#""{text}""#)),
        ] {
            let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 4]].concat();
            let n = bytes.len();
            let source: Box<dyn format::Source> = Box::new(BytesSource::new("file", bytes));
            let refused = held(&format!("{place}: {kind}"), n, || block_on(format::safetensors::read(source, 0)).map(drop));
            let said = refused.unwrap_err().to_string();
            assert!(said.starts_with("file: ") && said.len() < 1500, "{place}: {said}");
        }
    }
}

/// The file with the most text that one may have: what is wrong in it is told by serde and by the crate.
#[test]
fn texts_of_a_megabyte_are_told_within_the_same_bounds() {
    let text = "\u{7f}".repeat(1 << 20);
    for (before, behind) in [
        (r#"{"version":"#, "}"),
        (r#"{"model":{"type":"BPE","byte_fallback":"#, r#","vocab":{},"merges":[]}}"#),
        (r#"{"model":{"vocab":{"a":"#, "}}}"),
        (r#"{"model":{"vocab":["#, "]}}"),
        (r#"{"model":{"vocab":{},"merges":["#, "]}}"),
        (r#"{"model":{"vocab":{},"merges":[]},"decoder":{"type":"#, "}}"),
        (r#"{"model":{"vocab":{},"merges":[]},"normalizer":{"type":"BertNormalizer","clean_text":"#, "}}"),
    ] {
        let file = format!(r#"{before}"{text}"{behind}"#);
        let refused = held(before, file.len(), || Tokenizer::from_json("file", &file).map(drop));
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("file: ") && said.len() < 1000, "{before}: {said}");
    }
}

#[test]
fn a_unigram_token_that_is_listed_twice_is_refused() {
    let file = |last: &str| {
        let vocab = json!([["<unk>", 0.0], ["b", -1.0], ["a", -2.0], [last, -3.0]]);
        json!({ "version": "1.0", "model": { "type": "Unigram", "unk_id": 0, "vocab": vocab } }).to_string()
    };
    assert!(Tokenizer::from_json("file", &file("ab")).is_ok());
    let refused = Tokenizer::from_json("file", &file("b")).map(drop).unwrap_err().to_string();
    assert_eq!(refused, "file: model.vocab: expected each token once, got \"b\" twice");
}

/// One made of vocab.json and merges.txt may be longer than a reader of the new file would take.
#[test]
fn a_tokenizer_that_no_reader_takes_is_not_written() {
    let mut checkpoint = crate::tiny::official(safetensors::Dtype::F32);
    let mut write = |n: u64| {
        checkpoint.tokenizer = Some("x".repeat(n as usize));
        block_on(convert(&mut checkpoint, Quant::plain(TensorType::F32), &mut std::io::sink(), "out", &mut |_, _| ())).map(drop)
    };
    write(format::limits::MAX_TOKENIZER).unwrap();
    let refused = write(format::limits::MAX_TOKENIZER + 1).unwrap_err().to_string();
    assert!(refused.contains("length: expected at most 67108864 bytes") && refused.ends_with("got 67108865"), "{refused}");
}

#[test]
fn a_clone_of_a_layer_has_no_weights_of_its_own() {
    use kitfox::format::layer::{Layer, LayerConfig, LayerFloats, Mode};
    let config = LayerConfig { hidden_size: 256, num_heads: 4, mode: Mode::Encoder, bitnet: false };
    let square = vec![0.5; 256 * 256];
    let weights = LayerFloats {
        q_proj: &square,
        k_proj: &square,
        v_proj: &square,
        f_proj: &square[..1024],
        f_bias: None,
        out_proj: &square,
    };
    let layer = Layer::new(config, &weights).unwrap();
    let took = allocation_counter::measure(|| drop(layer.clone())).bytes_max;
    assert!(took < 1000, "{took} bytes");
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_read_is_not_told_as_empty() {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;
    let folder = folder("closed");
    model(&folder, 1, 64);
    set_permissions(&folder, Permissions::from_mode(0o000)).unwrap();
    let opened = block_on(format::open(&folder)).map(drop);
    let is_open = std::fs::read_dir(&folder).is_ok();
    set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    if is_open {
        println!("skipped: root reads every folder");
        return;
    }
    let said = opened.unwrap_err().to_string();
    assert!(said.contains("config.json: open failed: ") && said.to_lowercase().contains("permission denied"), "{said}");
}

/// Each byte of a token that no other shares is a node of the crate's tree, and there may be no more than is stated.
#[test]
fn the_tree_of_a_unigram_tokenizer_takes_what_is_stated() {
    use kitfox::text::{MAX_NODES, NODE_BYTES};
    let token = |ix: usize, n: usize| format!("{ix:05}{}", "x".repeat(n));
    let file = |n: usize, length: usize| {
        let vocab: Vec<Value> = (0..n).map(|ix| json!([token(ix, length), -1.0])).collect();
        json!({ "version": "1.0", "model": { "type": "Unigram", "unk_id": 0, "vocab": vocab } }).to_string()
    };
    let text = file(5000, 95);
    let nodes = 5000 * 95 + 5000 + 500 + 50 + 5 + 1;
    let peak = allocation_counter::measure(|| drop(Tokenizer::from_json("file", &text).unwrap())).bytes_max;
    println!("{nodes} nodes took {} bytes each", peak / nodes);
    assert!(peak <= most_bytes(text.len()) + nodes * NODE_BYTES as u64, "{nodes} nodes took {peak}");
    let text = file(20_000, MAX_NODES / 20_000);
    let refused = held("a tree of too many nodes", text.len(), || Tokenizer::from_json("file", &text).map(drop)).unwrap_err();
    assert!(
        refused.to_string().starts_with("file: model.vocab: expected tokens that make a tree of at most 2097152 bytes"),
        "{refused}"
    );
}

#[test]
fn files_near_their_limits_take_what_small_ones_do() {
    let limit = |n: u64| n as usize;
    // config.json: a long name in it.
    let mut config: serde_json::Map<String, Value> = serde_json::from_str(crate::tiny::CONFIG).unwrap();
    config.insert("_name_or_path".into(), "x".repeat(limit(format::limits::MAX_CONFIG) - 2000).into());
    let text = Value::from(config).to_string();
    held("config.json", text.len(), || {
        let file = BytesSource::new("model.safetensors", crate::tiny::weights(safetensors::Dtype::F16, |_, _| ()));
        let parts = Parts {
            name: "m".into(),
            config_file: "config.json".into(),
            config: text.clone(),
            tokenizer: None,
            tokenizer_file: "tokenizer.json".into(),
            index: None,
            files: vec![Box::new(file)],
        };
        block_on(hugging_face::read(parts)).map(drop)
    })
    .unwrap();

    let n = (limit(format::limits::MAX_MANIFEST) - 1000) / 67;
    let hash = "0123456789abcdef".repeat(4);
    let manifest = json!({ "version": 1, "file": "m.gguf", "bytes": n as u64 * PIECE_BYTES, "piece_bytes": PIECE_BYTES,
        "sha256": vec![&hash; n], "whole": hash })
    .to_string();
    assert_eq!(held("manifest", manifest.len(), || Manifest::parse("m", &manifest)).unwrap().sha256.len(), n);

    let name = |ix: usize| format!("model.layers.{ix}.attn.q_proj.linear.with_a_name_that_is_long.and_longer_than_that.weight");
    let map: serde_json::Map<String, Value> =
        (0..65_536).map(|ix| (name(ix), format!("model-{:05}-of-04096.safetensors", ix / 16).into())).collect();
    let index = json!({ "weight_map": map }).to_string();
    assert_eq!(held("index", index.len(), || Index::parse("i", &index)).unwrap().shards().len(), 4096);

    let (words, merges) = words(256_000, 256_000);
    let text = |file: &str, text: String| gpt2::Text { file: file.into(), text };
    let lines: Vec<String> = merges.iter().map(|pair| pair.join(" ")).collect();
    let files = gpt2::Files {
        vocab: text("vocab.json", Value::from(ids(&words)).to_string()),
        merges: text("merges.txt", lines.join("\n")),
        ..gpt2::Files::default()
    };
    let n = files.vocab.text.len() + files.merges.text.len();
    let joined = held("vocab.json and merges.txt of 256,000", n, || gpt2::tokenizer(&files)).unwrap();
    held("what they are together", joined.len(), || Tokenizer::from_json("file", &joined).map(drop)).unwrap();
}

#[test]
fn the_demo_model_takes_what_is_promised() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("www/models/demo.gguf");
    let n = std::fs::metadata(&path).unwrap().len() as usize;
    held("the demo model, read", n, || block_on(format::open(&path)).map(drop)).unwrap();
    let options = LoadOptions { device: DeviceChoice::Cpu, context: Some(512), ..LoadOptions::default() };
    let load = || block_on(async { Model::load(format::open(&path).await?, options, &mut |_| Ok(())).await }).map(drop);
    held("the demo model, loaded", n, load).unwrap();
}

/// The crate keeps for each token its text and its place, until all are there.
#[test]
fn a_text_takes_what_is_stated_while_it_is_tokenized() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let checkpoint = block_on(format::open(&root.join("www/models/demo.gguf"))).unwrap();
    let tokenizer = Tokenizer::from_json("demo", checkpoint.tokenizer.as_deref().unwrap()).unwrap();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    for (what, text) in [("README.md", readme.repeat(60)), ("text without a word", "!?".repeat(1_000_000))] {
        let mut n_ids = 0;
        let peak = allocation_counter::measure(|| n_ids = tokenizer.encode(&text).unwrap().len()).bytes_max;
        println!("{what}: {} bytes, {n_ids} tokens took {} bytes a byte", text.len(), peak / text.len() as u64);
        assert!(peak <= 150 * text.len() as u64, "{what}: {} bytes took {peak}", text.len());
    }
}

/// Safetensors of these tensors, f32 zeros that no disk holds.
fn zeros(path: &Path, tensors: &[(String, Vec<usize>)]) -> usize {
    let mut at = 0;
    let mut header = serde_json::Map::new();
    for (name, shape) in tensors {
        let end = at + 4 * shape.iter().product::<usize>();
        header.insert(name.clone(), json!({ "dtype": "F32", "shape": shape, "data_offsets": [at, end] }));
        at = end;
    }
    let header = Value::from(header).to_string().into_bytes();
    let n = 8 + header.len() + at;
    let mut file = File::create(path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(&header).unwrap();
    file.set_len(n as u64).unwrap();
    n
}

/// A model of so many layers of width d, in a folder.
fn model(folder: &Path, n_layers: usize, d: usize) -> usize {
    let config = json!({ "model_type": "forgetting_transformer-project_fox", "vocab_size": 64, "hidden_size": d,
        "num_hidden_layers": n_layers, "num_heads": d / 64, "intermediate_size": 64, "use_rope": false, "fgate_type": "full", "qk_norm": false,
        "use_output_gate": false, "max_position_embeddings": 4096 });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let mut tensors = vec![
        ("model.embeddings.weight".to_owned(), vec![64, d]),
        ("model.norm.weight".to_owned(), vec![d]),
        ("lm_head.weight".to_owned(), vec![64, d]),
    ];
    for layer in 0..n_layers {
        let named = [
            ("attn_norm.weight", vec![d]),
            ("attn.q_proj.weight", vec![d, d]),
            ("attn.k_proj.weight", vec![d, d]),
            ("attn.v_proj.weight", vec![d, d]),
            ("attn.o_proj.weight", vec![d, d]),
            ("attn.fgate_proj.weight", vec![d / 64, d]),
            ("attn.fgate_proj.bias", vec![d / 64]),
            ("mlp_norm.weight", vec![d]),
            ("mlp.gate_proj.weight", vec![128, d]),
            ("mlp.down_proj.weight", vec![d, 64]),
        ];
        tensors.extend(named.map(|(name, shape)| (format!("model.layers.{layer}.{name}"), shape)));
    }
    zeros(&folder.join("model.safetensors"), &tensors)
}

#[test]
fn safetensors_of_two_hundred_megabytes_are_converted_piece_by_piece() {
    let folder = folder("safetensors");
    let n = model(&folder, 12, 1024);
    assert!(n > 200_000_000, "{n}");
    let mut out = std::io::sink();
    let took = allocation_counter::measure(|| {
        let mut checkpoint = block_on(format::open(&folder)).unwrap();
        block_on(convert(&mut checkpoint, Quant::plain(TensorType::Q8_0), &mut out, "out", &mut |_, _| ())).unwrap();
    });
    println!("safetensors of {:.0} MB, converted: {:.1} MB", n as f64 / 1e6, took.bytes_max as f64 / 1e6);
    assert!(took.bytes_max < 64 << 20, "{n} bytes took {} in memory", took.bytes_max);
}

#[test]
fn a_session_of_fifty_megabytes_is_taken_up() {
    let folder = folder("session");
    model(&folder, 50, 256);
    let options = LoadOptions { device: DeviceChoice::Cpu, context: Some(1024), kv: KvType::F32, ..LoadOptions::default() };
    let load = async || -> Result<Model> { Model::load(format::open(&folder).await?, options.clone(), &mut |_| Ok(())).await };
    let mut model = block_on(load()).unwrap();
    let ids: Vec<u32> = (0..512).map(|ix| ix * 7 % 64).collect();
    block_on(model.read(&ids)).unwrap();
    let path = folder.join("talk.kfxs");
    std::fs::write(&path, block_on(model.save(&[])).unwrap()).unwrap();
    let n = std::fs::metadata(&path).unwrap().len() as usize;
    assert!(n > 50_000_000, "{n}");
    let mut other = block_on(load()).unwrap();
    held("a saved session", n, || {
        let bytes = std::fs::read(&path).unwrap();
        block_on(other.restore(&bytes)).unwrap();
    });
    assert_eq!(other.history(), ids);
}
