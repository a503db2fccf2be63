//! What a regular expression of a `tokenizer.json` may cost on any text: a file names expressions, and one of a few bytes may take a
//! minute for a page.
//!
//! A text is matched from left to right, each match beginning where the last one ended. That takes one pass if whatever the engine reads
//! behind a match is taken by the next one, but for a few characters: `a*b|a` on a text of `a` reads all that follows for each. So the
//! expression is made into the automaton of its characters, alternatives in their order; a way through it that goes on behind a match is
//! read from the start, too, as the next match will, and refused if that has no match for more than [`MAX_AHEAD`] characters. What the engine
//! `fancy-regex` adds (looks around, references, possessive repetitions) goes back over what was read, and is not run, but for the
//! `\s+(?!\S)` of GPT-2's kin and the expressions of [`PUBLISHED`].

use regex_syntax::ast::{self, Ast};
use regex_syntax::hir::translate::Translator;
use regex_syntax::hir::{Class, Hir, HirKind, Repetition};
use std::collections::HashMap;

/// Characters behind a match that the engine may have read and that the next match does not take.
const MAX_AHEAD: usize = 64;
/// Places of an expression, repetitions written out.
const MAX_PLACES: usize = 512;
/// States of the automaton.
const MAX_STATES: usize = 128;
/// Sets of characters that differ.
const MAX_CLASSES: usize = 128;
/// Kinds of characters that these sets tell apart.
const MAX_KINDS: usize = 256;
/// Bytes of an expression.
const MAX_LENGTH: usize = 4096;
/// The look ahead of GPT-2 and its kin, and what it comes to: of two spaces or more all but one at least, of one perhaps nothing.
const LOOK: &str = r"\s+(?!\S)";
const LOOKED: &str = r"(?:\s\s+|\s$)";
/// Expressions of published tokenizers that take one pass although what is said above does not show it: OpenAI's cl100k_base as in
/// `tiktoken`, older and newer, and the end of DeepSeek's texts, which the engine looks for from behind.
const PUBLISHED: [&str; 3] = [
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    r"\s+$",
];

/// What is known of an expression that may be run.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Ranges of characters in it, repetitions written out: its program grows by them.
    pub n_ranges: usize,
    /// The shortest match, in bytes.
    pub shortest: usize,
}

/// What an expression costs.
///
/// # Errors
/// What an expression should be instead.
pub fn shape(expression: &str) -> Result<Shape, &'static str> {
    if expression.len() > MAX_LENGTH {
        return Err("an expression of at most 4096 bytes");
    }
    if PUBLISHED.contains(&expression) {
        return Ok(Shape { n_ranges: 16_384, shortest: 1 });
    }
    let text = without_look(expression);
    let plain = "an expression without looks around (but an alternative \\s+(?!\\S)), references and possessive repetitions";
    let tree = ast::parse::Parser::new().parse(&text).map_err(|_| plain)?;
    ast::visit(&tree, Plain).map_err(|()| plain)?;
    let hir = Translator::new().translate(&text, &tree).map_err(|_| plain)?;
    let shortest = hir.properties().minimum_len().unwrap_or(0);
    let mut program = Program::default();
    let matched = program.push(Place::Match)?;
    let start = program.add(&hir, matched)?;
    program.check(start)?;
    Ok(Shape { n_ranges: program.n_ranges, shortest })
}

/// The expression with [`LOOKED`] in the place of each alternative [`LOOK`] that is in no group or class.
fn without_look(expression: &str) -> String {
    let (mut text, mut at, mut groups, mut classes) = (String::new(), 0, 0, 0);
    while let Some(rest) = expression.get(at..).filter(|rest| !rest.is_empty()) {
        let is_first = at == 0 || (expression.as_bytes()[at - 1] == b'|' && !text.ends_with("\\|"));
        let behind = rest.strip_prefix(LOOK).filter(|behind| behind.is_empty() || behind.starts_with('|'));
        if groups == 0 && classes == 0 && is_first && behind.is_some() {
            text.push_str(LOOKED);
            at += LOOK.len();
            continue;
        }
        let mut n = rest.chars().next().map_or(1, char::len_utf8);
        match rest.as_bytes()[0] {
            b'\\' => n += rest[1..].chars().next().map_or(0, char::len_utf8),
            b'[' => {
                classes += 1;
                // What stands first in a class does not close it.
                n += usize::from(rest[n..].starts_with('^'));
                n += usize::from(rest[n..].starts_with(']'));
            }
            b']' if classes > 0 => classes -= 1,
            b'(' if classes == 0 => groups += 1,
            b')' if classes == 0 => groups -= 1,
            _ => {}
        }
        text.push_str(&rest[..n]);
        at += n;
    }
    text
}

/// Refuses what `fancy-regex` reads otherwise: a repetition of a repetition is possessive there. And the flag x, by which anything may be
/// written in a comment.
struct Plain;

