//! Text: tokens to bytes to characters to what may be shown, for every way to cut the stream.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::tokenizers;
use kitfox::Error;
use kitfox::text::{Detokenizer, StopMatcher, TextStream, Tokenizer, Utf8Stream, token_texts};
use proptest::prelude::*;

fn byte_level() -> Tokenizer {
    Tokenizer::from_json("bytes", &tokenizers::byte_level()).unwrap()
}

fn byte_fallback() -> Tokenizer {
    Tokenizer::from_json("llama", &tokenizers::byte_fallback()).unwrap()
}

/// What the stream gives, piece by piece.
fn detokenized(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<Vec<u8>> {
    let mut stream = Detokenizer::new();
    let mut pieces: Vec<_> = ids.iter().map(|&id| stream.push(tokenizer, id).unwrap()).collect();
    pieces.push(stream.finish(tokenizer).unwrap());
    pieces
}

#[test]
fn a_file_that_is_no_tokenizer_is_an_error_of_one_line_with_its_name() {
    for text in ["", "{", "[1]", "{\"version\":\"1.0\"}", "null"] {
        let error = Tokenizer::from_json("broken.json", text).err().unwrap();
        assert!(matches!(error, Error::Tokenizer(_)) && error.to_string().contains("broken.json"), "{error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
}

#[test]
fn encoding_adds_nothing_cuts_nothing_and_knows_added_tokens() {
    let tokenizer = byte_level();
    assert_eq!(tokenizer.vocab_size(), 262);
    assert_eq!(tokenizer.encode("").unwrap(), Vec::<u32>::new());
    // The file asks for truncation to three tokens: that is for training batches.
    assert_eq!(tokenizer.encode("hello a<|end|>").unwrap(), [261, u32::from(b'o'), 258, 256]);
    assert_eq!(tokenizer.encode("é").unwrap(), [0xc3, 0xa9]);
    assert_eq!(tokenizer.token_to_id("<|end|>"), Some(256));
}

#[test]
fn tokens_of_a_byte_level_vocabulary_are_bytes_whatever_their_neighbours() {
    let tokenizer = byte_level();
    for byte in 0..=255u8 {
        assert_eq!(tokenizer.id_to_bytes(u32::from(byte)), Some(vec![byte]));
    }
    assert_eq!(tokenizer.id_to_bytes(258).unwrap(), b" a");
    assert_eq!(tokenizer.id_to_bytes(256).unwrap(), b"", "special tokens are no text");
    assert_eq!(tokenizer.id_to_bytes(257).unwrap(), b"<plain one>", "an added token stands for itself");
    assert_eq!(tokenizer.id_to_bytes(1_000_000).unwrap(), b"", "padding rows are no text");
    assert_eq!(byte_fallback().id_to_bytes(65), None);
}

#[test]
fn a_character_of_several_tokens_waits_for_the_last_and_a_space_is_kept() {
    let tokenizer = byte_fallback();
    let pieces = detokenized(&tokenizer, &[261, 262, 0xe2, 0x82, 0xac, 256, 262]);
    let pieces: Vec<_> = pieces.iter().map(|piece| std::str::from_utf8(piece).unwrap()).collect();
    assert_eq!(pieces, ["a", " b", "", "", "€", "", " b", ""]);
}

/// The texts of ids, and by which token each is completed.
fn texts(tokenizer: &Tokenizer, ids: &[u32]) -> (Vec<String>, Vec<usize>) {
    token_texts(tokenizer, ids).unwrap().into_iter().map(|token| (token.text, token.completed_by)).unzip()
}

#[test]
fn a_character_stands_at_the_token_that_completes_it() {
    let tokenizer = byte_level();
    let escaped = byte_level().with_json_escape(true);
    let fallback = byte_fallback();
    let bytes = |text: &[u8]| text.iter().map(|byte| u32::from(*byte)).collect::<Vec<_>>();
    type Case<'a> = (&'a Tokenizer, Vec<u32>, &'a [&'a str], &'a [usize]);
    let cases: [Case<'_>; 11] = [
        (&tokenizer, vec![], &[], &[]),
        (&tokenizer, vec![258, 0xc3, 0xa9, 257], &[" a", "", "é", "<plain one>"], &[0, 2, 2, 3]),
        (&tokenizer, bytes("€".as_bytes()), &["", "", "€"], &[2, 2, 2]),
        // Once for each part that could have begun a character, where it ends; a special token has none and breaks none.
        (&tokenizer, bytes(b"\xf0\x9fa"), &["", "\u{fffd}", "a"], &[1, 1, 2]),
        (&tokenizer, bytes(b"\xff\xe2\x82"), &["\u{fffd}", "", "\u{fffd}"], &[0, 2, 2]),
        (&tokenizer, vec![0xc3, 256, 0xa9], &["", "", "é"], &[2, 1, 2]),
        (&tokenizer, vec![256, 1_000_000, 0xc3], &["", "", "\u{fffd}"], &[0, 1, 2]),
        (&fallback, vec![261, 0xe2, 0x82, 0xac, 256, 262], &["a", "", "", "€", "", " b"], &[0, 3, 3, 3, 4, 5]),
        (&escaped, bytes(br"a\nb"), &["a", "", "\n", "b"], &[0, 2, 2, 3]),
        (&escaped, bytes(br"\u00e9"), &["", "", "", "", "", "é"], &[5; 6]),
        (&escaped, bytes(br"\u"), &["", ""], &[0, 1]),
    ];
    for (tokenizer, ids, want, completed_by) in cases {
        let got = texts(tokenizer, &ids);
        assert_eq!((got.0.iter().map(String::as_str).collect::<Vec<_>>(), &got.1[..]), (want.to_vec(), completed_by), "{ids:?}");
    }
    // More than one byte a token: a token may end one character and begin the next.
    let tokens = [b"a\xe6".to_vec(), b"\x97\xa5\xe6".to_vec(), b"\x9c\xac".to_vec(), b"\xe6\x97".to_vec()];
    let tokenizer = Tokenizer::from_json("cut", &tokenizers::byte_level_of(&tokens)).unwrap();
    assert_eq!(texts(&tokenizer, &[0, 1, 2, 3, 0]).0, ["a", "日", "本", "\u{fffd}", "a\u{fffd}"]);
    assert_eq!(texts(&tokenizer, &[0, 1, 2, 3, 0]).1, [1, 2, 2, 3, 4]);
}

#[test]
fn an_empty_stop_string_is_an_argument_error() {
    let error = StopMatcher::new(&["a".into(), String::new()]).err().unwrap();
    assert!(matches!(error, Error::Argument { .. }), "{error}");
}

#[test]
fn stops_across_tokens_end_the_text_where_they_begin() {
    let tokenizer = byte_level();
    let cases: [(&[&str], &str, &str, Option<usize>); 9] = [
        (&["Alice:"], "Bob: hi\nAlice: no", "Bob: hi\n", Some(0)),
        (&["O P Q"], "N O P O P Q R", "N O P ", Some(0)),
        (&["\n", "Alice:"], "Alic\nAlice:", "Alic", Some(0)),
        (&["ab", "abc"], "xabc", "x", Some(0)),
        (&["bc", "abcd"], "xabcd", "xa", Some(0)),
        (&["cd", "abcd"], "xabcd", "x", Some(1)),
        (&["日本"], "日日本", "日", Some(0)),
        (&["aab"], "aaab", "a", Some(0)),
        (&["never", "end."], "the en", "the en", None),
    ];
    for (stops, text, expected, expected_stop) in cases {
        let stops: Vec<_> = stops.iter().map(|&stop| stop.to_owned()).collect();
        let mut stream = TextStream::new(&stops).unwrap();
        let mut out = String::new();
        let mut found = None;
        for id in tokenizer.encode(text).unwrap() {
            let (piece, stop) = stream.push(&tokenizer, id).unwrap();
            out += &piece;
            found = found.or(stop);
        }
        let (piece, stop) = stream.finish(&tokenizer).unwrap();
        assert_eq!((out + &piece, found.or(stop)), (expected.to_owned(), expected_stop), "{stops:?} in {text}");
    }
}

#[test]
fn text_that_begins_no_stop_is_not_held_back() {
    let mut matcher = StopMatcher::new(&["abcab".into(), "xyz".into()]).unwrap();
    assert_eq!(matcher.push(b"hello abcabq").bytes, b"hello ".to_vec(), "the stop came");
    let mut matcher = StopMatcher::new(&["abcabd".into(), "xyz".into()]).unwrap();
    assert_eq!(matcher.push(b"hello abcab").bytes, b"hello ");
    assert_eq!(matcher.push(b"c").bytes, b"abc", "only the longest suffix that begins a stop waits");
    assert_eq!(matcher.push(b"x").bytes, b"abc");
    assert_eq!(matcher.finish(), b"x");
}

/// The rule of `StopMatcher` as a search of the whole: ends first, then longest.
fn first_stop(bytes: &[u8], stops: &[String]) -> Option<(usize, usize)> {
    (1..=bytes.len()).find_map(|end| {
        let ends_here = |ix: &usize| bytes[..end].ends_with(stops[*ix].as_bytes());
        let longest = (0..stops.len()).filter(ends_here).rev().max_by_key(|&ix| stops[ix].len())?;
        Some((end - stops[longest].len(), longest))
    })
}

fn cut<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut ends: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(&ends).map(|(start, &end)| &bytes[start..end]).collect()
}

/// Bytes that are often UTF-8, often nearly.
fn nearly_text() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        "[a-c é日😀]{0,3}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..3),
        Just(vec![0xe2, 0x82]),
        Just(vec![0xf0, 0x9f, 0x98]),
        Just(vec![0xed, 0xa0, 0x80]),
    ];
    proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn characters_of_any_cut_are_those_of_the_whole(bytes in nearly_text(), cuts in proptest::collection::vec(any::<usize>(), 0..12)) {
        let mut stream = Utf8Stream::new();
        let mut text: String = cut(&bytes, &cuts).into_iter().map(|part| stream.push(part)).collect();
        text += &stream.finish();
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn every_prefix_shows_all_its_whole_characters(bytes in nearly_text()) {
        let mut stream = Utf8Stream::new();
        let mut text = String::new();
        for (ix, byte) in bytes.iter().enumerate() {
            text += &stream.push(&[*byte]);
            let whole = String::from_utf8_lossy(&bytes[..=ix]).into_owned();
            prop_assert!(whole == text || whole == text.clone() + "\u{fffd}", "{:?} of {:?}", text, whole);
        }
    }

    #[test]
    fn stops_of_any_cut_are_those_of_the_whole(
        text in "[abcé]{0,20}",
        stops in proptest::collection::vec("[abcé]{1,4}", 0..4),
        cuts in proptest::collection::vec(any::<usize>(), 0..12),
    ) {
        let bytes = text.as_bytes();
        let mut matcher = StopMatcher::new(&stops).unwrap();
        let (mut out, mut found) = (Vec::new(), None);
        for part in cut(bytes, &cuts) {
            let released = matcher.push(part);
            out.extend(released.bytes);
            found = released.stop;
        }
        out.extend(matcher.finish());
        let expected = first_stop(bytes, &stops);
        prop_assert_eq!(found, expected.map(|(_, ix)| ix));
        prop_assert_eq!(out, &bytes[..expected.map_or(bytes.len(), |(start, _)| start)]);
    }

    #[test]
    fn what_is_held_back_is_the_longest_suffix_that_begins_a_stop(text in "[ab]{0,16}", stops in proptest::collection::vec("[ab]{2,5}", 1..4)) {
        let mut matcher = StopMatcher::new(&stops).unwrap();
        let mut n_out = 0;
        for (ix, byte) in text.as_bytes().iter().enumerate() {
            let released = matcher.push(&[*byte]);
            if released.stop.is_some() {
                break;
            }
            n_out += released.bytes.len();
            let seen = &text[..=ix];
            let begins = |n: &usize| stops.iter().any(|stop| stop.starts_with(&seen[seen.len() - n..]));
            prop_assert_eq!(seen.len() - n_out, (0..=seen.len()).rev().find(begins).unwrap());
        }
    }

    #[test]
    fn pieces_joined_are_the_whole_decoded(ids in proptest::collection::vec(0..270u32, 0..24)) {
        let tokenizer = byte_level();
        let joined = detokenized(&tokenizer, &ids).concat();
        prop_assert_eq!(String::from_utf8_lossy(&joined), tokenizer.decode(&ids).unwrap());
    }

    #[test]
    fn texts_of_tokens_joined_are_the_whole_decoded(ids in proptest::collection::vec(0..270u32, 0..24)) {
        for tokenizer in [byte_level(), byte_level().with_json_escape(true), byte_fallback()] {
            let (texts, completed_by) = texts(&tokenizer, &ids);
            prop_assert_eq!(texts.len(), ids.len());
            prop_assert_eq!(texts.concat(), tokenizer.decode(&ids).unwrap());
            prop_assert!(completed_by.iter().enumerate().all(|(ix, by)| (ix..ids.len()).contains(by)));
        }
    }

    /// Where each character ends, and what has a part of it, by its bytes.
    #[test]
    fn each_byte_knows_the_one_that_completes_its_character(bytes in nearly_text()) {
        let tokenizer = byte_level();
        let ids: Vec<u32> = bytes.iter().map(|byte| u32::from(*byte)).collect();
        let (texts, completed_by) = texts(&tokenizer, &ids);
        prop_assert_eq!(texts.concat(), String::from_utf8_lossy(&bytes));
        let mut at = 0;
        for chunk in bytes.utf8_chunks() {
            let lengths = chunk.valid().chars().map(char::len_utf8).chain([chunk.invalid().len()]).filter(|n| *n > 0);
            for n in lengths {
                prop_assert!(completed_by[at..at + n].iter().all(|by| *by == at + n - 1));
                prop_assert!(texts[at..at + n - 1].iter().all(String::is_empty));
                prop_assert_eq!(texts[at + n - 1].chars().count(), 1);
                at += n;
            }
        }
    }

    #[test]
    fn text_through_a_byte_fallback_vocabulary_comes_back_in_whole_characters(text in "[ab é日€😀]{0,12}") {
        let tokenizer = byte_fallback();
        let ids = tokenizer.encode(&text).unwrap();
        let pieces = detokenized(&tokenizer, &ids);
        for piece in &pieces {
            prop_assert!(std::str::from_utf8(piece).is_ok());
        }
        prop_assert_eq!(String::from_utf8(pieces.concat()).unwrap(), tokenizer.decode(&ids).unwrap());
    }
}

