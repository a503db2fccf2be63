//! Checkpoints: what goes in comes out, what other tools write is read, and what is broken is refused by name.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "../common/hostile/mod.rs"]
mod hostile_input;

mod blocks;
mod hostile;
mod import;
mod large;
mod lessons;
mod manifests;
mod mutations;
mod tiny;
mod tokenizer_cost;
mod tokenizer_steps;

use hostile_input::exercise::Stream;
use kitfox::format::gguf::Scalar;
use kitfox::format::gguf_write::{Info, Writer};
use kitfox::format::random::SplitMix64;
use kitfox::format::{self, BytesSource, Fallback, Quant, TensorType, convert, from_f32, to_f32};
use pollster::block_on;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::collections::BTreeMap;
use tiny::{CONFIG, SHAPES, TOKENIZER, all_bits, checkpoint_of, converted, error_of, floats, official, read, weights};

const PYTHON_GGUF: &[u8] = include_bytes!("../fixtures/gguf/python.gguf");
const PYTHON_FLOATS: &[u8] = include_bytes!("../fixtures/gguf/python.safetensors");

#[test]
fn a_file_of_python_reads_the_same() {
    let mut checkpoint = read(PYTHON_GGUF.to_vec()).unwrap();
    assert_eq!(checkpoint.name, "written by Python");
    let expected = serde_json::json!({
        "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 1, "num_heads": 4, "intermediate_size": 192, "norm_eps": 1e-6,
        "rope_base": 500_000.0, "use_k_shift": true, "fgate_type": "full", "log_pruning_tolerance": -10.0, "bos_token_id": 1,
        "eos_token_id": 2, "max_position_embeddings": 4096,
    });
    assert_eq!(serde_json::Value::Object(checkpoint.config.clone()), expected);
    let fixture = SafeTensors::deserialize(PYTHON_FLOATS).unwrap();
    assert_eq!(checkpoint.tensors.len(), fixture.names().len());
    for ix in 0..checkpoint.tensors.len() {
        let want = fixture.tensor(&checkpoint.tensors[ix].name).unwrap();
        assert_eq!(checkpoint.tensors[ix].shape, want.shape());
        let mut bits = Vec::new();
        from_f32(TensorType::F32, &floats(&mut checkpoint, ix).unwrap(), &mut bits);
        assert!(bits == want.data(), "{}", checkpoint.tensors[ix].name);
    }
}

#[test]
fn the_stacked_mlp_matrix_becomes_two_halves_in_file_order() {
    let mut checkpoint = official(Dtype::F32);
    assert_eq!(checkpoint.tensors.len(), SHAPES.len() + 1);
    assert!(checkpoint.tensors.is_sorted_by_key(|tensor| tensor.offset));
    let (gate, up) = (checkpoint.find("blk.0.ffn_gate.weight").unwrap(), checkpoint.find("blk.0.ffn_up.weight").unwrap());
    assert_eq!((checkpoint.tensors[gate].shape.as_slice(), up), (&[48, 32][..], gate + 1));
    let mut random = SplitMix64("model.layers.0.mlp.gate_proj.weight".len() as u64);
    let whole: Vec<f32> = (0..96 * 32).map(|_| random.float()).collect();
    assert_eq!([floats(&mut checkpoint, gate).unwrap(), floats(&mut checkpoint, up).unwrap()].concat(), whole);
    let mut rows = Vec::new();
    to_f32(TensorType::F32, &block_on(checkpoint.read_rows(up, 3, 2)).unwrap(), &mut rows);
    assert_eq!(rows, whole[(48 + 3) * 32..(48 + 5) * 32]);
    assert_eq!(block_on(checkpoint.read_rows(up, 47, 2)).unwrap_err().code(), "argument");
}