impl ast::Visitor for Plain {
    type Output = ();
    type Err = ();

    fn finish(self) -> Result<(), ()> {
        Ok(())
    }

    fn visit_pre(&mut self, tree: &Ast) -> Result<(), ()> {
        let ignores = |flags: &ast::Flags| flags.flag_state(ast::Flag::IgnoreWhitespace).is_some();
        let is_other = match tree {
            Ast::Repetition(repetition) => matches!(*repetition.ast, Ast::Repetition(_)),
            Ast::Flags(set) => ignores(&set.flags),
            Ast::Group(group) => group.flags().is_some_and(ignores),
            _ => false,
        };
        if is_other { Err(()) } else { Ok(()) }
    }
}

/// A place in an expression.
#[derive(Clone, Copy)]
enum Place {
    /// One character of the class of this number; then the place.
    One(usize, usize),
    /// The first, else the second.
    Either(usize, usize),
    /// Something that is not looked at, such as the end of a line: it may be so or not.
    Perhaps(usize),
    Match,
}

/// A way through the expression: the place where it is, and whether it is sure to be there.
type Way = (usize, bool);
/// Ranges of characters, ends included.
type Ranges = Vec<(u32, u32)>;

#[derive(Default)]
struct Program {
    places: Vec<Place>,
    classes: Vec<Ranges>,
    n_ranges: usize,
}

impl Program {
    fn push(&mut self, place: Place) -> Result<usize, &'static str> {
        if self.places.len() == MAX_PLACES {
            return Err("an expression of at most 512 characters and classes, repetitions written out");
        }
        self.places.push(place);
        Ok(self.places.len() - 1)
    }

    fn one(&mut self, ranges: Ranges, next: usize) -> Result<usize, &'static str> {
        self.n_ranges += ranges.len();
        let known = self.classes.iter().position(|class| *class == ranges);
        let class = known.unwrap_or(self.classes.len());
        if known.is_none() {
            if class == MAX_CLASSES {
                return Err("an expression of at most 128 classes and characters that differ");
            }
            self.classes.push(ranges);
        }
        self.push(Place::One(class, next))
    }

    /// Adds an expression that `next` follows: where it begins. It nests as deep as the parser lets it, 250 deep.
    fn add(&mut self, hir: &Hir, next: usize) -> Result<usize, &'static str> {
        match hir.kind() {
            HirKind::Empty => Ok(next),
            HirKind::Literal(literal) => {
                let text = String::from_utf8_lossy(&literal.0);
                text.chars().rev().try_fold(next, |next, c| self.one(vec![(c.into(), c.into())], next))
            }
            HirKind::Class(class) => {
                let ranges = match class {
                    Class::Unicode(class) => class.iter().map(|range| (range.start().into(), range.end().into())).collect(),
                    Class::Bytes(class) => class.iter().map(|range| (range.start().into(), range.end().into())).collect(),
                };
                self.one(ranges, next)
            }
            HirKind::Look(_) => self.push(Place::Perhaps(next)),
            HirKind::Capture(group) => self.add(&group.sub, next),
            HirKind::Concat(parts) => parts.iter().rev().try_fold(next, |next, part| self.add(part, next)),
            HirKind::Alternation(parts) => {
                let starts = parts.iter().map(|part| self.add(part, next)).collect::<Result<Vec<_>, _>>()?;
                let mut starts = starts.into_iter().rev();
                let last = starts.next().unwrap_or(next);
                starts.try_fold(last, |last, start| self.push(Place::Either(start, last)))
            }
            HirKind::Repetition(repetition) => self.repeat(repetition, next),
        }
    }

    fn repeat(&mut self, repetition: &Repetition, next: usize) -> Result<usize, &'static str> {
        let way = |more, enough| if repetition.greedy { Place::Either(more, enough) } else { Place::Either(enough, more) };
        let mut start = next;
        match repetition.max {
            None => {
                let again = self.push(Place::Match)?;
                let more = self.add(&repetition.sub, again)?;
                self.places[again] = way(more, next);
                start = again;
            }
            Some(max) => {
                for _ in repetition.min..max {
                    let more = self.add(&repetition.sub, start)?;
                    start = self.push(way(more, next))?;
                }
            }
        }
        (0..repetition.min).try_fold(start, |start, _| self.add(&repetition.sub, start))
    }

    /// Refuses an expression that may read on for long behind a match, if the next match does not take what was read.
    fn check(&self, start: usize) -> Result<(), &'static str> {
        let kinds = self.kinds();
        if kinds.len() > MAX_KINDS {
            return Err("an expression that tells at most 256 kinds of characters apart");
        }
        let mut states = vec![self.ways(&[(start, true)])];
        let mut known = HashMap::from([(states[0].clone(), 0)]);
        let mut edges: Vec<Vec<usize>> = Vec::new();
        while let Some(state) = states.get(edges.len()).cloned() {
            let mut to = Vec::new();
            for kind in &kinds {
                let taken = state.iter().filter_map(|(place, sure)| match self.places[*place] {
                    Place::One(class, next) if kind >> class & 1 == 1 => Some((next, *sure)),
                    _ => None,
                });
                let next = self.ways(&taken.collect::<Vec<_>>());
                let ix = *known.entry(next.clone()).or_insert(states.len());
                if ix == states.len() {
                    states.push(next);
                }
                to.push(ix);
            }
            edges.push(to);
            if states.len() > MAX_STATES {
                return Err("an expression whose automaton has at most 128 states");
            }
        }
        let matched: Vec<bool> = states.iter().map(|state| self.has_match(state)).collect();
        let goes_on = |ix: usize| !matched[ix] && !states[ix].is_empty();
        // What is read behind a match, and the same read from the start, as the next match will: at first from the start alone.
        let behind = (0..states.len()).filter(|ix| *ix == 0 || matched[*ix]);
        let pairs = behind.flat_map(|ix| edges[ix].iter().copied().zip(edges[0].iter().copied()));
        if lags(pairs.filter(|(ix, _)| goes_on(*ix)).collect(), &edges, &goes_on, &matched) {
            return Err(
                "an expression that never reads on for more than 64 characters that the next match does not take: a*b|a does",
            );
        }
        Ok(())
    }

    fn has_match(&self, state: &[Way]) -> bool {
        state.last().is_some_and(|(place, sure)| *sure && matches!(self.places[*place], Place::Match))
    }

    /// The ways from these on, in their order, up to a character; up to a match that is sure, too: what follows it is not tried.
    fn ways(&self, from: &[Way]) -> Vec<Way> {
        let (mut ways, mut stack) = (Vec::new(), from.to_vec());
        stack.reverse();
        let mut seen = vec![[false; 2]; self.places.len()];
        while let Some((place, sure)) = stack.pop() {
            if std::mem::replace(&mut seen[place][usize::from(sure)], true) {
                continue;
            }
            match self.places[place] {
                Place::One(..) => ways.push((place, sure)),
                Place::Either(first, second) => stack.extend([(second, sure), (first, sure)]),
                Place::Perhaps(next) => stack.push((next, false)),
                Place::Match if sure => {
                    ways.push((place, sure));
                    break;
                }
                Place::Match => {}
            }
        }
        ways
    }

    /// The kinds of characters: of each the classes that it is in, a bit each.
    fn kinds(&self) -> Vec<u128> {
        let edges = self.classes.iter().flatten().flat_map(|(first, last)| [*first, last + 1]);
        let mut edges: Vec<u32> = edges.chain([0]).collect();
        edges.sort_unstable();
        edges.dedup();
        let mut kinds = vec![0u128; edges.len()];
        for (class, ranges) in self.classes.iter().enumerate() {
            for (first, last) in ranges {
                let from = edges.partition_point(|edge| edge < first);
                let to = edges.partition_point(|edge| edge <= last);
                kinds[from..to].iter_mut().for_each(|kind| *kind |= 1 << class);
            }
        }
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }
}

