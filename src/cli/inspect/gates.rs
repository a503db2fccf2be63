//! `kitfox inspect gates`: how much every head forgets at every token of a text, as numbers for `kitfox bench --gates`, as a table of the
//! paper's matrices, and as a picture.

use super::matrix::{Seen, Selection, Which};
use super::picture::{self, Facts};
use super::{large, shaded, table};
use crate::cli::drawing::Drawing;
use crate::cli::input;
use crate::cli::new_file::NewFile;
use crate::cli::output::{Done, file_error, print_line, say, tokens_bar};
use crate::cli::{ModelArguments, gates_file, generate, source};
use clap::Args;
use kitfox::model::{Config, Forgetting};
use kitfox::session::generate::check_ids;
use kitfox::session::{self, AttentionRow, Gates, LoadOptions, Model};
use kitfox::{Error, Result};
use pollster::block_on;
use std::io::Write;
use std::ops::Range;
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
    /// The matrix of a table or picture
    #[arg(long, value_enum, value_name = "MATRIX")]
    matrix: Option<Which>,
    /// This layer alone (table, picture); from 0
    #[arg(long, value_name = "L")]
    layer: Option<usize>,
    /// This head of the layer alone; a picture then shows its matrix large
    #[arg(long, value_name = "H", requires = "layer")]
    head: Option<usize>,
    /// The row i, from 0: the token from which a picture looks back (default: the last), the only one of a table (default: all)
    #[arg(long, value_name = "I")]
    row: Option<usize>,
    /// The file to write. G.safetensors: `log_f` [L, H, T], the log of each forget gate, and `u` [L, H], the bound of |q·k|/√h where q and
    /// k are normed. G.csv: the matrix, a line `layer,head,i,j,f` (or `a`) for each key j that row i sees. G.svg, G.png: a picture
    #[arg(short, long, value_name = "G.safetensors|G.csv|G.svg|G.png")]
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
            (_, Some(path)) => input::text(path, input::MAX_TEXT),
            (prompt, None) => generate::read_prompt(prompt.clone().unwrap_or_default()),
        }
    }
}

/// What can be written, by the end of the file's name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Numbers,
    Table,
    Svg,
    Png,
}

impl Form {
    fn of(path: &Path) -> Result<Self> {
        match path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase()).as_deref() {
            Some("safetensors") => Ok(Self::Numbers),
            Some("csv") => Ok(Self::Table),
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => {
                let expected = "a file name that ends in .safetensors, .csv, .svg or .png";
                Err(Error::argument("output", expected, path.display()))
            }
        }
    }
}

impl Arguments {
    fn which(&self) -> Which {
        self.matrix.unwrap_or_default()
    }

    /// What the form of the output has no place for.
    fn check(&self, form: Form) -> Result<()> {
        if self.context == Some(0) {
            return Err(Error::argument("context", "at least 1", 0));
        }
        let chosen = [self.layer.is_some(), self.row.is_some(), self.matrix.is_some()];
        let named = ["layer", "row", "matrix"].into_iter().zip(chosen).find(|(_, is_given)| *is_given);
        if let Some((option, _)) = named.filter(|_| form == Form::Numbers) {
            return Err(Error::argument(option, "an output that ends in .csv, .svg or .png", self.output.display()));
        }
        Ok(())
    }

