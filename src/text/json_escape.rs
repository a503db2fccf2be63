//! The escape rule of the models trained on LongCrawl64, whose text was stored JSON-escaped and tokenized so.
//!
//! [`escape`] is Python's `json.dumps(text)[1:-1]`: `"` and `\` escaped, \b \f \n \r \t short, every other character outside
//! 0x20-0x7E as lower-case \uXXXX (a surrogate pair above U+FFFF), `/` bare. (serde_json escapes less: other tokens, no error.)
//!
//! [`Unescape`] is the way back. The official code parses the whole as a JSON string and, when that fails, decodes the whole as
//! Python's `unicode_escape` with errors ignored. A stream cannot know what will fail later, so both are one rule here, decided
//! escape by escape: what JSON knows is JSON's; `\'`, `\a`, `\v`, a backslash before a line break, octal, \xXX and \UXXXXXXXX are
//! Python's; an escape that lacks digits is dropped; an unknown one is text. Wherever the whole is JSON this is what JSON gives.
//! Elsewhere it is what Python gives, but `\/` is always `/`, a surrogate pair is always one character, and characters past 0x7E
//! are themselves. Named characters (`\N{…}`) stay as they are. Strings hold no lone surrogates: those become U+FFFD.

/// `json.dumps(text)[1:-1]`.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + text.len() / 8);
    for character in text.chars() {
        match character {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '\u{8}' => escaped.push_str("\\b"),
            '\u{c}' => escaped.push_str("\\f"),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            ' '..='~' => escaped.push(character),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    escaped.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    escaped
}

/// The decoder of one stream. It holds back an escape that is not whole yet, and a high surrogate until it is known what follows.
#[derive(Clone, Debug, Default)]
pub struct Unescape {
    open: Vec<u8>,
}

/// What the bytes at hand begin with.
enum Next {
    /// So many bytes that stand for themselves.
    Plain(usize),
    /// An escape of so many bytes, and its character's number: perhaps a surrogate.
    Escape(usize, u32),
    /// So many bytes that stand for nothing.
    Nothing(usize),
    /// An escape that is not whole.
    Open,
}

impl Unescape {
    /// At the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes that `bytes` bring. The pieces of all calls and of [`Self::finish`], joined, are those of the whole, wherever it was cut.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.open.extend_from_slice(bytes);
        let (out, n_done) = decode(&self.open, false);
        self.open.drain(..n_done);
        out
    }

    /// Whether an escape waits for the rest of it.
    pub fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// The end of the stream: an escape that was begun is dropped, a lone high surrogate is U+FFFD.
    pub fn finish(&mut self) -> Vec<u8> {
        decode(&std::mem::take(&mut self.open), true).0
    }
}

/// What `bytes` stand for, and how many of them are decided: all of them at the end.
fn decode(bytes: &[u8], at_end: bool) -> (Vec<u8>, usize) {
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        at += match next(rest) {
            Next::Plain(n) => {
                out.extend_from_slice(&rest[..n]);
                n
            }
            Next::Nothing(n) => n,
            Next::Open if at_end => {
                // An octal escape may have fewer digits; any other is dropped with those that it has.
                if matches!(rest.get(1), Some(b'0'..=b'7')) {
                    push_char(number(&rest[1..], 8), &mut out);
                }
                rest.len()
            }
            Next::Open => break,
            Next::Escape(n, high @ 0xd800..=0xdbff) => match rest.get(n..).filter(|rest| !rest.is_empty()).map(next) {
                Some(Next::Escape(n_low, low @ 0xdc00..=0xdfff)) => {
                    push_char(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00), &mut out);
                    n + n_low
                }
                None | Some(Next::Open) if !at_end => break,
                _ => {
                    push_char(high, &mut out);
                    n
                }
            },
            Next::Escape(n, number) => {
                push_char(number, &mut out);
                n
            }
        };
    }
    (out, at)
}

/// `rest` is not empty.
fn next(rest: &[u8]) -> Next {
    if rest[0] != b'\\' {
        return Next::Plain(rest.iter().position(|&byte| byte == b'\\').unwrap_or(rest.len()));
    }
    let simple = |character: u8| Next::Escape(2, u32::from(character));
    match rest.get(1) {
        None => Next::Open,
        Some(&character @ (b'"' | b'\\' | b'/' | b'\'')) => simple(character),
        Some(b'b') => simple(8),
        Some(b'f') => simple(12),
        Some(b'n') => simple(b'\n'),
        Some(b'r') => simple(b'\r'),
        Some(b't') => simple(b'\t'),
        Some(b'a') => simple(7),
        Some(b'v') => simple(11),
        Some(b'\n') => Next::Nothing(2),
        Some(b'x') => hexadecimal(rest, 2),
        Some(b'u') => hexadecimal(rest, 4),
        Some(b'U') => hexadecimal(rest, 8),
        Some(b'0'..=b'7') => {
            let n_digits = rest[1..].iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
            if n_digits < 3 && rest.len() == 1 + n_digits {
                return Next::Open;
            }
            Next::Escape(1 + n_digits, number(&rest[1..=n_digits], 8))
        }
        Some(_) => Next::Plain(1),
    }
}

/// An escape of two bytes and `n` hexadecimal digits.
fn hexadecimal(rest: &[u8], n: usize) -> Next {
    let n_digits = rest[2..].iter().take(n).take_while(|byte| byte.is_ascii_hexdigit()).count();
    if n_digits < n {
        return if rest.len() == 2 + n_digits { Next::Open } else { Next::Nothing(2 + n_digits) };
    }
    match number(&rest[2..2 + n], 16) {
        0x11_0000.. => Next::Nothing(2 + n),
        number => Next::Escape(2 + n, number),
    }
}

/// The number that these digits spell: at most eight of them.
fn number(digits: &[u8], radix: u32) -> u32 {
    digits.iter().filter_map(|&digit| char::from(digit).to_digit(radix)).fold(0, |number, digit| number * radix + digit)
}

fn push_char(number: u32, out: &mut Vec<u8>) {
    let character = char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}
