//! A text as its tokens: what of it each has, in whole characters, so that all of them joined are the text.
//!
//! A character of several tokens stands at the one that completes it, those before have none of it, and know which that is. Bytes that never
//! become a character are U+FFFD as in [`String::from_utf8_lossy`], one for each maximal part that could have begun one, at the token of its
//! last byte. (What a token is by itself, [`Tokenizer::id_to_bytes`] says.)

use super::{Detokenizer, Tokenizer, Unescape};
use crate::Result;
use std::ops::Range;

/// What a token has of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenText {
    /// The characters that it completes; none of a special token.
    pub text: String,
    /// Place in the list of the token that completes its last character: mostly its own, a later one where it has only a part.
    pub completed_by: usize,
}

/// The texts of ids, in order; joined they are [`Tokenizer::decode`] of them.
///
/// # Errors
/// [`crate::Error::Tokenizer`] when the decoder refuses them.
pub fn token_texts(tokenizer: &Tokenizer, ids: &[u32]) -> Result<Vec<TokenText>> {
    let Spelled { bytes, ends, waits } = spell(tokenizer, ids)?;
    let mut texts: Vec<TokenText> = (0..ids.len()).map(|ix| TokenText { text: String::new(), completed_by: ix }).collect();
    let mut token = 0;
    for (at, character) in characters(&bytes) {
        let first = token;
        while ends[token] < at.end {
            token += 1;
        }
        // Those that have a part of it, and those that brought nothing yet and wait.
        for ix in first..token {
            let begins = if ix == 0 { 0 } else { ends[ix - 1] };
            if waits[ix] || ends[ix] > at.start.max(begins) {
                texts[ix].completed_by = token;
            }
        }
        texts[token].text.push(character);
    }
    let whole = tokenizer.decode(ids)?;
    if texts.iter().map(|part| &part.text[..]).collect::<String>() != whole {
        share_out(&whole, &mut texts);
    }
    Ok(texts)
}

/// The bytes of ids.
struct Spelled {
    bytes: Vec<u8>,
    /// Where those of each token end.
    ends: Vec<usize>,
    /// Whether a token is held back, or a part of it, until the next tells what it stands for.
    waits: Vec<bool>,
}

fn spell(tokenizer: &Tokenizer, ids: &[u32]) -> Result<Spelled> {
    let (mut detokenizer, mut unescape) = (Detokenizer::new(), Unescape::new());
    let mut spelled = Spelled { bytes: Vec::new(), ends: Vec::new(), waits: Vec::new() };
    let escaped = tokenizer.is_json_escaped();
    for (ix, id) in ids.iter().enumerate() {
        let mut bytes = detokenizer.push(tokenizer, *id)?;
        let is_last = ix + 1 == ids.len();
        if is_last {
            bytes.extend(detokenizer.finish(tokenizer)?);
        }
        if escaped {
            bytes = unescape.push(&bytes);
            bytes.extend(if is_last { unescape.finish() } else { Vec::new() });
        }
        spelled.bytes.extend(bytes);
        spelled.ends.push(spelled.bytes.len());
        // A token without text waits for nothing, whatever is held back.
        let is_text = tokenizer.text_token(*id).is_some();
        spelled.waits.push(is_text && (detokenizer.is_waiting() || unescape.is_waiting()));
    }
    Ok(spelled)
}

/// The characters of bytes, and where each lies.
fn characters(bytes: &[u8]) -> impl Iterator<Item = (Range<usize>, char)> + use<'_> {
    let mut at = 0;
    let mut next = move |n: usize| {
        at += n;
        at - n..at
    };
    bytes.utf8_chunks().flat_map(move |chunk| {
        let valid = chunk.valid().chars().map(|character| (character.len_utf8(), character));
        let invalid = Some((chunk.invalid().len(), char::REPLACEMENT_CHARACTER)).filter(|(n, _)| *n > 0);
        valid.chain(invalid).map(|(n, character)| (next(n), character)).collect::<Vec<_>>()
    })
}

/// Gives the tokens as many characters of the whole as they have now, and the last what is left: some decoders write a character otherwise
/// once they have seen what follows.
fn share_out(whole: &str, texts: &mut [TokenText]) {
    let mut rest = whole.chars();
    for part in &mut *texts {
        part.text = rest.by_ref().take(part.text.chars().count()).collect();
    }
    if let Some(last) = texts.last_mut() {
        last.text.extend(rest);
    }
}
