//! What a load does with each kind of input, up to the device. Each call tells whether the input was taken.

use super::seeds;
use kitfox::format::hugging_face::{self, Index, Parts};
use kitfox::format::manifest::Manifest;
use kitfox::format::{self, BoxFuture, BytesSource, Checkpoint, Quant, Source, TensorType, gpt2, layer_gguf, to_f32};
use kitfox::gpu::expand;
use kitfox::graph::Variant;
use kitfox::session::load::{check, plan::plan, random};
use kitfox::session::{DeviceChoice, KvType, LoadOptions, Model};
use kitfox::text::{TextStream, Tokenizer};
use kitfox::{Error, Result};
use pollster::block_on;
use std::cell::RefCell;

/// An error is a sentence: one line that a terminal may show, not endless, and of a kind that an input can be to blame for.
fn told<T>(result: Result<T>) -> Option<T> {
    let error = match result {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    let said = error.to_string();
    assert!(!said.is_empty() && said.len() < 16_384 && !said.chars().any(char::is_control), "{said:?}");
    let blames = |error: &Error| !matches!(error, Error::DeviceLost(_) | Error::NoGpu(_) | Error::Aborted);
    assert!(blames(&error), "{said}");
    None
}

fn bytes_of(name: &str, bytes: &[u8]) -> Box<dyn Source> {
    Box::new(BytesSource::new(name, bytes.to_vec()))
}

/// A download: nobody knows its length, it goes forward only, and comes in pieces of 4 MiB at most.
pub struct Stream {
    bytes: Vec<u8>,
    pos: u64,
}

impl Stream {
    pub fn boxed(bytes: &[u8]) -> Box<Self> {
        Box::new(Self { bytes: bytes.to_vec(), pos: 0 })
    }
}

impl Source for Stream {
    fn name(&self) -> &str {
        "stream"
    }

    fn len(&self) -> Option<u64> {
        None
    }

    fn read<'a>(&'a mut self, at: u64, n: usize) -> BoxFuture<'a, Result<Vec<u8>>> {
        assert!(at >= self.pos, "asked for byte {at} after byte {}", self.pos);
        assert!(n <= 4 << 20, "asked for {n} bytes at once");
        let start = usize::try_from(at).unwrap_or(usize::MAX).min(self.bytes.len());
        let end = start.saturating_add(n).min(self.bytes.len());
        self.pos = end as u64;
        Box::pin(async move { Ok(self.bytes[start..end].to_vec()) })
    }
}

/// Everything that a load does before there is a device, and the reading of every tensor.
fn used(mut checkpoint: Checkpoint) {
    told(check(&checkpoint));
    for hardware in [false, true] {
        if let Some(plan) = told(plan(&checkpoint, &LoadOptions::default(), hardware)) {
            let refusal = plan.refusal.map_or(Ok(()), Err);
            told(refusal);
        }
    }
    const PIECE_BYTES: usize = 1 << 16;
    let mut values = Vec::new();
    for ix in 0..checkpoint.tensors.len() {
        let (ty, n_rows, row_bytes) =
            (checkpoint.tensors[ix].ty, checkpoint.tensors[ix].n_rows(), checkpoint.tensors[ix].row_bytes());
        let rows = (PIECE_BYTES / row_bytes as usize).max(1);
        for first in (0..n_rows).step_by(rows) {
            let n = rows.min(n_rows - first);
            let Some(bytes) = told(block_on(checkpoint.read_rows(ix, first, n))) else { return };
            let at = first as u64 * checkpoint.tensors[ix].width() as u64;
            told(checkpoint.check_finite(ix, at, &bytes));
            values.clear();
            to_f32(ty, &bytes, &mut values);
        }
    }
}

/// A GGUF file, of a model or of a layer, from memory and from a download.
pub fn gguf(bytes: &[u8]) -> bool {
    let model = told(block_on(format::read(bytes_of("x.gguf", bytes)))).map(used);
    let streamed = told(block_on(format::read(Stream::boxed(bytes))));
    assert!(model.is_none() || streamed.is_some(), "a file is a model, its download is none");
    if let Some(checkpoint) = streamed {
        told(check(&checkpoint));
        told(plan(&checkpoint, &LoadOptions::default(), false));
    }
    let layer = told(block_on(layer_gguf::read(bytes_of("x.gguf", bytes))));
    model.is_some() || layer.is_some()
}

/// The parts of an input that is several files: a length as u32 before each but the last.
fn parts(mut bytes: &[u8], n: usize) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    for _ in 1..n {
        let (length, rest) = bytes.split_at(bytes.len().min(4));
        let length = length.try_into().map_or(0, u32::from_le_bytes) as usize;
        let (part, rest) = rest.split_at(length.min(rest.len()));
        parts.push(part);
        bytes = rest;
    }
    parts.push(bytes);
    parts
}

