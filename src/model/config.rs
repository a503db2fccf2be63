//! The validated configuration of a model, from the keys of a checkpoint's `config.json` (the GGUF reader gives the same keys).
//!
//! Two families write such a file: the authors' own code, and flash-linear-attention's. Every switch of both is read. What cannot
//! be run, and every key that is not known, is refused here by name, before any weight is touched.

use super::keys::{Family, Keys, MAX_SIZE};
use crate::error::{Error, Result};
use serde_json::{Map, Value};

/// How a head forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForgetGate {
    /// f = sigmoid(w · x + b): follows the data.
    Full,
    /// f = sigmoid(b): one constant a head (`bias_only` and `fixed` in the official code).
    BiasOnly,
    /// f = 1: never forgets.
    None,
}

/// What multiplies the attention's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputGate {
    /// sigmoid(w · x).
    Sigmoid,
    /// silu(w · x).
    Silu,
}

/// What the gate rows of the MLP are passed through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MlpAct {
    /// silu(gate) · value.
    Silu,
    /// sigmoid(gate) · value.
    Sigmoid,
}

/// A configuration that can be run. Sizes are numbers of channels, heads, layers or tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// V: tokens in the vocabulary.
    pub vocab: usize,
    /// d: channels of the residual stream.
    pub hidden: usize,
    /// L: layers.
    pub n_layers: usize,
    /// H: heads of the queries, each with a forget gate of its own.
    pub n_heads: usize,
    /// Heads of the keys and values: H, or a divisor of it whose heads serve H / n_kv_heads query heads each.
    pub n_kv_heads: usize,
    /// h = d / H: a multiple of 8 from 16 to 128.
    pub head_dim: usize,
    /// I: channels inside the MLP.
    pub intermediate: usize,
    /// What its gate rows are passed through.
    pub mlp_act: MlpAct,
    /// ε of the norms over d and of the output norm. (That of q and k is [`crate::kernel::attention::QK_NORM_EPS`], always.)
    pub norm_eps: f32,
    /// q, k and v have biases.
    pub qkv_bias: bool,
    /// RMSNorm on q and k, per head.
    pub qk_norm: bool,
    /// One weight `[h]` for all heads instead of `[d]`.
    pub qk_norm_shared: bool,
    /// Base of the rotary positions of q and k, where there are any.
    pub rope_base: Option<f64>,
    /// k_t mixes with k_{t-1}.
    pub k_shift: bool,
    /// v_t mixes with v_{t-1}.
    pub v_shift: bool,
    /// How a head forgets.
    pub forget_gate: ForgetGate,
    /// w: query i sees keys i − w + 1 to i; all keys up to i without. It counts wherever a token comes in. (flash-linear-attention's
    /// own forward pass ignores it, and only its cache keeps it.)
    pub window: Option<usize>,
    /// RMSNorm per head on the attention's output.
    pub output_norm: bool,
    /// What multiplies the attention's output.
    pub output_gate: Option<OutputGate>,
    /// The head uses the embedding matrix.
    pub tied: bool,
    /// Token put before each document.
    pub bos: Option<u32>,
    /// Token that ends a document.
    pub eos: Option<u32>,
    /// Longest context the model file states: its context length, else its training context.
    pub context: Option<usize>,
    /// ln ε of adaptive computation pruning that the model was trained with.
    pub log_pruning_tolerance: Option<f32>,
}

/// Base of the rotary positions when `rope_base` is not given (official code).
const ROPE_BASE: f64 = 500_000.0;

