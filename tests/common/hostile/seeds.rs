//! Inputs that are right, and small: what mutations start from, and the corpus in fuzz/corpus.

use super::exercise::{joined, models};
use kitfox::format::gguf_write::{Info, Writer};
use kitfox::format::hugging_face::{self, Parts};
use kitfox::format::layer::{Layer, LayerConfig, LayerFloats, Mode};
use kitfox::format::{BytesSource, Quant, TensorType, convert, layer_gguf};
use kitfox::kernel::inputs;
use kitfox::session::Model;
use pollster::block_on;
use safetensors::{Dtype, tensor::TensorView};

/// One layer, one head, whose pages die; every switch that needs a tensor is on.
pub const CONFIG: &str = r#"{"model_type": "forgetting_transformer-project_fox", "vocab_size": 24, "hidden_size": 16,
    "num_hidden_layers": 1, "num_heads": 1, "num_kv_heads": null, "intermediate_size": 16, "hidden_ratio": 4, "hidden_act": "swish",
    "norm_eps": 1e-06, "rope_base": 500000.0, "use_rope": false, "fgate_type": "full", "qk_norm": true, "use_k_shift": true,
    "use_v_shift": true, "use_output_gate": true, "ogate_act": "sigmoid", "bos_token_id": 0, "eos_token_id": 0,
    "tie_word_embeddings": false, "log_pruning_tolerance": -10.0, "training_context": 512, "initializer_range": 0.02}"#;

/// The other family's.
const FLA: &str = r#"{"model_type": "forgetting_transformer", "vocab_size": 24, "hidden_size": 16, "num_hidden_layers": 1,
    "num_heads": 1, "num_kv_heads": 1, "qkv_bias": true, "qk_norm": true, "window_size": 48, "use_output_gate": true, "fuse_norm": true,
    "elementwise_affine": true, "max_position_embeddings": 256, "architectures": ["ForgettingTransformerForCausalLM"], "id2label": {}}"#;

/// Byte-level, as GPT-2's.
pub const TOKENIZER: &str = r#"{"version": "1.0", "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
    "padding": null, "added_tokens": [{"id": 8, "content": "<|end|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
    "normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}|\\s+(?!\\S)|."}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
    "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
        "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
        "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġa": 4, "h": 5, "e": 6, "l": 7}, "merges": [["a", "b"], ["Ġ", "a"]]}}"#;

/// As Llama 2's.
const BYTE_FALLBACK: &str = r#"{"version": "1.0", "truncation": null,
    "padding": {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "<unk>"},
    "added_tokens": [{"id": 0, "content": "<unk>", "single_word": true, "lstrip": true, "rstrip": true, "normalized": true, "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, {"type": "Strip", "strip_left": true, "strip_right": false}, {"type": "Lowercase"}]},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<unk>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<unk>": {"id": "<unk>", "ids": [0], "tokens": ["<unk>"]}}},
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null, "end_of_word_suffix": null,
        "fuse_unk": true, "byte_fallback": true, "vocab": {"<unk>": 0, "<0xE2>": 1, "<0x82>": 2, "▁": 3, "a": 4, "▁a": 5, "é": 6},
        "merges": ["▁ a"]}}"#;

/// As T5's.
const UNIGRAM: &str = r#"{"version": "1.0", "added_tokens": [], "normalizer": {"type": "NFKC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Digits", "individual_digits": true},
        {"type": "Punctuation", "behavior": "Isolated"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}]},
    "post_processor": null, "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
    "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["▁", -2.0], ["a", -3.0], ["b", -3.5], ["▁ab", -4.0]], "byte_fallback": false}}"#;

/// As BERT's.
const WORD_PIECE: &str = r###"{"version": "1.0", "added_tokens": [{"id": 0, "content": "[UNK]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "sep": ["[UNK]", 0], "cls": ["[UNK]", 0]},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
        "vocab": {"[UNK]": 0, "a": 1, "##b": 2, "hello": 3, "b": 4}}}"###;

/// As LLaMA 3's, DeepSeek's and others': steps that mutations make chains of.
const STEPS: &str = r#"{"version": "1.0", "added_tokens": [], "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"String": "b"}, "content": "a"}, {"type": "Replace", "pattern": {"String": "a"}, "content": "bb"},
        {"type": "Prepend", "prepend": "ab"}, {"type": "NFKC"}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated", "invert": false},
        {"type": "Split", "pattern": {"Regex": "(?i:'s|'t|'re)|[^\\r\\n\\p{L}]?\\p{L}+| ?[^\\s\\p{L}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
            "behavior": "MergedWithNext", "invert": true}]},
    "post_processor": null, "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"Regex": "a{2,3}"}, "content": "bbb"},
        {"type": "Replace", "pattern": {"String": "b"}, "content": "aa"}, {"type": "BPEDecoder", "suffix": "</w>"}]},
    "model": {"type": "BPE", "dropout": 0.0, "unk_token": "a", "vocab": {"a": 0, "b": 1, "ab": 2, "aab": 3, "aa": 4}, "merges": ["a b", "a ab", "a a"]}}"#;

