//! The streaming contract, for every way to cut a text into tokens: the pieces joined are the text up to the first stop string, in whole
//! characters; no stop string is in them; and nothing is taken back.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::tokenizers;
use kitfox::Error;
use kitfox::text::{TextStream, Tokenizer};
use proptest::prelude::*;

/// Hard to cut: emoji with joiners and modifiers, CJK, combining marks, bytes that are no UTF-8, and U+FFFD that the model itself writes.
const PARTS: [&[u8]; 18] = [
    "👩‍👩‍👧‍👦".as_bytes(),
    "👍🏽".as_bytes(),
    "🇩🇪".as_bytes(),
    "日本語".as_bytes(),
    "e\u{301}".as_bytes(),
    "é".as_bytes(),
    "\u{fffd}".as_bytes(),
    "\u{200d}".as_bytes(),
    "end".as_bytes(),
    b"\n",
    b"en",
    &[0x80],
    &[0xbf, 0xbf],
    &[0xe6, 0x97],
    &[0xf0, 0x9f, 0x91],
    &[0xed, 0xa0, 0x80],
    &[0xc0, 0xaf],
    &[0xff],
];

const STOPS: [&str; 12] =
    ["end", "en", "nd\n", "日", "本語", "👩", "\u{200d}", "\u{fffd}", "\u{fffd}e", "\u{301}", "🇩🇪日", "never"];

fn parts() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(proptest::sample::select(&PARTS[..]), 0..10).prop_map(|parts| parts.concat())
}

fn stops() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec(proptest::sample::select(&STOPS[..]).prop_map(str::to_owned), 0..3)
}

/// The first stop string of a text (that ends first; of those that end together the longest), where it begins and its index.
fn first_stop(text: &str, stops: &[String]) -> Option<(usize, usize)> {
    (1..=text.len()).find_map(|end| {
        let ends_here = |ix: &usize| text.as_bytes()[..end].ends_with(stops[*ix].as_bytes());
        let longest = (0..stops.len()).filter(ends_here).rev().max_by_key(|&ix| stops[ix].len())?;
        Some((end - stops[longest].len(), longest))
    })
}

/// The pieces of a stream and the stop string that ended it.
fn streamed(tokenizer: &Tokenizer, ids: &[u32], stops: &[String]) -> (Vec<String>, Option<usize>) {
    let mut stream = TextStream::new(stops).unwrap();
    let mut pieces = Vec::new();
    for &id in ids {
        let (piece, stop) = stream.push(tokenizer, id).unwrap();
        pieces.push(piece);
        if stop.is_some() {
            // After its end a stream gives nothing, whatever comes.
            let after = [stream.push(tokenizer, id).unwrap().0, stream.finish(tokenizer).unwrap().0];
            assert_eq!(after, ["", ""]);
            return (pieces, stop);
        }
    }
    let (piece, stop) = stream.finish(tokenizer).unwrap();
    pieces.push(piece);
    (pieces, stop)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_into_tokens_gives_the_text_up_to_its_first_stop_string(
        bytes in parts(),
        cuts in proptest::collection::vec(any::<usize>(), 0..40),
        stops in stops(),
    ) {
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([bytes.len()]).collect();
        ends.sort_unstable();
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let tokens: Vec<Vec<u8>> = starts.zip(&ends).map(|(start, &end)| bytes[start..end].to_vec()).filter(|token| !token.is_empty()).collect();
        let mut vocabulary = tokens.clone();
        vocabulary.sort();
        vocabulary.dedup();
        vocabulary.push(b"one that is not used".to_vec());
        let tokenizer = Tokenizer::from_json("cut", &tokenizers::byte_level_of(&vocabulary)).unwrap();
        let ids: Vec<u32> = tokens.iter().map(|token| vocabulary.iter().position(|known| known == token).unwrap() as u32).collect();

        let (pieces, stop) = streamed(&tokenizer, &ids, &stops);
        let whole = String::from_utf8_lossy(&bytes).into_owned();
        let expected = first_stop(&whole, &stops);
        prop_assert_eq!(stop, expected.map(|(_, ix)| ix));
        prop_assert_eq!(pieces.concat(), &whole[..expected.map_or(whole.len(), |(start, _)| start)]);
        prop_assert!(stops.iter().all(|stop| !pieces.concat().contains(stop.as_str())), "a stop string was let through");
        // Nothing waits that nothing can change: what is out after each token is all but what may begin a stop string or a character.
        let mut out = 0;
        for (ix, piece) in pieces[..pieces.len() - 1].iter().enumerate() {
            out += piece.len();
            let seen = String::from_utf8_lossy(&tokens[..=ix].concat()).into_owned();
            let begun = seen.len().saturating_sub(out);
            let longest = stops.iter().map(String::len).max().unwrap_or(0);
            prop_assert!(stop.is_some() || begun <= longest + 3, "{begun} bytes wait");
        }
    }

    /// Of a vocabulary whose tokens depend on their neighbours: any ids at all.
    #[test]
    fn any_tokens_of_a_byte_fallback_vocabulary_give_whole_characters_without_a_stop_string(
        ids in proptest::collection::vec(0..268u32, 0..40),
        stops in stops(),
    ) {
        let tokenizer = Tokenizer::from_json("llama", &tokenizers::byte_fallback()).unwrap();
        let (pieces, stop) = streamed(&tokenizer, &ids, &stops);
        let text = pieces.concat();
        prop_assert!(stops.iter().all(|stop| !text.contains(stop.as_str())), "{text:?}");
        // Without stop strings the same text, as far as it goes.
        let (all, _) = streamed(&tokenizer, &ids, &[]);
        let all = all.concat();
        prop_assert!(all.starts_with(&text));
        prop_assert_eq!(stop, first_stop(&all, &stops).map(|(_, ix)| ix));
    }
}