/// Steps at which the crate would panic, or set aside 4 GB for a number.
#[test]
fn steps_that_cannot_be_run_are_refused_by_name() {
    let file = |key: &str, step: &str| {
        format!(
            r#"{{"version": "1.0", "added_tokens": [], "{key}": {step}, "model": {{"type": "BPE", "vocab": {{"a": 0}}, "merges": []}}}}"#
        )
    };
    let sequence = |key: &str, step: &str| format!(r#"{{"type": "Sequence", "{key}": [{step}]}}"#);
    let cases = [
        (
            "normalizer",
            sequence("normalizers", r#"{"type": "Precompiled", "precompiled_charsmap": "/////w=="}"#),
            "normalizer: type",
        ),
        ("normalizer", r#"{"precompiled_charsmap": ""}"#.to_owned(), "normalizer: type"),
        ("normalizer", r#"{"type": "Replace", "pattern": {"String": ""}, "content": "b"}"#.to_owned(), "normalizer: pattern"),
        (
            "normalizer",
            sequence("normalizers", r#"{"type": "Replace", "pattern": {"Regex": "b*"}, "content": ""}"#),
            "normalizer: pattern",
        ),
        ("normalizer", r#"{"type": "Replace", "pattern": {"Regex": "\\b"}, "content": "b"}"#.to_owned(), "normalizer: pattern"),
        (
            "normalizer",
            r#"{"type": "Replace", "pattern": {"Regex": "(?<=q)"}, "content": "b"}"#.to_owned(),
            "normalizer: pattern",
        ),
        ("pre_tokenizer", r#"{"type": "FixedLength", "length": 0}"#.to_owned(), "pre_tokenizer: length"),
        ("decoder", sequence("decoders", r#"{"type": "Strip", "content": " ", "start": 0, "stop": 1}"#), "decoder: stop"),
        ("decoder", r#"{"content": "a", "start": 2, "stop": 9}"#.to_owned(), "decoder: stop"),
    ];
    for (key, step, place) in cases {
        let error = Tokenizer::from_json("file", &file(key, &step)).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("file: {place}: expected ")), "{step}: {error}");
    }
    let spaces = r#"{"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}"#;
    assert!(Tokenizer::from_json("file", &file("normalizer", spaces)).is_ok());
    // A template of a second text's tokens only: nothing is added to a text, and nothing can be missing.
    let template = r#"{"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B", "type_id": 0}}], "pair": [], "special_tokens": {}}"#;
    let tokenizer =
        Tokenizer::from_json("file", &file("post_processor", template)).map(|tokenizer| tokenizer.encode("a").unwrap());
    assert_eq!(tokenizer.unwrap(), [0]);
}

#[test]
fn merges_and_added_tokens_that_do_not_fit_the_vocabulary_are_named() {
    let file = |merges: &str, prefix: &str, id: u32| {
        format!(
            r###"{{"version": "1.0", "added_tokens": [{{"id": {id}, "content": "<x>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}}],
            "model": {{"type": "BPE", "vocab": {{"a": 0, "b": 1, "ab": 2, "##b": 3}}, "merges": {merges},
            "continuing_subword_prefix": "{prefix}"}}}}"###
        )
    };
    for (merges, prefix) in [(r#"["a b"]"#, ""), (r#"[["a", "b"]]"#, ""), (r##"["#version: 0.2", "a ##b"]"##, "##"), ("[]", "")] {
        Tokenizer::from_json("file", &file(merges, prefix, 4)).map(|_| ()).unwrap();
    }
    // The first three make the crate panic, not fail: a union longer than every token, a token shorter than the prefix.
    for (merges, prefix) in [
        (r#"["ab ab"]"#, ""),
        (r##"["ab ##b"]"##, ""),
        (r#"["a b"]"#, "##"),
        (r#"["a b", "a q"]"#, ""),
        (r#"["a b a"]"#, ""),
        (r#"["ab"]"#, ""),
        (r#"[["a"]]"#, ""),
        (r#"[["a", 1]]"#, ""),
        (r#"["b a"]"#, ""),
    ] {
        let error = Tokenizer::from_json("file", &file(merges, prefix, 4)).map(|_| ()).unwrap_err().to_string();
        let ix = if merges.contains('q') { 1 } else { 0 };
        assert!(error.starts_with(&format!("file: model.merges, number {ix}: expected two tokens")), "{merges}: {error}");
    }
    let error = Tokenizer::from_json("file", &file("[]", "", 9)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("file: added token \"<x>\"") && error.contains("the id 4") && error.contains("got 9"), "{error}");
}
