//! What the host learns of dead pages, and going back.
//!
//! The device keeps the first live page of every key head. Once a page of tokens a copy of that array is asked for, and taken when a
//! page's worth of tokens later it is long there: nothing waits. Pages that it says are dead are handed out again ([`Pages`]).

use super::Device;
use super::Model;
use super::draw::Draws;
use super::recover::{By, Log};
use crate::error::{Error, Result};
use crate::gpu::PendingRead;
use crate::kernel::attention::{Kv, PAGE};
use crate::model::{Config, Pages};
use std::collections::VecDeque;

/// When pages of keys die.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Pruning {
    /// As the model was trained: by its `log_pruning_tolerance`, if it has one and its scores have a bound.
    #[default]
    Model,
    /// Never.
    Off,
    /// When they and all keys before them weigh less than this part ε of a row's attention, 0 < ε < 1.
    Epsilon(f64),
}

/// Bytes of the keys, values and λ of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvBytes {
    /// Of pages that later tokens may look at.
    pub live: u64,
    /// Of pages that were given up: their keys are forgotten for good, slid away or out of the window, and no mark holds them.
    pub freed: u64,
}

/// Copies of the first live pages that are under way, by the tokens after which they were made, and those already asked for.
#[derive(Default)]
pub(super) struct Sightings {
    under_way: VecDeque<(usize, PendingRead)>,
    /// Pages of tokens that were there when the last copy was made.
    n_pages: usize,
}

/// A place that the sequence can go back to.
pub(super) struct Mark {
    pub position: usize,
    /// By layer: the shift rows of the token before.
    shift: Vec<Vec<u32>>,
    /// The first live pages then, where pages die.
    live: Vec<u32>,
}

impl Model {
    /// ln ε, below which the keys of dead pages stay together in every row; `None` where no page dies.
    pub fn log_pruning_tolerance(&self) -> Option<f64> {
        self.pruning
    }

    /// Why pages do not die although the model states a `log_pruning_tolerance`.
    pub fn pruning_note(&self) -> Option<&str> {
        self.pruning_note.as_deref()
    }

    /// U ≥ |q·k|/√h by layer and head, [L, H], where q and k are normed.
    pub fn score_bounds(&self) -> Option<&[f64]> {
        self.score_bounds.as_deref()
    }

    /// Pages (of 64 keys, a layer and key head each) that later tokens may look at.
    ///
    /// # Errors
    /// What the device reports.
    pub async fn live_pages(&mut self) -> Result<usize> {
        self.lasting(async |model| model.try_live_pages().await).await
    }

    async fn try_live_pages(&mut self) -> Result<usize> {
        let n = self.pages.n_tokens();
        if !self.pages.evicts() || n == 0 {
            return Ok(self.pages.live_and_freed()[0]);
        }
        let (at, words) = self.pages.live_at();
        let live = self.device.read_words(self.network.page_table(), at, words).await?;
        Ok(live.into_iter().map(|first| n.div_ceil(PAGE) - first as usize).sum())
    }

    /// The first live pages `[L, kv heads]` as of the last token, those that slid away counted as dead; zeros where no page dies.
    pub(super) async fn first_live(&mut self) -> Result<Vec<u32>> {
        let (at, words) = self.pages.live_at();
        if !self.pages.evicts() || self.pages.n_tokens() == 0 {
            return Ok(vec![0; words]);
        }
        let live = self.device.read_words(self.network.page_table(), at, words).await?;
        Ok(live.into_iter().zip(self.pages.taken()).map(|(live, taken)| live.max(*taken)).collect())
    }

    /// A sequence of `n_tokens` from elsewhere has taken the place of the one before: nothing that was seen is of it.
    pub(super) fn begin_at(&mut self, n_tokens: usize) {
        let seen = std::mem::take(&mut self.sightings);
        if let Device::Gpu(gpu) = &self.device {
            seen.under_way.into_iter().for_each(|(_, read)| gpu.abandon_read(read));
        }
        self.sightings.n_pages = n_tokens / PAGE;
        self.marks.clear();
        self.history.clear();
        self.log = Log::default();
        self.sequence += 1;
    }

    /// Live pages as a part of those that the tokens held fill (of a sliding window's, with one); 1 of none.
    ///
    /// # Errors
    /// What the device reports.
    pub async fn live_kv_fraction(&mut self) -> Result<f64> {
        let live = self.live_pages().await?;
        let filled = self.pages.n_tokens().div_ceil(PAGE) * self.config.n_layers * self.config.n_kv_heads;
        Ok(if !self.pages.evicts() || filled == 0 { 1.0 } else { live as f64 / filled as f64 })
    }

    /// Bytes of the pages that later tokens may look at.
    ///
    /// # Errors
    /// What the device reports.
    pub async fn kv_bytes_live(&mut self) -> Result<u64> {
        Ok(self.live_pages().await? as u64 * page_bytes(&self.config, self.network.kv_f16()))
    }