/// Whether one of these pairs of states, read on side by side as long as the first goes on, has the second without a match for more than
/// [`MAX_AHEAD`] characters.
fn lags(mut pairs: Vec<(usize, usize)>, edges: &[Vec<usize>], goes_on: &dyn Fn(usize) -> bool, matched: &[bool]) -> bool {
    let mut known: HashMap<(usize, usize), usize> = HashMap::new();
    let mut next: Vec<Vec<usize>> = Vec::new();
    pairs.sort_unstable();
    pairs.dedup();
    known.extend(pairs.iter().copied().enumerate().map(|(ix, pair)| (pair, ix)));
    while let Some((first, second)) = pairs.get(next.len()).copied() {
        let mut to = Vec::new();
        for pair in edges[first].iter().copied().zip(edges[second].iter().copied()).filter(|(first, _)| goes_on(*first)) {
            let ix = *known.entry(pair).or_insert(pairs.len());
            if ix == pairs.len() {
                pairs.push(pair);
            }
            to.push(ix);
        }
        to.sort_unstable();
        to.dedup();
        next.push(to);
    }
    let mut behind = vec![0; pairs.len()];
    for _ in 0..=MAX_AHEAD + 1 {
        let longest = |ix: usize| match matched[pairs[ix].1] {
            true => 0,
            false => 1 + next[ix].iter().map(|to| behind[*to]).max().unwrap_or(0),
        };
        let new: Vec<usize> = (0..pairs.len()).map(longest).collect();
        if new == behind {
            return behind.iter().any(|n| *n > MAX_AHEAD);
        }
        behind = new;
    }
    true
}

#[cfg(test)]
mod tests;
