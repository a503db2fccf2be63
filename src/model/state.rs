//! What a model remembers between tokens, seen from the host: the page table of the KV cache and the shift rows in use.
//!
//! Keys, values and λ live in pages of [`PAGE`] tokens per layer and key head, each in its layer's pool. All heads need a new page
//! at the same moment, every [`PAGE`] tokens, so one small write of a table column serves them all.
//!
//! With a sliding window, a page that no later query sees is free at once: the pool holds the pages of a window and a chunk, and
//! columns take their turns in it. Without one, pages may die head by head ([`super::evict`]); the pools hold the context's pages
//! all the same, and the sequence may grow beyond it as long as live pages fit.

use super::Config;
use super::evict::{Eviction, Ledger, LetGo, Short};
use crate::graph::Step;
use crate::kernel::attention::{MAX_SPLITS, PAGE, Prune, SHIFT_SLOTS};

/// Most tokens that [`Pages::rewind`] takes back.
pub const MAX_REWIND: usize = SHIFT_SLOTS - 1;

/// Page bookkeeping of one sequence.
#[derive(Clone, Debug)]
pub struct Pages {
    n_layers: usize,
    n_kv_heads: usize,
    max_pages: usize,
    window: Option<usize>,
    /// Columns whose pages the pools hold at once.
    n_held: usize,
    /// Columns of the table that are filled: ⌈tokens / PAGE⌉ at most.
    n_columns: usize,
    n_tokens: usize,
    /// Where the shift rows of the last token are: slots take turns.
    shift_slot: usize,
    /// Tokens that came one at a time since the last longer replay: so many of the slots before hold those of the tokens before.
    n_single: usize,
    /// Who holds which page, where pages die.
    ledger: Option<Ledger>,
    /// Lengths that the sequence may go back to, ascending.
    marks: Vec<usize>,
}

impl Pages {
    /// An empty sequence of at most `max_pages` · [`PAGE`] tokens, of which at most `chunk` are fed, or fed and
    /// taken back, at a time.
    pub fn new(config: &Config, max_pages: usize, chunk: usize) -> Self {
        let Config { n_layers, n_kv_heads, window, .. } = *config;
        // A replay reads the window of its first token (and λ of the token before it) and its own tokens, wherever they begin in
        // a page.
        let held = |window: usize| ((window.max(2) - 1 + chunk + PAGE - 2) / PAGE + 1).min(max_pages);
        let n_held = window.map_or(max_pages, held);
        let (n_columns, n_tokens, shift_slot, n_single) = (0, 0, 0, 0);
        let (ledger, marks) = (None, Vec::new());
        Self { n_layers, n_kv_heads, max_pages, window, n_held, n_columns, n_tokens, shift_slot, n_single, ledger, marks }
    }

    /// An empty sequence whose pages die, of at most `max_pages` · [`PAGE`] tokens, with pools of `n_held` pages a head.
    ///
    /// # Panics
    /// When the model has a sliding window: there pages go by the window alone.
    pub fn evicting(config: &Config, max_pages: usize, n_held: usize, eviction: Eviction) -> Self {
        assert!(config.window.is_none(), "a sliding window frees pages by itself");
        let n_held = n_held.min(max_pages);
        let ledger = Some(Ledger::new(config, n_held * config.n_kv_heads, eviction.overflow));
        Self { n_held, ledger, ..Self::new(config, max_pages, 1) }
    }

    /// Whether pages die.
    pub fn evicts(&self) -> bool {
        self.ledger.is_some()
    }

    /// Pages of a head in the page table.
    pub fn max_pages(&self) -> usize {
        self.max_pages
    }

    /// Pages in each layer's pool: every head can fill the context, or its window.
    pub fn per_layer(&self) -> usize {
        self.n_kv_heads * self.n_held
    }

    /// Words of the page table `[max_pages, n_layers, n_kv_heads]`, and of the first live pages behind them where pages die.
    pub fn table_words(&self) -> usize {
        let live = if self.evicts() { Prune::live_words(self.n_layers, self.n_kv_heads) } else { 0 };
        self.ids_words().saturating_add(live)
    }

