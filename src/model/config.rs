//! The validated configuration of a model, from the keys of a checkpoint's `config.json` (the GGUF reader gives the same keys).
//!
//! Every switch of the official code is read. What cannot be run is refused here by name, before any weight is touched.

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

/// A configuration that can be run. Sizes are numbers of channels, heads, layers or tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// V: tokens in the vocabulary.
    pub vocab: usize,
    /// d: channels of the residual stream.
    pub hidden: usize,
    /// L: layers.
    pub n_layers: usize,
    /// H: heads.
    pub n_heads: usize,
    /// h = d / H: 16, 32, 64 or 128.
    pub head_dim: usize,
    /// I: channels inside the MLP.
    pub intermediate: usize,
    /// ε of the norms over d and of the output norm. (The norm of q and k has 1e-5, always.)
    pub norm_eps: f32,
    /// RMSNorm on q and k, per head.
    pub qk_norm: bool,
    /// One weight [h] for all heads instead of [d].
    pub qk_norm_shared: bool,
    /// k_t mixes with k_{t-1}.
    pub k_shift: bool,
    /// v_t mixes with v_{t-1}.
    pub v_shift: bool,
    /// How a head forgets.
    pub forget_gate: ForgetGate,
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

/// ε of the norm of q and k, whatever `norm_eps` says (official code).
pub const QK_NORM_EPS: f32 = 1e-5;

/// Largest value that any size in a configuration may have: far beyond any model, small enough that products fit in 64 bits.
const MAX_SIZE: u64 = 1 << 24;

impl Config {
    /// Reads and validates the keys of a `config.json`.
    ///
    /// # Errors
    /// [`Error::Config`] with the key, what can be run, and what was found.
    pub fn from_json(json: &Map<String, Value>) -> Result<Self> {
        let keys = Keys(json);
        keys.one_of("model_type", &["forgetting_transformer-project_fox"], "forgetting_transformer-project_fox")?;
        keys.refuse_unless("window_size", "no sliding window", |value| value.is_null())?;
        keys.refuse_unless("attnres_block_size", "no attention residuals", |value| value.is_null())?;
        let (vocab, hidden) = (keys.size("vocab_size")?, keys.size("hidden_size")?);
        let (n_layers, n_heads) = (keys.size("num_hidden_layers")?, keys.size("num_heads")?);
        keys.refuse_unless("num_kv_heads", "as many as num_heads", |value| {
            value.is_null() || value.as_u64() == Some(n_heads as u64)
        })?;
        keys.refuse_unless("attention_bias", "false", |value| value == &Value::Bool(false) || value.is_null())?;
        if !hidden.is_multiple_of(n_heads) {
            return Err(Error::config("hidden_size", format!("a multiple of num_heads ({n_heads})"), hidden));
        }
        let head_dim = hidden / n_heads;
        if ![16, 32, 64, 128].contains(&head_dim) {
            return Err(Error::config("hidden_size / num_heads", "a head width of 16, 32, 64 or 128", head_dim));
        }
        let intermediate = intermediate(&keys, hidden)?;
        keys.one_of("hidden_act", &["swish", "silu"], "swish")?;
        if keys.flag("use_rope")? {
            return Err(Error::config("use_rope", "false (rotary positions are not built yet)", true));
        }
        let forget_gate = match keys.one_of("fgate_type", &["full", "bias_only", "fixed", "none"], "full")? {
            "full" => ForgetGate::Full,
            "none" => ForgetGate::None,
            _ => ForgetGate::BiasOnly,
        };
        let output_norm = keys.flag("use_output_norm")?;
        let output_gate =
            match (keys.flag("use_output_gate")?, keys.one_of("ogate_act", &["sigmoid", "silu", "swish"], "sigmoid")?) {
                (false, _) => None,
                (true, "sigmoid") => Some(OutputGate::Sigmoid),
                (true, _) if output_norm => {
                    return Err(Error::config("ogate_act", "sigmoid when use_output_norm is true", "silu"));
                }
                (true, _) => Some(OutputGate::Silu),
            };
        let norm_eps = keys.number("norm_eps")?.unwrap_or(1e-6);
        if !(norm_eps > 0.0 && norm_eps < 1.0) {
            return Err(Error::config("norm_eps", "a number between 0 and 1", norm_eps));
        }
        let log_pruning_tolerance = keys.number("log_pruning_tolerance")?;
        if log_pruning_tolerance.is_some_and(|ln| !ln.is_finite() || ln >= 0.0) {
            return Err(Error::config(
                "log_pruning_tolerance",
                "null or a number below 0 (ln ε)",
                json["log_pruning_tolerance"].clone(),
            ));
        }
        Ok(Self {
            vocab,
            hidden,
            n_layers,
            n_heads,
            head_dim,
            intermediate,
            norm_eps: norm_eps as f32,
            qk_norm: keys.flag("qk_norm")?,
            qk_norm_shared: keys.flag("qk_norm_share_param_across_head")?,
            k_shift: keys.flag("use_k_shift")?,
            v_shift: keys.flag("use_v_shift")?,
            forget_gate,
            output_norm,
            output_gate,
            tied: keys.flag("tie_word_embeddings")?,
            bos: keys.token("bos_token_id", vocab)?,
            eos: keys.token("eos_token_id", vocab)?,
            context: keys.optional_size("max_position_embeddings")?.or(keys.optional_size("training_context")?),
            log_pruning_tolerance: log_pruning_tolerance.map(|ln| ln as f32),
        })
    }

