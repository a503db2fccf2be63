//! JSON from anywhere: it says nothing twice, and takes no more memory than its length warrants.
//!
//! `serde_json` keeps the last of two equal keys without a word: a shard index or a vocabulary that contradicts itself would pass.
//! And `[[],[],…` takes eleven times its length in memory, `[{"":0},…` ninety times: here a text whose values would take more than
//! [`most_bytes`] is refused while it is read. (Of a tokenizer no values are made: [`crate::text`].) Objects and arrays nest 127 deep at most (`serde_json`'s
//! own limit).

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::Cell;
use std::fmt;

/// What a value takes in its array, which grows by doubling.
const VALUE_BYTES: usize = 2 * size_of::<Value>();
/// What an entry takes in a tree whose nodes are half full, beside the text of its key, and what the first one takes.
const ENTRY_BYTES: usize = 2 * (size_of::<String>() + size_of::<Value>());
const OBJECT_BYTES: usize = 640;
/// The least that an allocation takes.
const LEAST_BYTES: usize = 16;

/// Bytes that the values of a text of `n` bytes may take: the index of 65,536 tensors and a `vocab.json` of 256,000 tokens do with it.
pub fn most_bytes(n: usize) -> usize {
    n.saturating_mul(2).saturating_add(48 << 20)
}

/// A JSON value; in none of its objects is a key listed twice.
///
/// # Errors
/// What is wrong and where, also for a text whose values take more than [`most_bytes`].
pub fn parse(text: &[u8]) -> serde_json::Result<Value> {
    parse_within(text, most_bytes(text.len()))
}

/// The same of a text whose values may take so many bytes.
///
/// # Errors
/// As [`parse`].
pub fn parse_within(text: &[u8], most: usize) -> serde_json::Result<Value> {
    let left = Cell::new(most);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Strict(&left).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Reads one value; holds the bytes that are left for it and all that follow.
#[derive(Clone, Copy)]
pub struct Strict<'a>(pub &'a Cell<usize>);

impl Strict<'_> {
    fn spend<E: Error>(self, bytes: usize) -> Result<(), E> {
        match self.0.get().checked_sub(bytes) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => Err(E::custom("more values than a text of this length should have")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key {:?} is listed twice", shortened(&key))));
            }
            self.spend(if object.is_empty() { OBJECT_BYTES } else { ENTRY_BYTES } + key.len() + LEAST_BYTES)?;
            object.insert(key, entries.next_value_seed(self)?);
        }
        Ok(Value::Object(object))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(element) = elements.next_element_seed(self)? {
            self.spend(if array.is_empty() { 2 * VALUE_BYTES } else { VALUE_BYTES })?;
            array.push(element);
        }
        Ok(Value::Array(array))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Number::from_f64(v).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Value, E> {
        self.spend(v.len() + LEAST_BYTES)?;
        Ok(v.into())
    }
}

fn shortened(key: &str) -> &str {
    &key[..key.floor_char_boundary(80)]
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn it_is_json_and_nothing_is_said_twice() {
        for text in [r#"{"a": [1, -2, 2.5, "x\n", true, null, {"b": {}}], "c": 18446744073709551615}"#, "[]", "1e-6", "\"é\""] {
            assert_eq!(parse(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        }
        for text in [r#"{"a": 1, "a": 1}"#, r#"{"x": [{"a": 1, "b": 2, "a": 3}]}"#] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("\"a\" is listed twice"), "{error}");
        }
        for text in ["", "{", "[1] 2", "{\"a\": 1}}", "[\"\u{0}\"]"] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse(&[b'"', 0xff, b'"']).is_err());
    }

    #[test]
    fn a_text_that_is_all_values_is_refused_and_a_dense_vocabulary_is_not() {
        for dense in ["[],", "0,", "{},", "{\"\":0},", "[0],", "\"\","] {
            let text = format!("[{}0]", dense.repeat((8 << 20) / dense.len()));
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("more values than"), "{dense}: {error}");
        }
        let entries: Vec<String> = (0..60_000).map(|id| format!("\"t{id}\":{id}")).collect();
        let merges: Vec<String> = (0..60_000).map(|id| format!("[\"t{id}\",\"a\"]")).collect();
        let text = format!("{{\"vocab\":{{{}}},\"merges\":[{}]}}", entries.join(","), merges.join(","));
        assert_eq!(parse(text.as_bytes()).unwrap()["merges"].as_array().unwrap().len(), 60_000);
        // However deep, an error and no overflow of the stack.
        assert!(parse("[".repeat(1 << 20).as_bytes()).is_err());
        assert!(parse("{\"a\":".repeat(1 << 20).as_bytes()).is_err());
    }
}
