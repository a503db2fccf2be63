//! What is to be right in a `tokenizer.json` beside its model: the crate `tokenizers` panics at some steps, and gives an added token whose id is
//! neither in the vocabulary nor the next one another id without a word.

use super::tokenizer_read::Added;
use crate::{Error, Result};
use serde_json::{Map, Value};
use tokenizers::utils::SysRegex;

/// Refuses steps of the way in and out at which the crate would not fail but panic, or allocate what a number in them claims: the normalizer
/// Precompiled (its table is not checked by the crate), a Replace normalizer of nothing, FixedLength of nothing, and a Strip decoder that takes
/// from the end.
///
/// # Errors
/// [`Error::Format`] naming the file, the step and the number.
pub fn check_steps(file: &str, steps: &Map<String, Value>) -> Result<()> {
    steps.iter().try_for_each(|(place, step)| check_step(file, place, step))
}

fn check_step(file: &str, place: &str, step: &Value) -> Result<()> {
    let wrong = |key: &str, expected: &str| Err(Error::format(file, format_args!("{place}: {key}"), expected, &step[key]));
    // By their keys: the crate takes a step without its type, too.
    let number = |key: &str| step.get(key).and_then(Value::as_u64);
    match place {
        "normalizer" if step.get("precompiled_charsmap").is_some() => {
            return wrong("type", "another normalizer: tables are not run");
        }
        "normalizer" if step.get("pattern").is_some_and(may_be_nothing) => {
            return wrong("pattern", "one that takes at least a character, without a look ahead or behind");
        }
        "pre_tokenizer" if number("length") == Some(0) => return wrong("length", "a length above 0"),
        "decoder" if number("stop").is_some_and(|stop| stop > 0) => return wrong("stop", "0: nothing is taken from the end"),
        _ => {}
    }
    let inner = match step {
        Value::Array(steps) => steps.iter().collect::<Vec<_>>(),
        Value::Object(entries) => entries.values().filter(|value| value.is_array() || value.is_object()).collect(),
        _ => Vec::new(),
    };
    inner.into_iter().try_for_each(|step| check_step(file, place, step))
}

/// Whether a pattern may match where there is no character, behind the last one too: seen by trying it, and looks around are not trusted.
fn may_be_nothing(pattern: &Value) -> bool {
    const TEXTS: [&str; 4] = ["", "a", " 1\n", "é.Z"];
    if let Some(text) = pattern["String"].as_str() {
        return text.is_empty();
    }
    // What is no expression the crate refuses in its own words.
    let Some(Ok(expression)) = pattern["Regex"].as_str().map(SysRegex::new) else { return false };
    let looks = ["(?=", "(?!", "(?<=", "(?<!"];
    looks.iter().any(|look| pattern["Regex"].as_str().is_some_and(|text| text.contains(look)))
        || TEXTS.iter().any(|text| expression.find_iter(text).any(|(start, end)| start == end))
}

/// Refuses added tokens whose id is not the one that the tokenizer gave them.
///
/// # Errors
/// [`Error::Format`] naming the file and the token.
pub fn check_added(file: &str, added: &[Added], id_of: impl Fn(&str) -> Option<u32>) -> Result<()> {
    for Added { id, token } in added {
        if let Some(given) = id_of(&token.content).filter(|given| given != id) {
            let expected = format!("the id {given}: its own in model.vocab, else the next one");
            return Err(Error::format(file, format_args!("added token {:?}", token.content), expected, id));
        }
    }
    Ok(())
}
