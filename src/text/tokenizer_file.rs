//! What is to be right in a `tokenizer.json` beside its model: the crate `tokenizers` panics at some steps, and gives an added token whose id is
//! neither in the vocabulary nor the next one another id without a word.

use super::pattern_cost;
use super::tokenizer_read::Added;
use crate::{Error, Result};
use serde_json::{Map, Value};
use std::fmt;
use tokenizers::utils::SysRegex;

/// Steps of the way in and out, each object being one.
const MAX_STEPS: usize = 128;
/// Expressions, and the bytes of all of them.
const MAX_PATTERNS: usize = 32;
const MAX_PATTERN_BYTES: usize = 8192;
/// Ranges of characters in all expressions, repetitions written out: `\w` has some hundred, an expression of LLaMA 3's kin some thousand. A program
/// takes some hundred bytes for each.
const MAX_RANGES: usize = 1 << 16;
/// Bytes of a text that a pattern looks for: of one of 4,096 the engine takes 30 µs for each byte of a text, of this one 0.1.
const MAX_LITERAL: usize = 1024;
/// How many times as long as it was a text may become by the steps of one way: LLaMA 2's by 6, GPT-2's by 4.
const MAX_GROWTH: usize = 64;
/// The time that steps and model may take for a byte of any text, in ns of a core of 2.5 GHz: T5's and BERT's may take 5,000 of a text
/// made for that. Estimated: what a step takes for a character where it takes most: of a pre-tokenizer with a part of its own for each, of an
/// expression 100 more.
const MAX_NS: usize = 6000;
const STEP_NS: usize = 100;
const PARTING_NS: usize = 300;
const EXPRESSION_NS: usize = 100;

/// Refuses steps of the way in and out at which the crate would not fail but panic, or take memory and time without an end: the normalizer
/// Precompiled (its table is not checked by the crate), a Replace normalizer of nothing, a CTC decoder, FixedLength of nothing, a Strip decoder that takes
/// from the end, expressions that take more than one pass over a text ([`pattern_cost`]), and steps that make it [`MAX_GROWTH`] times as long.
///
/// # Errors
/// [`Error::Format`] naming the file, the step and the number.
pub fn check_steps(file: &str, steps: &Map<String, Value>) -> Result<WayIn> {
    let mut costs = Costs { file, ..Costs::default() };
    // Out is one way, in another.
    for places in [&["decoder"][..], &["normalizer", "pre_tokenizer"]] {
        (costs.growth, costs.ns) = (Growth::default(), 0);
        for place in places {
            steps.get(*place).map_or(Ok(()), |step| costs.add(place, step))?;
            check_time(file, place, costs.ns)?;
        }
    }
    let way_in = WayIn { ns: costs.ns, characters: costs.growth.characters };
    // Last: it runs expressions, of which it is known by now that they end.
    steps.iter().try_for_each(|(place, step)| check_step(file, place, step))?;
    Ok(way_in)
}

/// What the steps before the model take for a byte of a text: ns, and characters that they make of it.
pub struct WayIn {
    ns: usize,
    characters: usize,
}

impl WayIn {
    /// Refuses a model that takes so many ns for a character behind these steps, if that is too long.
    ///
    /// # Errors
    /// [`Error::Format`] naming the file and the time.
    pub fn check(&self, file: &str, model_ns: usize) -> Result<()> {
        check_time(file, "model, and the steps before it", self.ns.saturating_add(self.characters.saturating_mul(model_ns)))
    }
}

fn check_time(file: &str, place: &str, ns: usize) -> Result<()> {
    if ns <= MAX_NS {
        return Ok(());
    }
    Err(Error::format(file, place, format_args!("at most {MAX_NS} ns for a byte of a text, as estimated"), ns))
}

/// What the steps seen so far cost.
#[derive(Default)]
struct Costs<'a> {
    file: &'a str,
    n_steps: usize,
    n_patterns: usize,
    pattern_bytes: usize,
    n_ranges: usize,
    growth: Growth,
    ns: usize,
}

/// How much longer a text may be.
struct Growth {
    times: usize,
    /// Characters for a byte of what it was.
    characters: usize,
    /// The characters that texts were replaced by: no other place has grown.
    by: String,
    /// Whether those may be others by now.
    mixed: bool,
}

impl Default for Growth {
    fn default() -> Self {
        Self { times: 1, characters: 1, by: String::new(), mixed: false }
    }
}

