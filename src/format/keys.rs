//! The configuration in GGUF's metadata: keys of `config.json` on one side, `fox.*` (and the standard keys, where GGUF has one) on
//! the other.
//!
//! A file of ours also holds `config.json` letter for letter in `fox.source_config`, for what has no key of its own. A key of its
//! own wins over it. A `fox.` key that is not in the table passes under its own name, so that the model can refuse it by name.

use super::gguf::{Scalar, Value};
use super::gguf_read::Metadata;
use super::limits::{MAX_CONFIG, MAX_TOKENIZER};
use crate::{Error, Result, json};
use serde_json::{Map, Value as Json};

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A whole number ≥ 0 (`uint32`).
    Whole,
    /// A real number (`float32`).
    Real,
    /// A bool.
    Flag,
    /// A string.
    Word,
}

/// `config.json`'s key, GGUF's key, what it holds.
const KEYS: [(&str, &str, Kind); 31] = [
    ("model_type", "fox.model_type", Kind::Word),
    ("vocab_size", "fox.vocab_size", Kind::Whole),
    ("hidden_size", "fox.embedding_length", Kind::Whole),
    ("num_hidden_layers", "fox.block_count", Kind::Whole),
    ("num_heads", "fox.attention.head_count", Kind::Whole),
    ("num_kv_heads", "fox.attention.head_count_kv", Kind::Whole),
    ("window_size", "fox.attention.sliding_window", Kind::Whole),
    ("intermediate_size", "fox.feed_forward_length", Kind::Whole),
    ("hidden_ratio", "fox.hidden_ratio", Kind::Real),
    ("hidden_act", "fox.hidden_act", Kind::Word),
    ("norm_eps", "fox.attention.layer_norm_rms_epsilon", Kind::Real),
    ("use_rope", "fox.use_rope", Kind::Flag),
    ("rope_base", "fox.rope.freq_base", Kind::Real),
    ("fgate_type", "fox.fgate_type", Kind::Word),
    ("use_k_shift", "fox.use_k_shift", Kind::Flag),
    ("use_v_shift", "fox.use_v_shift", Kind::Flag),
    ("qk_norm", "fox.qk_norm", Kind::Flag),
    ("qk_norm_share_param_across_head", "fox.qk_norm_share_param_across_head", Kind::Flag),
    ("qkv_bias", "fox.qkv_bias", Kind::Flag),
    ("use_output_norm", "fox.use_output_norm", Kind::Flag),
    ("use_output_gate", "fox.use_output_gate", Kind::Flag),
    ("ogate_act", "fox.ogate_act", Kind::Word),
    ("tie_word_embeddings", "fox.tie_word_embeddings", Kind::Flag),
    ("log_pruning_tolerance", "fox.log_pruning_tolerance", Kind::Real),
    ("max_position_embeddings", "fox.max_position_embeddings", Kind::Whole),
    ("training_context", "fox.training_context", Kind::Whole),
    (JSON_ESCAPED_TEXT, "fox.json_escaped_text", Kind::Flag),
    ("bos_token_id", "tokenizer.ggml.bos_token_id", Kind::Whole),
    ("eos_token_id", "tokenizer.ggml.eos_token_id", Kind::Whole),
    ("pad_token_id", "tokenizer.ggml.padding_token_id", Kind::Whole),
    ("unk_token_id", "tokenizer.ggml.unknown_token_id", Kind::Whole),
];

/// Whether the model's text is JSON-escaped before it is tokenized (the published 760M checkpoints).
pub const JSON_ESCAPED_TEXT: &str = "json_escaped_text";
/// The longest sequence the model is meant for: not a switch of its own but what two keys of `config.json` say.
const CONTEXT: &str = "fox.context_length";
/// `config.json`, letter for letter.
pub const SOURCE_CONFIG: &str = "fox.source_config";
/// `tokenizer.json`, letter for letter.
pub const TOKENIZER: &str = "tokenizer.huggingface.json";