    /// Parameters of the model.
    pub fn n_parameters(&self) -> u64 {
        let (d, v, i) = (self.hidden as u64, self.vocab as u64, self.intermediate as u64);
        let (heads, h) = (self.n_heads as u64, self.head_dim as u64);
        let on = u64::from;
        let projections = (4 + on(self.output_gate.is_some())) * d * d;
        let shifts = (on(self.k_shift) + on(self.v_shift)) * heads * d;
        let gate = match self.forget_gate {
            ForgetGate::Full => heads * d + heads,
            ForgetGate::BiasOnly => heads,
            ForgetGate::None => 0,
        };
        let qk_norm = on(self.qk_norm) * 2 * if self.qk_norm_shared { h } else { d };
        let layer = projections + shifts + gate + qk_norm + on(self.output_norm) * d + 2 * d + 3 * d * i;
        (2 - on(self.tied)) * v * d + self.n_layers as u64 * layer + d
    }
}

fn intermediate(keys: &Keys<'_>, hidden: usize) -> Result<usize> {
    let width = match keys.optional_size("intermediate_size")? {
        Some(width) => width,
        None => {
            let ratio = keys.number("hidden_ratio")?.unwrap_or(4.0);
            if !(ratio > 0.0 && ratio <= 64.0) {
                return Err(Error::config("hidden_ratio", "a number in (0, 64]", ratio));
            }
            // The official rule: 256·⌈int(d·ratio·2/3)/256⌉.
            ((hidden as f64 * ratio * 2.0 / 3.0) as usize).div_ceil(256) * 256
        }
    };
    if !width.is_multiple_of(4) || width == 0 {
        return Err(Error::config("intermediate_size", "a positive multiple of 4", width));
    }
    Ok(width)
}

/// Typed access to the keys; an absent key and null are the same.
struct Keys<'a>(&'a Map<String, Value>);

impl<'a> Keys<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn size(&self, key: &str) -> Result<usize> {
        self.optional_size(key)?.ok_or_else(|| Error::config(key, "a positive whole number", "nothing"))
    }

    fn optional_size(&self, key: &str) -> Result<Option<usize>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let size = value.as_u64().filter(|size| (1..=MAX_SIZE).contains(size)).and_then(|size| usize::try_from(size).ok());
        size.map(Some).ok_or_else(|| Error::config(key, format!("a whole number from 1 to {MAX_SIZE}"), value))
    }

    fn number(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_f64().map(Some).ok_or_else(|| Error::config(key, "a number", value))
    }

    fn flag(&self, key: &str) -> Result<bool> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(on)) => Ok(*on),
            Some(value) => Err(Error::config(key, "true or false", value)),
        }
    }

    fn one_of(&self, key: &str, known: &[&'static str], default: &'static str) -> Result<&'static str> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let found = known.iter().find(|word| value.as_str() == Some(word));
        found.copied().ok_or_else(|| Error::config(key, known.join(" or "), value))
    }

    fn token(&self, key: &str, vocab: usize) -> Result<Option<u32>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let id = value.as_u64().filter(|id| *id < vocab as u64).and_then(|id| u32::try_from(id).ok());
        id.map(Some).ok_or_else(|| Error::config(key, format!("a token id below vocab_size ({vocab})"), value))
    }

    fn refuse_unless(&self, key: &str, expected: &str, holds: impl Fn(&Value) -> bool) -> Result<()> {
        match self.0.get(key) {
            Some(value) if !holds(value) => Err(Error::config(key, expected, value)),
            _ => Ok(()),
        }
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
            ("num_hidden_layers", json!(1e30)),
            ("intermediate_size", json!(30)),
            ("hidden_ratio", json!(-2)),
            ("hidden_act", json!("gelu")),
            ("fgate_type", json!("sometimes")),
            ("ogate_act", json!("silu")),
            ("use_rope", json!(true)),
            ("qk_norm", json!("yes")),
            ("window_size", json!(64)),
            ("attnres_block_size", json!(4)),
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
        }
    }
}
