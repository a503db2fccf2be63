//! The model of a `tokenizer.json`: its vocabulary and merges, read into what the crate `tokenizers` keeps of them.
//!
//! The crate panics at some merges whose union is no token, and of a token that is listed twice it keeps one without a word: both are
//! refused here. Its Unigram keeps the tokens as a tree of tables, a node a byte: those are counted before they are made.

use super::tokenizer_read::Counts;
use crate::json::Strict;
use crate::{Error, Result};
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};
use std::cell::Cell;
use std::fmt;
use tokenizers::ModelWrapper;
use tokenizers::models::bpe::{BpeBuilder, Merges, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::models::wordlevel::WordLevel;
use tokenizers::models::wordpiece::WordPiece;

/// Nodes of Unigram's tree: twice those of a vocabulary of 256,000 tokens. Each takes [`NODE_BYTES`].
pub const MAX_NODES: usize = 1 << 21;
/// What a node takes: a table of four slots, each a byte and the next node.
pub const NODE_BYTES: usize = 352;
/// Characters of a word that WordPiece looks for in its vocabulary, as BERT's; longer ones are unknown. From each character on, each end is
/// tried: 33 ns a character of the text for each of these.
const MAX_WORD: usize = 100;
const WORD_NS: usize = 33;
/// Bytes of one of Unigram's tokens, and tokens that begin one another: at each character of a text all tokens that may begin there are looked
/// at and copied. SentencePiece makes them of 16 characters, so that no more than 16 do.
const MAX_PIECE: usize = 128;
const MAX_NESTED: usize = 32;
/// A step in Unigram's tree, and a token found there: so much and a fifth of its length.
const NODE_NS: usize = 14;
const FOUND_NS: usize = 24;
/// What any model takes for a character.
const CHARACTER_NS: usize = 330;
/// Bytes of what is put before or behind the parts of words, for each of them anew: `##`, `</w>`.
const MAX_AFFIX: usize = 16;
/// Bytes of the token that stands for what is unknown: copied for each character that is.
const MAX_UNKNOWN: usize = 32;
/// Bytes that the values of one merge may take.
const MERGE_BYTES: usize = 1 << 20;

/// A vocabulary.
enum Vocabulary {
    /// Tokens and ids.
    Ids(Vocab),
    /// Unigram's: tokens in the order of their ids, and how likely each is.
    Scores(Vec<(String, f64)>),
}

/// Pairs of tokens, and the first element that is none, with its number.
struct Pairs {
    pairs: Merges,
    /// Elements before the first pair: the first line of merges.txt, which older files keep.
    before: usize,
    wrong: Option<(usize, Value)>,
}

/// A model's entries.
#[derive(Default)]
pub struct ModelParts {
    vocab: Option<Vocabulary>,
    merges: Option<Pairs>,
    options: Map<String, Value>,
    n_ids: usize,
}

impl ModelParts {
    /// One more than the largest id.
    pub fn n_ids(&self) -> usize {
        self.n_ids
    }

    /// The crate's model, and the time that it takes for a character of any text, in ns; `file` is for errors.
    ///
    /// # Errors
    /// [`Error::Format`] naming the merge that does not fit the vocabulary and what would cost time or memory without an end,
    /// [`Error::Tokenizer`] for what no model is made of.
    pub fn build(mut self, file: &str) -> Result<(ModelWrapper, usize)> {
        let kind: Option<String> = self.option(file, "type")?;
        let failed = |reason: &dyn fmt::Display| Error::tokenizer(format_args!("{file}: model: {reason}"));
        let has = |key: &str| self.options.contains_key(key);
        // Older files do not say what they are.
        let kind = kind.as_deref().unwrap_or(match &self.vocab {
            Some(Vocabulary::Scores(_)) => "Unigram",
            _ if self.merges.is_some() => "BPE",
            _ if has("continuing_subword_prefix") => "WordPiece",
            _ => "WordLevel",
        });
        match (kind, self.vocab.take(), self.merges.take()) {
            ("BPE", Some(Vocabulary::Ids(vocab)), Some(merges)) => Ok((self.bpe(file, vocab, merges)?, CHARACTER_NS)),
            ("BPE", ..) => Err(failed(&"BPE takes an object vocab and an array merges")),
            ("WordPiece", Some(Vocabulary::Ids(vocab)), _) => {
                let unknown = self.short(file, "unk_token", MAX_UNKNOWN)?;
                let prefix = self.short(file, "continuing_subword_prefix", MAX_AFFIX)?;
                let most: usize = self.needed(file, "max_input_chars_per_word")?;
                if most > MAX_WORD {
                    let expected = format!("at most {MAX_WORD}: the time of a word grows by its square, and more");
                    return Err(Error::format(file, "model.max_input_chars_per_word", expected, most));
                }
                let unknown = unknown.ok_or_else(|| missing(file, "unk_token"))?;
                let prefix = prefix.ok_or_else(|| missing(file, "continuing_subword_prefix"))?;
                let builder = WordPiece::builder().vocab(vocab).unk_token(unknown).continuing_subword_prefix(prefix);
                let built = builder.max_input_chars_per_word(most).build().map_err(|reason| failed(&reason))?;
                Ok((built.into(), CHARACTER_NS + WORD_NS * most))
            }
            ("WordLevel", Some(Vocabulary::Ids(vocab)), _) => {
                let unknown = self.short(file, "unk_token", MAX_UNKNOWN)?.ok_or_else(|| missing(file, "unk_token"))?;
                let built = WordLevel::builder().vocab(vocab).unk_token(unknown).build().map_err(|reason| failed(&reason))?;
                Ok((built.into(), CHARACTER_NS))
            }
            ("WordPiece" | "WordLevel", ..) => Err(failed(&format_args!("{kind} takes an object vocab"))),
            ("Unigram", Some(Vocabulary::Scores(vocab)), _) => {
                let ns = check_tree(file, &vocab)?;
                let (unknown, fallback) = (self.option(file, "unk_id")?, self.option(file, "byte_fallback")?);
                let built = Unigram::from(vocab, unknown, fallback.unwrap_or_default()).map_err(|reason| failed(&reason))?;
                Ok((built.into(), CHARACTER_NS + ns))
            }
            ("Unigram", ..) => Err(failed(&"Unigram takes an array vocab of tokens and numbers")),
            _ => Err(failed(&format_args!("expected the type BPE, Unigram, WordPiece or WordLevel, got {kind:?}"))),
        }
    }

    fn bpe(&mut self, file: &str, vocab: Vocab, merges: Pairs) -> Result<ModelWrapper> {
        let prefix = self.short(file, "continuing_subword_prefix", MAX_AFFIX)?;
        let suffix = self.short(file, "end_of_word_suffix", MAX_AFFIX)?;
        let fallback = self.option::<bool>(file, "byte_fallback")?.unwrap_or_default();
        if fallback && [&prefix, &suffix].into_iter().flatten().any(|affix| !affix.is_empty()) {
            let expected =
                "false, or words without prefixes and suffixes: those of each character would be spelled by bytes, too";
            return Err(Error::format(file, "model.byte_fallback", expected, true));
        }
        check_merges(file, &vocab, &merges, prefix.as_deref().unwrap_or_default())?;
        // The crate keeps the words of each tokenizer by thread, 10,000 of them, and never drops those of one that is gone. Without them a
        // book is encoded in half as much time again, which is nothing beside what a model takes for it.
        let mut builder = BpeBuilder::new().vocab_and_merges(vocab, merges.pairs).cache_capacity(0);
        if let Some(prefix) = prefix {
            builder = builder.continuing_subword_prefix(prefix);
        }
        if let Some(dropout) = self.option::<f32>(file, "dropout")?.filter(|dropout| *dropout != 0.0) {
            let expected = "null or 0: it makes merges random, for training; a text has one spelling here";
            return Err(Error::format(file, "model.dropout", expected, dropout));
        }
        if let Some(unknown) = self.short(file, "unk_token", MAX_UNKNOWN)? {
            builder = builder.unk_token(unknown);
        }
        if let Some(suffix) = suffix {
            builder = builder.end_of_word_suffix(suffix);
        }
        let mut flag = |key: &str| Ok::<_, Error>(self.option(file, key)?.unwrap_or_default());
        let builder = builder.fuse_unk(flag("fuse_unk")?).byte_fallback(fallback);
        let built = builder.ignore_merges(flag("ignore_merges")?).build();
        Ok(built.map_err(|reason| Error::tokenizer(format_args!("{file}: model: {reason}")))?.into())
    }

    /// An entry, if it is there and not null.
    fn option<T: DeserializeOwned>(&mut self, file: &str, key: &str) -> Result<Option<T>> {
        let value = self.options.remove(key).unwrap_or_default();
        serde_json::from_value(value).map_err(|reason| Error::tokenizer(format_args!("{file}: model.{key}: {reason}")))
    }

    fn needed<T: DeserializeOwned>(&mut self, file: &str, key: &str) -> Result<T> {
        self.option(file, key)?.ok_or_else(|| missing(file, key))
    }

    /// A text that the model copies for words or characters: of at most so many bytes.
    fn short(&mut self, file: &str, key: &str, most: usize) -> Result<Option<String>> {
        let text: Option<String> = self.option(file, key)?;
        match text.as_ref().map(String::len).filter(|n| *n > most) {
            Some(n) => Err(Error::format(file, format_args!("model.{key}"), format_args!("at most {most} bytes"), n)),
            None => Ok(text),
        }
    }
}

fn missing(file: &str, key: &str) -> Error {
    Error::tokenizer(format_args!("{file}: model.{key} is missing"))
}

/// Refuses merges that are not of two tokens that make a third.
fn check_merges(file: &str, vocab: &Vocab, merges: &Pairs, prefix: &str) -> Result<()> {
    let wrong = |ix: usize, got: &Value| {
        let place = format!("model.merges, number {ix}");
        Err(Error::format(file, place, "two tokens, known to model.vocab like their union", got))
    };
    for (ix, (a, b)) in merges.pairs.iter().enumerate() {
        let known = |token: &str| vocab.contains_key(token);
        // The union leaves out the prefix that tokens inside of words have.
        if !(known(a) && known(b) && b.get(prefix.len()..).is_some_and(|rest| known(&format!("{a}{rest}")))) {
            return wrong(ix + merges.before, &json!([a, b]));
        }
    }
    merges.wrong.as_ref().map_or(Ok(()), |(ix, got)| wrong(*ix, got))
}

/// Refuses a token that is listed twice or longer than [`MAX_PIECE`], more than [`MAX_NESTED`] that begin one another, and tokens whose tree
/// would have more than [`MAX_NODES`]. Gives the most ns that a look for the tokens that may begin somewhere takes.
fn check_tree(file: &str, vocab: &[(String, f64)]) -> Result<usize> {
    if let Some(long) = vocab.iter().map(|(token, _)| token.len()).find(|n| *n > MAX_PIECE) {
        return Err(Error::format(file, "model.vocab", format_args!("tokens of at most {MAX_PIECE} bytes of Unigram"), long));
    }
    let mut tokens: Vec<&str> = vocab.iter().map(|(token, _)| token.as_str()).collect();
    tokens.sort_unstable();
    if let Some(pair) = tokens.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::format(file, "model.vocab", "each token once", format_args!("{:?} twice", pair[0])));
    }
    let shared = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let first = tokens.first().map_or(0, |token| token.len());
    let nodes = first + tokens.windows(2).map(|pair| pair[1].len() - shared(pair[0], pair[1])).sum::<usize>();
    if nodes > MAX_NODES {
        let expected = format!("tokens that make a tree of at most {MAX_NODES} bytes, a beginning that is shared being one");
        return Err(Error::format(file, "model.vocab", expected, nodes));
    }
    // In their order, those that a token begins with are above it.
    let (mut nested, mut most_ns): (Vec<&str>, usize) = (Vec::new(), 0);
    for token in tokens {
        while nested.last().is_some_and(|first| !token.starts_with(first)) {
            nested.pop();
        }
        nested.push(token);
        if nested.len() > MAX_NESTED {
            let expected = format!("at most {MAX_NESTED} tokens of Unigram that begin one another");
            return Err(Error::format(file, "model.vocab", expected, format_args!("{} at {token:?}", nested.len())));
        }
        let found = nested.iter().map(|found| FOUND_NS + found.len() / 5).sum::<usize>();
        most_ns = most_ns.max(NODE_NS * token.len() + found);
    }
    Ok(most_ns)
}