/// The tensors of [`CONFIG`].
const SHAPES: [(&str, &[usize]); 20] = [
    ("model.embeddings.weight", &[24, 16]),
    ("model.norm.weight", &[16]),
    ("lm_head.weight", &[24, 16]),
    ("model.layers.0.attn_norm.weight", &[16]),
    ("model.layers.0.attn.q_proj.weight", &[16, 16]),
    ("model.layers.0.attn.k_proj.linear.weight", &[16, 16]),
    ("model.layers.0.attn.k_proj.shift_proj.weight", &[1, 16]),
    ("model.layers.0.attn.v_proj.linear.weight", &[16, 16]),
    ("model.layers.0.attn.v_proj.shift_proj.weight", &[1, 16]),
    ("model.layers.0.attn.ogate_proj.weight", &[16, 16]),
    ("model.layers.0.attn.o_proj.weight", &[16, 16]),
    ("model.layers.0.attn.fgate_proj.weight", &[1, 16]),
    ("model.layers.0.attn.fgate_proj.bias", &[1]),
    ("model.layers.0.attn.q_norm.weight", &[16]),
    ("model.layers.0.attn.k_norm.weight", &[16]),
    ("model.layers.0.mlp_norm.weight", &[16]),
    ("model.layers.0.mlp.gate_proj.weight", &[32, 16]),
    ("model.layers.0.mlp.down_proj.weight", &[16, 16]),
    // No part of the model: what is left over is told, too.
    ("model.rotary.inv_freq", &[2, 2, 2]),
    ("left.over", &[1]),
];
const N_MODEL: usize = SHAPES.len() - 2;

fn file(tensors: &[(&str, &[usize])]) -> Vec<u8> {
    let stored: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(name, shape)| inputs::floats(name.len() as u32, shape.iter().product(), 0.5))
        .map(|values| values.iter().flat_map(|value| half::f16::from_f32(*value).to_le_bytes()).collect())
        .collect();
    let views = tensors
        .iter()
        .zip(&stored)
        .map(|((name, shape), bytes)| (*name, TensorView::new(Dtype::F16, shape.to_vec(), bytes).unwrap()));
    safetensors::serialize(views, None).unwrap()
}

/// model.safetensors of [`CONFIG`].
pub fn weights() -> Vec<u8> {
    file(&SHAPES[..N_MODEL])
}

fn converted(quant: Quant) -> Vec<u8> {
    let mut checkpoint = block_on(hugging_face::read(Parts {
        name: "small".into(),
        config_file: "config.json".into(),
        config: CONFIG.into(),
        tokenizer: Some(TOKENIZER.into()),
        tokenizer_file: "tokenizer.json".into(),
        index: None,
        files: vec![Box::new(BytesSource::new("model.safetensors", weights()))],
    }))
    .unwrap();
    let mut out = Vec::new();
    block_on(convert(&mut checkpoint, quant, &mut out, "out.gguf", &mut |_, _| ())).unwrap();
    out
}

fn layer(bitnet: bool) -> Vec<u8> {
    let square = inputs::floats(1, 64, 0.5);
    let weights =
        LayerFloats { q_proj: &square, k_proj: &square, v_proj: &square, f_proj: &square[..16], f_bias: None, out_proj: &square };
    let config = LayerConfig { hidden_size: 8, num_heads: 2, mode: Mode::Encoder, bitnet };
    let mut out = Vec::new();
    layer_gguf::write(&Layer::new(config, &weights).unwrap(), "layer", &mut out, "layer.gguf").unwrap();
    out
}

/// One type after another: a tensor each.
fn of_every_type() -> Vec<u8> {
    use kitfox::format::gguf::Scalar;
    let metadata = [
        ("general.architecture".to_owned(), Scalar::String("fox".into())),
        ("fox.block_count".to_owned(), Scalar::U64(1)),
        ("fox.use_rope".to_owned(), Scalar::Bool(true)),
        ("fox.rope.freq_base".to_owned(), Scalar::F64(1e4)),
        ("some.number".to_owned(), Scalar::I64(-1)),
    ];
    let info = |ty: TensorType| Info { name: format!("blk.0.{ty}.weight"), ty, shape: vec![1, ty.block()] };
    let mut out = Vec::new();
    let mut writer = Writer::start(&mut out, "types", &metadata, &TensorType::ALL.map(info)).unwrap();
    for ty in TensorType::ALL {
        writer.data(&vec![0x11; ty.block_bytes()]).unwrap();
    }
    writer.finish().unwrap();
    out
}

