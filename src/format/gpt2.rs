//! The older form of a GPT-2 tokenizer, several files, as one `tokenizer.json`: byte-level BPE of `vocab.json` and `merges.txt`, and
//! the added tokens that `tokenizer_config.json`, `added_tokens.json` and `special_tokens_map.json` state.
//!
//! An added token is cut out of a text before BPE sees it. `tokenizer_config.json` lists them by id; `added_tokens.json`, the older
//! way, has ids alone; `special_tokens_map.json` and the named keys of `tokenizer_config.json` say which of them (or of the
//! vocabulary) are special. `<|endoftext|>` is, in every GPT-2 vocabulary that has it.

use super::keys;
use crate::{Error, Result};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};

/// A text and the file that it came from, for error messages.
#[derive(Clone, Debug, Default)]
pub struct Text {
    /// Path, URL or a word.
    pub file: String,
    /// What it holds.
    pub text: String,
}

/// The files of a tokenizer, as far as they are there.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// `vocab.json`: an object of tokens and ids.
    pub vocab: Text,
    /// `merges.txt`: two tokens a line, the first merge first.
    pub merges: Text,
    /// `added_tokens.json`: an object of tokens and ids.
    pub added_tokens: Option<Text>,
    /// `special_tokens_map.json`: an object of roles and tokens.
    pub special_tokens_map: Option<Text>,
    /// `tokenizer_config.json`.
    pub tokenizer_config: Option<Text>,
}

/// The classes whose two files mean what is built here. CLIP, RoBERTa or Qwen have the same two files and other rules.
const CLASSES: [&str; 3] = ["GPT2Tokenizer", "GPT2TokenizerFast", "JSONGPT2Tokenizer"];
/// Keys that name special tokens.
const ROLES: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
const MORE_SPECIAL: &str = "additional_special_tokens";
const END_OF_TEXT: &str = "<|endoftext|>";

/// The text of `tokenizer.json`.
///
/// # Errors
/// [`Error::Format`] naming the file and the token, line or key that does not fit the others.
pub fn tokenizer(files: &Files) -> Result<String> {
    let config = files.tokenizer_config.as_ref().map(parse).transpose()?.unwrap_or_default();
    let flag = |key: &str| match config.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(on)) => Ok(*on),
        Some(other) => Err(fail(&files.tokenizer_config, key, "true or false", other)),
    };
    if let Some(class) = config.get("tokenizer_class").filter(|class| !CLASSES.iter().any(|known| class == known)) {
        let expected = format!("{} (another one needs its tokenizer.json)", CLASSES.join(" or "));
        return Err(fail(&files.tokenizer_config, "tokenizer_class", &expected, class));
    }
    let mut vocabulary = Vocabulary::read(&files.vocab)?;
    let merges = merges(files, &vocabulary)?;
    vocabulary.add_tokens(files, &config)?;
    let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": flag("add_prefix_space")?, "trim_offsets": true,
        "use_regex": true });
    let model =
        Model { kind: "BPE", continuing_subword_prefix: "", end_of_word_suffix: "", vocab: &vocabulary.ids, merges: &merges };
    let tokenizer = Tokenizer {
        version: "1.0",
        added_tokens: vocabulary.added.values().collect(),
        pre_tokenizer: &byte_level,
        post_processor: &byte_level,
        decoder: &byte_level,
        model,
    };
    serde_json::to_string(&tokenizer).map_err(|error| Error::format(&files.vocab.file, "content", "a tokenizer", error))
}

/// `tokenizer.json`, written from what is there: as a tree of values it would take ten times as much.
#[derive(Serialize)]
struct Tokenizer<'a> {
    version: &'a str,
    added_tokens: Vec<&'a Value>,
    pre_tokenizer: &'a Value,
    post_processor: &'a Value,
    decoder: &'a Value,
    model: Model<'a>,
}

#[derive(Serialize)]
struct Model<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    continuing_subword_prefix: &'a str,
    end_of_word_suffix: &'a str,
    vocab: &'a Map<String, Value>,
    merges: &'a [[&'a str; 2]],
}

fn parse(text: &Text) -> Result<Map<String, Value>> {
    keys::parse(&text.file, "content", &text.text)
}

fn fail(file: &Option<Text>, place: &str, expected: &str, got: impl std::fmt::Display) -> Error {
    Error::format(file.as_ref().map_or("", |text| &text.file), place, expected, got)
}

/// The pairs of `merges.txt`, in order.
fn merges<'a>(files: &'a Files, vocabulary: &Vocabulary) -> Result<Vec<[&'a str; 2]>> {
    let mut merges = Vec::new();
    for (ix, line) in files.merges.text.lines().enumerate() {
        if (ix == 0 && line.starts_with("#version")) || line.is_empty() {
            continue;
        }
        let known = |token: &str| vocabulary.ids.contains_key(token);
        let pair = line.split_once(' ').filter(|(a, b)| known(a) && known(b) && known(&format!("{a}{b}")));
        let Some((a, b)) = pair else {
            let expected = format!("two tokens, known to {} like their union", files.vocab.file);
            return Err(Error::format(&files.merges.file, format_args!("line {}", ix + 1), expected, format_args!("{line:?}")));
        };
        merges.push([a, b]);
    }
    Ok(merges)
}