impl Growth {
    /// A text is replaced by `content`, at least `shortest` bytes of it; a literal one, if it is told.
    fn replaced(&mut self, literal: Option<&str>, shortest: usize, content: &str) {
        // Nothing is found at each character, which stays. Of an expression it is the bytes that are known, four a character at most.
        let ratio = |new: usize, old: usize| if old == 0 { new + 1 } else { new.div_ceil(old).max(1) };
        let found = literal.map_or(shortest.div_ceil(4), |literal| literal.chars().count());
        let (times, characters) = (ratio(content.len(), shortest), ratio(content.chars().count(), found));
        let is_new = |c: char| !self.by.contains(c);
        let only_new = literal.is_some_and(|literal| !self.mixed && literal.chars().all(is_new));
        // What has grown does not grow again, or all of it does.
        let grown = |so_far: usize, by: usize| if only_new { so_far.saturating_add(by - 1) } else { so_far.saturating_mul(by) };
        (self.times, self.characters) = (grown(self.times, times), grown(self.characters, characters));
        self.by.push_str(content);
    }
}

impl Costs<'_> {
    /// Adds a step, with those within, in the order in which they are run.
    fn add(&mut self, place: &str, step: &Value) -> Result<()> {
        let entries = match step {
            Value::Array(steps) => return steps.iter().try_for_each(|step| self.add(place, step)),
            Value::Object(entries) => entries,
            _ => return Ok(()),
        };
        self.n_steps += 1;
        self.refuse(self.n_steps > MAX_STEPS, place, format_args!("at most {MAX_STEPS} steps"), "more")?;
        let text = |key: &str| step.get(key).and_then(Value::as_str);
        // By their keys, as above.
        if let Some(pattern) = step.get("pattern") {
            let shortest = self.pattern(place, pattern)?;
            if let Some(content) = text("content") {
                self.growth.replaced(pattern["String"].as_str(), shortest, content);
            }
        }
        if let Some(prepended) = text("prepend") {
            // To each part between added tokens, which may be one character.
            self.growth.times = self.growth.times.saturating_add(prepended.len());
            self.growth.characters = self.growth.characters.saturating_add(prepended.chars().count());
            self.growth.by.push_str(prepended);
        }
        let (mut times, mut characters) = (1, self.growth.characters);
        if let Some(replacement) = text("replacement") {
            times *= if place == "pre_tokenizer" { 2 * replacement.len().max(1) } else { 1 };
            characters = characters.saturating_mul(2 * replacement.chars().count().max(1));
        } else if text("type") == Some("ByteLevel") || step.get("add_prefix_space").is_some() {
            let parts = if step.get("add_prefix_space") == Some(&Value::Bool(true)) { 2 } else { 1 };
            times *= 2 * parts;
            // Each byte is a character.
            characters = self.growth.times.saturating_mul(parts);
        }
        if step.get("handle_chinese_chars").is_some() {
            times *= 3;
            // A space before and behind a character: those of the text itself have three bytes.
            characters = characters.saturating_mul(if self.growth.times == 1 { 1 } else { 3 });
        }
        self.growth.characters = characters;
        let keeps = ["pattern", "prepend", "normalizers", "decoders"].iter().any(|key| entries.contains_key(*key));
        self.growth.mixed |= !keeps && !self.growth.by.is_empty();
        // Nothing is found between any two characters.
        times *= if text("suffix") == Some("") { 3 } else { 1 };
        self.growth.times = self.growth.times.saturating_mul(times);
        let times = self.growth.times;
        let expected = format_args!("steps that make a text at most {MAX_GROWTH} times as long");
        self.refuse(times > MAX_GROWTH, place, expected, times)?;
        if !["normalizers", "pretokenizers", "decoders"].iter().any(|key| entries.contains_key(*key)) {
            // BERT's normalizer is four.
            let many = place == "pre_tokenizer" || entries.contains_key("handle_chinese_chars");
            let step_ns = if many { PARTING_NS } else { STEP_NS };
            let expression = if step["pattern"].get("Regex").is_some() { EXPRESSION_NS } else { 0 };
            self.ns = self.ns.saturating_add(self.growth.characters.saturating_mul(step_ns + expression));
        }
        entries.iter().filter(|(key, _)| *key != "pattern").try_for_each(|(_, within)| self.add(place, within))
    }

    /// The least number of bytes that a pattern takes.
    fn pattern(&mut self, place: &str, pattern: &Value) -> Result<usize> {
        let place = format!("{place}: pattern");
        let (literal, expression) = (pattern["String"].as_str(), pattern["Regex"].as_str());
        let Some(text) = literal.or(expression) else { return Ok(0) };
        self.n_patterns += 1;
        self.refuse(self.n_patterns > MAX_PATTERNS, &place, format_args!("at most {MAX_PATTERNS} patterns"), "more")?;
        self.pattern_bytes += text.len();
        let expected = format_args!("at most {MAX_PATTERN_BYTES} bytes of patterns");
        self.refuse(self.pattern_bytes > MAX_PATTERN_BYTES, &place, expected, self.pattern_bytes)?;
        if literal.is_some() {
            let expected = format_args!("a text of at most {MAX_LITERAL} bytes");
            self.refuse(text.len() > MAX_LITERAL, &place, expected, text.len())?;
            return Ok(text.len());
        }
        let shape = pattern_cost::shape(text).map_err(|expected| Error::format(self.file, &place, expected, text))?;
        self.n_ranges += shape.n_ranges;
        let expected = format_args!("at most {MAX_RANGES} ranges of characters, repetitions written out");
        self.refuse(self.n_ranges > MAX_RANGES, &place, expected, self.n_ranges)?;
        Ok(shape.shortest)
    }

    fn refuse(&self, is_wrong: bool, place: &str, expected: impl fmt::Display, got: impl fmt::Display) -> Result<()> {
        if is_wrong { Err(Error::format(self.file, place, expected, got)) } else { Ok(()) }
    }
}

