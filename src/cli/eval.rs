//! `kitfox eval`: measurements over long contexts, each a table and a plot. A run that was interrupted goes on where it was.

mod chart;
mod journal;
mod live_keys;
mod niah;
mod per_token_loss;

use super::drawing::{Drawing, Format};
use super::new_file::NewFile;
use super::output::{Done, file_error};
use clap::Subcommand;
use kitfox::{Error, Result};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What can be measured.
#[derive(Subcommand)]
pub enum Command {
    /// Mean loss of each position in the context. A run that was interrupted goes on where it was (OUT.csv.journal)
    PerTokenLoss(per_token_loss::Arguments),
    /// Needle in a haystack: whether a number in a long text is found again. A run that was interrupted goes on where it was (OUT.csv.journal)
    Niah(niah::Arguments),
    /// Keys that stay alive as a text grows, where the others are forgotten for good
    LiveKeys(live_keys::Arguments),
}

/// Runs the command.
pub fn run(command: &Command) -> Done {
    match command {
        Command::PerTokenLoss(arguments) => per_token_loss::run(arguments),
        Command::Niah(arguments) => niah::run(arguments),
        Command::LiveKeys(arguments) => live_keys::run(arguments),
    }
}

/// Refuses, before any work, a table or plot that would take the place of an input, of each other or of what is no file.
fn check_outputs<'a>(table: &Path, plot: Option<&Path>, inputs: impl Iterator<Item = &'a PathBuf>) -> Result<()> {
    let inputs: Vec<&Path> = inputs.map(PathBuf::as_path).collect();
    if plot == Some(table) {
        return Err(Error::argument("plot", "another file than the table", table.display()));
    }
    [Some(table), plot].into_iter().flatten().try_for_each(|path| NewFile::new(path, &inputs).map(|_| ()))
}

/// Writes a whole file or none.
fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    NewFile::new(path, &[])?.write(|out, name| out.write_all(bytes).map_err(|error| file_error(name, "write", &error)))
}

/// Writes a plot in the format of its file name.
fn write_plot(path: &Path, format: Format, drawing: &Drawing) -> Result<()> {
    match format {
        Format::Svg => write_file(path, drawing.to_svg().as_bytes()),
        Format::Png => write_file(path, &drawing.to_png()),
    }
}
