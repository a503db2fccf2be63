//! A Hugging Face directory: `config.json`, `model.safetensors` or the shards that `model.safetensors.index.json` names, and
//! `tokenizer.json` or GPT-2's `vocab.json` with `merges.txt`.
//!
//! The official code saves the models of LongCrawl64, whose text is JSON-escaped, with a tokenizer class of its own:
//! `JSONGPT2Tokenizer` in `tokenizer_config.json` states `json_escaped_text` where `config.json` does not.

use super::limits::MAX_SHARDS;
use super::source::Source;
use super::{Checkpoint, Kind, Tensor, in_file_order, keys, names, safetensors};
use crate::{Error, Result};
use std::collections::BTreeMap;

/// The texts and files of a directory.
pub struct Parts {
    /// The directory's name, without its path.
    pub name: String,
    /// Where `config.json` came from, for error messages.
    pub config_file: String,
    /// The text of `config.json`.
    pub config: String,
    /// The text of `tokenizer.json`.
    pub tokenizer: Option<String>,
    /// Where it came from, for error messages.
    pub tokenizer_file: String,
    /// Which shard holds each tensor, by name in [`Parts::files`] order; none when there is one file.
    pub index: Option<Index>,
    /// The safetensors files.
    pub files: Vec<Box<dyn Source>>,
}

/// `model.safetensors.index.json`.
pub struct Index {
    file: String,
    /// File name of each tensor.
    shard_of: BTreeMap<String, String>,
}

impl Index {
    /// Reads its text.
    ///
    /// # Errors
    /// [`Error::Format`] when it is not an index, or names files outside its directory.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let object = keys::parse(file, "index", text)?;
        let Some(map) = object.get("weight_map").and_then(serde_json::Value::as_object) else {
            return Err(Error::format(file, "weight_map", "an object of tensor and file names", "none"));
        };
        let mut shard_of = BTreeMap::new();
        for (tensor, shard) in map {
            let beside = |name: &&str| !name.contains(['/', '\\', ':']) && !name.chars().any(char::is_control);
            let plain = shard.as_str().filter(|name| name.ends_with(".safetensors")).filter(beside);
            let Some(name) = plain else {
                return Err(Error::format(file, tensor, "the name of a .safetensors file beside it", shard));
            };
            shard_of.insert(tensor.clone(), name.to_owned());
        }
        if shard_of.is_empty() {
            return Err(Error::format(file, "weight_map", "at least one tensor", "none"));
        }
        let index = Self { file: file.into(), shard_of };
        match index.shards().len() {
            ..=MAX_SHARDS => Ok(index),
            n => Err(Error::format(file, "weight_map", format_args!("at most {MAX_SHARDS} files"), n)),
        }
    }

    /// Names of the shards, sorted: the order that [`Parts::files`] must have.
    pub fn shards(&self) -> Vec<&str> {
        let names: std::collections::BTreeSet<_> = self.shard_of.values().map(String::as_str).collect();
        names.into_iter().collect()
    }
}

/// Reads the headers of all files and gives every tensor its canonical name.
///
/// # Errors
/// [`Error::Format`] and what the sources report.
pub async fn read(parts: Parts) -> Result<Checkpoint> {
    let config = keys::parse(&parts.config_file, "config", &parts.config)?;
    let mut files = Vec::new();
    let mut tensors = Vec::new();
    if let Some(index) = parts.index.as_ref().filter(|index| index.shards().len() != parts.files.len()) {
        let expected = format!("the files {}", index.shards().join(", "));
        return Err(Error::format(&index.file, "weight_map", expected, format_args!("{} files", parts.files.len())));
    }
    for (ix, source) in parts.files.into_iter().enumerate() {
        let (source, found) = safetensors::read(source, ix).await?;
        files.push(source);
        tensors.extend(found);
    }
    if let Some(index) = &parts.index {
        check_index(index, &tensors)?;
    }
    let names: Vec<&str> = files.iter().map(|file| file.name()).collect();
    let tensors = in_file_order(&names, canonical(&names, tensors)?)?;
    let Parts { name, config_file, tokenizer, tokenizer_file, .. } = parts;
    let source_config = Some(parts.config);
    Ok(Checkpoint {
        name,
        kind: Kind::HuggingFace,
        files,
        config,
        config_file,
        source_config,
        tokenizer,
        tokenizer_file,
        tensors,
    })
}

/// Every tensor of the index must be in its shard.
fn check_index(index: &Index, tensors: &[Tensor]) -> Result<()> {
    let shards = index.shards();
    let mut held: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for tensor in tensors {
        held.entry(&tensor.origin).or_default().push(shards[tensor.file]);
    }
    for (tensor, shard) in &index.shard_of {
        let found = held.get(tensor.as_str()).map_or(&[][..], |files| files);
        if found != [shard] {
            let got = if found.is_empty() { "in no file".into() } else { format!("in {}", found.join(" and ")) };
            return Err(Error::format(&index.file, format_args!("tensor {tensor}"), format_args!("in {shard}"), got));
        }
    }
    Ok(())
}

