//! `kitfox inspect gates`: how much every head forgets at every token of a text, for pictures and for `kitfox bench --gates`.

use crate::cli::new_file::NewFile;
use crate::cli::output::{Done, print_line, say, tokens_bar};
use crate::cli::perplexity::read_text;
use crate::cli::{ModelArguments, gates_file, generate, source};
use clap::Args;
use kitfox::session::generate::check_ids;
use kitfox::session::{self, LoadOptions, Model};
use kitfox::{Error, Result};
use pollster::block_on;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    text: Text,
    /// Tokens to read at most, the one before the text included; a longer text is cut. Default: all of it
    #[arg(short, long, value_name = "TOKENS")]
    context: Option<usize>,
    /// The file to write: `log_f` [L, H, T], the log of each forget gate, and `u` [L, H], the bound of |q·k|/√h where q and k are normed
    #[arg(short, long, value_name = "G.safetensors")]
    output: PathBuf,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Text {
    /// The text; `-` reads it from stdin (without its last line break)
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// A file with the text, UTF-8
    #[arg(short = 'f', long, value_name = "FILE")]
    text_file: Option<PathBuf>,
}

impl Text {
    fn read(&self) -> Result<String> {
        match (&self.prompt, &self.text_file) {
            (_, Some(path)) => read_text(path),
            (prompt, None) => generate::read_prompt(prompt.clone().unwrap_or_default()),
        }
    }
}

/// What can be written, by the end of the file's name.
enum Form {
    Numbers,
}

impl Form {
    fn of(path: &Path) -> Result<Self> {
        match path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase()).as_deref() {
            Some("safetensors") => Ok(Self::Numbers),
            _ => Err(Error::argument("output", "a file name that ends in .safetensors", path.display())),
        }
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Done {
    let form = Form::of(&arguments.output)?;
    if arguments.context == Some(0) {
        return Err(Error::argument("context", "at least 1", 0).into());
    }
    let inputs: Vec<&Path> =
        [&arguments.model.model, &arguments.text.text_file].into_iter().flatten().map(PathBuf::as_path).collect();
    let new = NewFile::new(&arguments.output, &inputs)?;
    let text = arguments.text.read()?;
    let (mut model, ids) = load(arguments, &text)?;
    source::say_note(&model);
    let bar = tokens_bar("gates", ids.len());
    let mut progress = |n: usize| {
        bar.set_position(n as u64);
        Ok(())
    };
    let gates = block_on(model.gates(&ids, &mut progress))?;
    bar.finish_and_clear();
    match form {
        Form::Numbers => gates_file::write(&new, &gates)?,
    }
    let [n_layers, n_heads, n_tokens] = gates.shape();
    let bounds = gates.bounds().map_or_else(String::new, |_| format!(", u [{n_layers}, {n_heads}]"));
    let (file, device) = (arguments.output.display(), model.device_name());
    print_line(&format!("{file}: log_f [{n_layers}, {n_heads}, {n_tokens}]{bounds}, device {device}"))
}

/// The model, with room for the text's ids, and these.
fn load(arguments: &Arguments, text: &str) -> Result<(Model, Vec<u32>)> {
    let path = arguments.model.model.as_deref();
    let checkpoint = source::open(path)?;
    let tokenizer = session::load::tokenizer_of(&checkpoint)?;
    let file = checkpoint.file_name().to_owned();
    let tokenizer = tokenizer.ok_or(Error::NoTokenizer { file, action: "inspect gates" })?;
    let tokens = tokenizer.encode(text)?;
    // One more, should the model put a token before a text.
    let wanted = tokens.len() + 1;
    let context = arguments.context.map_or(wanted, |context| context.min(wanted));
    let model = source::load(&arguments.model, None, LoadOptions { context: Some(context), ..LoadOptions::default() })?;
    let mut ids: Vec<u32> = model.bos().into_iter().chain(tokens).collect();
    check_ids("text", &ids, model.vocab())?;
    if ids.len() > context {
        say(&format!("note: the text has {} tokens, of which the first {context} are read", ids.len()));
        ids.truncate(context);
    }
    Ok((model, ids))
}
