//! The words of errors, where the reader has the package's options and no flags.

use crate::Error;

/// What an error says to the command line's user, and what it says here, where nobody has a flag to set.
const WORDS: [(&str, &str); 6] = [
    ("-c / context", "context"),
    ("--overflow slide", "overflow: 'slide'"),
    ("--overflow error", "overflow: 'error'"),
    ("--device cpu, or ", ""),
    (" (kitfox check --device cpu compares the CPU's code)", ""),
    ("; a Hugging Face checkpoint is given by its directory", ""),
];

/// An error's sentence under the package's names: `logit-bias` is `logitBias` here.
pub(super) fn sentence(error: &Error) -> String {
    let text = WORDS.iter().fold(error.to_string(), |text, (flag, option)| text.replace(flag, option));
    match error {
        Error::Argument { option, .. } => text.replacen(&option[..], &camel_case(option), 1),
        _ => text,
    }
}

fn camel_case(name: &str) -> String {
    let (mut out, mut begins) = (String::new(), false);
    for character in name.chars() {
        match character {
            '-' => begins = true,
            _ if std::mem::take(&mut begins) => out.push(character.to_ascii_uppercase()),
            _ => out.push(character),
        }
    }
    out
}
