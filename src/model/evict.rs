//! Pages that die: the host's half. The device finds the first live page of each key head, token by token; copies of that array come
//! here some tokens late, and pages that are dead as of a position that the sequence cannot go back behind are handed out again.
//!
//! With [`Overflow::Slide`] the oldest pages of a layer that has none left are taken away, dead or not.

use super::Config;
use crate::kernel::attention::PAGE;
use std::collections::VecDeque;

/// What becomes of a sequence that needs more pages than there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// It is refused.
    #[default]
    Error,
    /// Its oldest keys are forgotten.
    Slide,
}

/// How pages of a sequence die.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Eviction {
    /// Whether heads are done with pages for good, by the bound on their scores.
    pub prune: bool,
    /// What happens when pages run out all the same.
    pub overflow: Overflow,
}

/// Columns and pages that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// Pages that a layer needs.
    pub needed: usize,
    /// Pages that it has.
    pub free: usize,
}

/// The first live pages `[L, kv heads]` of a sequence of some tokens.
#[derive(Clone, Debug)]
struct Seen {
    n_tokens: usize,
    live: Vec<u32>,
}

/// What a mark needs: the columns from its first live page to the last that its tokens are in.
#[derive(Clone, Debug)]
struct Pin {
    n_tokens: usize,
    /// `[L, kv heads]`.
    first: Vec<usize>,
}

/// Columns of each head, `[L, kv heads]`, that a sequence was done with at some position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetGo {
    /// Dead or taken away.
    kept: Vec<usize>,
    /// Taken away by sliding.
    taken: Vec<u32>,
}

impl LetGo {
    /// Whether sliding took away what it did not in another.
    pub fn has_taken_more(&self, other: &Self) -> bool {
        self.taken.iter().zip(&other.taken).any(|(taken, other)| taken > other)
    }

    /// Whether there is nothing.
    pub fn is_nothing(&self) -> bool {
        self.kept.iter().all(|kept| *kept == 0)
    }
}

/// The page was handed back.
const GONE: u32 = u32::MAX;

/// Which page holds what, layer by layer and head by head.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    n_heads: usize,
    n_layers: usize,
    slide: bool,
    pages_per_layer: usize,
    /// `[columns, L, kv heads]`: page ids of the columns that are filled, or [`GONE`].
    table: Vec<u32>,
    /// By layer, the next to hand out last.
    free: Vec<Vec<u32>>,
    /// `[L, kv heads]`: columns that are dead, or were taken away; those that a mark needs are held all the same.
    kept: Vec<usize>,
    pins: Vec<Pin>,
    /// `[L, kv heads]`: columns taken away by sliding.
    taken: Vec<u32>,
    /// Whether the device knows of `taken`.
    told: bool,
    seen: VecDeque<Seen>,
}

impl Ledger {
    pub fn new(config: &Config, pages_per_layer: usize, overflow: Overflow) -> Self {
        let (n_layers, n_heads) = (config.n_layers, config.n_kv_heads);
        let mut ledger = Self {
            n_heads,
            n_layers,
            slide: overflow == Overflow::Slide,
            pages_per_layer,
            table: Vec::new(),
            free: Vec::new(),
            kept: Vec::new(),
            pins: Vec::new(),
            taken: vec![0; n_layers * n_heads],
            told: true,
            seen: VecDeque::new(),
        };
        ledger.reset();
        ledger
    }

    pub fn reset(&mut self) {
        self.table.clear();
        self.seen.clear();
        self.pins.clear();
        self.free = vec![(0..self.pages_per_layer as u32).rev().collect(); self.n_layers];
        self.kept = vec![0; self.n_layers * self.n_heads];
        self.told &= self.taken.iter().all(|taken| *taken == 0);
        self.taken.fill(0);
    }

    fn columns(&self) -> usize {
        self.table.len() / self.kept.len()
    }

    /// Takes down the first live pages of a sequence as it was after `n_tokens`.
    pub fn saw(&mut self, n_tokens: usize, live: Vec<u32>) {
        self.seen.push_back(Seen { n_tokens, live });
    }

    /// The sequence has gone back by a few tokens, to `n_tokens`.
    pub fn rewind(&mut self, n_tokens: usize) {
        self.seen.retain(|seen| seen.n_tokens <= n_tokens);
        self.pins.retain(|pin| pin.n_tokens <= n_tokens);
    }

