//! What is to be right in a `tokenizer.json` before the crate `tokenizers` gets it: it panics at some merges whose union is no
//! token, and gives an added token whose id is neither in the vocabulary nor the next one another id without a word.

use crate::{Error, Result};
use serde_json::{Map, Value};

/// Refuses merges that are not of two tokens that make a third. What is no BPE model, or not even JSON, passes: the crate says why
/// it cannot be read.
///
/// # Errors
/// [`Error::Format`] naming the file and the merge.
pub fn check_merges(file: &str, json: &Value) -> Result<()> {
    let model = &json["model"];
    let (Some(vocab), Some(merges)) = (model["vocab"].as_object(), model["merges"].as_array()) else { return Ok(()) };
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or_default();
    for (ix, merge) in merges.iter().enumerate() {
        // The first line of merges.txt, which older files keep.
        if merge.as_str().is_some_and(|line| line.starts_with("#version")) {
            continue;
        }
        if !pair(merge).is_some_and(|(a, b)| is_merge(vocab, a, b, prefix)) {
            let place = format!("model.merges, number {ix}");
            return Err(Error::format(file, place, "two tokens, known to model.vocab like their union", merge));
        }
    }
    Ok(())
}

/// The two tokens of a merge, in the older form (one string) or the newer (an array).
fn pair(merge: &Value) -> Option<(&str, &str)> {
    match merge {
        Value::String(line) => line.split_once(' ').filter(|(_, b)| !b.contains(' ')),
        Value::Array(pair) => match pair.as_slice() {
            [Value::String(a), Value::String(b)] => Some((a, b)),
            _ => None,
        },
        _ => None,
    }
}

/// The union leaves out the prefix that tokens inside of words have.
fn is_merge(vocab: &Map<String, Value>, a: &str, b: &str, prefix: &str) -> bool {
    let known = |token: &str| vocab.contains_key(token);
    known(a) && known(b) && b.get(prefix.len()..).is_some_and(|rest| known(&format!("{a}{rest}")))
}

/// Refuses added tokens whose id is not the one that the tokenizer gave them.
///
/// # Errors
/// [`Error::Format`] naming the file and the token.
pub fn check_added(file: &str, json: &Value, id_of: impl Fn(&str) -> Option<u32>) -> Result<()> {
    for added in json["added_tokens"].as_array().into_iter().flatten() {
        let (Some(token), Some(id)) = (added["content"].as_str(), added["id"].as_u64()) else { continue };
        if let Some(given) = id_of(token).filter(|given| u64::from(*given) != id) {
            let expected = format!("the id {given}: its own in model.vocab, else the next one");
            return Err(Error::format(file, format_args!("added token {token:?}"), expected, id));
        }
    }
    Ok(())
}
