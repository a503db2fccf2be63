//! A tiny FoX checkpoint in the authors' layout, and what every test does with checkpoints.

use kitfox::Result;
use kitfox::format::hugging_face::{self, Index, Parts};
use kitfox::format::random::SplitMix64;
use kitfox::format::{self, BytesSource, Checkpoint, Quant, Source, TensorType, convert, from_f32, to_f32};
use pollster::block_on;
use safetensors::{Dtype, tensor::TensorView};
use std::collections::BTreeMap;

pub const CONFIG: &str = r#"{"model_type": "forgetting_transformer-project_fox", "vocab_size": 40, "hidden_size": 32,
    "num_hidden_layers": 1, "num_heads": 2, "num_kv_heads": null, "hidden_ratio": 4, "intermediate_size": null,
    "hidden_act": "swish", "norm_eps": 1e-06, "rope_base": 500000.0, "use_rope": false, "fgate_type": "full", "qk_norm": true,
    "use_k_shift": true, "use_output_gate": true, "ogate_act": "sigmoid", "initializer_range": 0.02, "bos_token_id": 0,
    "log_pruning_tolerance": -10.0, "training_context": 4096, "max_position_embeddings": null}"#;
pub const TOKENIZER: &str = r#"{"model": {"type": "BPE", "vocab": {"é": 0}, "merges": []}}"#;

/// The official layout, small: `ffn_down` rows are 48 wide, no whole blocks.
pub const SHAPES: [(&str, &[usize]); 15] = [
    ("model.embeddings.weight", &[40, 32]),
    ("model.norm.weight", &[32]),
    ("lm_head.weight", &[40, 32]),
    ("model.layers.0.attn_norm.weight", &[32]),
    ("model.layers.0.attn.q_proj.weight", &[32, 32]),
    ("model.layers.0.attn.k_proj.linear.weight", &[32, 32]),
    ("model.layers.0.attn.k_proj.shift_proj.weight", &[2, 32]),
    ("model.layers.0.attn.v_proj.weight", &[32, 32]),
    ("model.layers.0.attn.ogate_proj.weight", &[32, 32]),
    ("model.layers.0.attn.o_proj.weight", &[32, 32]),
    ("model.layers.0.attn.fgate_proj.weight", &[2, 32]),
    ("model.layers.0.attn.fgate_proj.bias", &[2]),
    ("model.layers.0.mlp_norm.weight", &[32]),
    ("model.layers.0.mlp.gate_proj.weight", &[96, 32]),
    ("model.layers.0.mlp.down_proj.weight", &[32, 48]),
];

/// The tensors of [`SHAPES`] in safetensors, with `edit` done to the floats.
pub fn weights(ty: Dtype, edit: impl Fn(&str, &mut Vec<f32>)) -> Vec<u8> {
    let stored = SHAPES.map(|(name, shape)| {
        let mut random = SplitMix64(name.len() as u64);
        let mut values: Vec<f32> = (0..shape.iter().product()).map(|_| random.float()).collect();
        edit(name, &mut values);
        let mut bytes = Vec::new();
        from_f32(tensor_type(ty), &values, &mut bytes);
        bytes
    });
    let views =
        SHAPES.iter().zip(&stored).map(|((name, shape), bytes)| (*name, TensorView::new(ty, shape.to_vec(), bytes).unwrap()));
    safetensors::serialize(views, None).unwrap()
}

fn tensor_type(ty: Dtype) -> TensorType {
    match ty {
        Dtype::F32 => TensorType::F32,
        Dtype::F16 => TensorType::F16,
        Dtype::BF16 => TensorType::BF16,
        other => panic!("{other:?}"),
    }
}

pub fn checkpoint_of(files: Vec<Box<dyn Source>>, index: Option<Index>) -> Result<Checkpoint> {
    block_on(hugging_face::read(Parts {
        name: "tiny".into(),
        config_file: "config.json".into(),
        config: CONFIG.into(),
        tokenizer: Some(TOKENIZER.into()),
        tokenizer_file: "tokenizer.json".into(),
        index,
        files,
    }))
}

pub fn official(ty: Dtype) -> Checkpoint {
    checkpoint_of(vec![Box::new(BytesSource::new("model.safetensors", weights(ty, |_, _| ())))], None).unwrap()
}

pub fn converted(checkpoint: &mut Checkpoint, quant: Quant) -> Vec<u8> {
    let mut out = Vec::new();
    let report = block_on(convert(checkpoint, quant, &mut out, "out.gguf", &mut |_, _| ())).unwrap();
    assert_eq!(report.bytes, out.len() as u64);
    out
}

pub fn read(bytes: Vec<u8>) -> Result<Checkpoint> {
    block_on(format::read(Box::new(BytesSource::new("x.gguf", bytes))))
}

pub fn floats(checkpoint: &mut Checkpoint, ix: usize) -> Result<Vec<f32>> {
    let (ty, rows) = (checkpoint.tensors[ix].ty, checkpoint.tensors[ix].n_rows());
    let bytes = block_on(checkpoint.read_rows(ix, 0, rows))?;
    let mut values = Vec::new();
    to_f32(ty, &bytes, &mut values);
    Ok(values)
}

pub fn all_bits(checkpoint: &mut Checkpoint) -> BTreeMap<String, Vec<u32>> {
    let all = 0..checkpoint.tensors.len();
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    all.map(|ix| (checkpoint.tensors[ix].name.clone(), bits(floats(checkpoint, ix).unwrap()))).collect()
}

pub fn error_of<T>(result: Result<T>) -> String {
    result.err().map_or_else(|| panic!("expected an error"), |error| error.to_string())
}
