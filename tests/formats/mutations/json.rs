//! JSON texts as trees that may say what no tree of `serde_json` can: a key twice, a number without an end, raw bytes.

use super::Edit;
use crate::hostile_input::exercise::joined;
use serde_json::Value;

#[derive(Clone)]
enum Node {
    /// A scalar, as it is written.
    Raw(String),
    Array(Vec<Node>),
    Object(Vec<(String, Node)>),
}

/// Scalars and small texts in the place of any value.
const HOSTILE: [&str; 40] = [
    "null",
    "true",
    "false",
    "0",
    "-0",
    "-1",
    "1",
    "2",
    "3",
    "16",
    "17",
    "255",
    "256",
    "65536",
    "16777216",
    "16777217",
    "2147483647",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e999",
    "-1e-320",
    "0.5",
    "\"\"",
    "\"a\"",
    "\"aaaaaaaaaaaa\"",
    "\"a*b|a\"",
    "\"(?=(?:a|a){18}c)b|.\"",
    "\"\\\\w{200}\"",
    "\"\\u0000\\n\\u001b[2J\"",
    "\"\\ud800\"",
    "[]",
    "{}",
    "[[[[0]]]]",
    "{\"a\": {}}",
    "nonsense",
];

impl Node {
    fn of(value: &Value) -> Self {
        match value {
            Value::Array(elements) => Self::Array(elements.iter().map(Self::of).collect()),
            Value::Object(entries) => Self::Object(entries.iter().map(|(key, value)| (key.clone(), Self::of(value))).collect()),
            scalar => Self::Raw(scalar.to_string()),
        }
    }

    fn written(&self) -> String {
        match self {
            Self::Raw(text) => text.clone(),
            Self::Array(elements) => format!("[{}]", elements.iter().map(Self::written).collect::<Vec<_>>().join(",")),
            Self::Object(entries) => {
                let entry = |(key, value): &(String, Node)| format!("{}:{}", Value::from(key.as_str()), value.written());
                format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(","))
            }
        }
    }

    fn count(&self) -> usize {
        1 + match self {
            Self::Raw(_) => 0,
            Self::Array(elements) => elements.iter().map(Self::count).sum(),
            Self::Object(entries) => entries.iter().map(|(_, value)| value.count()).sum(),
        }
    }

    /// The node that is the `n`-th, this one being number 0.
    fn nth(&mut self, n: usize) -> Option<&mut Self> {
        if n == 0 {
            return Some(self);
        }
        let children: Vec<&mut Self> = match self {
            Self::Raw(_) => Vec::new(),
            Self::Array(elements) => elements.iter_mut().collect(),
            Self::Object(entries) => entries.iter_mut().map(|(_, value)| value).collect(),
        };
        let mut before = 1;
        for child in children {
            let n_child = child.count();
            if n < before + n_child {
                return child.nth(n - before);
            }
            before += n_child;
        }
        None
    }

    fn edit(&mut self, edit: Edit) {
        let n = self.count();
        let other = self.nth((edit.number >> 8) as usize % n).cloned();
        let Some(node) = self.nth(edit.place(n)) else { return };
        let hostile = Self::Raw(edit.pick(&HOSTILE).to_owned());
        match (edit.what % 14, &mut *node) {
            (0, Self::Array(elements)) if !elements.is_empty() => drop(elements.remove(edit.number as usize % elements.len())),
            (1, Self::Array(elements)) if !elements.is_empty() => {
                elements.push(elements[edit.number as usize % elements.len()].clone());
            }
            (2, Self::Array(elements)) => elements.push(hostile),
            (3, Self::Array(elements)) => elements.reverse(),
            (0, Self::Object(entries)) if !entries.is_empty() => drop(entries.remove(edit.number as usize % entries.len())),
            (1, Self::Object(entries)) if !entries.is_empty() => {
                entries.push(entries[edit.number as usize % entries.len()].clone());
            }
            (2, Self::Object(entries)) if !entries.is_empty() => {
                let ix = edit.number as usize % entries.len();
                entries[ix].0 = edit
                    .pick(&["", "a", "type", "\u{0}\n", "model.layers.0.mlp.gate_proj.weight", "__metadata__", "é"])
                    .to_owned();
            }
            (3, Self::Object(entries)) if entries.len() > 1 => {
                let (one, two) = (edit.number as usize % entries.len(), (edit.number >> 20) as usize % entries.len());
                let value = entries[one].1.clone();
                entries[two].1 = value;
            }
            (4, _) => *node = Self::Array(vec![node.clone()]),
            (5, _) => *node = Self::Object(vec![("a".to_owned(), node.clone())]),
            (6, _) => *node = Self::Raw("[".repeat(edit.number as usize % 300) + "0" + &"]".repeat(edit.number as usize % 300)),
            (7, _) => *node = Self::Raw(Value::from("é\u{301}".repeat(edit.number as usize % 20_000)).to_string()),
            (8, _) => *node = Self::Array(vec![hostile; edit.number as usize % 2000]),
            (9, _) => {
                if let Some(other) = other {
                    *node = other;
                }
            }
            (_, Self::Raw(text)) if edit.number.is_multiple_of(3) => {
                // A number near the old one.
                if let Ok(old) = text.parse::<i64>() {
                    *text = old.wrapping_add((edit.number >> 8 & 7) as i64 - 3).to_string();
                }
            }
            _ => *node = hostile,
        }
    }
}

/// A JSON text with edits in its tree.
pub fn edited(seed: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut tree = Node::of(&serde_json::from_slice(seed).unwrap());
    edits.iter().for_each(|edit| tree.edit(*edit));
    tree.written().into_bytes()
}

/// A tokenizer.json, or one of GPT-2's files.
pub fn tokenizer(seed: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut files: Vec<Vec<u8>> = seed.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    let of = edits[0].number as usize % files.len();
    files[of] = if files[of].starts_with(b"{") { edited(&files[of], edits) } else { super::of_bytes(files[of].clone(), edits) };
    files.join(&0)
}

/// One of the parts: the index, or a header, whose length is the right one or not.
pub fn safetensors(seed: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut rest = seed;
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for _ in 0..2 {
        let (length, behind) = rest.split_at(4);
        let (part, behind) = behind.split_at(u32::from_le_bytes(length.try_into().unwrap()) as usize);
        parts.push(part.to_vec());
        rest = behind;
    }
    parts.push(rest.to_vec());
    let filled: Vec<usize> = (0..3).filter(|ix| !parts[*ix].is_empty()).collect();
    let of = filled[(edits[0].number >> 32) as usize % filled.len()];
    parts[of] = match of {
        0 => edited(&parts[of], edits),
        _ => {
            let (length, behind) = parts[of].split_at(8);
            let (header, data) = behind.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
            let header = edited(header, edits);
            let last = edits[edits.len() - 1];
            let length = match last.what % 24 {
                0 => last.number,
                1 => header.len() as u64 + 1,
                2 => u64::MAX,
                _ => header.len() as u64,
            };
            let data = if last.what % 24 == 3 { &data[..last.place(data.len().max(1))] } else { data };
            [&length.to_le_bytes(), &header[..], data].concat()
        }
    };
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    joined(&parts)
}