pub fn gguf() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("f16", converted(Quant::plain(TensorType::F16))),
        ("types", of_every_type()),
        ("layer", layer(false)),
        ("ternary_layer", layer(true)),
    ]
}

pub fn safetensors() -> Vec<(&'static str, Vec<u8>)> {
    let (first, second) = SHAPES[..N_MODEL].split_at(9);
    let place = |shard: &'static str| move |(name, _): &(&str, &[usize])| format!("\"{name}\": \"{shard}\"");
    let map: Vec<String> = first.iter().map(place("1.safetensors")).chain(second.iter().map(place("2.safetensors"))).collect();
    let index = format!("{{\"metadata\": {{\"total_size\": 4000}}, \"weight_map\": {{{}}}}}", map.join(", "));
    vec![
        ("one", joined(&[&[], &[], &weights()])),
        ("left_over", joined(&[&[], &[], &file(&SHAPES)])),
        ("shards", joined(&[index.as_bytes(), &file(first), &file(second)])),
    ]
}

pub fn config() -> Vec<(&'static str, Vec<u8>)> {
    vec![("official", CONFIG.into()), ("fla", FLA.into())]
}

pub fn tokenizer() -> Vec<(&'static str, Vec<u8>)> {
    let gpt2 = [
        r#"{"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġa": 4, "<|endoftext|>": 5}"#,
        "#version: 0.2\na b\nĠ a\n",
        r#"{"<x>": 6}"#,
        r#"{"bos_token": "<|endoftext|>", "additional_special_tokens": ["<x>"]}"#,
        r#"{"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": false,
            "added_tokens_decoder": {"7": {"content": "<y>", "lstrip": true, "special": true}}}"#,
    ];
    vec![
        ("byte_level", TOKENIZER.into()),
        ("byte_fallback", BYTE_FALLBACK.into()),
        ("unigram", UNIGRAM.into()),
        ("word_piece", WORD_PIECE.into()),
        ("steps", STEPS.into()),
        ("gpt2", gpt2.join("\u{0}").into()),
    ]
}

pub fn manifest() -> Vec<(&'static str, Vec<u8>)> {
    let hash = "0123456789abcdef".repeat(4);
    let of = |bytes: u64, pieces: Vec<&str>| {
        serde_json::json!({ "version": 1, "file": "demo.gguf", "bytes": bytes, "piece_bytes": 4 << 20, "sha256": pieces, "whole": hash })
            .to_string()
            .into_bytes()
    };
    vec![("one", of(1, vec![&hash])), ("three", of((8 << 20) + 1, vec![&hash; 3]))]
}

/// Of each model that there is.
pub fn snapshot() -> Vec<(&'static str, Vec<u8>)> {
    let [mut dying, mut windowed, mut lasting] = models();
    let saved = |model: &mut Model, n: u32, pending: &[u32]| {
        let ids: Vec<u32> = (0..n).map(|ix| ix * 7 % 24).collect();
        model.reset();
        if n > 0 {
            block_on(model.read(&ids)).unwrap();
        }
        block_on(model.save(pending)).unwrap()
    };
    vec![
        ("few", saved(&mut dying, 3, &[1])),
        ("pages", saved(&mut dying, 65, &[])),
        ("empty", saved(&mut dying, 0, &[5, 6])),
        ("window", saved(&mut windowed, 130, &[2])),
        ("f32", saved(&mut lasting, 66, &[3])),
    ]
}

pub fn preprocess() -> Vec<(&'static str, Vec<u8>)> {
    let branches = "#import step\n#ifdef A\na\n#ifndef B // no b\nnot b\n#else\nb\n#endif\n#else\nnot a\n#endif\nend\n";
    let kernel = kitfox::kernel::KERNELS.iter().find(|kernel| kernel.name == "rms_norm").unwrap();
    let plain: Vec<&str> = kernel.wgsl.lines().filter(|line| !line.trim_start().starts_with("#if")).collect();
    let plain = plain.into_iter().filter(|line| !line.trim_start().starts_with("#e")).collect::<Vec<_>>().join("\n");
    vec![("branches", branches.into()), ("kernel", plain.into_bytes())]
}