#[test]
fn conversion_keeps_everything_and_quantizes_matrices_only() {
    for ty in [Dtype::F32, Dtype::F16, Dtype::BF16] {
        for quant in Quant::all() {
            let mut source = official(ty);
            let mut out = Vec::new();
            let mut seen = (0, 0);
            let report = block_on(convert(&mut source, quant, &mut out, "out", &mut |done, total| seen = (done, total))).unwrap();
            assert_eq!(seen, (seen.1, source.tensors.iter().map(|tensor| tensor.bytes).sum()));
            let narrow = |name: &str| name.contains("fgate") || name.contains("shift");
            let matrices = source.tensors.iter().filter(|tensor| tensor.shape.len() == 2 && !narrow(&tensor.name));
            let expected = matrices.filter_map(|tensor| {
                let (asked, width) = (quant.type_of(&tensor.name), tensor.width());
                let ty = asked.for_width(width);
                (ty != asked).then(|| Fallback { tensor: tensor.name.clone(), width, asked, ty })
            });
            assert_eq!(report.fallbacks, expected.collect::<Vec<_>>(), "{quant}");

            let mut back = read(out).unwrap();
            assert_eq!(back.source_config.as_deref(), Some(CONFIG));
            assert_eq!(back.tokenizer.as_deref(), Some(TOKENIZER));
            let mut config = source.config.clone();
            config.insert("intermediate_size".into(), 48.into());
            assert_eq!(back.config, config);
            let (want, got) = (all_bits(&mut source), all_bits(&mut back));
            for tensor in back.tensors.clone() {
                let vector = narrow(&tensor.name) || tensor.shape.len() == 1;
                let stored = if vector { TensorType::F32 } else { quant.type_of(&tensor.name).for_width(tensor.width()) };
                assert_eq!(tensor.ty, stored, "{}", tensor.name);
                let values: Vec<f32> = want[&tensor.name].iter().map(|bits| f32::from_bits(*bits)).collect();
                let (mut bytes, mut rounded) = (Vec::new(), Vec::new());
                from_f32(stored, &values, &mut bytes);
                to_f32(stored, &bytes, &mut rounded);
                assert!(rounded.iter().map(|v| v.to_bits()).eq(got[&tensor.name].iter().copied()), "{}", tensor.name);
            }
            assert_eq!(want.len(), got.len());
        }
    }
}

#[test]
fn converting_a_gguf_again_changes_nothing_and_goes_through_f32_otherwise() {
    let full = converted(&mut official(Dtype::F32), Quant::plain(TensorType::F32));
    for quant in Quant::all() {
        let once = converted(&mut official(Dtype::F32), quant);
        assert!(converted(&mut read(once.clone()).unwrap(), quant) == once, "{quant} to {quant}");
        assert!(converted(&mut read(full.clone()).unwrap(), quant) == once, "f32 to {quant}");
        let mut widened = read(converted(&mut read(once.clone()).unwrap(), Quant::plain(TensorType::F32))).unwrap();
        assert_eq!(all_bits(&mut widened), all_bits(&mut read(once).unwrap()));
    }
}

#[test]
fn every_file_is_read_forward_only() {
    let expected = converted(&mut official(Dtype::F32), Quant::plain(TensorType::Q8_0));
    let mut streamed = checkpoint_of(vec![Stream::boxed(&weights(Dtype::F32, |_, _| ()))], None).unwrap();
    assert!(converted(&mut streamed, Quant::plain(TensorType::Q8_0)) == expected);
    let mut again = block_on(format::read(Stream::boxed(&expected))).unwrap();
    assert!(converted(&mut again, Quant::plain(TensorType::Q8_0)) == expected);
    // Long enough that the header does not hold the data: a tokenizer of 5 MB, a matrix of 6 MB.
    let mut big = Vec::new();
    let metadata = [
        ("general.architecture".to_owned(), Scalar::String("fox".into())),
        ("tokenizer.huggingface.json".to_owned(), Scalar::String("x".repeat(5_000_000))),
    ];
    let info = Info { name: "output.weight".into(), ty: TensorType::F32, shape: vec![1500, 1024] };
    let mut writer = Writer::start(&mut big, "big", &metadata, &[info]).unwrap();
    writer.data(&vec![0; 1500 * 4096]).unwrap();
    writer.finish().unwrap();
    let mut again = block_on(format::read(Stream::boxed(&big))).unwrap();
    assert_eq!(again.tokenizer.as_ref().map(String::len), Some(5_000_000));
    converted(&mut again, Quant::plain(TensorType::Q4_0));
    // Cut short, and nobody knew the length.
    let mut cut = block_on(format::read(Stream::boxed(&big[..big.len() - 5]))).unwrap();
    let error = error_of(block_on(convert(&mut cut, Quant::plain(TensorType::F16), &mut Vec::new(), "out", &mut |_, _| ())));
    assert!(error.contains("output.weight") && error.contains("cut short"), "{error}");
}

