//! The one error of the library. Each variant names what, where, expected and got; the first line says it all.

use std::fmt::{self, Write};

/// What can go wrong. `Display` is one line for a person; [`Error::code`] is a stable word for programs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or stream cannot be read or written.
    #[error("{file}: {action} failed: {reason}")]
    Io {
        /// Path, URL or a word for the source.
        file: String,
        /// What was tried: `open`, `read`, `write`.
        action: &'static str,
        /// The system's own words.
        reason: String,
    },
    /// A file is not what its format says it must be.
    #[error("{file}: {place}: expected {expected}, got {got}")]
    Format {
        /// Path, URL or a word for the source.
        file: String,
        /// Header field, metadata key or tensor name.
        place: String,
        /// What the format or the model asks for.
        expected: String,
        /// What was found.
        got: String,
    },
    /// The tensors of a checkpoint are not those of its configuration: all differences at once; the sentence shows the first of them.
    #[error("{file}: {} of the model's tensors do not fit: {}", .problems.len(), first_of(.problems))]
    Tensors {
        /// Path, URL or a word for the source.
        file: String,
        /// One sentence per tensor: its name, expected and got.
        problems: Vec<String>,
    },
    /// A model configuration that cannot be run.
    #[error("config: {key}: expected {expected}, got {got}")]
    Config {
        /// The key as config.json has it; behind its file, once that is known ([`Error::in_file`]).
        key: String,
        /// What can be run.
        expected: String,
        /// What was found.
        got: String,
    },
    /// An option or argument of a call is out of its range.
    #[error("{option}: expected {expected}, got {got}")]
    Argument {
        /// The option's name as the caller wrote it.
        option: String,
        /// The allowed values.
        expected: String,
        /// What was given.
        got: String,
    },
    /// More tokens than the context holds.
    #[error("context: {needed} tokens asked for, {available} available (raise it with -c / context)")]
    ContextFull {
        /// Tokens that would be needed.
        needed: usize,
        /// Tokens that the session can hold.
        available: usize,
    },
    /// More keys are live than the context's pages hold.
    #[error(
        "context: {tokens} tokens asked for: {needed} pages of 64 keys are needed in a layer, {free} of its {held} are free (the rest is live), with a context of {context} tokens (raise it with -c / context, or let the oldest keys go with --overflow slide)"
    )]
    PagesFull {
        /// Tokens that the sequence would have.
        tokens: usize,
        /// New pages that a layer would need.
        needed: usize,
        /// Free pages of the layer that has fewest.
        free: usize,
        /// Pages of a layer.
        held: usize,
        /// Tokens of the context, for which the pages were set aside.
        context: usize,
    },
    /// The model file has no tokenizer and the call needs one.
    #[error("{file}: this model has no tokenizer, and {action} needs one")]
    NoTokenizer {
        /// Path, URL or a word for the source.
        file: String,
        /// The call that needs it.
        action: &'static str,
    },
    /// The tokenizer refused its file or a text.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// No GPU that can be used.
    #[error("gpu: {0}")]
    NoGpu(String),
    /// The GPU, or the system for the CPU device, refuses an allocation.
    #[error("memory: {what} needs {}: {reason}", size(*.bytes))]
    OutOfMemory {
        /// The buffer or plan.
        what: String,
        /// Its size; 0 when the device refused something that it did not name.
        bytes: u64,
        /// The device's own words, or the limit that it passes.
        reason: String,
    },
    /// The GPU device is gone (unplugged, reset, taken by the system).
    #[error("gpu device lost: {0}")]
    DeviceLost(String),
    /// The GPU reported an error of ours: a bug in kitfox.
    #[error("gpu: {place}: {message}")]
    Gpu {
        /// Pipeline, buffer or step.
        place: String,
        /// The device's own words.
        message: String,
    },
    /// A kernel that the GPU (or its driver) compiles or runs wrongly: on a small input it did not give what its plain twin gives.
    #[error("gpu: {kernel} cannot be used on {adapter}: {reason} (the CPU can be used: --device cpu, or device: 'cpu')")]
    Kernel {
        /// Kernel and variant.
        kernel: String,
        /// The adapter.
        adapter: String,
        /// How far it was off, or what the device said.
        reason: String,
    },
    /// A computation gave NaN or an infinity.
    #[error("numbers: {place}: {got}")]
    NotFinite {
        /// Where it was seen.
        place: String,
        /// What was seen.
        got: String,
    },
    /// The caller asked to stop.
    #[error("aborted")]
    Aborted,
}

/// Bytes of what a file says that a sentence repeats, or a few more.
const SHOWN: usize = 400;

/// Takes what a file says, as part of a sentence of one line: control characters escaped, and no more of it than a person reads. Names and
/// values may be megabytes, and a terminal obeys some of them. It ends whatever writes into it, so that nothing longer is ever made.
#[derive(Default)]
struct Shown {
    text: String,
    /// White space becomes one blank, none at the ends.
    is_joined: bool,
    blank: bool,
}