    /// What is known of the pages' bytes without asking the device: on a GPU as of some tokens ago, so that what is live is never more than
    /// is told.
    pub fn kv_bytes_known(&self) -> KvBytes {
        let [live, freed] = self.pages.live_and_freed();
        let of_page = page_bytes(&self.config, self.network.kv_f16());
        KvBytes { live: live as u64 * of_page, freed: freed as u64 * of_page }
    }

    /// Bytes of all pages, live or free.
    pub fn kv_bytes_pool(&self) -> u64 {
        pool_bytes(&self.config, &self.pages, self.network.kv_f16())
    }

    /// Gives the next `n` tokens their pages.
    pub(super) fn reserve(&mut self, n: usize) -> Result<()> {
        self.let_go_again(self.pages.n_tokens());
        let columns = self.pages.n_columns();
        let writes = self.pages.reserve(n).map_err(|short| Error::PagesFull {
            tokens: self.pages.n_tokens() + n,
            needed: short.needed,
            free: short.free,
            held: self.pages.per_layer(),
            context: self.context,
        })?;
        for (at, words) in writes {
            self.device.write(self.network.page_table(), at, &words);
        }
        if self.pages.n_columns() > columns {
            self.note_let_go();
        }
        Ok(())
    }

    /// Writes down which pages the sequence is done with, for the time when it is read anew: which slide away next depends on that, and on
    /// what was computed and taken back.
    fn note_let_go(&mut self) {
        if let (Some(now), true) = (self.pages.let_go(), self.origin.is_some()) {
            self.log.note_let_go(self.pages.n_tokens(), now);
        }
    }

    /// Is done with what the sequence that is read anew was done with at `n_tokens`.
    pub(super) fn let_go_again(&mut self, n_tokens: usize) {
        while let Some(then) = self.log.next_let_go(n_tokens) {
            self.pages.let_go_again(then);
        }
    }

    /// Counts `n` tokens as held, and once a page of tokens asks which pages are live.
    pub(super) fn advance(&mut self, n: usize, by: By) -> Result<()> {
        self.pages.advance(n);
        self.log.add(by, n);
        let n_tokens = self.pages.n_tokens();
        if !self.pages.evicts() || n_tokens / PAGE <= self.sightings.n_pages {
            return Ok(());
        }
        self.sightings.n_pages = n_tokens / PAGE;
        let (at, words) = self.pages.live_at();
        let table = self.network.page_table();
        match &self.device {
            Device::Gpu(gpu) => self.sightings.under_way.push_back((n_tokens, gpu.begin_read(table, at, words))),
            Device::Cpu(cpu) => self.pages.saw(n_tokens, cpu.read(table)[at..at + words].to_vec()),
        }
        Ok(())
    }

    /// Asks for as many copies as may be under way at once, so that their buffers are there from now on.
    pub(super) async fn rehearse_looks(&self) -> Result<()> {
        let Device::Gpu(gpu) = &self.device else { return Ok(()) };
        if !self.pages.evicts() {
            return Ok(());
        }
        let (at, words) = self.pages.live_at();
        // One more than fall due later, and one for the buffer that the batch which was read has left.
        let most = Self::look_delay(self.max_chunk()).div_ceil(PAGE) + 2;
        let reads = (0..most).map(|_| gpu.start_read(self.network.page_table(), at, words)).collect::<Result<Vec<_>>>()?;
        for read in reads {
            gpu.finish_read(read).await?;
        }
        Ok(())
    }

    /// Tokens after which a copy is surely there, with replays of so many.
    fn look_delay(chunk: usize) -> usize {
        2 * PAGE.max(chunk)
    }

    /// Takes the copies that came meanwhile; when pages for `n` more tokens are missing, waits for those under way.
    pub(super) async fn look(&mut self, n: usize) -> Result<()> {
        while let Some((n_tokens, _)) = self.sightings.under_way.front() {
            let due = n_tokens + Self::look_delay(self.chunk()) <= self.pages.n_tokens() || self.pages.is_short(n);
            let (true, Device::Gpu(gpu)) = (due, &self.device) else { break };
            let Some((n_tokens, read)) = self.sightings.under_way.pop_front() else { break };
            let live = gpu.finish_read(read).await?;
            self.pages.saw(n_tokens, live);
        }
        Ok(())
    }

    /// Gives up what was seen of tokens that are taken back.
    pub(super) fn unsee(&mut self) {
        let n_tokens = self.pages.n_tokens();
        self.sightings.n_pages = self.sightings.n_pages.min(n_tokens / PAGE);
        while self.sightings.under_way.back().is_some_and(|(seen, _)| *seen > n_tokens) {
            if let (Some((_, read)), Device::Gpu(gpu)) = (self.sightings.under_way.pop_back(), &self.device) {
                gpu.abandon_read(read);
            }
        }
        self.marks.retain(|mark| mark.position <= n_tokens);
        self.history.truncate(n_tokens);
        // What slid away before tokens that are taken back is gone all the same.
        if n_tokens > 0 {
            self.let_go_again(usize::MAX);
        }
        self.log.shorten(n_tokens);
        if n_tokens > 0 {
            self.note_let_go();
        }
    }