fn check_step(file: &str, place: &str, step: &Value) -> Result<()> {
    let wrong = |key: &str, expected: &str| Err(Error::format(file, format_args!("{place}: {key}"), expected, &step[key]));
    // By their keys: the crate takes a step without its type, too.
    let number = |key: &str| step.get(key).and_then(Value::as_u64);
    match place {
        "normalizer" if step.get("precompiled_charsmap").is_some() => {
            return wrong("type", "another normalizer: tables are not run");
        }
        "normalizer" if step.get("pattern").is_some_and(may_be_nothing) => {
            return wrong("pattern", "one that takes at least a character, without a look ahead or behind");
        }
        "pre_tokenizer" if number("length") == Some(0) => return wrong("length", "a length above 0"),
        "decoder" if step.get("word_delimiter_token").is_some() => {
            return wrong("type", "another decoder: CTC is that of speech, and may leave no token to the next");
        }
        "decoder" if number("stop").is_some_and(|stop| stop > 0) => return wrong("stop", "0: nothing is taken from the end"),
        _ => {}
    }
    let inner = match step {
        Value::Array(steps) => steps.iter().collect::<Vec<_>>(),
        Value::Object(entries) => entries.values().filter(|value| value.is_array() || value.is_object()).collect(),
        _ => Vec::new(),
    };
    inner.into_iter().try_for_each(|step| check_step(file, place, step))
}

/// Whether a pattern may match where there is no character, behind the last one too: seen by trying it, and looks around are not trusted.
fn may_be_nothing(pattern: &Value) -> bool {
    const TEXTS: [&str; 4] = ["", "a", " 1\n", "é.Z"];
    if let Some(text) = pattern["String"].as_str() {
        return text.is_empty();
    }
    // What is no expression the crate refuses in its own words.
    let Some(Ok(expression)) = pattern["Regex"].as_str().map(SysRegex::new) else { return false };
    let looks = ["(?=", "(?!", "(?<=", "(?<!"];
    looks.iter().any(|look| pattern["Regex"].as_str().is_some_and(|text| text.contains(look)))
        || TEXTS.iter().any(|text| expression.find_iter(text).any(|(start, end)| start == end))
}

/// Refuses added tokens whose id is not the one that the tokenizer gave them, and those that take the white space beside them and are nothing
/// else: of a text of spaces each would take, and keep, all of them. `normalized`: how a token is looked for.
///
/// # Errors
/// [`Error::Format`] naming the file and the token.
pub fn check_added(
    file: &str,
    added: &[Added],
    id_of: impl Fn(&str) -> Option<u32>,
    normalized: impl Fn(&str) -> Option<String>,
) -> Result<()> {
    for Added { id, token } in added {
        let is_space = |text: &str| text.chars().all(char::is_whitespace);
        let strips = token.lstrip || token.rstrip;
        let looked_for = if token.normalized { normalized(&token.content) } else { None };
        if strips && (is_space(&token.content) || looked_for.as_deref().is_some_and(is_space)) {
            let expected = "a token that is more than white space, or neither lstrip nor rstrip";
            return Err(Error::format(file, format_args!("added token {id}"), expected, format_args!("{:?}", token.content)));
        }
        if let Some(given) = id_of(&token.content).filter(|given| given != id) {
            let expected = format!("the id {given}: its own in model.vocab, else the next one");
            return Err(Error::format(file, format_args!("added token {:?}", token.content), expected, id));
        }
    }
    Ok(())
}
