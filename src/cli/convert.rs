//! `kitfox convert`: any checkpoint to one GGUF file, written beside its final name and renamed when it is whole.

use super::output::{Done, bytes_bar, file_error, print_line, say};
use super::source;
use clap::Args;
use kitfox::format::{Checkpoint, Converted, Quant, convert};
use kitfox::session::load::check;
use kitfox::{Error, Result};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Arguments {
    /// A Hugging Face directory or a .gguf file
    #[arg(value_name = "DIR")]
    input: PathBuf,
    /// The GGUF file to write
    #[arg(short, long, value_name = "OUT.gguf")]
    output: PathBuf,
    /// Type of the matrices: f32, f16, bf16, q8_0, q6_k, q5_0, q4_k, q4_0, tq2_0, or q4_k_m (q4_k with embedding and head in q6_k)
    #[arg(long, value_name = "TYPE")]
    quant: String,
    /// State that the model's text is JSON-escaped before it is tokenized (LongCrawl64); known of a directory that names its
    /// tokenizer class `JSONGPT2Tokenizer`, or has `json_escaped_text` in its config.json
    #[arg(long)]
    json_escaped: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Done {
    let quant: Quant = arguments.quant.parse()?;
    let mut checkpoint = source::open(Some(&arguments.input))?;
    let part = part_of(&arguments.output);
    refuse_own_input(&checkpoint, &[&arguments.output, &part])?;
    // Before any weight is read: a file that cannot be run is of no use.
    check(&checkpoint)?;
    if arguments.json_escaped {
        checkpoint.set_json_escaped_text();
    }
    let converted = write(&mut checkpoint, quant, &part).and_then(|converted| {
        let renamed = fs::rename(&part, &arguments.output);
        renamed.map(|()| converted).map_err(|error| file_error(&arguments.output, "rename", &error))
    });
    if converted.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&part);
    }
    let converted = converted?;
    for fallback in &converted.fallbacks {
        let (width, asked, ty) = (fallback.width, fallback.asked, fallback.ty);
        say(&format!("note: {} is stored as {ty}: its rows of {width} are no whole blocks of {asked}", fallback.tensor));
    }
    let Converted { n_tensors, bytes, .. } = converted;
    print_line(&format!("{}: {n_tensors} tensors, {bytes} bytes, {quant}", arguments.output.display()))
}

/// `OUT.gguf.part`.
pub fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

fn write(checkpoint: &mut Checkpoint, quant: Quant, part: &Path) -> Result<Converted> {
    let name = part.display().to_string();
    let file = File::create(part).map_err(|error| file_error(part, "create", &error))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let bar = bytes_bar("converting", 0);
    let mut progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let converted = pollster::block_on(convert(checkpoint, quant, &mut out, &name, &mut progress));
    bar.finish_and_clear();
    let converted = converted?;
    out.flush().and_then(|()| out.get_ref().sync_all()).map_err(|error| file_error(part, "write", &error))?;
    Ok(converted)
}

/// The weights are read while these files are written.
fn refuse_own_input(checkpoint: &Checkpoint, written: &[&Path]) -> Result<()> {
    // A file that cannot be resolved is not there yet.
    for output in written.iter().filter_map(|path| path.canonicalize().ok()) {
        for source in &checkpoint.files {
            if Path::new(source.name()).canonicalize().is_ok_and(|input| input == output) {
                return Err(Error::argument("output", "another file than the input", output.display()));
            }
        }
    }
    Ok(())
}
