//! GGUF files and saved sessions as fields.

use super::Edit;

/// A part of a file.
#[derive(Clone)]
pub enum Field {
    /// A number, little-endian.
    Number(Vec<u8>),
    /// A string behind its length, or behind another number that claims to be it.
    Text { claimed: Option<u64>, bytes: Vec<u8> },
    /// Anything else.
    Data(Vec<u8>),
}

/// Numbers that break what trusts them.
const HOSTILE: [u64; 24] = [
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    31,
    32,
    33,
    64,
    255,
    256,
    65_535,
    65_536,
    65_537,
    1 << 24,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    1 << 62,
    i64::MAX as u64,
    u64::MAX,
];

impl Field {
    fn written(&self) -> Vec<u8> {
        match self {
            Self::Number(bytes) | Self::Data(bytes) => bytes.clone(),
            Self::Text { claimed, bytes } => [&claimed.unwrap_or(bytes.len() as u64).to_le_bytes()[..], bytes].concat(),
        }
    }

    fn edit(&mut self, edit: Edit) {
        match self {
            Self::Number(bytes) => {
                let mut wide = [0; 8];
                wide[..bytes.len()].copy_from_slice(bytes);
                let old = u64::from_le_bytes(wide);
                let more = edit.number >> 8;
                let new = match edit.number % 7 {
                    0 => old.wrapping_add(1),
                    1 => old.wrapping_sub(1),
                    2 => old ^ 1 << (more % 64),
                    3 => old.wrapping_mul(2),
                    4 => more,
                    5 => u64::MAX - HOSTILE[more as usize % HOSTILE.len()],
                    _ => HOSTILE[more as usize % HOSTILE.len()],
                };
                let n = bytes.len();
                bytes.copy_from_slice(&new.to_le_bytes()[..n]);
            }
            Self::Text { claimed, bytes } => match edit.number % 8 {
                0 => *claimed = Some(HOSTILE[(edit.number >> 8) as usize % HOSTILE.len()]),
                1 => *claimed = Some(bytes.len() as u64 ^ 1 << (edit.number >> 8 & 7)),
                2 => bytes.clear(),
                3 => *bytes = b"\x1b[2J\n\0".to_vec(),
                4 => *bytes = vec![0xff, 0xfe, 0x80],
                5 => bytes.resize(70_000, b'n'),
                6 => bytes.extend_from_within(..),
                _ => {
                    let at = edit.place(bytes.len().max(1));
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << (edit.number >> 8 & 7);
                    }
                }
            },
            Self::Data(bytes) => *bytes = super::of_bytes(std::mem::take(bytes), &[edit]),
        }
    }
}

/// A file: its header, an entry for each pair and tensor, its data.
pub struct Gguf(Vec<Vec<Field>>);

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn bytes(&mut self, n: usize) -> Vec<u8> {
        let (bytes, rest) = self.0.split_at(n);
        self.0 = rest;
        bytes.to_vec()
    }

    fn number(&mut self, n: usize) -> (u64, Field) {
        let bytes = self.bytes(n);
        let mut wide = [0; 8];
        wide[..n].copy_from_slice(&bytes);
        (u64::from_le_bytes(wide), Field::Number(bytes))
    }

    fn text(&mut self) -> Field {
        let (n, _) = self.number(8);
        Field::Text { claimed: None, bytes: self.bytes(n as usize) }
    }
}

impl Gguf {
    /// A right file, without arrays.
    pub fn read(file: &[u8]) -> Self {
        let mut cursor = Cursor(file);
        let magic = Field::Data(cursor.bytes(4));
        let version = cursor.number(4).1;
        let ((n_tensors, tensors), (n_pairs, pairs)) = (cursor.number(8), cursor.number(8));
        let mut entries = vec![vec![magic, version, tensors, pairs]];
        for _ in 0..n_pairs {
            let (key, (ty, type_field)) = (cursor.text(), cursor.number(4));
            let value = match ty {
                8 => cursor.text(),
                0 | 1 | 7 => cursor.number(1).1,
                4..=6 => cursor.number(4).1,
                10..=12 => cursor.number(8).1,
                other => panic!("a seed has no value of type {other}"),
            };
            entries.push(vec![key, type_field, value]);
        }
        for _ in 0..n_tensors {
            let (name, (n_dims, dims)) = (cursor.text(), cursor.number(4));
            let mut entry = vec![name, dims];
            entry.extend((0..n_dims).map(|_| cursor.number(8).1));
            entry.extend([cursor.number(4).1, cursor.number(8).1]);
            entries.push(entry);
        }
        entries.push(vec![Field::Data(cursor.0.to_vec())]);
        Self(entries)
    }

    pub fn edited(mut self, edits: &[Edit]) -> Self {
        for edit in edits {
            let entries = &mut self.0;
            if entries.is_empty() {
                break;
            }
            let at = edit.place(entries.len());
            let other = edit.number as usize % entries.len();
            match edit.what % 12 {
                0 => drop(entries.remove(at)),
                1 => entries.insert(at, entries[at].clone()),
                2 => entries.swap(at, other),
                3 => entries.truncate(at),
                // An array in the place of a value.
                4 if entries[at].len() == 3 => {
                    entries[at][1] = Field::Number(9u32.to_le_bytes().to_vec());
                    let ty = (edit.number % 14) as u32;
                    let n = HOSTILE[(edit.number >> 8) as usize % HOSTILE.len()];
                    entries[at].insert(2, Field::Number(ty.to_le_bytes().to_vec()));
                    entries[at].insert(3, Field::Number(n.to_le_bytes().to_vec()));
                }
                // The same in two entries.
                5 if !entries[at].is_empty() => {
                    let field = edit.number as usize % entries[at].len();
                    if let Some(same) = entries[other].get(field).cloned() {
                        entries[at][field] = same;
                    }
                }
                _ if !entries[at].is_empty() => {
                    let field = (edit.number >> 40) as usize % entries[at].len();
                    entries[at][field].edit(*edit);
                }
                _ => {}
            }
        }
        self
    }

    pub fn written(&self) -> Vec<u8> {
        self.0.iter().flatten().flat_map(Field::written).collect()
    }
}

/// A session with edits in its words: those of the header and the ids first of all.
pub fn session(seed: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut words: Vec<Field> = seed.chunks(4).map(|word| Field::Number(word.to_vec())).collect();
    for edit in edits {
        if words.is_empty() {
            break;
        }
        let first = words.len().min(16);
        let at = edit.place(if edit.what % 3 == 0 { words.len() } else { first });
        let n = (edit.number >> 20) as usize % (words.len() - at) + 1;
        match edit.what % 10 {
            0 => drop(words.drain(at..at + n)),
            1 => words.truncate(at),
            2 => {
                let again = words[at..at + n].to_vec();
                words.splice(at..at, again);
            }
            _ => words[at].edit(*edit),
        }
    }
    words.iter().flat_map(Field::written).collect()
}
