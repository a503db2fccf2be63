//! The tokenizer of a model: Hugging Face's `tokenizer.json`, run by the crate `tokenizers`.
//!
//! Encoding adds no special tokens (the caller puts BOS first), and text that spells an added token becomes that token, as in
//! Hugging Face. Truncation and padding in the file are for training batches, the post-processor adds special tokens: they are not used. Byte-level
//! vocabularies (GPT-2 and kin) spell each byte with one printable character; for them every token stands for fixed bytes, whatever its neighbours.

use super::tokenizer_read::File;
use super::{Detokenizer, Unescape, escape, tokenizer_file};
use crate::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use tokenizers::{
    DecoderWrapper, ModelWrapper, Normalizer as _, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, TokenizerBuilder,
};

type Builder = TokenizerBuilder<ModelWrapper, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

/// A tokenizer. Special tokens (such as `<|endoftext|>`) are no text: decoding leaves them out.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    special: HashSet<u32>,
    n_ids: usize,
    /// From the printable spelling to the byte, for byte-level vocabularies.
    byte_of: Option<HashMap<char, u8>>,
    json_escaped: bool,
}

impl Tokenizer {
    /// From the text of a `tokenizer.json`; `name` is the file, for errors.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] when the text is not JSON or not a tokenizer, [`Error::Format`] for a merge or an added token that does not
    /// fit the vocabulary, and for more of anything than a text of its length should have.
    pub fn from_json(name: &str, text: &str) -> Result<Self> {
        let failed = |reason: tokenizers::Error| Error::tokenizer(format_args!("{name}: {reason}"));
        let File { model, added, mut steps } = File::read(name, text)?;
        let way_in = tokenizer_file::check_steps(name, &steps)?;
        let model = model.ok_or_else(|| Error::tokenizer(format_args!("{name}: model is missing")))?;
        let n_ids = model.n_ids();
        let (model, model_ns) = model.build(name)?;
        way_in.check(name, model_ns)?;
        let mut inner: tokenizers::Tokenizer = Builder::new()
            .with_model(model)
            .with_normalizer(step(name, "normalizer", &mut steps)?)
            .with_pre_tokenizer(step(name, "pre_tokenizer", &mut steps)?)
            .with_decoder(step(name, "decoder", &mut steps)?)
            .build()
            .map_err(failed)?
            .into();
        inner.add_tokens(added.iter().map(|added| added.token.clone())).map_err(failed)?;
        let normalized = |token: &str| {
            let mut text = tokenizers::NormalizedString::from(token);
            inner.get_normalizer()?.normalize(&mut text).ok()?;
            Some(text.get().to_owned())
        };
        tokenizer_file::check_added(name, &added, |token| inner.token_to_id(token), normalized)?;
        let added = inner.get_added_tokens_decoder();
        let n_ids = added.keys().fold(n_ids, |n_ids, id| n_ids.max((*id as usize).saturating_add(1)));
        let special = added.iter().filter(|(_, token)| token.special).map(|(&id, _)| id).collect();
        let byte_level = match inner.get_decoder() {
            Some(DecoderWrapper::ByteLevel(_)) => true,
            Some(DecoderWrapper::Sequence(sequence)) => matches!(sequence.get_decoders(), [DecoderWrapper::ByteLevel(_)]),
            _ => false,
        };
        Ok(Self { inner, special, n_ids, byte_of: byte_level.then(byte_level_alphabet), json_escaped: false })
    }

    /// The same tokenizer for a model whose text is JSON-escaped before it is tokenized ([`escape`]), or not.
    #[must_use]
    pub fn with_json_escape(self, json_escaped: bool) -> Self {
        Self { json_escaped, ..self }
    }

    /// Whether text is JSON-escaped before it is tokenized.
    pub fn is_json_escaped(&self) -> bool {
        self.json_escaped
    }

    /// Token ids of a text.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] when the vocabulary cannot spell the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding =
            if self.json_escaped { self.inner.encode_fast(escape(text), false) } else { self.inner.encode_fast(text, false) };
        Ok(encoding.map_err(refused)?.get_ids().to_vec())
    }

    /// The text of ids. Special tokens and ids past the vocabulary have none.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] when the decoder refuses them.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        if !self.json_escaped {
            return self.spell(ids);
        }
        let (mut detokenizer, mut bytes) = (Detokenizer::new(), Vec::new());
        for &id in ids {
            bytes.extend(detokenizer.push(self, id)?);
        }
        bytes.extend(detokenizer.finish(self)?);
        let mut unescape = Unescape::new();
        let mut text = unescape.push(&bytes);
        text.extend(unescape.finish());
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The text of ids as the vocabulary spells it: of a model of JSON-escaped text, escaped.
    pub(super) fn spell(&self, ids: &[u32]) -> Result<String> {
        // The crate's BPEDecoder counts back from the last token, and where there is none, panics if arithmetic is checked.
        if !ids.iter().any(|id| self.text_token(*id).is_some()) {
            return Ok(String::new());
        }
        self.inner.decode(ids, true).map_err(refused)
    }

    /// The bytes of one token as the vocabulary spells it: `None` when the vocabulary is not byte-level, so that they depend on the neighbours.
    /// Special tokens and ids past the vocabulary have no bytes.
    pub fn id_to_bytes(&self, id: u32) -> Option<Vec<u8>> {
        let byte_of = self.byte_of.as_ref()?;
        let Some(token) = self.text_token(id) else { return Some(Vec::new()) };
        // An added token may be spelled plainly: then it stands for itself, as in Hugging Face.
        let bytes = token.chars().map(|spelled| byte_of.get(&spelled).copied()).collect::<Option<Vec<u8>>>();
        Some(bytes.unwrap_or_else(|| token.into_bytes()))
    }

    /// How the vocabulary spells a token that stands for text.
    pub(super) fn text_token(&self, id: u32) -> Option<String> {
        if self.special.contains(&id) { None } else { self.inner.id_to_token(id) }
    }

    /// Tokens in the vocabulary, added ones included. A model's may be larger: rows are padded.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// One more than the largest id: rows that a model's embedding must have. Ids may have holes.
    pub fn n_ids(&self) -> usize {
        self.n_ids
    }

    /// The id of a token as the vocabulary spells it.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }
}

/// A step before or behind the model.
fn step<T: DeserializeOwned>(file: &str, key: &str, steps: &mut serde_json::Map<String, Value>) -> Result<Option<T>> {
    let value = steps.remove(key).unwrap_or_default();
    serde_json::from_value(value).map_err(|reason| Error::tokenizer(format_args!("{file}: {key}: {reason}")))
}

fn refused(reason: tokenizers::Error) -> Error {
    Error::tokenizer(reason)
}

/// GPT-2's alphabet: a printable Latin-1 byte is its own character, the n-th other byte is the character 256 + n.
fn byte_level_alphabet() -> HashMap<char, u8> {
    let mut others = '\u{100}'..;
    let spell = |byte: u8| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => (char::from(byte), byte),
        _ => (others.next().unwrap_or_else(|| unreachable!("68 characters follow U+0100")), byte),
    };
    (0..=255).map(spell).collect()
}