/// GGUF's pairs of a configuration; a key that is null or absent gives none.
///
/// # Errors
/// [`Error::Config`] for a value of the wrong kind.
pub fn to_metadata(config: &Map<String, Json>) -> Result<Vec<(String, Scalar)>> {
    let mut pairs = Vec::new();
    for (key, gguf, kind) in KEYS {
        if let Some(value) = config.get(key).filter(|value| !value.is_null()) {
            pairs.push((gguf.to_owned(), scalar(key, kind, value)?));
        }
    }
    let contexts = ["max_position_embeddings", "training_context"].map(|key| config.get(key).filter(|value| !value.is_null()));
    if let Some(value) = contexts.into_iter().flatten().next() {
        pairs.push((CONTEXT.into(), scalar(CONTEXT, Kind::Whole, value)?));
    }
    Ok(pairs)
}

fn scalar(key: &str, kind: Kind, value: &Json) -> Result<Scalar> {
    let (found, expected) = match kind {
        Kind::Whole => {
            let whole = value.as_u64().and_then(|n| u32::try_from(n).ok());
            (whole.map(Scalar::U32), "a whole number from 0 to 4294967295")
        }
        Kind::Real => {
            let real = value.as_f64().map(|v| v as f32).filter(|v| v.is_finite());
            (real.map(Scalar::F32), "a number")
        }
        Kind::Flag => (value.as_bool().map(Scalar::Bool), "true or false"),
        Kind::Word => (value.as_str().map(|word| Scalar::String(word.into())), "a string"),
    };
    found.ok_or_else(|| Error::config(key, expected, value))
}

/// The configuration under the keys of `config.json`, and `fox.source_config`.
///
/// # Errors
/// [`Error::Format`] for a value of the wrong type.
pub fn from_metadata(file: &str, metadata: &Metadata) -> Result<(Map<String, Json>, Option<String>)> {
    let source = text(file, metadata, SOURCE_CONFIG)?;
    let mut config = match &source {
        Some(json) => parse(file, SOURCE_CONFIG, json)?,
        None => Map::new(),
    };
    for (gguf, value) in metadata {
        let known = KEYS.iter().find(|(_, name, _)| name == gguf);
        let (key, kind) = match (known, gguf.strip_prefix("fox.")) {
            (Some((key, _, kind)), _) => (*key, Some(*kind)),
            (None, Some(rest)) if gguf != SOURCE_CONFIG && gguf != CONTEXT => (rest, None),
            _ => continue,
        };
        let value = to_json(file, gguf, value, kind)?;
        // A real number as config.json wrote it is more exact than its f32 here.
        let as_f32 = |value: &Json| value.as_f64().map(|v| v as f32);
        let stated = config.get(key).filter(|_| kind == Some(Kind::Real)).and_then(as_f32);
        if stated.is_none() || stated != as_f32(&value) {
            config.insert(key.into(), value);
        }
    }
    let states = |key: &str| config.get(key).is_some_and(|value| !value.is_null());
    if let Some(value) = metadata.get(CONTEXT) {
        let value = to_json(file, CONTEXT, value, Some(Kind::Whole))?;
        if !states("max_position_embeddings") && !states("training_context") {
            config.insert("max_position_embeddings".into(), value);
        }
    }
    Ok((config, source))
}

/// One value as JSON; of this kind, or of any if none is asked for.
fn to_json(file: &str, key: &str, value: &Value, kind: Option<Kind>) -> Result<Json> {
    let found = match value {
        Value::Scalar(scalar) => match scalar {
            Scalar::U32(v) => Some((Kind::Whole, Json::from(*v))),
            Scalar::U64(v) => Some((Kind::Whole, Json::from(*v))),
            Scalar::I64(v) if *v >= 0 => Some((Kind::Whole, Json::from(*v))),
            Scalar::I64(v) => Some((Kind::Real, Json::from(*v))),
            // By its shortest decimal: 1e-6 comes back as 1e-6, not as 9.99999997e-7.
            Scalar::F32(v) if v.is_finite() => v.to_string().parse().ok().map(|v: f64| (Kind::Real, Json::from(v))),
            Scalar::F64(v) if v.is_finite() => Some((Kind::Real, Json::from(*v))),
            Scalar::F32(_) | Scalar::F64(_) => None,
            Scalar::Bool(v) => Some((Kind::Flag, Json::from(*v))),
            Scalar::String(v) if v.len() as u64 > MAX_CONFIG => None,
            Scalar::String(v) => Some((Kind::Word, Json::from(v.as_str()))),
        },
        Value::Array { .. } => None,
    };
    let expected = match kind {
        Some(Kind::Whole) => "a whole number ≥ 0",
        Some(Kind::Real) => "a finite number",
        Some(Kind::Flag) => "a bool",
        Some(Kind::Word) => "a string",
        None => "a finite number, bool or string",
    };
    let fits = |got: Kind| kind.is_none_or(|kind| kind == got || (kind == Kind::Real && got == Kind::Whole));
    found.filter(|(got, _)| fits(*got)).map(|(_, json)| json).ok_or_else(|| Error::format(file, key, expected, value))
}