    /// Keeps what is needed to come back to this position, which it gives: until [`Model::release`], a reset, or a way back beyond
    /// it, no page that is live now is given away.
    ///
    /// # Errors
    /// What the device reports.
    pub async fn mark(&mut self) -> Result<usize> {
        self.lasting(async |model| model.try_mark().await).await
    }

    pub(super) async fn try_mark(&mut self) -> Result<usize> {
        self.end_draws();
        let position = self.pages.n_tokens();
        // Windows take turns in their pages, whatever is marked: there the way back is by the ids.
        if self.has_mark(position) || position == 0 || self.config.window.is_some() {
            return Ok(position);
        }
        let words = 2 * self.config.kv_width();
        let mut shift = Vec::new();
        for rows in self.network.shift_rows() {
            shift.push(self.device.read_words(rows, self.pages.shift_slot() * words, words).await?);
        }
        let mut live = Vec::new();
        if self.pages.evicts() {
            let (at, words) = self.pages.live_at();
            live = self.device.read_words(self.network.page_table(), at, words).await?;
        }
        self.pages.mark(&live);
        self.marks.push(Mark { position, shift, live });
        Ok(position)
    }

    /// Whether there is a mark of a position.
    pub(super) fn has_mark(&self, position: usize) -> bool {
        self.marks.iter().any(|mark| mark.position == position)
    }

    /// The positions that have a mark.
    pub(super) fn marked(&self) -> impl Iterator<Item = usize> + use<'_> {
        self.marks.iter().map(|mark| mark.position)
    }

    /// Where reading would begin on the way back to a position: there, if nothing need be read.
    pub(super) fn way_back(&self, position: usize) -> usize {
        let near = self.pages.n_tokens() - position <= self.pages.rewindable();
        if near { position } else { last_mark(&self.marks, position).map_or(0, |mark| mark.position) }
    }

    /// Gives up the mark of a position.
    pub fn release(&mut self, position: usize) {
        self.marks.retain(|mark| mark.position != position);
        self.pages.release(position);
    }

    /// Goes back to the first `position` tokens of the sequence. That costs next to nothing where a mark is, and within the last few
    /// tokens that came one at a time; elsewhere the ids behind the nearest mark (or the start) are read anew.
    ///
    /// # Errors
    /// [`Error::Argument`] for a position beyond the sequence; those of [`Model::prefill`].
    pub async fn rewind_to(&mut self, position: usize) -> Result<()> {
        self.end_draws();
        let n_tokens = self.pages.n_tokens();
        if position > n_tokens {
            return Err(Error::argument("position", format!("at most {n_tokens}, the tokens there are"), position));
        }
        if n_tokens - position <= self.pages.rewindable() {
            self.pages.rewind(n_tokens - position);
            self.unsee();
            return Ok(());
        }
        let again = self.history[..position].to_vec();
        let start = match last_mark(&self.marks, position) {
            Some(mark) => {
                self.pages.return_to(mark.position);
                let words = 2 * self.config.kv_width();
                for (rows, shift) in self.network.shift_rows().zip(&mark.shift) {
                    self.device.write(rows, self.pages.shift_slot() * words, shift);
                }
                if self.pages.evicts() {
                    self.device.write(self.network.page_table(), self.pages.live_at().0, &mark.live);
                }
                mark.position
            }
            None => {
                self.pages.reset();
                0
            }
        };
        self.unsee();
        self.read(&again[start..]).await
    }

    /// Tokens that the sequence can have at most: more than [`Model::context`] where pages die, as long as live pages fit.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Takes back what was computed beyond the caller's position.
    pub(super) fn end_draws(&mut self) {
        let Some(draws) = self.draws.take() else { return };
        let position = draws.pos();
        if let Device::Gpu(gpu) = &self.device {
            Draws::batches(draws).for_each(|read| gpu.abandon_read(read));
        }
        self.pages.rewind(self.pages.n_tokens() - position);
        self.unsee();
    }
}

fn last_mark(marks: &[Mark], position: usize) -> Option<&Mark> {
    marks.iter().rev().find(|mark| mark.position <= position)
}

/// Bytes of all pages of all layers.
pub(super) fn pool_bytes(config: &Config, pages: &Pages, kv_f16: bool) -> u64 {
    (config.n_layers * pages.per_layer()) as u64 * page_bytes(config, kv_f16)
}

/// Keys, values and λ of a page.
fn page_bytes(config: &Config, kv_f16: bool) -> u64 {
    let Config { head_dim, n_heads, n_kv_heads, .. } = *config;
    4 * (PAGE * (2 * Kv::row_words(head_dim, kv_f16) + 2 * (n_heads / n_kv_heads))) as u64
}
