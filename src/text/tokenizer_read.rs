//! A `tokenizer.json` as its parts. The crate `tokenizers` would read the model into a tree first, and then into another one, which takes
//! twenty times the text: here it gets the tables that it keeps, and nothing else is made of them.
//!
//! The text is passed over twice. First vocabulary and merges are counted: a file that is too short for what they would take is refused, as
//! is one with more of anything than [`MAX_TOKENS`] and the others allow. Then they are read, into room for just so many.

use super::tokenizer_model::{ModelParts, Parts, twice};
use crate::error::shown;
use crate::json::Strict;
use crate::{Error, Result};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, Expected, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::fmt;
use tokenizers::AddedToken;

/// Tokens of a vocabulary: four times as many as the largest have.
pub const MAX_TOKENS: usize = 1 << 20;
/// Merges.
pub const MAX_MERGES: usize = 1 << 21;
/// Bytes of all added tokens: the crate makes an automaton of them.
pub const MAX_ADDED_BYTES: usize = 256 << 10;
/// Bytes of any one text, which an error may repeat whole and escaped before it is cut: three times as many as the longest have.
pub const MAX_STRING: usize = 1 << 20;
/// Bytes that the values of the steps before and behind the model may take, and of its own options.
const STEPS_BYTES: usize = 2 << 20;
/// Room in a file's budget ([`Counts::check`]) for everything but tables.
const SPARE_BYTES: usize = 56 << 20;

/// Texts in an object or array, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub n: usize,
    pub bytes: usize,
}

/// What there is of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub tokens: Tally,
    pub merges: Tally,
    added: Tally,
}

impl Counts {
    /// Counts what is in a text.
    fn of(text: &str) -> serde_json::Result<Self> {
        let mut counts = Self::default();
        let mut deserializer = serde_json::Deserializer::from_str(text);
        Counting { counts: &mut counts, place: Place::File }.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(counts)
    }

    /// Bytes that the crate's tables of a BPE model take while they are made: two of the vocabulary; the merges as texts and as numbers.
    /// Others take less, but for Unigram's tree ([`super::tokenizer_model`]).
    fn table_bytes(&self) -> usize {
        // A table doubles, with one byte beside each slot, and is full at seven eighths.
        let slots = |n: usize| (n * 8 / 7).next_power_of_two();
        let vocabulary = (size_of::<(String, u32)>() + 1) * slots(self.tokens.n) + self.tokens.bytes;
        let merges = size_of::<(String, String)>() * self.merges.n + self.merges.bytes;
        let numbers = (size_of::<[u32; 4]>() + 1) * slots(self.merges.n) * 3 / 2;
        2 * vocabulary + merges + numbers
    }

    /// # Errors
    /// [`Error::Format`] for more than the limits allow, or more than a text of `n` bytes should have: tables may take three times its length.
    fn check(&self, file: &str, n: usize) -> Result<()> {
        let limits = [
            ("model.vocab", self.tokens.n, MAX_TOKENS, "tokens"),
            ("model.merges", self.merges.n, MAX_MERGES, "merges"),
            ("added_tokens", self.added.bytes, MAX_ADDED_BYTES, "bytes of text"),
        ];
        for (place, got, most, what) in limits {
            if got > most {
                return Err(Error::format(file, place, format_args!("at most {most} {what}"), got));
            }
        }
        let (most, bytes) = (n.saturating_mul(3).saturating_add(SPARE_BYTES), self.table_bytes());
        if bytes > most {
            let expected =
                format!("no more tokens and merges than a text of {n} bytes should have: at most {most} bytes of tables");
            let got = format!("{} tokens, {} merges: {bytes} bytes", self.tokens.n, self.merges.n);
            return Err(Error::format(file, "model", expected, got));
        }
        Ok(())
    }
}

/// Where the count is.
#[derive(Clone, Copy)]
enum Place {
    File,
    Model,
}

struct Counting<'a> {
    counts: &'a mut Counts,
    place: Place,
}

impl<'de> DeserializeSeed<'de> for Counting<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Counting<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self.place {
            Place::File => "a tokenizer, which is an object",
            Place::Model => "a tokenizer's model, which is an object",
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let counts = self.counts;
        while let Some(key) = entries.next_key::<String>()? {
            check_length(&key)?;
            match (self.place, key.as_str()) {
                (Place::File, "model") => entries.next_value_seed(Counting { counts: &mut *counts, place: Place::Model })?,
                (Place::File, "added_tokens") => entries.next_value_seed(Texts { tally: &mut counts.added, outer: true })?,
                (Place::Model, "vocab") => entries.next_value_seed(Texts { tally: &mut counts.tokens, outer: true })?,
                (Place::Model, "merges") => entries.next_value_seed(Texts { tally: &mut counts.merges, outer: true })?,
                _ => entries.next_value_seed(Texts { tally: &mut Tally::default(), outer: false })?,
            }
        }
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        Err(not_a_string(&self))
    }
}