/// Tokens and ids.
struct Vocabulary {
    ids: Map<String, Value>,
    /// The token of each id.
    tokens: HashMap<u32, String>,
    /// By id: `tokenizer.json`'s entries.
    added: BTreeMap<u32, Value>,
}

impl Vocabulary {
    fn read(vocab: &Text) -> Result<Self> {
        let mut vocabulary = Self { ids: Map::new(), tokens: HashMap::new(), added: BTreeMap::new() };
        for (token, id) in parse(vocab)? {
            vocabulary.insert(&vocab.file, &token, &id)?;
        }
        Ok(vocabulary)
    }

    /// Adds a token, unless it is there with this id.
    fn insert(&mut self, file: &str, token: &str, id: &Value) -> Result<u32> {
        let fail =
            |expected: &str, got: &dyn std::fmt::Display| Error::format(file, format_args!("token {token:?}"), expected, got);
        let whole = id.as_u64().and_then(|id| u32::try_from(id).ok());
        let whole = whole.ok_or_else(|| fail("an id from 0 to 4294967295", id))?;
        if let Some(other) = self.ids.get(token).filter(|other| *other != id) {
            return Err(fail(&format!("its id {other} of the vocabulary"), id));
        }
        match self.tokens.insert(whole, token.to_owned()) {
            Some(other) if other != token => Err(fail("an id of its own", &format_args!("{id}, which is {other:?}"))),
            _ => {
                // In the model's vocabulary too: only there can ids have holes. No merge makes an added token.
                self.ids.insert(token.to_owned(), id.clone());
                Ok(whole)
            }
        }
    }

    fn add_tokens(&mut self, files: &Files, config: &Map<String, Value>) -> Result<()> {
        let name = |text: &Option<Text>| text.as_ref().map_or_else(String::new, |text| text.file.clone());
        let config_file = name(&files.tokenizer_config);
        const DECODER: &str = "added_tokens_decoder";
        let listed = match config.get(DECODER) {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(listed)) => listed.clone(),
            Some(other) => return Err(Error::format(config_file, DECODER, "an object of ids and tokens", other)),
        };
        for (id, entry) in &listed {
            let place = format!("{DECODER} {id}");
            let number: u32 = id.parse().map_err(|_| Error::format(&config_file, &place, "an id as key", id))?;
            let token = content(&config_file, &place, entry)?;
            let id = self.insert(&config_file, token, &number.into())?;
            self.added.insert(id, added_token(&config_file, &place, id, token, entry)?);
        }
        if let Some(text) = &files.added_tokens {
            for (token, id) in parse(text)? {
                let id = self.insert(&text.file, &token, &id)?;
                let plain = added_token(&text.file, &token, id, &token, &Value::Null)?;
                self.added.entry(id).or_insert(plain);
            }
        }
        let map = files.special_tokens_map.as_ref().map(parse).transpose()?.unwrap_or_default();
        for (file, object) in [(name(&files.special_tokens_map), &map), (config_file, config)] {
            for role in ROLES {
                if let Some(entry) = object.get(role).filter(|entry| !entry.is_null()) {
                    self.mark_special(&file, role, entry)?;
                }
            }
            match object.get(MORE_SPECIAL) {
                None | Some(Value::Null) => {}
                Some(Value::Array(more)) => more.iter().try_for_each(|entry| self.mark_special(&file, MORE_SPECIAL, entry))?,
                Some(other) => return Err(Error::format(file, MORE_SPECIAL, "an array of tokens", other)),
            }
        }
        if self.ids.contains_key(END_OF_TEXT) {
            self.mark_special(&files.vocab.file, END_OF_TEXT, &END_OF_TEXT.into())?;
        }
        Ok(())
    }

    /// Makes a token special that some file has given an id.
    fn mark_special(&mut self, file: &str, role: &str, entry: &Value) -> Result<()> {
        let token = content(file, role, entry)?;
        let Some(id) = self.ids.get(token).and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok()) else {
            let expected = "a token with an id (in vocab.json, added_tokens.json or added_tokens_decoder)";
            return Err(Error::format(file, role, expected, format_args!("{token:?}")));
        };
        let token = added_token(file, role, id, token, entry)?;
        self.added.entry(id).or_insert(token)["special"] = true.into();
        Ok(())
    }
}

/// The token of an entry that is a string, or an object with the key `content`.
fn content<'a>(file: &str, place: &str, entry: &'a Value) -> Result<&'a str> {
    let token = entry.as_str().or_else(|| entry.get("content")?.as_str()).filter(|token| !token.is_empty());
    token.ok_or_else(|| Error::format(file, place, "a token: a string, or an object with content", entry))
}

/// An entry of `tokenizer.json`, with the flags that this one states.
fn added_token(file: &str, place: &str, id: u32, token: &str, entry: &Value) -> Result<Value> {
    let mut added = json!({ "id": id, "content": token });
    for (key, default) in [("single_word", false), ("lstrip", false), ("rstrip", false), ("normalized", true), ("special", false)]
    {
        added[key] = match entry.get(key) {
            None => default.into(),
            Some(Value::Bool(on)) => (*on).into(),
            Some(other) => return Err(Error::format(file, format_args!("{place}: {key}"), "true or false", other)),
        };
    }
    Ok(added)
}