/// An input of several files, for [`parts`].
pub fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let (last, first) = parts.split_last().unwrap();
    let mut joined: Vec<u8> = first.iter().flat_map(|part| [&(part.len() as u32).to_le_bytes()[..], part].concat()).collect();
    joined.extend_from_slice(last);
    joined
}

fn directory(config: &str, index: Option<Index>, files: Vec<Box<dyn Source>>) -> Option<()> {
    let word = |text: &str| text.to_owned();
    let parts = Parts {
        name: word("fuzzed"),
        config_file: word("config.json"),
        config: word(config),
        tokenizer: Some(word(seeds::TOKENIZER)),
        tokenizer_file: word("tokenizer.json"),
        index,
        files,
    };
    told(block_on(hugging_face::read(parts))).map(used)
}

/// An index (none where it is empty) and two shards, the second of which is the whole file where there is no index.
pub fn safetensors(bytes: &[u8]) -> bool {
    let [index, first, second] = parts(bytes, 3)[..] else { unreachable!() };
    let (one, two) = (bytes_of("1.safetensors", first), bytes_of("2.safetensors", second));
    if index.is_empty() {
        return directory(seeds::CONFIG, None, vec![two]).is_some();
    }
    let index = told(Index::parse("index.json", &String::from_utf8_lossy(index)));
    index.is_some_and(|index| directory(seeds::CONFIG, Some(index), vec![one, two]).is_some())
}

/// A config.json beside the weights of a small model.
pub fn config(bytes: &[u8]) -> bool {
    let weights = BytesSource::new("model.safetensors", seeds::weights());
    directory(&String::from_utf8_lossy(bytes), None, vec![Box::new(weights)]).is_some()
}

const TEXTS: [&str; 5] = ["", "hello a<|end|>", "ab  ba\n\u{0}é日本 😀", " \t a", "\u{fffd}\u{301}aaaa\u{200d}"];

/// A text of 10,000 characters: runs of one, and words, numbers and signs.
fn long_text() -> String {
    let runs = ["a", " ", "1", "-", "é", "ab", "\n"].map(|part| part.repeat(800)).concat();
    runs + &"It's 12 o'clock:\tthe \"b\u{f6}se\" fox  ran -- 日本, (a b)!\n ".repeat(70)
}

/// A tokenizer.json, or where there are zero bytes between them the files of GPT-2: vocab.json, merges.txt, and those of added tokens.
pub fn tokenizer(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let files: Vec<&str> = text.split('\u{0}').collect();
    let json = match files[..] {
        [json] => Some(json.to_owned()),
        [vocab, merges, ref more @ ..] => {
            let named = |file: &str, text: &str| gpt2::Text { file: file.into(), text: text.into() };
            let optional = |ix: usize, file: &str| more.get(ix).filter(|text| !text.is_empty()).map(|text| named(file, text));
            told(gpt2::tokenizer(&gpt2::Files {
                vocab: named("vocab.json", vocab),
                merges: named("merges.txt", merges),
                added_tokens: optional(0, "added_tokens.json"),
                special_tokens_map: optional(1, "special_tokens_map.json"),
                tokenizer_config: optional(2, "tokenizer_config.json"),
            }))
        }
        [] => None,
    };
    let Some(tokenizer) = json.and_then(|json| told(Tokenizer::from_json("tokenizer.json", &json))) else { return false };
    let escaped = told(Tokenizer::from_json("tokenizer.json", files[0])).map(|tokenizer| tokenizer.with_json_escape(true));
    for tokenizer in escaped.iter().chain([&tokenizer]) {
        spoken(tokenizer);
    }
    true
}

/// Text in, and out again by any ids.
fn spoken(tokenizer: &Tokenizer) {
    let n_ids = tokenizer.n_ids();
    let mut all: Vec<u32> = (0..n_ids.min(64) as u32).chain([n_ids as u32, u32::MAX]).collect();
    for text in TEXTS {
        if let Some(ids) = told(tokenizer.encode(text)) {
            assert!(ids.iter().all(|id| (*id as usize) < n_ids), "an id past the largest");
            told(tokenizer.decode(&ids));
            all.extend(ids);
        }
    }
    told(tokenizer.decode(&all));
    if let Some(ids) = told(tokenizer.encode(&long_text())) {
        told(tokenizer.decode(&ids));
    }
    let mut stream = TextStream::new(&["ab".to_owned(), "\u{fffd}".to_owned()]).unwrap();
    for &id in &all {
        let Some((_, stop)) = told(stream.push(tokenizer, id)) else { return };
        if stop.is_some() {
            return;
        }
    }
    told(stream.finish(tokenizer));
}