    fn ids_words(&self) -> usize {
        self.max_pages.saturating_mul(self.heads())
    }

    /// Layers times key heads.
    fn heads(&self) -> usize {
        self.n_layers * self.n_kv_heads
    }

    /// Where the first live pages as of the last token are in the page table's buffer: first word and words (`[L, kv heads]`).
    pub fn live_at(&self) -> (usize, usize) {
        (self.ids_words() + (1 + self.shift_slot) * self.heads(), self.heads())
    }

    /// Tokens held.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Slot of the shift rows of the last token.
    pub fn shift_slot(&self) -> usize {
        self.shift_slot
    }

    /// Pages that later tokens may look at, as far as is known, and pages of the tokens held that others may have by now.
    pub fn live_and_freed(&self) -> [usize; 2] {
        if let Some(ledger) = &self.ledger {
            return [ledger.live(self.n_tokens), ledger.freed()];
        }
        let filled = self.n_tokens.div_ceil(PAGE);
        let freed = self.first_column(self.n_tokens).min(filled);
        [(filled - freed) * self.heads(), freed * self.heads()]
    }

    /// First column that the window of the token behind `n_tokens` reaches.
    fn first_column(&self, n_tokens: usize) -> usize {
        (n_tokens + 1).saturating_sub(self.window.unwrap_or(usize::MAX)) / PAGE
    }

    /// Pages that a head has been given so far.
    pub fn n_columns(&self) -> usize {
        self.n_columns
    }

    /// Forgets everything. (The pools keep their bytes; nothing reads past the tokens held.)
    pub fn reset(&mut self) {
        (self.n_columns, self.n_tokens, self.shift_slot, self.n_single) = (0, 0, 0, 0);
        self.marks.clear();
        if let Some(ledger) = &mut self.ledger {
            ledger.reset();
        }
    }

    /// Takes down the first live pages `[L, kv heads]` as they were after `n_tokens`, read from [`Pages::live_at`] then.
    pub fn saw(&mut self, n_tokens: usize, live: Vec<u32>) {
        if let Some(ledger) = self.ledger.as_mut().filter(|_| n_tokens <= self.n_tokens) {
            ledger.saw(n_tokens, live);
        }
    }

    /// Whether pages for `n` more tokens are missing, as far as is known.
    pub fn is_short(&mut self, n: usize) -> bool {
        let columns = (self.n_tokens + n).div_ceil(PAGE);
        self.hand_back();
        self.ledger.as_ref().is_some_and(|ledger| ledger.short(columns).is_some())
    }

    /// Whether [`Pages::reserve`] would refuse, as far as is known.
    pub fn refuses(&mut self, n: usize) -> bool {
        let columns = (self.n_tokens + n).div_ceil(PAGE);
        self.hand_back();
        self.ledger.as_ref().is_some_and(|ledger| ledger.check(columns, self.n_tokens - self.n_single).is_err())
    }

    /// Tokens for which there are pages already.
    pub fn room(&self) -> usize {
        self.n_columns * PAGE - self.n_tokens
    }

    /// What can be handed back is dead in any sequence that this one may go back to.
    fn hand_back(&mut self) {
        let least = self.n_tokens - self.n_single;
        if let Some(ledger) = &mut self.ledger {
            ledger.hand_back(least);
        }
    }

    /// Pages for `n` more tokens: the new words of the page table's buffer and where they go.
    ///
    /// # Errors
    /// [`Short`] when more pages are live than the pools hold. Nothing is changed then.
    pub fn reserve(&mut self, n: usize) -> Result<Vec<(usize, Vec<u32>)>, Short> {
        let columns = (self.n_tokens + n).div_ceil(PAGE);
        assert!(columns <= self.max_pages, "the caller checks the context before it reserves");
        let mut writes = Vec::new();
        if columns > self.n_columns {
            self.hand_back();
            let at = self.n_columns * self.heads();
            let words = match &mut self.ledger {
                Some(ledger) => ledger.fill(columns, self.n_tokens - self.n_single)?,
                None => self.in_turn(self.n_columns..columns),
            };
            writes.push((at, words));
            self.n_columns = columns;
        }
        let ids = self.ids_words();
        writes.extend(self.ledger.as_mut().and_then(Ledger::news).map(|taken| (ids, taken)));
        Ok(writes)
    }