    /// What is looked at, of a model of this shape.
    fn selection(&self, config: &Config, n_tokens: usize) -> Result<Selection> {
        let range = |option: &str, given: Option<usize>, n: usize| match given {
            Some(ix) if ix >= n => Err(Error::argument(option, format!("a number from 0 to {}", n - 1), ix)),
            Some(ix) => Ok(ix..ix + 1),
            None => Ok(0..n),
        };
        let (layers, heads) = (range("layer", self.layer, config.n_layers)?, range("head", self.head, config.n_heads)?);
        let row = range("row", self.row, n_tokens)?.end - 1;
        Ok(Selection { layers, heads, n_tokens, row })
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Done {
    let form = Form::of(&arguments.output)?;
    arguments.check(form)?;
    let inputs: Vec<&Path> =
        [&arguments.model.model, &arguments.text.text_file].into_iter().flatten().map(PathBuf::as_path).collect();
    let new = NewFile::new(&arguments.output, &inputs)?;
    let text = arguments.text.read()?;
    let Loaded { mut model, ids, selection } = load(arguments, form, &text)?;
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
        Form::Table => write_table(arguments, &new, &mut model, &ids, &gates, &selection)?,
        Form::Svg => {
            let svg = drawing(arguments, &mut model, &ids, &gates, &selection)?.to_svg();
            new.write(|out, name| out.write_all(svg.as_bytes()).map_err(|error| file_error(name, "write", &error)))?;
        }
        Form::Png => {
            let png = drawing(arguments, &mut model, &ids, &gates, &selection)?.to_png();
            new.write(|out, name| out.write_all(&png).map_err(|error| file_error(name, "write", &error)))?;
        }
    }
    let (file, device) = (arguments.output.display(), model.device_name());
    let [n_layers, n_heads, n_tokens] = gates.shape();
    if form == Form::Numbers {
        let bounds = gates.bounds().map_or_else(String::new, |_| format!(", u [{n_layers}, {n_heads}]"));
        return print_line(&format!("{file}: log_f [{n_layers}, {n_heads}, {n_tokens}]{bounds}, device {device}"));
    }
    let (n_pairs, which) = (selection.n_pairs(), arguments.which().name());
    print_line(&format!("{file}: {which} of {n_pairs} of {} heads, {n_tokens} tokens, device {device}", n_layers * n_heads))
}

/// Rows of A, each given to `seen`.
fn attend(model: &mut Model, ids: &[u32], rows: Range<usize>, seen: &mut dyn FnMut(AttentionRow)) -> Result<()> {
    model.reset();
    let bar = tokens_bar("attention", ids.len());
    let mut seen = |row| {
        seen(row);
        Ok(())
    };
    let mut progress = |n: usize| {
        bar.set_position(n as u64);
        Ok(())
    };
    block_on(model.attention(ids, rows, &mut seen, &mut progress))?;
    bar.finish_and_clear();
    Ok(())
}

fn write_table(
    arguments: &Arguments,
    new: &NewFile<'_>,
    model: &mut Model,
    ids: &[u32],
    gates: &Gates,
    selection: &Selection,
) -> Result<()> {
    if arguments.which() == Which::F {
        return table::write_f(new, &Forgetting::new(gates, model.config().window), selection, arguments.row);
    }
    let mut rows = Vec::new();
    attend(model, ids, table::rows(selection, arguments.row), &mut |row| {
        if selection.has(row.layer, row.head) {
            rows.push(row);
        }
    })?;
    table::write_a(new, rows)
}

fn drawing(arguments: &Arguments, model: &mut Model, ids: &[u32], gates: &Gates, selection: &Selection) -> Result<Drawing> {
    let tokens = shaded::tokens(model, ids)?;
    let config = model.config().clone();
    let forgetting = Forgetting::new(gates, config.window);
    let is_large = arguments.head.is_some();
    let most = if is_large { large::MOST } else { picture::SMALL as usize };
    let which = arguments.which();
    let seen = match which {
        Which::F => Seen::of_f(&forgetting, selection, most),
        Which::A => {
            let mut seen = Seen::new(selection, most);
            attend(model, ids, 0..ids.len(), &mut |row| seen.take(&row))?;
            seen
        }
    };
    let name = arguments.model.model.as_deref().and_then(Path::file_name);
    let name = name.map_or_else(|| model.file().to_owned(), |name| name.to_string_lossy().into_owned());
    let facts = Facts {
        name: &name,
        which,
        selection,
        forgetting: &forgetting,
        tokens: &tokens,
        seen: &seen,
        group: config.n_heads / config.n_kv_heads,
        ln_epsilon: model.log_pruning_tolerance(),
    };
    Ok(if is_large { large::draw(&facts) } else { picture::overview(&facts) })
}

struct Loaded {
    model: Model,
    ids: Vec<u32>,
    selection: Selection,
}

/// The model, with room for the text's ids, and these. What is asked for is checked before any weight is read.
fn load(arguments: &Arguments, form: Form, text: &str) -> Result<Loaded> {
    let path = arguments.model.model.as_deref();
    let checkpoint = source::open(path)?;
    let tokenizer = session::load::tokenizer_of(&checkpoint)?;
    let file = checkpoint.file_name().to_owned();
    let tokenizer = tokenizer.ok_or(Error::NoTokenizer { file, action: "inspect gates" })?;
    let config = Config::from_json(&checkpoint.config)?;
    let mut ids: Vec<u32> = config.bos.into_iter().chain(tokenizer.encode(text)?).collect();
    check_ids("text", &ids, config.vocab)?;
    if let Some(context) = arguments.context.filter(|context| *context < ids.len()) {
        say(&format!("note: the text has {} tokens, of which the first {context} are read", ids.len()));
        ids.truncate(context);
    }
    if ids.is_empty() {
        return Err(Error::argument("prompt", "a text of at least one token", "none"));
    }
    let selection = arguments.selection(&config, ids.len())?;
    if form == Form::Table {
        table::check_size(&selection, arguments.row)?;
    }
    let model = source::load(&arguments.model, None, LoadOptions { context: Some(ids.len()), ..LoadOptions::default() })?;
    Ok(Loaded { model, ids, selection })
}