impl Config {
    /// Reads and validates the keys of a `config.json`.
    ///
    /// # Errors
    /// [`Error::Config`] with the key, what can be run, and what was found.
    pub fn from_json(json: &Map<String, Value>) -> Result<Self> {
        let keys = Keys::new(json)?;
        let (vocab, hidden) = (keys.size("vocab_size")?, keys.size("hidden_size")?);
        let (n_layers, n_heads) = (keys.size("num_hidden_layers")?, keys.size("num_heads")?);
        let head_dim = head_dim(hidden, n_heads)?;
        let output_norm = keys.flag("use_output_norm")?;
        let norm_eps = keys.number("norm_eps")?.unwrap_or(1e-6);
        if !(norm_eps > 0.0 && norm_eps < 1.0) {
            return Err(Error::config("norm_eps", "a number between 0 and 1", norm_eps));
        }
        let log_pruning_tolerance = keys.number("log_pruning_tolerance")?;
        if let Some(ln) = log_pruning_tolerance.filter(|ln| !ln.is_finite() || *ln >= 0.0) {
            return Err(Error::config("log_pruning_tolerance", "null or a number below 0 (ln ε)", ln));
        }
        Ok(Self {
            vocab,
            hidden,
            n_layers,
            n_heads,
            n_kv_heads: n_kv_heads(&keys, n_heads)?,
            head_dim,
            intermediate: intermediate(&keys, hidden)?,
            mlp_act: mlp_act(&keys)?,
            norm_eps: norm_eps as f32,
            qkv_bias: keys.flag("qkv_bias")?,
            qk_norm: keys.flag("qk_norm")?,
            qk_norm_shared: keys.flag("qk_norm_share_param_across_head")?,
            rope_base: rope_base(&keys)?,
            k_shift: keys.flag("use_k_shift")?,
            v_shift: keys.flag("use_v_shift")?,
            forget_gate: match keys.one_of("fgate_type", &["full", "bias_only", "fixed", "none"], "full")? {
                "full" => ForgetGate::Full,
                "none" => ForgetGate::None,
                _ => ForgetGate::BiasOnly,
            },
            window: keys.optional_size("window_size")?,
            output_norm,
            output_gate: output_gate(&keys, output_norm)?,
            tied: keys.flag("tie_word_embeddings")?,
            bos: keys.token("bos_token_id", vocab)?,
            eos: keys.token("eos_token_id", vocab)?,
            context: keys.optional_size("max_position_embeddings")?.or(keys.optional_size("training_context")?),
            log_pruning_tolerance: log_pruning_tolerance.map(|ln| ln as f32),
        })
    }

    /// Channels of all key (or value) heads.
    pub fn kv_width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// Parameters of the model. In 128 bits: nothing says yet that a file has so many.
    pub fn n_parameters(&self) -> u128 {
        let [d, v, i, kv] = [self.hidden, self.vocab, self.intermediate, self.kv_width()].map(|size| size as u128);
        let [heads, kv_heads, h] = [self.n_heads, self.n_kv_heads, self.head_dim].map(|size| size as u128);
        let on = u128::from;
        let projections = (2 + on(self.output_gate.is_some())) * d * d + 2 * d * kv + on(self.qkv_bias) * (d + 2 * kv);
        let shifts = (on(self.k_shift) + on(self.v_shift)) * kv_heads * d;
        let gate = match self.forget_gate {
            ForgetGate::Full => heads * d + heads,
            ForgetGate::BiasOnly => heads,
            ForgetGate::None => 0,
        };
        let qk_norm = on(self.qk_norm) * if self.qk_norm_shared { 2 * h } else { d + kv };
        let layer = projections + shifts + gate + qk_norm + on(self.output_norm) * d + 2 * d + 3 * d * i;
        (2 - on(self.tied)) * v * d + self.n_layers as u128 * layer + d
    }
}

fn head_dim(hidden: usize, n_heads: usize) -> Result<usize> {
    if !hidden.is_multiple_of(n_heads) {
        return Err(Error::config("hidden_size", format!("a multiple of num_heads ({n_heads})"), hidden));
    }
    let head_dim = hidden / n_heads;
    if !((16..=128).contains(&head_dim) && head_dim.is_multiple_of(8)) {
        return Err(Error::config("hidden_size / num_heads", "a head width that is a multiple of 8 from 16 to 128", head_dim));
    }
    Ok(head_dim)
}