    /// Page ids of columns that take turns in the pools.
    fn in_turn(&self, columns: std::ops::Range<usize>) -> Vec<u32> {
        // Layer by layer, head by head: the same ids in every layer, each layer's pool being its own.
        let (heads, column) = (self.n_kv_heads, self.heads());
        (columns.start * column..columns.end * column).map(|ix| (ix / column % self.n_held * heads + ix % heads) as u32).collect()
    }

    /// The step that appends `n` tokens to those held.
    pub fn step(&self, n: usize) -> Step {
        let first_page = self.first_column(self.n_tokens);
        let pages = (self.n_tokens + n).div_ceil(PAGE) - first_page;
        let pages_per_split = pages.div_ceil(MAX_SPLITS);
        Step {
            pos: self.n_tokens as u32,
            n_tokens: n as u32,
            n_splits: pages.div_ceil(pages_per_split) as u32,
            pages_per_split: pages_per_split as u32,
            shift_in: self.shift_slot as u32,
            shift_out: ((self.shift_slot + 1) % SHIFT_SLOTS) as u32,
            first_page: first_page as u32,
            pad: 0,
        }
    }

    /// Counts `n` tokens as held, after their replay.
    pub fn advance(&mut self, n: usize) {
        self.n_tokens += n;
        self.shift_slot = (self.shift_slot + 1) % SHIFT_SLOTS;
        self.n_single = if n == 1 { (self.n_single + 1).min(MAX_REWIND) } else { 0 };
    }

    /// Tokens that [`Pages::rewind`] can take back.
    pub fn rewindable(&self) -> usize {
        self.n_single
    }

    /// The fewest tokens that [`Pages::rewind`] can leave.
    pub fn least(&self) -> usize {
        self.n_tokens - self.n_single
    }

    /// From now on [`Pages::rewind`] leaves no fewer than so many.
    pub fn leave_at_least(&mut self, n_tokens: usize) {
        self.n_single = self.n_single.min(self.n_tokens.saturating_sub(n_tokens));
    }

    /// What the sequence is done with, where its oldest pages slide away.
    pub fn let_go(&self) -> Option<LetGo> {
        self.ledger.as_ref().and_then(Ledger::let_go)
    }

    /// Is done with the same once more, in a sequence that is read anew.
    pub fn let_go_again(&mut self, then: &LetGo) {
        if let Some(ledger) = &mut self.ledger {
            ledger.let_go_again(then);
        }
    }

    /// Goes back by the last `n` tokens, which came one at a time: the sequence is as it was before them. Keys, values and λ of
    /// later tokens are overwritten when new ones come, and the shift rows before are still there. Marks of longer sequences are gone.
    ///
    /// # Panics
    /// When `n` is over [`MAX_REWIND`], or not all of them came one at a time since the start or the last chunk.
    pub fn rewind(&mut self, n: usize) {
        assert!(n <= self.n_single, "{} tokens came one at a time, {n} are to be taken back", self.n_single);
        self.n_single -= n;
        self.shift_slot = (self.shift_slot + SHIFT_SLOTS - n) % SHIFT_SLOTS;
        self.shorten(self.n_tokens - n);
    }

    /// Keeps every page that is live now, so that [`Pages::return_to`] can come back. `live`: the first live pages, read from
    /// [`Pages::live_at`], where pages die.
    pub fn mark(&mut self, live: &[u32]) {
        self.marks.push(self.n_tokens);
        if let Some(ledger) = &mut self.ledger {
            ledger.pin(self.n_tokens, live);
        }
    }