impl Write for Shown {
    fn write_str(&mut self, said: &str) -> fmt::Result {
        for character in said.chars() {
            if self.is_joined && character.is_whitespace() {
                self.blank = !self.text.is_empty();
                continue;
            }
            if self.text.len() >= SHOWN {
                self.text.push('…');
                return Err(fmt::Error);
            }
            if std::mem::take(&mut self.blank) {
                self.text.push(' ');
            }
            match character.is_control() {
                true => self.text.extend(character.escape_default()),
                false => self.text.push(character),
            }
        }
        Ok(())
    }
}

impl Shown {
    fn of(mut self, said: impl fmt::Display) -> String {
        // An error says that there is more than is shown.
        let _ = write!(self, "{said}");
        self.text
    }
}

/// As much of it as a sentence repeats.
pub(crate) fn shown(said: impl fmt::Display) -> String {
    Shown::default().of(said)
}

fn size(bytes: u64) -> String {
    if bytes == 0 { "more than there is".to_owned() } else { format!("{bytes} bytes") }
}

/// As many as a person reads.
fn first_of(problems: &[String]) -> String {
    const MOST: usize = 20;
    let first = problems[..problems.len().min(MOST)].iter().map(shown).collect::<Vec<_>>().join("; ");
    match problems.len().saturating_sub(MOST) {
        0 => first,
        more => format!("{first}; and {more} more"),
    }
}

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A stable word for programs (the `code` of `KitfoxError` in TypeScript).
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "io",
            Self::Format { .. } => "format",
            Self::Tensors { .. } => "tensors",
            Self::Config { .. } => "config",
            Self::Argument { .. } => "argument",
            Self::ContextFull { .. } | Self::PagesFull { .. } => "context-full",
            Self::NoTokenizer { .. } => "no-tokenizer",
            Self::Tokenizer(_) => "tokenizer",
            Self::NoGpu(_) => "no-gpu",
            Self::OutOfMemory { .. } => "out-of-memory",
            Self::DeviceLost(_) => "device-lost",
            Self::Gpu { .. } | Self::Kernel { .. } => "gpu",
            Self::NotFinite { .. } => "not-finite",
            Self::Aborted => "aborted",
        }
    }

    /// [`Error::Gpu`] with everything turned to text.
    pub fn gpu(place: impl fmt::Display, message: impl fmt::Display) -> Self {
        let [place, message] = [shown(place), shown(message)];
        Self::Gpu { place, message }
    }

    /// [`Error::NotFinite`] with everything turned to text.
    pub fn not_finite(place: impl fmt::Display, got: impl fmt::Display) -> Self {
        let [place, got] = [shown(place), shown(got)];
        Self::NotFinite { place, got }
    }

    /// [`Error::Tokenizer`] of one line.
    pub fn tokenizer(reason: impl fmt::Display) -> Self {
        Self::Tokenizer(Shown { is_joined: true, ..Shown::default() }.of(reason))
    }

    /// [`Error::Format`] with everything turned to text.
    pub fn format(
        file: impl fmt::Display,
        place: impl fmt::Display,
        expected: impl fmt::Display,
        got: impl fmt::Display,
    ) -> Self {
        let [file, place, expected, got] = [shown(file), shown(place), shown(expected), shown(got)];
        Self::Format { file, place, expected, got }
    }

    /// [`Error::Argument`] with everything turned to text.
    pub fn argument(option: impl fmt::Display, expected: impl fmt::Display, got: impl fmt::Display) -> Self {
        let [option, expected, got] = [shown(option), shown(expected), shown(got)];
        Self::Argument { option, expected, got }
    }

    /// The same error, which names the file of the configuration too.
    #[must_use]
    pub fn in_file(self, file: &str) -> Self {
        match self {
            Self::Config { key, expected, got } => Self::Config { key: format!("{file}: {key}"), expected, got },
            other => other,
        }
    }

    /// [`Error::Config`] with everything turned to text.
    pub fn config(key: impl fmt::Display, expected: impl fmt::Display, got: impl fmt::Display) -> Self {
        let [key, expected, got] = [shown(key), shown(expected), shown(got)];
        Self::Config { key, expected, got }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_is_one_line_that_no_terminal_obeys_and_a_person_reads() {
        let error = Error::format("x.gguf", "tensor a\n\u{1b}[2Jb", "F32", "é".repeat(1 << 20)).to_string();
        assert!(error.starts_with("x.gguf: tensor a\\n\\u{1b}[2Jb: expected F32, got éé") && error.ends_with('…'), "{error}");
        assert!(error.len() < 500 && !error.chars().any(char::is_control));
        let error = Error::tokenizer("  a \n b\u{7f}  ").to_string();
        assert_eq!(error, "tokenizer: a b\\u{7f}");
        let error = Error::tokenizer("a ".repeat(1 << 20)).to_string();
        assert!(error.starts_with("tokenizer: a a a") && error.ends_with('…') && error.len() < 450, "{error}");
        let problems = vec!["a\nb is missing".to_owned(), "c".repeat(1 << 20)];
        let error = Error::Tensors { file: "x".into(), problems }.to_string();
        assert!(error.contains("a\\nb is missing") && error.len() < 1000, "{error}");
    }
}