#[test]
fn a_text_that_ends_in_the_middle_of_a_character_says_so_once() {
    let tokens = [b"a".to_vec(), vec![0xf0], vec![0x9f, 0x91], vec![0xf0, 0x9f]];
    let tokenizer = Tokenizer::from_json("cut", &tokenizers::byte_level_of(&tokens)).unwrap();
    assert_eq!(streamed(&tokenizer, &[0, 1, 2], &[]).0, ["a", "", "", "\u{fffd}"]);
    assert_eq!(streamed(&tokenizer, &[3, 3, 0], &[]).0, ["", "\u{fffd}", "\u{fffd}a", ""]);
    // The stop string is of what is shown.
    assert_eq!(
        streamed(&tokenizer, &[0, 1, 2], &["\u{fffd}".into()]),
        (vec!["a".into(), String::new(), String::new(), String::new()], Some(0))
    );
}

#[test]
fn an_empty_stop_string_is_refused_wherever_it_stands() {
    for stops in [vec![String::new()], vec!["a".into(), String::new()], vec![String::new(), "a".into()]] {
        let error = TextStream::new(&stops).err().unwrap();
        assert!(matches!(error, Error::Argument { .. }) && error.to_string().contains("stop"), "{error}");
    }
}

/// A run of tokens that stand for nothing costs each of them the same, however long it is.
#[test]
fn tokens_that_stand_for_nothing_do_not_pile_up() {
    let json = tokenizers::byte_fallback()
        .replace("\"content\":\" \",\"pattern\":{\"String\":\"▁\"}", "\"content\":\"\",\"pattern\":{\"String\":\"▁\"}");
    let tokenizer = Tokenizer::from_json("nothing", &json).unwrap();
    let nothing = tokenizer.token_to_id("▁").unwrap();
    assert_eq!(tokenizer.decode(&[nothing; 3]).unwrap(), "");
    let mut stream = TextStream::new(&[]).unwrap();
    let started = cpu_time::ThreadTime::now();
    for _ in 0..50_000 {
        assert_eq!(stream.push(&tokenizer, nothing).unwrap().0, "");
    }
    let letter = tokenizer.token_to_id("a").unwrap();
    assert_eq!(stream.push(&tokenizer, letter).unwrap().0, "a");
    // A window of all of them would take minutes.
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}
