//! What is written where: results on stdout, words and progress bars on stderr.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kitfox::Error;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// Why a command ends early.
pub enum Stop {
    /// It failed.
    Error(Error),
    /// It failed, and has said so.
    Failed,
    /// Nobody reads stdout any more.
    BrokenPipe,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// `Result` of a command.
pub type Done<T = ()> = Result<T, Stop>;

/// Writes to stdout at once: text is shown as it is generated.
pub fn print(text: &str) -> Done {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Stop::BrokenPipe,
        _ => io_error("stdout", "write", &error).into(),
    })
}

/// A line on stdout.
pub fn print_line(text: &str) -> Done {
    print(&format!("{text}\n"))
}

/// One JSON object on a line of stdout.
pub fn print_json(value: &serde_json::Value) -> Done {
    print_line(&value.to_string())
}

/// A line on stderr. If nobody reads stderr there is nobody to tell.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Without line breaks and runs of blanks: device messages have pages of them.
pub fn one_line(text: impl Display) -> String {
    text.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A file error of the command line's own files.
pub fn file_error(path: &Path, action: &'static str, error: &io::Error) -> Error {
    io_error(path.display(), action, error)
}

/// [`Error::Io`] of anything with a name.
pub fn io_error(file: impl Display, action: &'static str, error: &io::Error) -> Error {
    Error::Io { file: file.to_string(), action, reason: error.to_string() }
}

/// A bar over `total` bytes, if stderr is a terminal; else nothing.
pub fn bytes_bar(what: &str, total: u64) -> ProgressBar {
    bar(what, total, "{msg} {bar:30} {bytes}/{total_bytes}")
}

/// A bar over `total` tokens, if stderr is a terminal; else nothing.
pub fn tokens_bar(what: &str, total: usize) -> ProgressBar {
    bar(what, total as u64, "{msg} {bar:30} {pos}/{len} tokens ({per_sec})")
}

fn bar(what: &str, total: u64, template: &str) -> ProgressBar {
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| unreachable!("the two templates above are valid"));
    ProgressBar::with_draw_target(Some(total), target).with_style(style).with_message(what.to_owned())
}
