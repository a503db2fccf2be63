//! What a model remembers between tokens, seen from the host: the page table of the KV cache and the shift rows in use.
//!
//! Keys, values and λ live in pages of [`PAGE`] tokens per layer and key head, each in its layer's pool. All heads need a new page
//! at the same moment, every [`PAGE`] tokens, so one small write of a table column serves them all.
//!
//! With a sliding window, a page that no later query sees is free at once: the pool holds the pages of a window and a chunk, and
//! columns take their turns in it.

use super::Config;
use crate::graph::Step;
use crate::kernel::attention::{MAX_SPLITS, PAGE, SHIFT_SLOTS};

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
        Self { n_layers, n_kv_heads, max_pages, window, n_held, n_columns: 0, n_tokens: 0, shift_slot: 0, n_single: 0 }
    }

    /// Pages of a head in the page table.
    pub fn max_pages(&self) -> usize {
        self.max_pages
    }

    /// Pages in each layer's pool: every head can fill the context, or its window.
    pub fn per_layer(&self) -> usize {
        self.n_kv_heads * self.n_held
    }

    /// Words of the page table `[max_pages, n_layers, n_kv_heads]`.
    pub fn table_words(&self) -> usize {
        self.max_pages * self.n_layers * self.n_kv_heads
    }

    /// Tokens held.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Forgets everything. (The pools keep their bytes; nothing reads past the tokens held.)
    pub fn reset(&mut self) {
        (self.n_columns, self.n_tokens, self.shift_slot, self.n_single) = (0, 0, 0, 0);
    }

    /// Pages for `n` more tokens: the table's new words and where they go, or `None` when no page is new.
    pub fn reserve(&mut self, n: usize) -> Option<(usize, Vec<u32>)> {
        let columns = (self.n_tokens + n).div_ceil(PAGE);
        assert!(columns <= self.max_pages, "the caller checks the context before it reserves");
        if columns <= self.n_columns {
            return None;
        }
        let first = self.n_columns;
        self.n_columns = columns;
        // Layer by layer, head by head: the same ids in every layer, each layer's pool being its own.
        let (heads, column) = (self.n_kv_heads, self.n_layers * self.n_kv_heads);
        let ids = (first * column..columns * column).map(|ix| (ix / column % self.n_held * heads + ix % heads) as u32);
        Some((first * column, ids.collect()))
    }

    /// The step that appends `n` tokens to those held.
    pub fn step(&self, n: usize) -> Step {
        let first_page = (self.n_tokens + 1).saturating_sub(self.window.unwrap_or(usize::MAX)) / PAGE;
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

    /// Goes back by the last `n` tokens, which came one at a time: the sequence is as it was before them. Keys, values and λ of
    /// later tokens are overwritten when new ones come, and the shift rows before are still there.
    ///
    /// # Panics
    /// When `n` is over [`MAX_REWIND`], or not all of them came one at a time since the start or the last chunk.
    pub fn rewind(&mut self, n: usize) {
        assert!(n <= self.n_single, "{} tokens came one at a time, {n} are to be taken back", self.n_single);
        self.n_tokens -= n;
        self.n_single -= n;
        self.shift_slot = (self.shift_slot + SHIFT_SLOTS - n) % SHIFT_SLOTS;
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
            if let Some((at, words)) = pages.reserve(n) {
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
                if let Some((at, words)) = pages.reserve(n) {
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
