//! Typed access to the keys of a `config.json`, and which keys there may be: a key that nobody here has heard of may be a switch
//! of a network that is not this one, so it is refused by name.

use crate::error::{Error, Result};
use serde_json::{Map, Value};

/// Who wrote the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The authors' code: github.com/zhixuan-lin/forgetting-transformer.
    Official,
    /// flash-linear-attention: biases on q, k and v, shared keys, a sliding window; no rotary positions, shifts or output norm.
    FlashLinearAttention,
}

impl Family {
    const ALL: [(&'static str, Self); 2] =
        [("forgetting_transformer-project_fox", Self::Official), ("forgetting_transformer", Self::FlashLinearAttention)];

    /// The switches that only this family has.
    fn switches(self) -> &'static [&'static str] {
        match self {
            Self::Official => &[
                "use_rope",
                "rope_base",
                "fgate_type",
                "use_k_shift",
                "use_v_shift",
                "qk_norm_share_param_across_head",
                "use_output_norm",
                "ogate_act",
                "log_pruning_tolerance",
                // Initial values of the gates, or read by nobody at inference.
                "fgate_bias_init",
                "decay_time_min",
                "decay_time_max",
                "attention_bias",
            ],
            Self::FlashLinearAttention => &["qkv_bias", "window_size"],
        }
    }
}

/// The switches and sizes of both families.
const COMMON: &[&str] = &[
    "model_type",
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_heads",
    "num_kv_heads",
    "intermediate_size",
    "hidden_ratio",
    "hidden_act",
    "norm_eps",
    "qk_norm",
    "use_output_gate",
    "tie_word_embeddings",
    "max_position_embeddings",
    "training_context",
    "bos_token_id",
    "eos_token_id",
];

/// Keys without an effect on the network: how it was made or trained, how other programs store, fuse or sample it.
const HARMLESS: &[&str] = &[
    "_attn_implementation_autoset",
    "_name_or_path",
    "architectures",
    "auto_map",
    "chunk_size_feed_forward",
    "dtype",
    "elementwise_affine",
    "finetuning_task",
    "fuse_cross_entropy",
    "fuse_linear_cross_entropy",
    "fuse_norm",
    "fuse_swiglu",
    "id2label",
    "initializer_range",
    "is_decoder",
    "json_escaped_text",
    "keys_to_ignore_at_inference",
    "label2id",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "problem_type",
    "return_dict",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "unk_token_id",
    "use_bfloat16",
    "use_cache",
    "use_l2warp",
];

/// Largest value that any size in a configuration may have: far beyond any model, small enough that the product of two fits in 64
/// bits.
pub const MAX_SIZE: u64 = 1 << 24;

/// Typed access to the keys; an absent key and null are the same.
pub struct Keys<'a> {
    json: &'a Map<String, Value>,
    family: Family,
}

impl<'a> Keys<'a> {
    /// Finds the family and refuses every key that it does not know.
    ///
    /// # Errors
    /// [`Error::Config`] naming the key.
    pub fn new(json: &'a Map<String, Value>) -> Result<Self> {
        let mut keys = Self { json, family: Family::Official };
        let known = Family::ALL.map(|(name, _)| name);
        let name = keys.one_of("model_type", &known, known[0])?;
        keys.family = Family::ALL.iter().find(|(known, _)| *known == name).map_or(Family::Official, |(_, family)| *family);
        keys.refuse_unknown()?;
        Ok(keys)
    }

    /// Who wrote the configuration.
    pub fn family(&self) -> Family {
        self.family
    }

    fn refuse_unknown(&self) -> Result<()> {
        for (key, value) in self.json.iter().filter(|(_, value)| !value.is_null()) {
            let key = key.as_str();
            if COMMON.contains(&key) || self.family.switches().contains(&key) {
                continue;
            }
            // flash-linear-attention leaves out the norms' weights without it.
            if key == "elementwise_affine" && self.family == Family::FlashLinearAttention && value != &Value::Bool(true) {
                return Err(Error::config(key, "true", value));
            }
            let other = Family::ALL.iter().any(|(_, family)| family.switches().contains(&key));
            match other {
                true if value == &Value::Bool(false) => {}
                true => return Err(Error::config(key, format!("nothing: it is no switch of {}", self.model_type()), value)),
                false if HARMLESS.contains(&key) => {}
                false => return Err(Error::config(key, "nothing: a key that is not known may change the network", value)),
            }
        }
        Ok(())
    }

    fn model_type(&self) -> &'static str {
        Family::ALL.iter().find(|(_, family)| *family == self.family).map_or("", |(name, _)| name)
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.json.get(key).filter(|value| !value.is_null())
    }

    /// A whole number from 1 on that must be there.
    ///
    /// # Errors
    /// [`Error::Config`]; so for all that follow.
    pub fn size(&self, key: &str) -> Result<usize> {
        self.optional_size(key)?.ok_or_else(|| Error::config(key, "a positive whole number", "nothing"))
    }

    /// A whole number from 1 on.
    pub fn optional_size(&self, key: &str) -> Result<Option<usize>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let size = value.as_u64().filter(|size| (1..=MAX_SIZE).contains(size)).and_then(|size| usize::try_from(size).ok());
        size.map(Some).ok_or_else(|| Error::config(key, format!("a whole number from 1 to {MAX_SIZE}"), value))
    }

    /// A number.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_f64().map(Some).ok_or_else(|| Error::config(key, "a number", value))
    }

    /// A flag that is off where it is not given.
    pub fn flag(&self, key: &str) -> Result<bool> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(on)) => Ok(*on),
            Some(value) => Err(Error::config(key, "true or false", value)),
        }
    }

    /// One of these words.
    pub fn one_of(&self, key: &str, known: &[&'static str], default: &'static str) -> Result<&'static str> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let found = known.iter().find(|word| value.as_str() == Some(word));
        found.copied().ok_or_else(|| Error::config(key, known.join(" or "), value))
    }

    /// A token id below the vocabulary.
    pub fn token(&self, key: &str, vocab: usize) -> Result<Option<u32>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let id = value.as_u64().filter(|id| *id < vocab as u64).and_then(|id| u32::try_from(id).ok());
        id.map(Some).ok_or_else(|| Error::config(key, format!("a token id below vocab_size ({vocab})"), value))
    }
}
