//! Expressions of published tokenizers pass, those that take more than a pass do not.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::{MAX_AHEAD, PUBLISHED, shape, without_look};

/// Of tokenizers that are published, as their `tokenizer.json` says them.
const REAL: [(&str, &str); 16] = [
    ("GPT-2", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
    (
        "LLaMA 3",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    ("Qwen 2", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
    (
        "GPT-4o, LLaMA 4",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (
        "Mistral, Tekken",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (
        "DeepSeek-V3",
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
    ),
    ("DeepSeek-V3, numbers", r"\p{N}{1,3}"),
    ("DeepSeek-V3, characters", r"[一-龥぀-ゟ゠-ヿ]+"),
    ("DeepSeek coder, lines", r"[\r\n]"),
    ("DeepSeek coder, words", r"\s?\p{L}+"),
    ("DeepSeek coder, signs", r"\s?\p{P}+"),
    ("DeepSeek coder, the end", r"\s+$"),
    ("Falcon", r"[0-9][0-9][0-9]"),
    ("BLOOM", r" ?[^(\s|[.,!?…。，、।۔،])]+"),
    ("CLIP", r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"),
    ("CLIP, spaces", r"\s+"),
];

#[test]
fn expressions_of_published_tokenizers_pass() {
    for (name, expression) in REAL {
        let shape = shape(expression).unwrap_or_else(|reason| panic!("{name}: {reason}"));
        assert!(shape.shortest >= 1 && shape.n_ranges <= 16_384, "{name}: {shape:?}");
    }
    for expression in PUBLISHED {
        assert_eq!(shape(expression).unwrap().shortest, 1);
    }
    for plain in ["a", "(?i)abc", r"\bfoo\b", "(ab)+|(ba)*?c?|.", r"^\d", " {2,}", "a{64}|."] {
        shape(plain).unwrap_or_else(|reason| panic!("{plain}: {reason}"));
    }
}

#[test]
fn expressions_that_take_more_than_a_pass_are_refused() {
    let long = format!("a{{{}}}b|.", MAX_AHEAD + 3);
    let (deep, wide) = ("(?:".repeat(300) + "a" + &")".repeat(300), "a".repeat(5000));
    let many: String = ('\u{4e00}'..).take(200).collect();
    let kind = |n: u32| char::from_u32(0x4e00 + n).unwrap();
    // Each class tells its own characters from the rest, and its own sum of others.
    let kinds: Vec<_> = (0..100).map(|n| format!("[{}-{}]", kind(3 * n), kind(3 * n + 400))).collect();
    shape(&kinds[..50].concat()).unwrap();
    let kinds =
        (0..100).map(|n| format!("[{}{}-{}]", kind(n), kind(500 + 3 * n), kind(900 + 3 * n))).collect::<Vec<_>>().concat();
    assert!(shape(&kinds).unwrap_err().contains("256 kinds"));
    for expression in [
        r"(?=(?:a|a){18}c)b|.",
        r"(?:a|aa)+(?!b)|.",
        r"(?=(\d{3})+(?!\d))",
        r"a+(?![ab])|.",
        r"(?<=a)b",
        r"(a+)+\1|.",
        r"a++b|a+|.",
        "a*b|a",
        r"[^x]*x|.",
        r"\s*[\r\n]+|\s|\s+",
        r"\s*[\r\n]+",
        r"\s*[\r\n]+|\s+a",
        r"(?:\s*[\r\n]+|\s+)a|.",
        r"(?:a+b)+|a",
        r"a+$|a",
        r"x|[|\s+(?!\S)|]*xx|.",
        r"(?:\s+(?!\S)|a)+b|.",
        r"(?x)a # [
        |\s+(?!\S)|a*b",
        r"\w{2000}",
        "((a{100}){100}){100}",
        r"(?:a|b)*a(?:a|b){20}|.",
        "(",
        &long,
        &deep,
        &wide,
        &many,
    ] {
        assert!(shape(expression).is_err(), "{expression}");
    }
    assert_eq!(shape("a*").unwrap().shortest, 0);
}

#[test]
fn a_look_is_seen_where_it_is_an_alternative_of_its_own() {
    for same in [r"[]|\s+(?!\S)|[]", r"[^]|\s+(?!\S)|]", r"(a|\s+(?!\S))", r"a\s+(?!\S)", r"\|\s+(?!\S)", r"\s+(?!\S)+", r"é\"] {
        assert_eq!(without_look(same), same);
    }
    assert_eq!(without_look(r"\s+(?!\S)"), r"(?:\s\s+|\s$)");
    assert_eq!(without_look(r"(a)|[\]]|\s+(?!\S)|\s+"), r"(a)|[\]]|(?:\s\s+|\s$)|\s+");
}