    /// Holds what is live in a sequence of `n_tokens`, whose first live pages are `live`.
    pub fn pin(&mut self, n_tokens: usize, live: &[u32]) {
        let first = live.iter().map(|live| (*live as usize).min(may_go(n_tokens))).collect();
        self.pins.push(Pin { n_tokens, first });
    }

    /// Holds it no longer.
    pub fn unpin(&mut self, n_tokens: usize) {
        if let Some(ix) = self.pins.iter().position(|pin| pin.n_tokens == n_tokens) {
            let pin = self.pins.remove(ix);
            for (ix, first) in pin.first.into_iter().enumerate() {
                self.hand_back_columns(ix, first..self.kept[ix]);
            }
        }
    }

    /// The sequence is again what it was at a pin: later columns are handed back. Gives the columns that are left.
    pub fn return_to(&mut self, n_tokens: usize) -> usize {
        self.rewind(n_tokens);
        let columns = n_tokens.div_ceil(PAGE);
        for ix in 0..self.kept.len() {
            self.hand_back_columns(ix, columns..self.columns());
            if let Some(pin) = self.pins.iter().find(|pin| pin.n_tokens == n_tokens) {
                self.kept[ix] = self.kept[ix].min(pin.first[ix]);
            }
        }
        self.table.truncate(columns * self.kept.len());
        columns
    }

    /// Hands back what is dead in a sequence that never again has fewer than `n_tokens`.
    pub fn hand_back(&mut self, n_tokens: usize) {
        while self.seen.front().is_some_and(|seen| seen.n_tokens <= n_tokens) {
            let Some(seen) = self.seen.pop_front() else { return };
            for (ix, live) in seen.live.iter().enumerate() {
                self.hand_back_head(ix, (*live as usize).min(may_go(seen.n_tokens)));
            }
        }
    }

    fn hand_back_head(&mut self, ix: usize, end: usize) {
        self.hand_back_columns(ix, self.kept[ix]..end);
        self.kept[ix] = self.kept[ix].max(end);
    }

    /// Hands back a head's pages of some columns, but those that a mark needs.
    fn hand_back_columns(&mut self, ix: usize, columns: std::ops::Range<usize>) {
        for column in columns {
            let pinned = self.pins.iter().any(|pin| (pin.first[ix]..pin.n_tokens.div_ceil(PAGE)).contains(&column));
            let id = &mut self.table[column * self.kept.len() + ix];
            if !pinned && *id != GONE {
                self.free[ix / self.n_heads].push(std::mem::replace(id, GONE));
            }
        }
    }

    /// What is missing for a table of `columns` columns, in the layer that misses most; [`None`] when they can be filled.
    pub fn short(&self, columns: usize) -> Option<Short> {
        let needed = columns.saturating_sub(self.columns()) * self.n_heads;
        let free = self.free.iter().map(Vec::len).min().unwrap_or(0);
        (free < needed).then_some(Short { needed, free })
    }

    /// Whether a table of `columns` columns can be filled, by taking pages away if need be: see [`Ledger::fill`].
    pub fn check(&self, columns: usize, n_tokens: usize) -> Result<(), Short> {
        let Some(short) = self.short(columns) else { return Ok(()) };
        let movable = |layer: usize| -> usize {
            self.kept[layer * self.n_heads..][..self.n_heads].iter().map(|kept| may_go(n_tokens).saturating_sub(*kept)).sum()
        };
        let enough = (0..self.n_layers).all(|layer| self.free[layer].len() + movable(layer) >= short.needed);
        if self.slide && self.pins.is_empty() && enough { Ok(()) } else { Err(short) }
    }

    /// Fills columns for a sequence of `n_tokens` that is to grow: the new words of the table.
    ///
    /// # Errors
    /// [`Short`], and nothing is changed, when pages are missing that cannot be taken away from older keys: none may be while there are
    /// marks to go back to.
    pub fn fill(&mut self, columns: usize, n_tokens: usize) -> Result<Vec<u32>, Short> {
        self.check(columns, n_tokens)?;
        let needed = columns.saturating_sub(self.columns()) * self.n_heads;
        for layer in 0..self.n_layers {
            self.slide_layer(layer, needed);
        }
        let first = self.table.len();
        for _ in self.columns()..columns {
            for layer in 0..self.n_layers {
                for _ in 0..self.n_heads {
                    let id = self.free[layer].pop();
                    self.table.push(id.unwrap_or_else(|| unreachable!("what is short is refused above")));
                }
            }
        }
        Ok(self.table[first..].to_vec())
    }

