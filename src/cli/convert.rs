//! `kitfox convert`: any checkpoint to one GGUF file.

use super::manifest;
use super::new_file::NewFile;
use super::output::{Done, bytes_bar, print_line, say};
use super::source;
use clap::Args;
use kitfox::Result;
use kitfox::format::{Checkpoint, Converted, Quant, convert};
use kitfox::session::load::check;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Arguments {
    /// A Hugging Face directory or a .gguf file
    #[arg(value_name = "DIR")]
    input: PathBuf,
    /// The GGUF file to write
    #[arg(short, long, value_name = "OUT.gguf")]
    output: PathBuf,
    #[arg(long, value_name = "TYPE", help = quant_help())]
    quant: String,
    /// State that the model's text is JSON-escaped before it is tokenized (LongCrawl64); known of a directory that names its
    /// tokenizer class `JSONGPT2Tokenizer`, or has `json_escaped_text` in its config.json
    #[arg(long)]
    json_escaped: bool,
    /// Write OUT.gguf.manifest.json too, as `kitfox manifest` does
    #[arg(long)]
    manifest: bool,
}

fn quant_help() -> String {
    let names: Vec<_> = Quant::all().map(|quant| quant.to_string()).collect();
    format!("Type of the matrices: {} (q4_k_m: q4_k with embedding and head in q6_k)", names.join(", "))
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Done {
    let quant: Quant = arguments.quant.parse()?;
    let mut checkpoint = source::open(Some(&arguments.input))?;
    let inputs: Vec<PathBuf> = checkpoint.files.iter().map(|file| file.name().into()).collect();
    let new = NewFile::new(&arguments.output, &inputs.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    // Before any weight is read: a file that cannot be run is of no use.
    check(&checkpoint)?;
    if arguments.json_escaped {
        checkpoint.set_json_escaped_text();
    }
    if checkpoint.tokenizer.is_none() {
        say("note: there is no tokenizer: of the model's commands only those that take ids will run (logits, bench)");
    }
    if let Some(quantized) = checkpoint.quantized() {
        say(&format!(
            "note: {} is quantized already ({quantized}): what that lost does not come back",
            arguments.input.display()
        ));
    }
    let converted = new.write(|out, name| write(&mut checkpoint, quant, out, name))?;
    for fallback in &converted.fallbacks {
        let (width, asked, ty) = (fallback.width, fallback.asked, fallback.ty);
        say(&format!("note: {} is stored as {ty}: its rows of {width} are no whole blocks of {asked}", fallback.tensor));
    }
    let Converted { n_tensors, bytes, .. } = converted;
    print_line(&format!("{}: {n_tensors} tensors, {bytes} bytes, {quant}", arguments.output.display()))?;
    if arguments.manifest { manifest::write(&arguments.output) } else { Ok(()) }
}

fn write(checkpoint: &mut Checkpoint, quant: Quant, out: &mut BufWriter<File>, name: &Path) -> Result<Converted> {
    let bar = bytes_bar("converting", 0);
    let mut progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let converted = pollster::block_on(convert(checkpoint, quant, out, &name.display().to_string(), &mut progress));
    bar.finish_and_clear();
    converted
}