fn n_kv_heads(keys: &Keys<'_>, n_heads: usize) -> Result<usize> {
    let n = keys.optional_size("num_kv_heads")?.unwrap_or(n_heads);
    match keys.family() {
        Family::Official if n != n_heads => Err(Error::config("num_kv_heads", format!("num_heads ({n_heads}) or null"), n)),
        _ if !n_heads.is_multiple_of(n) => Err(Error::config("num_kv_heads", format!("a divisor of num_heads ({n_heads})"), n)),
        _ => Ok(n),
    }
}

fn intermediate(keys: &Keys<'_>, hidden: usize) -> Result<usize> {
    if let Some(width) = keys.optional_size("intermediate_size")? {
        return Ok(width);
    }
    let ratio = keys.number("hidden_ratio")?.unwrap_or(4.0);
    if !(ratio > 0.0 && ratio <= 64.0) {
        return Err(Error::config("hidden_ratio", "a number in (0, 64]", ratio));
    }
    // The rule of both families: 256·⌈int(d·ratio·2/3)/256⌉.
    match ((hidden as f64 * ratio * 2.0 / 3.0) as usize).div_ceil(256) * 256 {
        width @ 1.. if width as u64 <= MAX_SIZE => Ok(width),
        width => {
            let got = format!("{ratio}, which gives {width}");
            Err(Error::config("hidden_ratio", format!("a ratio that gives the MLP 1 to {MAX_SIZE} channels"), got))
        }
    }
}

fn mlp_act(keys: &Keys<'_>) -> Result<MlpAct> {
    let known: &[&str] = match keys.family() {
        Family::Official => &["swish", "silu", "sigmoid"],
        Family::FlashLinearAttention => &["swish", "silu"],
    };
    Ok(if keys.one_of("hidden_act", known, "swish")? == "sigmoid" { MlpAct::Sigmoid } else { MlpAct::Silu })
}

fn rope_base(keys: &Keys<'_>) -> Result<Option<f64>> {
    let base = keys.number("rope_base")?.unwrap_or(ROPE_BASE);
    if !(base.is_finite() && base > 0.0) {
        return Err(Error::config("rope_base", "a number above 0", base));
    }
    Ok(keys.flag("use_rope")?.then_some(base))
}

