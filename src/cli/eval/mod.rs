//! `kitfox eval`: measurements over long contexts, each a table and a plot. A run that was interrupted goes on where it was.

mod chart;
mod drawing;
mod journal;
mod niah;
mod per_token_loss;

use super::convert::part_of;
use super::output::{Done, file_error};
use clap::Subcommand;
use drawing::{Drawing, Format};
use kitfox::Result;
use std::fs;
use std::path::Path;

/// What can be measured.
#[derive(Subcommand)]
pub enum Command {
    /// Mean loss of each position in the context
    PerTokenLoss(per_token_loss::Arguments),
    /// Needle in a haystack: whether a number in a long text is found again
    Niah(niah::Arguments),
}

/// Runs the command.
pub fn run(command: &Command) -> Done {
    match command {
        Command::PerTokenLoss(arguments) => per_token_loss::run(arguments),
        Command::Niah(arguments) => niah::run(arguments),
    }
}

/// Writes a whole file or none.
fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let part = part_of(path);
    fs::write(&part, bytes).map_err(|error| file_error(&part, "write", &error))?;
    fs::rename(&part, path).map_err(|error| file_error(path, "rename", &error))
}

/// Writes a plot in the format of its file name.
fn write_plot(path: &Path, format: Format, drawing: &Drawing) -> Result<()> {
    match format {
        Format::Svg => write_file(path, drawing.to_svg().as_bytes()),
        Format::Png => write_file(path, &drawing.to_png()),
    }
}
