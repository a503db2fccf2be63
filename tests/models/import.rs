//! Checkpoints that are no model, or whose weights are no numbers: said by name, before or while they are loaded.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::tiny::{Tiny, VOCAB};
use crate::common::tokenizers;
use kitfox::Error;
use kitfox::format::{self, BytesSource, Checkpoint, Quant, TensorType, convert, to_f32};
use kitfox::kernel::layout::{WeightType, read_row, sample, sample_bytes};
use kitfox::session::load::check;
use kitfox::session::{DeviceChoice, KvType, LoadOptions, Model};
use pollster::block_on;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("import").join(test);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn open(tiny: &Tiny, folder: &Path) -> Checkpoint {
    block_on(format::open(&tiny.write(folder))).unwrap()
}

fn load(checkpoint: Checkpoint) -> kitfox::Result<Model> {
    let options =
        LoadOptions { device: DeviceChoice::Cpu, context: Some(8), scores: true, kv: KvType::F32, ..LoadOptions::default() };
    block_on(Model::load(checkpoint, options, &mut |_| Ok(())))
}

fn load_error(checkpoint: Checkpoint) -> Error {
    load(checkpoint).err().unwrap_or_else(|| panic!("a model that cannot be run was loaded"))
}

fn gguf_of(checkpoint: &mut Checkpoint, ty: TensorType) -> Vec<u8> {
    let mut bytes = Vec::new();
    block_on(convert(checkpoint, Quant::plain(ty), &mut bytes, "tiny.gguf", &mut |_, _| ())).unwrap();
    bytes
}

fn read(bytes: Vec<u8>) -> Checkpoint {
    block_on(format::read(Box::new(BytesSource::new("tiny.gguf", bytes)))).unwrap()
}

#[test]
fn a_number_that_is_none_is_named_in_vectors_and_matrices() {
    let folder = folder("not_finite");
    for (name, at, value) in [
        ("model.layers.0.attn.q_proj.weight", 70, f32::NAN),
        ("model.layers.0.mlp.gate_proj.weight", 64 * 32, f32::INFINITY),
        ("model.embeddings.weight", 0, f32::NEG_INFINITY),
        ("model.norm.weight", 3, f32::NAN),
    ] {
        let mut tiny = Tiny::new(None);
        tiny.tensors.iter_mut().find(|tensor| tensor.0 == name).unwrap().2[at] = value;
        let error = load_error(open(&tiny, &folder));
        assert_eq!(error.code(), "not-finite");
        // The first row of the second half of gate_proj is the first of ffn_up.
        let at = if name.contains("gate_proj") { 0 } else { at };
        let said = error.to_string();
        assert!(said.contains("model.safetensors: tensor ") && said.contains(name), "{said}");
        assert!(said.ends_with(&format!("{value} at element {at}")), "{said}");
    }
}

#[test]
fn a_block_whose_scale_is_no_number_is_named() {
    let folder = folder("scale");
    for ty in [TensorType::F16, TensorType::BF16, TensorType::Q8_0, TensorType::Q5_0, TensorType::Q4_0] {
        let bytes = gguf_of(&mut open(&Tiny::new(None), &folder), ty);
        let checkpoint = read(bytes.clone());
        let tensor = &checkpoint.tensors[checkpoint.find("output.weight").unwrap()];
        let (start, block) = (tensor.offset as usize, tensor.ty.block_bytes());
        let mut bad = bytes;
        // The third block: infinity in f16, NaN in bf16.
        let infinity: &[u8] = if ty == TensorType::BF16 { &[0x81, 0x7f] } else { &[0, 0x7c] };
        bad[start + 2 * block..][..2].copy_from_slice(infinity);
        let said = load_error(read(bad)).to_string();
        let element = format!("at element {}", 2 * ty.block());
        assert!(said.contains("tiny.gguf: tensor output.weight") && said.ends_with(&element), "{ty}: {said}");
    }
}

#[test]
fn what_cannot_be_run_is_refused_from_the_headers() {
    let folder = folder("check");
    let good = || Tiny::new(Some(tokenizers::byte_level()));
    check(&open(&good(), &folder)).unwrap();
    check(&open(&Tiny::new(None), &self::folder("plain"))).unwrap();
    let mut config = good();
    config.config["num_heads"] = json!(7);
    let mut extra = good();
    extra.random("model.layers.0.attn.z_proj.weight", &[32, 32], 1.0);
    let mut ids: Value = serde_json::from_str(&tokenizers::byte_level()).unwrap();
    // 262 tokens, one of them with an id that has no row.
    ids["model"]["vocab"]["hell"] = json!(VOCAB);
    let mut merges: Value = serde_json::from_str(&tokenizers::byte_level()).unwrap();
    merges["model"]["merges"] = json!(["h e", "nowhere"]);
    let cases: [(Tiny, &str, &[&str]); 6] = [
        (config, "config", &["num_heads", "7"]),
        (extra, "tensors", &["z_proj"]),
        (good().without("lm_head.weight"), "tensors", &["output.weight", "missing"]),
        (Tiny::new(Some(ids.to_string())), "format", &["tokenizer.json: vocabulary", "vocab_size (264)", "id 264"]),
        (Tiny::new(Some(merges.to_string())), "format", &["tokenizer.json: model.merges", "nowhere"]),
        (Tiny::new(Some("{}".into())), "tokenizer", &["tokenizer.json"]),
    ];
    for (tiny, code, words) in cases {
        let checkpoint = open(&tiny, &self::folder("refused"));
        for error in [check(&checkpoint).unwrap_err(), load_error(checkpoint)] {
            let said = error.to_string();
            assert_eq!(error.code(), code, "{said}");
            assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
        }
    }
}

