//! `kitfox logits`: the logits after every one of the given ids, as one safetensors file, for comparison with other code.

use super::new_file::NewFile;
use super::output::{Done, file_error, print_line, tokens_bar};
use super::{KvArgument, ModelArguments, input, source};
use clap::Args;
use kitfox::session::generate::check_ids;
use kitfox::session::{LoadOptions, Model};
use kitfox::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    ids: Ids,
    /// The safetensors file to write: `logits` [T, V], f32
    #[arg(short, long, value_name = "OUT.safetensors")]
    output: PathBuf,
    /// Tokens of one prefill chunk
    #[arg(long, value_name = "N")]
    chunk: Option<usize>,
    /// Feed token by token through the graph that generates
    #[arg(long, conflicts_with = "chunk")]
    decode: bool,
    /// Compare every dispatch on the GPU with its plain twin, and stop at the first that differs or is not finite (slow)
    #[arg(long)]
    check: bool,
    /// Element type of the KV cache
    #[arg(long, value_enum, default_value = "f32", value_name = "TYPE")]
    kv: KvArgument,
}

/// Exactly these ids are fed, nothing in front.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Ids {
    /// Token ids, separated by commas
    #[arg(long, value_name = "1,2,3")]
    ids: Option<String>,
    /// A text file with token ids, separated by commas or white space
    #[arg(long, value_name = "FILE")]
    ids_file: Option<PathBuf>,
}

impl Ids {
    fn read(&self) -> Result<Vec<u32>> {
        let ids = match (&self.ids, &self.ids_file) {
            (_, Some(path)) => {
                let text = input::text(path, input::MAX_IDS)?;
                parse(&text, |got| Error::format(path.display(), "token ids", WHOLE, got))?
            }
            (text, None) => parse(text.as_deref().unwrap_or_default(), |got| Error::argument("ids", WHOLE, got))?,
        };
        if ids.is_empty() { Err(Error::argument("ids", "at least one token id", "none")) } else { Ok(ids) }
    }
}

/// What a token id is.
const WHOLE: &str = "whole numbers from 0 to 4294967295";

fn parse(text: &str, wrong: impl Fn(&str) -> Error) -> Result<Vec<u32>> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
    words.map(|word| word.parse().map_err(|_| wrong(word))).collect()
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Done {
    let inputs: Vec<&Path> =
        [&arguments.model.model, &arguments.ids.ids_file].into_iter().flatten().map(PathBuf::as_path).collect();
    let new = NewFile::new(&arguments.output, &inputs)?;
    let ids = arguments.ids.read()?;
    let load = LoadOptions {
        context: Some(ids.len()),
        kv: arguments.kv.into(),
        scores: !arguments.decode,
        chunk: arguments.chunk,
        ..LoadOptions::default()
    };
    let mut model = source::load(&arguments.model, None, load)?;
    check_ids("ids", &ids, model.vocab())?;
    if arguments.check {
        model.watch()?;
    }
    source::say_note(&model);
    new.write(|out, name| write(&mut model, &ids, arguments.decode, out, name))?;
    source::say_end(&model);
    print_line(&format!(
        "{}: logits [{}, {}], device {}",
        arguments.output.display(),
        ids.len(),
        model.vocab(),
        model.device_name()
    ))
}

/// Row after row: all logits of a long text need not fit in memory.
fn write(model: &mut Model, ids: &[u32], decode: bool, out: &mut BufWriter<File>, name: &Path) -> Result<()> {
    let failed = |error| file_error(name, "write", &error);
    out.write_all(&header(ids.len(), model.vocab())).map_err(failed)?;
    let bar = tokens_bar("logits", ids.len());
    for chunk in ids.chunks(if decode { 1 } else { model.chunk() }) {
        let logits = pollster::block_on(async { if decode { model.step(chunk[0]).await } else { model.score(chunk).await } })?;
        let bytes: Vec<u8> = logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
        out.write_all(&bytes).map_err(failed)?;
        bar.inc(chunk.len() as u64);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Of a safetensors file with one tensor: the header's length, the header, blanks up to a multiple of 8.
fn header(n_tokens: usize, vocab: usize) -> Vec<u8> {
    let bytes = n_tokens as u64 * vocab as u64 * 4;
    let entry = serde_json::json!({ "dtype": "F32", "shape": [n_tokens, vocab], "data_offsets": [0, bytes] });
    let mut json = serde_json::json!({ "logits": entry }).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(8), b' ');
    [&(json.len() as u64).to_le_bytes(), json.as_slice()].concat()
}