    /// Gives up a mark.
    pub fn release(&mut self, n_tokens: usize) {
        if let Some(ix) = self.marks.iter().position(|mark| *mark == n_tokens) {
            self.marks.remove(ix);
            if let Some(ledger) = &mut self.ledger {
                ledger.unpin(n_tokens);
            }
        }
    }

    /// The sequence has `n_tokens` again, as at a mark: the caller writes the shift rows and the first live pages of then where
    /// [`Pages::shift_slot`] and [`Pages::live_at`] say.
    ///
    /// # Panics
    /// When there is no such mark.
    pub fn return_to(&mut self, n_tokens: usize) {
        assert!(self.marks.contains(&n_tokens), "no mark at {n_tokens}");
        self.n_single = 0;
        self.shorten(n_tokens);
        if let Some(ledger) = &mut self.ledger {
            self.n_columns = ledger.return_to(n_tokens);
        }
    }

    fn shorten(&mut self, n_tokens: usize) {
        self.n_tokens = n_tokens;
        self.marks.retain(|mark| *mark <= n_tokens);
        if let Some(ledger) = &mut self.ledger {
            ledger.rewind(n_tokens);
        }
    }

    /// First column of each head, `[L, kv heads]`, that the tokens behind `n_tokens` of a sequence look at; `live`: its first live pages, where
    /// pages die.
    pub fn first_needed(&self, n_tokens: usize, live: &[u32]) -> Vec<usize> {
        if self.evicts() {
            return Ledger::not_needed(n_tokens, live);
        }
        // Λ goes on from that of the last token, also where the window of the next begins behind it.
        let last = n_tokens.saturating_sub(1) / PAGE;
        vec![self.first_column(n_tokens).min(last); self.heads()]
    }

    /// The page of a column and head, `[L, kv heads]`, in its layer's pools.
    pub fn page(&self, column: usize, ix: usize) -> usize {
        match &self.ledger {
            Some(ledger) => ledger.page(column, ix),
            None => column % self.n_held * self.n_kv_heads + ix % self.n_kv_heads,
        }
    }

    /// Takes over a sequence of `n_tokens` whose heads need their columns from `first` ([`Pages::first_needed`]) on, in the place of its own:
    /// the page table from its first word on. The caller fills the pages, and the shift rows and first live pages where
    /// [`Pages::shift_slot`] and [`Pages::live_at`] say.
    ///
    /// # Errors
    /// [`Short`] when more pages are needed than the pools hold. Nothing is changed then.
    pub fn adopt(&mut self, n_tokens: usize, first: Vec<usize>) -> Result<Vec<u32>, Short> {
        let columns = n_tokens.div_ceil(PAGE);
        assert!(columns <= self.max_pages, "the caller checks the context before it adopts");
        let table = match &mut self.ledger {
            Some(ledger) => ledger.adopt(n_tokens, first)?,
            None => self.in_turn(0..columns),
        };
        (self.n_columns, self.n_tokens, self.shift_slot, self.n_single) = (columns, n_tokens, 0, 0);
        self.marks.clear();
        Ok(table)
    }

    /// Pages that sliding took away, `[L, kv heads]`.
    pub fn taken(&self) -> &[u32] {
        self.ledger.as_ref().map_or(&[], Ledger::taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(n_layers: usize, n_kv_heads: usize, window: Option<usize>) -> Config {
        let json = serde_json::json!({
            "model_type": "forgetting_transformer", "vocab_size": 9, "hidden_size": 16 * n_kv_heads,
            "num_hidden_layers": n_layers, "num_heads": n_kv_heads, "window_size": window
        });
        Config::from_json(json.as_object().unwrap()).unwrap()
    }

    #[test]
    fn every_head_gets_its_own_page_and_columns_are_written_once() {
        let mut pages = Pages::new(&config(3, 4, None), 5, 130);
        let mut table = vec![u32::MAX; pages.table_words()];
        for n in [1, 62, 1, 1, 130, 64] {
            for (at, words) in pages.reserve(n).unwrap() {
                assert!(table[at..at + words.len()].iter().all(|word| *word == u32::MAX), "written twice");
                table[at..at + words.len()].copy_from_slice(&words);
            }
            pages.advance(n);
        }
        assert_eq!(pages.n_tokens(), 259);
        for layer in 0..3 {
            let mut seen: Vec<u32> =
                (0..5).flat_map(|page| (0..4).map(move |head| (page * 3 + layer) * 4 + head)).map(|ix| table[ix]).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..20).collect::<Vec<_>>(), "layer {layer}");
        }
    }