/// Sizes that no file could fill are refused at once: nothing is set aside for them, and no list of a billion tensors is made.
#[test]
fn a_configuration_far_beyond_its_file_is_refused_at_once() {
    let folder = folder("beyond");
    let all: [&[(&str, Value)]; 5] = [
        &[("num_hidden_layers", json!(1 << 24))],
        &[("vocab_size", json!(1 << 24))],
        &[("hidden_size", json!(1 << 24)), ("num_heads", json!(1 << 17))],
        &[("intermediate_size", json!(1 << 24))],
        &[("hidden_size", json!(1 << 23)), ("num_heads", json!(1 << 16)), ("num_hidden_layers", json!(1 << 24))],
    ];
    for sizes in all {
        let mut tiny = Tiny::new(None);
        for (key, value) in sizes {
            tiny.config[*key] = value.clone();
        }
        let n_values: usize = tiny.tensors.iter().map(|tensor| tensor.2.len()).sum();
        let started = std::time::Instant::now();
        let checkpoint = open(&tiny, &folder);
        for error in [check(&checkpoint).unwrap_err(), load_error(checkpoint)] {
            let said = error.to_string();
            assert!(error.code() == "format" && said.contains("model.safetensors: tensors: expected "), "{said}");
            assert!(said.ends_with(&format!(" parameters, as its configuration says, got {n_values}")), "{said}");
        }
        assert!(started.elapsed().as_secs() < 5, "{sizes:?}");
    }
    // What is wrong by little is told tensor by tensor, the first of them.
    let mut tiny = Tiny::new(None);
    tiny.config["num_hidden_layers"] = json!(100);
    let error = check(&open(&tiny, &folder)).unwrap_err();
    let said = error.to_string();
    assert!(matches!(&error, Error::Tensors { problems, .. } if problems.len() == 99 * 11), "{said}");
    assert!(said.contains("blk.1.attn_norm.weight [32] is missing; ") && said.ends_with("; and 1069 more"), "{said}");
}

/// A link to nowhere is not the absence of a file: a model half downloaded would lose its tokenizer without a word.
#[cfg(unix)]
#[test]
fn a_link_to_nowhere_is_named() {
    for name in ["tokenizer.json", "tokenizer_config.json", "vocab.json", "model.safetensors"] {
        let folder = Tiny::new(None).write(&folder("links"));
        let _ = std::fs::remove_file(folder.join(name));
        std::os::unix::fs::symlink("nowhere", folder.join(name)).unwrap();
        let error = block_on(format::open(&folder)).err().unwrap();
        assert!(error.code() == "io" && error.to_string().contains(name), "{error}");
    }
}

/// The kernels' reading of a matrix is that of the file formats, number for number.
#[test]
fn repacked_weights_are_the_floats_of_the_file() {
    for ty in WeightType::ALL {
        let (rows, k) = (5, 768);
        let bytes = sample_bytes(ty, rows, k, 7);
        let (data, scales) = sample(ty, rows, k, 7);
        let in_file = TensorType::ALL.into_iter().find(|other| other.name() == ty.name()).unwrap();
        let mut want = Vec::new();
        to_f32(in_file, &bytes, &mut want);
        let got: Vec<f32> = (0..rows).flat_map(|row| read_row(ty, k, &data, &scales, row)).collect();
        assert_eq!(got, want, "{}", ty.name());
    }
}

/// The same logits from a file as from its weights written out in F32: nothing is lost between file and kernels.
#[test]
fn every_type_of_file_runs_as_its_own_floats() {
    // Rows of 256 and 768, so that no type falls back.
    let golden = Path::new("tests/fixtures/golden/head_dim_128");
    for ty in TensorType::ALL {
        let stored = gguf_of(&mut block_on(format::open(golden)).unwrap(), ty);
        let checkpoint = read(stored.clone());
        let matrices = checkpoint.tensors.iter().filter(|tensor| format::names::is_matrix(&tensor.name));
        assert!(matrices.fold(0, |n, tensor| n + i32::from(tensor.ty == ty)) == 18, "{ty}");
        let floats = gguf_of(&mut read(stored.clone()), TensorType::F32);
        let [stored, floats] = [stored, floats].map(|bytes| {
            let mut model = load(read(bytes)).unwrap();
            block_on(model.score(&[1, 2, 3])).unwrap()
        });
        let worst = stored.iter().zip(&floats).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        println!("{ty}: largest difference of a logit {worst:e}");
        assert!(stored.len() == 3 * 67 && worst < 1e-5, "{ty}: {worst}");
    }
}