/// Reads a model's entries: of tables as many as were counted, of the options what they may take.
pub struct Parts<'a> {
    pub counts: Counts,
    pub left: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Parts<'_> {
    type Value = ModelParts;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ModelParts, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Parts<'_> {
    type Value = ModelParts;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a tokenizer's model, which is an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<ModelParts, A::Error> {
        let mut model = ModelParts::default();
        while let Some(key) = entries.next_key::<String>()? {
            match key.as_str() {
                "vocab" if model.vocab.is_none() => {
                    let (vocab, n_ids) = entries.next_value_seed(Tokens(self.counts.tokens.n))?;
                    (model.vocab, model.n_ids) = (Some(vocab), n_ids);
                }
                "merges" if model.merges.is_none() => {
                    model.merges = Some(entries.next_value_seed(Elements(self.counts.merges.n))?);
                }
                "vocab" | "merges" => return Err(twice(&key)),
                _ if model.options.contains_key(&key) => return Err(twice(&key)),
                _ => drop(model.options.insert(key, entries.next_value_seed(Strict(self.left))?)),
            }
        }
        Ok(model)
    }
}

pub fn twice<E: serde::de::Error>(key: &str) -> E {
    E::custom(format_args!("the key {:?} is listed twice", &key[..key.floor_char_boundary(80)]))
}

