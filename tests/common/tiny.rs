//! A tiny FoX (LLaMA) as a Hugging Face directory: one layer, d = 32, two heads, random weights from a fixed seed, and the
//! byte-level tokenizer of `tokenizers.rs` when asked for.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kitfox::kernel::inputs;
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

pub const VOCAB: usize = 264;
const D: usize = 32;
const HEADS: usize = 2;
const MLP: usize = 64;

/// A checkpoint that a test may spoil before it is written.
pub struct Tiny {
    pub config: Value,
    pub tokenizer: Option<String>,
    /// Name, shape, values.
    pub tensors: Vec<(String, Vec<usize>, Vec<f32>)>,
}

impl Tiny {
    /// As it should be.
    pub fn new(tokenizer: Option<String>) -> Self {
        let config = json!({
            "model_type": "forgetting_transformer-project_fox", "vocab_size": VOCAB, "hidden_size": D, "num_hidden_layers": 1,
            "num_heads": HEADS, "intermediate_size": MLP, "hidden_act": "swish", "norm_eps": 1e-6, "fgate_type": "full",
            "use_rope": false, "qk_norm": false, "use_k_shift": false, "use_v_shift": false, "use_output_norm": false,
            "use_output_gate": false, "tie_word_embeddings": false, "bos_token_id": 256, "eos_token_id": 256,
            "training_context": 64,
        });
        let mut tiny = Self { config, tokenizer, tensors: Vec::new() };
        tiny.random("model.embeddings.weight", &[VOCAB, D], 1.0);
        let layer = |name: &str| format!("model.layers.0.{name}");
        for name in ["q_proj", "k_proj", "v_proj", "o_proj"] {
            tiny.random(&layer(&format!("attn.{name}.weight")), &[D, D], 0.4);
        }
        tiny.random(&layer("attn.fgate_proj.weight"), &[HEADS, D], 0.4);
        tiny.random(&layer("attn.fgate_proj.bias"), &[HEADS], 1.0);
        tiny.random(&layer("mlp.gate_proj.weight"), &[2 * MLP, D], 0.4);
        tiny.random(&layer("mlp.down_proj.weight"), &[D, MLP], 0.4);
        for name in [layer("attn_norm.weight"), layer("mlp_norm.weight"), "model.norm.weight".to_owned()] {
            tiny.tensors.push((name, vec![D], vec![1.0; D]));
        }
        tiny.random("lm_head.weight", &[VOCAB, D], 0.5);
        tiny
    }

    /// Adds a tensor.
    pub fn random(&mut self, name: &str, shape: &[usize], scale: f32) {
        let values = inputs::floats(self.tensors.len() as u32 + 1, shape.iter().product(), scale);
        self.tensors.push((name.to_owned(), shape.to_vec(), values));
    }

    /// Removes a tensor.
    pub fn without(mut self, name: &str) -> Self {
        self.tensors.retain(|(known, _, _)| known != name);
        self
    }

    /// Writes the directory.
    pub fn write(&self, directory: &Path) -> PathBuf {
        std::fs::create_dir_all(directory).unwrap();
        std::fs::write(directory.join("config.json"), self.config.to_string()).unwrap();
        if let Some(tokenizer) = &self.tokenizer {
            std::fs::write(directory.join("tokenizer.json"), tokenizer).unwrap();
        }
        let view = |(name, shape, values): &(String, Vec<usize>, Vec<f32>)| {
            (name.clone(), shape.clone(), bytemuck::cast_slice(values).to_vec())
        };
        let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = self.tensors.iter().map(view).collect();
        let views = bytes.iter().map(|(name, shape, bytes)| (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
        std::fs::write(directory.join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
        directory.to_owned()
    }
}
