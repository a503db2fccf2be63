//! Text in and out of the model: tokens from text, bytes from tokens, characters from bytes, and the strings that end a generation.
//!
//! On the way out each stage works on a stream and may hold back what it cannot decide yet:
//! [`TextStream`] joins them: [`Detokenizer`] (ids to bytes) → [`Unescape`] (for models of JSON-escaped text) →
//! [`Utf8Stream`] (bytes to whole characters) → [`StopMatcher`] (text up to a stop string).
//! However the stream is cut, the pieces joined equal the whole decoded at once. [`token_texts`] cuts a text that is there into its tokens.
//!
//! Knows no model, device or file: what it is made from comes as text.

mod detokenizer;
mod json_escape;
mod pattern_cost;
mod stops;
mod stream;
mod token_text;
mod tokenizer;
mod tokenizer_file;
mod tokenizer_model;
mod tokenizer_read;
mod utf8;

pub use detokenizer::Detokenizer;
pub use json_escape::{Unescape, escape};
pub use stops::{Released, StopMatcher};
pub use stream::TextStream;
pub use token_text::{TokenText, token_texts};
pub use tokenizer::Tokenizer;
pub use tokenizer_model::{MAX_NODES, NODE_BYTES};
pub use tokenizer_read::{MAX_ADDED_BYTES, MAX_MERGES, MAX_TOKENS};
pub use utf8::Utf8Stream;
