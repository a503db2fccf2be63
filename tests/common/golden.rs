//! What the tests over the golden cases share: reading a case, and running a model over its text.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of tests fails as tests do")]

use kitfox::session::{DeviceChoice, KvType, LoadOptions, Model};
use safetensors::SafeTensors;
use std::path::PathBuf;

/// Largest deviation of a logit that is allowed.
pub const BAR: f32 = 2e-4;

/// All cases: seventeen in the official layout, three in flash-linear-attention's.
pub const CASES: [&str; 20] = [
    "fla_gqa_norm_gate",
    "fla_plain",
    "fla_window_bias",
    "fox_llama",
    "fox_pro",
    "fox_pro_pruned",
    "fox_pro_shared_qk_norm",
    "fox_rope",
    "gate_bias_only",
    "gate_fixed_alibi",
    "head_dim_128",
    "k_shift_only",
    "mlp_sigmoid",
    "output_gate_sigmoid",
    "output_gate_silu",
    "output_norm_only",
    "small_activations",
    "tied_embeddings",
    "transformer_llama",
    "transformer_pro",
];

/// A golden case.
pub struct Golden {
    /// A text.
    pub tokens: Vec<u32>,
    /// Logits after each token, [tokens, V].
    pub logits: Vec<f32>,
    /// Greedy continuation of the first `prompt_len` tokens.
    pub greedy: Vec<u32>,
    /// See [`Golden::greedy`].
    pub prompt_len: usize,
}

/// Where a case lies.
pub fn directory(case: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden").join(case)
}

/// Reads a case.
pub fn golden(case: &str) -> Golden {
    let bytes = std::fs::read(directory(case).join("golden.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let words = |name: &str| -> Vec<u32> {
        file.tensor(name).unwrap().data().chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap())).collect()
    };
    Golden {
        tokens: words("tokens"),
        logits: words("logits").into_iter().map(f32::from_bits).collect(),
        greedy: words("greedy"),
        prompt_len: words("greedy_prompt_len")[0] as usize,
    }
}

/// Loads a case with an exact cache.
pub fn load(case: &str, device: DeviceChoice, chunk: usize) -> Model {
    let options =
        LoadOptions { device, kv: KvType::F32, scores: true, chunk: Some(chunk), context: Some(256), ..LoadOptions::default() };
    pollster::block_on(async {
        let checkpoint = kitfox::format::open(&directory(case)).await.unwrap();
        Model::load(checkpoint, options, &mut |_| Ok(())).await.unwrap()
    })
}

/// Logits of every position, by chunks through the scoring graph.
pub fn by_chunks(model: &mut Model, tokens: &[u32]) -> Vec<f32> {
    model.reset();
    let chunk = model.chunk();
    tokens.chunks(chunk).flat_map(|ids| pollster::block_on(model.score(ids)).unwrap()).collect()
}

/// Logits of every position, token by token through the decode graph.
pub fn by_steps(model: &mut Model, tokens: &[u32]) -> Vec<f32> {
    model.reset();
    tokens.iter().flat_map(|id| pollster::block_on(model.step(*id)).unwrap()).collect()
}

/// Largest absolute difference.
pub fn worst(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    // `max` drops a NaN: count it as infinitely wrong.
    got.iter().zip(want).map(|(got, want)| if got.is_nan() { f32::INFINITY } else { (got - want).abs() }).fold(0.0, f32::max)
}