/// Reads a vocabulary of so many tokens; gives one more than the largest id, too.
struct Tokens(usize);

impl<'de> DeserializeSeed<'de> for Tokens {
    type Value = (Vocabulary, usize);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tokens {
    type Value = (Vocabulary, usize);

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a vocabulary: an object of tokens and ids, or an array of tokens and numbers")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let (mut vocab, mut n_ids) = (Vocab::with_capacity(self.0), 0);
        while let Some(token) = entries.next_key::<String>()? {
            if vocab.contains_key(&token) {
                return Err(twice(&token));
            }
            let id: u32 = entries.next_value()?;
            n_ids = n_ids.max((id as usize).saturating_add(1));
            vocab.insert(token, id);
        }
        Ok((Vocabulary::Ids(vocab), n_ids))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut vocab = Vec::with_capacity(self.0);
        while let Some(scored) = elements.next_element::<(String, f64)>()? {
            vocab.push(scored);
        }
        let n_ids = vocab.len();
        Ok((Vocabulary::Scores(vocab), n_ids))
    }
}

/// Reads so many merges, each in the older form (one string) or the newer (an array).
struct Elements(usize);

impl<'de> DeserializeSeed<'de> for Elements {
    type Value = Pairs;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Pairs, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Elements {
    type Value = Pairs;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an array of merges")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Pairs, A::Error> {
        let mut read = Pairs { pairs: Merges::with_capacity(self.0), before: 0, wrong: None };
        let left = Cell::new(MERGE_BYTES);
        for ix in 0.. {
            left.set(MERGE_BYTES);
            let Some(element) = elements.next_element_seed(Strict(&left))? else { break };
            if ix == 0 && element.as_str().is_some_and(|line| line.starts_with("#version")) {
                read.before = 1;
            } else if read.wrong.is_none() {
                match pair(element) {
                    Ok(pair) => read.pairs.push(pair),
                    Err(element) => read.wrong = Some((ix, element)),
                }
            }
        }
        Ok(read)
    }
}

/// The two tokens of a merge, or what it is instead.
fn pair(merge: Value) -> Result<(String, String), Value> {
    match merge {
        Value::String(line) => match line.split_once(' ').filter(|(_, b)| !b.contains(' ')) {
            Some((a, b)) => Ok((a.to_owned(), b.to_owned())),
            None => Err(Value::String(line)),
        },
        Value::Array(pair) => match <[Value; 2]>::try_from(pair) {
            Ok([Value::String(a), Value::String(b)]) => Ok((a, b)),
            Ok(pair) => Err(Value::Array(pair.into())),
            Err(pair) => Err(Value::Array(pair)),
        },
        other => Err(other),
    }
}