/// The text under a key, if there is one.
///
/// # Errors
/// [`Error::Format`] when it is no string, or a configuration's that is longer than [`MAX_CONFIG`].
pub fn text(file: &str, metadata: &Metadata, key: &str) -> Result<Option<String>> {
    match metadata.get(key) {
        None => Ok(None),
        Some(Value::Scalar(Scalar::String(text))) if text.len() as u64 <= MAX_CONFIG => Ok(Some(text.clone())),
        Some(Value::Scalar(Scalar::String(text))) => {
            Err(Error::format(file, key, format_args!("at most {MAX_CONFIG} bytes"), text.len()))
        }
        Some(other) => Err(Error::format(file, key, "a string", other)),
    }
}

/// The tokenizer's text, if there is one, out of the metadata.
///
/// # Errors
/// [`Error::Format`] when it is no string, or longer than [`MAX_TOKENIZER`].
pub fn take_tokenizer(file: &str, metadata: &mut Metadata) -> Result<Option<String>> {
    let key = TOKENIZER;
    match metadata.remove(key) {
        None => Ok(None),
        Some(Value::Scalar(Scalar::String(text))) if text.len() as u64 <= MAX_TOKENIZER => Ok(Some(text)),
        Some(Value::Scalar(Scalar::String(text))) => {
            Err(Error::format(file, key, format_args!("at most {MAX_TOKENIZER} bytes"), text.len()))
        }
        Some(other) => Err(Error::format(file, key, "a string", other)),
    }
}

/// A JSON object in which no key is listed twice.
///
/// # Errors
/// [`Error::Format`] when it is not one.
pub fn parse(file: &str, place: &str, text: &str) -> Result<Map<String, Json>> {
    match json::parse(text.as_bytes()) {
        Ok(Json::Object(object)) => Ok(object),
        Ok(_) => Err(Error::format(file, place, "a JSON object", "another JSON value")),
        Err(error) => Err(Error::format(file, place, "a JSON object", error)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn every_key_comes_back_as_it_went() {
        let mut config = Map::new();
        for (ix, (key, _, kind)) in KEYS.iter().enumerate() {
            let value = match kind {
                Kind::Whole => Json::from(ix),
                Kind::Real => Json::from([1e-6, -10.0, 500_000.0, 3.5][ix % 4]),
                Kind::Flag => Json::from(ix % 2 == 0),
                Kind::Word => Json::from(*key),
            };
            config.insert((*key).into(), value);
        }
        let pairs = to_metadata(&config).unwrap();
        assert_eq!(pairs.len(), KEYS.len() + 1);
        let metadata = pairs.into_iter().map(|(key, scalar)| (key, Value::Scalar(scalar))).collect();
        assert_eq!(from_metadata("test", &metadata).unwrap().0, config);
    }

    #[test]
    fn an_unknown_switch_keeps_its_name_and_a_wrong_type_is_refused() {
        let one = |key: &str, scalar| Metadata::from([(key.to_owned(), Value::Scalar(scalar))]);
        let (config, _) = from_metadata("test", &one("fox.attnres_block_size", Scalar::U32(4))).unwrap();
        assert_eq!(config["attnres_block_size"], 4);
        for (key, scalar) in [
            ("fox.block_count", Scalar::F32(2.0)),
            ("fox.block_count", Scalar::I64(-2)),
            ("fox.use_rope", Scalar::U32(1)),
            ("fox.context_length", Scalar::Bool(true)),
            ("fox.rope.freq_base", Scalar::F32(f32::NAN)),
            ("fox.source_config", Scalar::String("[]".into())),
        ] {
            let error = from_metadata("test", &one(key, scalar)).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
        assert_eq!(from_metadata("t", &one(CONTEXT, Scalar::U32(9))).unwrap().0["max_position_embeddings"], 9);
    }
}