/// A manifest.
pub fn manifest(bytes: &[u8]) -> bool {
    let Some(manifest) = told(Manifest::parse("manifest.json", &String::from_utf8_lossy(bytes))) else { return false };
    assert_eq!(told(Manifest::parse("manifest.json", &manifest.to_json().to_string())).as_ref(), Some(&manifest));
    told(manifest.check("file", &manifest)).unwrap();
    true
}

thread_local! {
    /// Small models, for all sessions of a thread, each with its fingerprint.
    static MODELS: RefCell<Vec<(Model, Vec<u8>)>> = RefCell::new(models().map(|mut model| {
        let saved = block_on(model.save(&[])).unwrap();
        (model, saved[16..24].to_vec())
    }).into());
}

/// One whose pages die by their gates; one of grouped heads whose pages die by a window; and one whose never do, with keys and values of f32.
pub fn models() -> [Model; 3] {
    let grouped = |window: Option<usize>, kv: KvType| {
        let config = serde_json::json!({ "model_type": "forgetting_transformer", "vocab_size": 24, "hidden_size": 32, "num_hidden_layers": 2,
            "num_heads": 2, "num_kv_heads": 1, "qk_norm": false, "window_size": window, "intermediate_size": 32, "max_position_embeddings": 256 });
        let serde_json::Value::Object(config) = config else { unreachable!() };
        let options = LoadOptions { kv, ..small() };
        let load = |checkpoint| block_on(Model::load(checkpoint, options, &mut |_| Ok(()))).unwrap();
        load(random(config, Quant::plain(TensorType::F32), 1 + window.unwrap_or(0) as u64).unwrap())
    };
    [model(&seeds::weights()), grouped(Some(48), KvType::F16), grouped(None, KvType::F32)]
}

fn small() -> LoadOptions {
    LoadOptions { device: DeviceChoice::Cpu, context: Some(256), chunk: Some(64), ..LoadOptions::default() }
}

/// A small model on the CPU, whose pages die.
pub fn model(weights: &[u8]) -> Model {
    let weights: Box<dyn Source> = bytes_of("model.safetensors", weights);
    let word = |text: &str| text.to_owned();
    let checkpoint = hugging_face::read(Parts {
        name: word("small"),
        config_file: word("config.json"),
        config: word(seeds::CONFIG),
        tokenizer: None,
        tokenizer_file: word("tokenizer.json"),
        index: None,
        files: vec![weights],
    });
    block_on(async { Model::load(checkpoint.await?, small(), &mut |_| Ok(())).await }).unwrap()
}

/// Makes the models that [`snapshot`] restores to.
pub fn warm_up() {
    MODELS.with_borrow_mut(|_| ());
}

/// A saved session, as it is, and with the length, fingerprint and checksum that it should have: of the model that it says, else of any.
pub fn snapshot(bytes: &[u8]) -> bool {
    MODELS.with_borrow_mut(|models| {
        let said = models.iter().position(|(_, fingerprint)| bytes.get(16..24) == Some(fingerprint));
        let ix = said.unwrap_or(bytes.len() / 4 % models.len());
        let (model, fingerprint) = &mut models[ix];
        model.reset();
        block_on(model.read(&[1, 2, 3])).unwrap();
        let mut accepted = false;
        for bytes in [bytes.to_vec(), sealed(bytes, fingerprint)] {
            let before = (model.pos(), model.history().to_vec());
            match told(block_on(model.restore(&bytes))) {
                None => assert_eq!((model.pos(), model.history().to_vec()), before, "a refused session changes nothing"),
                Some(pending) => {
                    accepted = true;
                    block_on(model.save(&pending)).unwrap();
                    told(block_on(model.step(1)));
                }
            }
        }
        accepted
    })
}

/// Bytes of a session with a right length, fingerprint and checksum, whatever else they say.
fn sealed(bytes: &[u8], fingerprint: &[u8]) -> Vec<u8> {
    let mut body = bytes[..bytes.len().saturating_sub(8) & !3].to_vec();
    if body.len() >= 24 {
        let n_words = (body.len() / 4 + 2) as u64;
        body[8..16].copy_from_slice(&n_words.to_le_bytes());
        body[16..24].copy_from_slice(fingerprint);
    }
    let sum = body.as_chunks().0.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, word| {
        let mixed = (hash ^ u64::from(u32::from_le_bytes(*word))).wrapping_mul(0x100_0000_01b3);
        mixed ^ mixed >> 32
    });
    body.extend(sum.to_le_bytes());
    body
}

/// A shader.
pub fn preprocess(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let variants = [Variant::new(), Variant::new().flag("A"), Variant::new().flag("B"), Variant::new().flag("A").flag("B")];
    let all = variants.iter().map(|variant| {
        let wgsl = told(expand("fuzzed", &text, &["A", "B"], variant, String::new()))?;
        assert!(wgsl.lines().all(|line| !line.trim_start().starts_with('#')), "a directive is left");
        Some(())
    });
    all.flatten().count() == variants.len()
}