#[test]
fn weights_that_are_no_numbers_are_named() {
    for (value, quant, word) in [
        (f32::NAN, Quant::plain(TensorType::F32), "NaN at element 70"),
        (f32::NEG_INFINITY, Quant::plain(TensorType::Q8_0), "-inf at element 70"),
        (65_520.0, Quant::plain(TensorType::F16), "65520 at element 70, too large for F16"),
        (1e7, Quant::plain(TensorType::Q8_0), "too large for Q8_0"),
        (-1e6, Quant::plain(TensorType::Q4_0), "too large for Q4_0"),
        (f32::MAX, Quant::plain(TensorType::BF16), "too large for BF16"),
    ] {
        let bytes = weights(Dtype::F32, |name, values| {
            if name == "model.layers.0.attn.q_proj.weight" {
                values[70] = value;
            }
        });
        let mut checkpoint = checkpoint_of(vec![Box::new(BytesSource::new("bad.safetensors", bytes))], None).unwrap();
        let error = block_on(convert(&mut checkpoint, quant, &mut Vec::new(), "out", &mut |_, _| ())).unwrap_err();
        assert_eq!(error.code(), "not-finite");
        let text = error.to_string();
        assert!(text.contains("bad.safetensors: tensor model.layers.0.attn.q_proj.weight") && text.contains(word), "{text}");
    }
    // The largest of each type are held.
    for (value, quant) in [
        (65_519.0, Quant::plain(TensorType::F16)),
        (8_321_039.0, Quant::plain(TensorType::Q8_0)),
        (-524_159.0, Quant::plain(TensorType::Q4_0)),
    ] {
        let bytes = weights(Dtype::F32, |name, values| {
            if name == "lm_head.weight" {
                values[0] = value;
            }
        });
        let mut checkpoint = checkpoint_of(vec![Box::new(BytesSource::new("large", bytes))], None).unwrap();
        let mut back = read(converted(&mut checkpoint, quant)).unwrap_or_else(|e| panic!("{e}"));
        let ix = back.find("output.weight").unwrap();
        assert!((floats(&mut back, ix).unwrap()[0] / value - 1.0).abs() < 1e-3);
    }
}

/// Leaves a file of each type, with rows of 256, and its floats for `tests/evidence/gguf_python.py`.
#[test]
fn files_for_python_are_written() {
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("gguf_python");
    std::fs::create_dir_all(&dir).unwrap();
    for quant in Quant::all() {
        let golden = std::path::Path::new("tests/fixtures/golden/head_dim_128");
        let bytes = converted(&mut block_on(format::open(golden)).unwrap(), quant);
        let mut checkpoint = read(bytes.clone()).unwrap();
        std::fs::write(dir.join(format!("{quant}.gguf")), bytes).unwrap();
        let shapes: BTreeMap<_, _> =
            checkpoint.tensors.iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone())).collect();
        let bits = all_bits(&mut checkpoint);
        let data: BTreeMap<_, Vec<u8>> =
            bits.iter().map(|(name, v)| (name, v.iter().flat_map(|v| v.to_le_bytes()).collect())).collect();
        let views = data.iter().map(|(name, v)| (*name, TensorView::new(Dtype::F32, shapes[*name].clone(), v).unwrap()));
        std::fs::write(dir.join(format!("{quant}.safetensors")), safetensors::serialize(views, None).unwrap()).unwrap();
    }
}