/// Renames to GGUF's names, and splits the authors' stacked `mlp.gate_proj [2I, d]` into `ffn_gate` (rows 0 to I) and `ffn_up`
/// (rows I to 2I). A layer that has an `up_proj` of its own is of the other family and has nothing to split.
fn canonical(files: &[&str], tensors: Vec<Tensor>) -> Result<Vec<Tensor>> {
    let own_up: std::collections::HashSet<String> = tensors
        .iter()
        .filter_map(|tensor| names::to_canonical(&tensor.origin))
        .filter(|n| n.ends_with(".ffn_up.weight"))
        .collect();
    let mut renamed = Vec::new();
    for mut tensor in tensors {
        if let Some(name) = names::to_canonical(&tensor.origin) {
            tensor.name = name;
        }
        let up = tensor.name.strip_suffix(".ffn_gate.weight").map(|layer| format!("{layer}.ffn_up.weight"));
        let Some(up) = up.filter(|up| !own_up.contains(up)) else {
            renamed.push(tensor);
            continue;
        };
        let fail = |expected: &str, got: String| {
            Error::format(files[tensor.file], format_args!("tensor {}", tensor.origin), expected, got)
        };
        let [rows, width] = tensor.shape[..] else {
            return Err(fail("a matrix", format!("{:?}", tensor.shape)));
        };
        if !rows.is_multiple_of(2) {
            return Err(fail("an even number of rows (gate and value stacked)", rows.to_string()));
        }
        let gate = Tensor { shape: vec![rows / 2, width], bytes: tensor.bytes / 2, ..tensor };
        renamed.push(Tensor { name: up, offset: gate.offset + gate.bytes, ..gate.clone() });
        renamed.push(gate);
    }
    Ok(renamed)
}

/// Opens a directory of the file system.
///
/// # Errors
/// [`Error::Io`] for a file that is not there, and as [`read`].
#[cfg(not(target_arch = "wasm32"))]
pub async fn open(dir: &std::path::Path) -> Result<Checkpoint> {
    use super::gpt2::{self, Text};
    use super::limits::{MAX_CONFIG, MAX_LIST, MAX_TOKENIZER};
    use super::source::{FileSource, read_text};
    let text = async |name: &str| read_text(&mut FileSource::open(&dir.join(name))?, MAX_LIST).await;
    let shown = |name: &str| dir.join(name).display().to_string();
    // A link to nowhere is there, and opening it says what is wrong: a tokenizer half downloaded must not pass for none.
    let there = |name: &str| match dir.join(name).symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        // A directory that may not be read says so: what is in it is not missing.
        Err(error) => Err(Error::Io { file: shown(name), action: "open", reason: error.to_string() }),
    };

    if !there("config.json")? {
        let reason = "no config.json in it: neither a Hugging Face directory nor a .gguf file".to_owned();
        return Err(Error::Io { file: dir.display().to_string(), action: "open", reason });
    }
    let config = read_text(&mut FileSource::open(&dir.join("config.json"))?, MAX_CONFIG).await?;
    let (tokenizer_file, tokenizer) = if there("tokenizer.json")? {
        let text = read_text(&mut FileSource::open(&dir.join("tokenizer.json"))?, MAX_TOKENIZER).await?;
        (shown("tokenizer.json"), Some(text))
    } else if there("vocab.json")? || there("merges.txt")? {
        let named = async |name: &str| Ok::<_, Error>(Text { file: shown(name), text: text(name).await? });
        let optional = async |name: &str| if there(name)? { named(name).await.map(Some) } else { Ok(None) };
        let files = gpt2::Files {
            vocab: named("vocab.json").await?,
            merges: named("merges.txt").await?,
            added_tokens: optional("added_tokens.json").await?,
            special_tokens_map: optional("special_tokens_map.json").await?,
            tokenizer_config: optional("tokenizer_config.json").await?,
        };
        (shown("vocab.json"), Some(gpt2::tokenizer(&files)?))
    } else {
        (shown("tokenizer.json"), None)
    };
    const WEIGHTS: &str = "model.safetensors";
    const INDEX: &str = "model.safetensors.index.json";
    let mut files: Vec<Box<dyn Source>> = Vec::new();
    let mut index = None;
    if there(WEIGHTS)? {
        files.push(Box::new(FileSource::open(&dir.join(WEIGHTS))?));
    } else if there(INDEX)? {
        let parsed = Index::parse(&shown(INDEX), &text(INDEX).await?)?;
        for shard in parsed.shards() {
            if !there(shard)? {
                return Err(Error::format(shown(INDEX), "weight_map", format_args!("{shard} beside it"), "no such file"));
            }
            files.push(Box::new(FileSource::open(&dir.join(shard))?));
        }
        index = Some(parsed);
    } else {
        return Err(Error::format(dir.display(), "weights", format_args!("{WEIGHTS} or {INDEX}"), "neither"));
    }
    let full = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let name = full.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy().into_owned());
    let mut checkpoint =
        read(Parts { name, config_file: shown("config.json"), config, tokenizer, tokenizer_file, index, files }).await?;
    const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
    if there(TOKENIZER_CONFIG)? && !checkpoint.config.contains_key(keys::JSON_ESCAPED_TEXT) {
        let tokenizer_config = keys::parse(&shown(TOKENIZER_CONFIG), "tokenizer_config", &text(TOKENIZER_CONFIG).await?)?;
        if tokenizer_config.get("tokenizer_class").is_some_and(|class| class == "JSONGPT2Tokenizer") {
            checkpoint.set_json_escaped_text();
        }
    }
    Ok(checkpoint)
}