fn output_gate(keys: &Keys<'_>, output_norm: bool) -> Result<Option<OutputGate>> {
    let act = keys.one_of("ogate_act", &["sigmoid", "silu", "swish"], "sigmoid")?;
    match (keys.flag("use_output_gate")?, act) {
        (false, _) => Ok(None),
        (true, "sigmoid") => Ok(Some(OutputGate::Sigmoid)),
        // The official code asserts that there is no norm.
        (true, silu) if output_norm => Err(Error::config("ogate_act", "sigmoid when use_output_norm is true", silu)),
        (true, _) => Ok(Some(OutputGate::Silu)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pro() -> Map<String, Value> {
        let Value::Object(map) = json!({
            "model_type": "forgetting_transformer-project_fox", "vocab_size": 8192, "hidden_size": 512, "hidden_ratio": 3.5,
            "num_hidden_layers": 8, "num_heads": 8, "use_output_gate": true, "use_output_norm": true, "qk_norm": true,
            "use_k_shift": true, "use_v_shift": true, "bos_token_id": 0, "eos_token_id": 0, "training_context": 4096
        }) else {
            unreachable!("an object")
        };
        map
    }

    #[test]
    fn the_demo_configuration_has_34_7_million_parameters() {
        let config = Config::from_json(&pro()).unwrap();
        assert_eq!((config.head_dim, config.intermediate, config.context), (64, 1280, Some(4096)));
        assert_eq!((config.n_parameters() as f64 / 1e5).round(), 347.0);
    }

    #[test]
    fn a_configuration_that_cannot_be_run_is_refused_by_name() {
        let bad = [
            ("model_type", json!("llama")),
            ("hidden_size", json!(500)),
            ("hidden_size", json!(-1)),
            ("hidden_size", json!("512")),
            ("vocab_size", json!(0)),
            ("vocab_size", Value::Null),
            ("num_heads", json!(7)),
            ("num_kv_heads", json!(2)),
            ("qkv_bias", json!(true)),
            ("num_hidden_layers", json!(1e30)),
            ("intermediate_size", json!(0)),
            ("hidden_ratio", json!(-2)),
            ("hidden_ratio", json!(1e-3)),
            ("hidden_ratio", json!(65)),
            ("hidden_act", json!("gelu")),
            ("fgate_type", json!("sometimes")),
            ("ogate_act", json!("silu")),
            ("use_rope", json!("yes")),
            ("rope_base", json!(0)),
            ("qk_norm", json!("yes")),
            ("window_size", json!(64)),
            ("attnres_block_size", json!(4)),
            ("attention_sinks", json!(1)),
            ("num_experts", json!(8)),
            ("norm_eps", json!(0)),
            ("log_pruning_tolerance", json!(1)),
            ("bos_token_id", json!(8192)),
        ];
        for (key, value) in bad {
            let mut map = pro();
            map.insert(key.into(), value.clone());
            let error = Config::from_json(&map).expect_err(&format!("{key} = {value} must be refused"));
            let sentence = error.to_string();
            assert!(matches!(error, Error::Config { .. }) && !sentence.contains('\n'), "{sentence}");
            // Some are refused under the name of what they lead to: head widths under hidden_size, the gate under ogate_act.
            assert!(sentence.contains(key) || sentence.contains("hidden_size"), "{key}: {sentence}");
        }
    }

    fn fla() -> Map<String, Value> {
        let Value::Object(map) = json!({
            "model_type": "forgetting_transformer", "vocab_size": 199, "hidden_size": 64, "num_hidden_layers": 2, "num_heads": 4,
            "num_kv_heads": 2, "qkv_bias": true, "qk_norm": true, "window_size": 48, "use_output_gate": true, "fuse_norm": true,
            "elementwise_affine": true
        }) else {
            unreachable!("an object")
        };
        map
    }

    #[test]
    fn flash_linear_attention_has_switches_of_its_own() {
        let config = Config::from_json(&fla()).unwrap();
        assert_eq!((config.n_kv_heads, config.kv_width(), config.window, config.qkv_bias), (2, 32, Some(48), true));
        let bad = [
            ("num_kv_heads", json!(3)),
            ("num_kv_heads", json!(0)),
            ("window_size", json!(0)),
            ("hidden_act", json!("sigmoid")),
            ("elementwise_affine", json!(false)),
            ("attnres_block_size", json!(4)),
            ("use_rope", json!(true)),
            ("use_k_shift", json!(true)),
            ("use_output_norm", json!(true)),
            ("fgate_type", json!("none")),
            ("log_pruning_tolerance", json!(-10)),
        ];
        for (key, value) in bad {
            let mut map = fla();
            map.insert(key.into(), value.clone());
            let error = Config::from_json(&map).expect_err(&format!("{key} = {value} must be refused"));
            assert!(matches!(&error, Error::Config { key: named, .. } if named == key), "{error}");
        }
        let mut off = fla();
        off.extend([("use_rope".to_owned(), json!(false)), ("window_size".to_owned(), Value::Null)]);
        assert_eq!(Config::from_json(&off).unwrap().window, None);
    }

    #[test]
    fn the_other_family_reads_what_both_have() {
        let mut rope = pro();
        rope.extend([("use_rope".to_owned(), json!(true)), ("hidden_act".to_owned(), json!("sigmoid"))]);
        let config = Config::from_json(&rope).unwrap();
        assert_eq!((config.rope_base, config.mlp_act), (Some(500_000.0), MlpAct::Sigmoid));
    }
}