    /// Columns of each head, `[L, kv heads]`, that a sequence of `n_tokens` from elsewhere can do without: its first live pages are `live`.
    pub fn not_needed(n_tokens: usize, live: &[u32]) -> Vec<usize> {
        live.iter().map(|live| (*live as usize).min(may_go(n_tokens))).collect()
    }

    /// Takes over a sequence of `n_tokens` whose heads need their columns from `first` `[L, kv heads]` on, in the place of its own: the words
    /// of the whole table, 0 where no page is.
    ///
    /// # Errors
    /// [`Short`], and nothing is changed, when a layer has too few pages.
    pub fn adopt(&mut self, n_tokens: usize, first: Vec<usize>) -> Result<Vec<u32>, Short> {
        let columns = n_tokens.div_ceil(PAGE);
        for first in first.chunks_exact(self.n_heads) {
            let needed = first.iter().map(|first| columns - first).sum();
            if needed > self.pages_per_layer {
                return Err(Short { needed, free: self.pages_per_layer });
            }
        }
        self.reset();
        for column in 0..columns {
            for (ix, first) in first.iter().enumerate() {
                let id = if column < *first { None } else { self.free[ix / self.n_heads].pop() };
                self.table.push(id.unwrap_or(GONE));
            }
        }
        self.kept = first;
        Ok(self.table.iter().map(|id| if *id == GONE { 0 } else { *id }).collect())
    }

    /// The page of a column and head, `[L, kv heads]`, that was not handed back.
    pub fn page(&self, column: usize, ix: usize) -> usize {
        self.table[column * self.kept.len() + ix] as usize
    }

    /// Takes away a layer's oldest pages, the lower heads' first, until `needed` are free.
    fn slide_layer(&mut self, layer: usize, needed: usize) {
        let heads = layer * self.n_heads..(layer + 1) * self.n_heads;
        while self.free[layer].len() < needed {
            let Some(ix) = heads.clone().min_by_key(|ix| self.kept[*ix]) else { return };
            self.hand_back_head(ix, self.kept[ix] + 1);
            self.taken[ix] = self.kept[ix] as u32;
            self.told = false;
        }
    }

    /// What the sequence is done with, where pages slide.
    pub fn let_go(&self) -> Option<LetGo> {
        self.slide.then(|| LetGo { kept: self.kept.clone(), taken: self.taken.clone() })
    }

    /// Is done with the same once more, in a sequence that is read anew.
    pub fn let_go_again(&mut self, then: &LetGo) {
        for (ix, (kept, taken)) in then.kept.iter().zip(&then.taken).enumerate() {
            self.hand_back_head(ix, (*kept).min(self.columns()));
            if *taken > self.taken[ix] {
                (self.taken[ix], self.told) = (*taken, false);
            }
        }
    }

    /// Pages of filled columns that were handed back.
    pub fn freed(&self) -> usize {
        let free: usize = self.free.iter().map(Vec::len).sum();
        self.table.len() + free - self.pages_per_layer * self.n_layers
    }

    /// Pages of a sequence of `n_tokens` that are not known to be dead.
    pub fn live(&self, n_tokens: usize) -> usize {
        let seen = |ix: usize| self.seen.back().map_or(0, |seen| seen.live[ix] as usize);
        let columns = n_tokens.div_ceil(PAGE);
        self.kept.iter().enumerate().map(|(ix, kept)| columns.saturating_sub(seen(ix).max(*kept))).sum()
    }

    /// The columns that sliding took away, `[L, kv heads]`, if the device does not know yet.
    pub fn news(&mut self) -> Option<Vec<u32>> {
        (!std::mem::replace(&mut self.told, true)).then(|| self.taken.clone())
    }

    /// The columns that sliding took away, `[L, kv heads]`.
    pub fn taken(&self) -> &[u32] {
        &self.taken
    }
}

/// Columns that may be handed back while a sequence of `n_tokens` grows: not the page that the next token is in, nor the one before it, whose
/// Λ and end go on in it.
fn may_go(n_tokens: usize) -> usize {
    (n_tokens / PAGE).saturating_sub(1)
}