    #[test]
    fn going_back_finds_the_shift_row_of_the_token_before() {
        let mut pages = Pages::new(&config(1, 1, None), 400, 128);
        // By slot: the token whose rows it holds.
        let mut slots = [usize::MAX; SHIFT_SLOTS];
        let mut run = |pages: &mut Pages, n: usize| {
            let step = pages.step(n);
            assert_ne!(step.shift_in, step.shift_out);
            if pages.n_tokens() > 0 {
                assert_eq!(slots[step.shift_in as usize], pages.n_tokens() - 1);
            }
            pages.advance(n);
            slots[step.shift_out as usize] = pages.n_tokens() - 1;
        };
        for (chunk, singles, back) in [(5, 3, 3), (128, 0, 0), (1, 40, MAX_REWIND), (1, 0, 1), (64, 100, 17), (2, 31, 31)] {
            run(&mut pages, chunk);
            (0..singles).for_each(|_| run(&mut pages, 1));
            let before = pages.n_tokens();
            pages.rewind(back);
            assert_eq!(pages.n_tokens(), before - back);
            run(&mut pages, 1);
        }
    }

    #[test]
    fn splits_cover_all_pages_and_none_is_empty() {
        for tokens in 1..20_000usize {
            let mut pages = Pages::new(&config(1, 1, None), 400, 1);
            pages.n_tokens = tokens - 1;
            let step = pages.step(1);
            let (n, per, all) = (step.n_splits as usize, step.pages_per_split as usize, tokens.div_ceil(PAGE));
            assert!(n <= MAX_SPLITS && n * per >= all && (n - 1) * per < all, "{tokens}");
            assert_ne!(step.shift_in, step.shift_out);
        }
    }

    #[test]
    fn pages_outside_every_later_window_are_used_again_and_no_other() {
        for (window, chunk) in [(1, 1), (1, 64), (2, 3), (48, 7), (64, 1), (64, 65), (65, 64), (130, 128), (5000, 64)] {
            let max_pages = 20;
            let mut pages = Pages::new(&config(2, 3, Some(window)), max_pages, chunk);
            let mut table = vec![u32::MAX; pages.table_words()];
            let mut turn = 0;
            while pages.n_tokens() < max_pages * PAGE {
                turn += 1;
                let n = (1 + turn * 7 % chunk).min(max_pages * PAGE - pages.n_tokens());
                for (at, words) in pages.reserve(n).unwrap() {
                    table[at..at + words.len()].copy_from_slice(&words);
                }
                // What this replay reads: the window of its first token, λ of the token before it, its own tokens.
                let pos = pages.n_tokens();
                let first_key = (pos + 1).saturating_sub(window).min(pos.saturating_sub(1));
                let step = pages.step(n);
                assert_eq!(step.first_page as usize, (pos + 1).saturating_sub(window) / PAGE);
                let columns = first_key / PAGE..(pos + n).div_ceil(PAGE);
                let mut ids: Vec<u32> =
                    columns.flat_map(|column| (0..3).map(move |head| column * 6 + head)).map(|ix| table[ix]).collect();
                assert!(ids.iter().all(|id| (*id as usize) < pages.per_layer()));
                let n_ids = ids.len();
                ids.sort_unstable();
                ids.dedup();
                assert_eq!(ids.len(), n_ids, "window {window}, chunk {chunk}: a page is used twice at {pos}");
                pages.advance(n);
            }
            let held = (window + chunk) / PAGE + 2;
            assert!(pages.per_layer() <= 3 * held.min(max_pages), "window {window}, chunk {chunk}: {}", pages.per_layer());
        }
    }
}