/// The error of a string in the place of something else; serde's own would repeat it.
pub fn not_a_string<E: serde::de::Error>(expected: &dyn Expected) -> E {
    E::custom(format_args!("invalid type: string, expected {expected}"))
}

fn check_length<E: serde::de::Error>(text: &str) -> Result<(), E> {
    match text.len() {
        ..=MAX_STRING => Ok(()),
        n => Err(E::custom(format_args!("expected texts of at most {MAX_STRING} bytes, got {n}"))),
    }
}

/// Counts the entries or elements of a value (not of those within), and the bytes of all texts: of keys those of the value's own.
struct Texts<'a> {
    tally: &'a mut Tally,
    outer: bool,
}

impl Texts<'_> {
    fn inner(&mut self) -> Texts<'_> {
        Texts { tally: self.tally, outer: false }
    }
}

// As for `Counting`: one for both would have to be a type around either.
impl<'de> DeserializeSeed<'de> for Texts<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Texts<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        if !self.outer {
            while entries.next_key_seed(Texts { tally: &mut Tally::default(), outer: false })?.is_some() {
                entries.next_value_seed(self.inner())?;
            }
            return Ok(());
        }
        while entries.next_key_seed(self.inner())?.is_some() {
            entries.next_value_seed(self.inner())?;
            self.tally.n += 1;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        while elements.next_element_seed(self.inner())?.is_some() {
            self.tally.n += usize::from(self.outer);
        }
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        check_length(text)?;
        self.tally.bytes += text.len();
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
}

/// A token that is added to the model's, and its id.
#[derive(Deserialize)]
#[serde(from = "AddedEntry")]
pub struct Added {
    pub id: u32,
    pub token: AddedToken,
}

/// Its entries. What has another name is passed over: `#[serde(flatten)]` would keep all of it until the end.
#[derive(Deserialize)]
struct AddedEntry {
    id: u32,
    content: String,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

impl From<AddedEntry> for Added {
    fn from(entry: AddedEntry) -> Self {
        let token = AddedToken {
            content: entry.content,
            single_word: entry.single_word,
            lstrip: entry.lstrip,
            rstrip: entry.rstrip,
            normalized: entry.normalized,
            special: entry.special,
        };
        Self { id: entry.id, token }
    }
}

/// The parts that are used; `truncation`, `padding` and `post_processor` are not.
#[derive(Default)]
pub struct File {
    pub model: Option<ModelParts>,
    pub added: Vec<Added>,
    /// By key: `normalizer`, `pre_tokenizer`, `decoder`.
    pub steps: Map<String, Value>,
}

impl File {
    /// Reads the text of a file of this name.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] for what is not JSON or no tokenizer, [`Error::Format`] for too much of anything.
    pub fn read(name: &str, text: &str) -> Result<Self> {
        let failed = |reason: serde_json::Error| Error::tokenizer(format_args!("{name}: {reason}"));
        let counts = Counts::of(text).map_err(failed)?;
        counts.check(name, text.len())?;
        let left = Cell::new(STEPS_BYTES);
        serde_json::Deserializer::from_str(text).deserialize_map(Reading { counts, left: &left }).map_err(failed)
    }
}

struct Reading<'a> {
    counts: Counts,
    left: &'a Cell<usize>,
}

impl<'de> Visitor<'de> for Reading<'_> {
    type Value = File;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a tokenizer, which is an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<File, A::Error> {
        let (mut file, mut seen) = (File::default(), Vec::new());
        while let Some(key) = entries.next_key::<String>()? {
            if seen.contains(&key) {
                return Err(twice(&key));
            }
            match key.as_str() {
                "version" => {
                    let version: String = entries.next_value()?;
                    if version != "1.0" {
                        return Err(A::Error::custom(shown(format_args!("expected version \"1.0\", got {version:?}"))));
                    }
                }
                "model" => file.model = Some(entries.next_value_seed(Parts { counts: self.counts, left: self.left })?),
                "added_tokens" => file.added = entries.next_value()?,
                "normalizer" | "pre_tokenizer" | "decoder" => {
                    file.steps.insert(key.clone(), entries.next_value_seed(Strict(self.left))?);
                }
                "truncation" | "padding" | "post_processor" => drop(entries.next_value_seed(Strict(self.left))?),
                _ => return Err(A::Error::custom(shown(format_args!("a tokenizer has no key {key:?}")))),
            }
            seen.push(key);
        }
        Ok(file)
    }
}
