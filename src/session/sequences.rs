//! Several sequences over one model. The model holds one at a time; the others wait as saved bytes ([`Model::save`]). So a turn of
//! another costs a copy of the keys and values that are live in the one that leaves, and one of those of the one that comes; turns of
//! the same cost nothing. A mark waits in the same way: pages that it pins on the device while its sequence has its turn are saved, too.
//!
//! A sequence is the list of its ids. The model holds the first of them, all but the last at most: the logits after an id come from reading
//! it. What the model has read beyond (a longer answer, tokens that were taken back) is taken back when its turn comes.

use super::Model;
use super::generate::{GenerateOptions, Generation, check_ids};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// The sequences of one model, by number.
#[derive(Default)]
pub struct Sequences {
    all: BTreeMap<u32, Sequence>,
    /// Whose turn it is: the one that the model holds.
    current: Option<u32>,
    n_opened: u32,
}

#[derive(Default)]
struct Sequence {
    ids: Vec<u32>,
    /// What the model had read of it, while another has its turn; nothing if that is nothing.
    away: Option<Vec<u8>>,
    /// Its marks: by their ids, the model's position.
    marks: BTreeMap<usize, usize>,
    /// By position, what the model kept for a mark before another had its turn.
    kept: BTreeMap<usize, Vec<u8>>,
}

impl Sequence {
    /// Takes back what the model has read beyond the ids: to the copy kept for a mark where that saves reading.
    async fn align(&self, model: &mut Model) -> Result<()> {
        let common = model.history().iter().zip(&self.ids).take_while(|(a, b)| a == b).count();
        if common == model.pos() {
            return Ok(());
        }
        match self.kept.range(..=common).next_back() {
            // The ids from there on are still to be read.
            Some((position, bytes)) if *position > model.way_back(common) => model.restore(bytes).await.map(drop),
            _ => model.rewind_to(common).await,
        }
    }

    /// Saves what the model keeps for the marks, the last first: on the way back to one those behind it end. What there is no memory for is
    /// not kept: the way back to that mark is read anew.
    async fn keep_marks(&mut self, model: &mut Model) -> Result<()> {
        let positions: BTreeSet<usize> = self.marks.values().copied().collect();
        for position in positions.into_iter().rev() {
            if model.has_mark(position) && !self.kept.contains_key(&position) {
                let saved = match model.rewind_to(position).await {
                    Ok(()) => model.save(&[]).await,
                    Err(error) => Err(error),
                };
                match saved {
                    Ok(bytes) => drop(self.kept.insert(position, bytes)),
                    Err(Error::OutOfMemory { .. }) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

impl Sequences {
    /// A new one, empty: its number.
    pub fn open(&mut self) -> u32 {
        self.hold(Sequence::default())
    }

    fn hold(&mut self, sequence: Sequence) -> u32 {
        self.n_opened += 1;
        self.all.insert(self.n_opened, sequence);
        self.n_opened
    }

    /// Ends one.
    pub fn close(&mut self, number: u32) {
        self.all.remove(&number);
        self.current = self.current.filter(|current| *current != number);
    }

    /// Its ids, read or not.
    ///
    /// # Errors
    /// [`Error::Argument`] when there is no such sequence.
    pub fn ids(&self, number: u32) -> Result<&[u32]> {
        self.all.get(&number).map(|sequence| &sequence.ids[..]).ok_or_else(|| unknown(number))
    }

    fn get(&mut self, number: u32) -> Result<&mut Sequence> {
        self.all.get_mut(&number).ok_or_else(|| unknown(number))
    }

    /// Bytes of those that are away, and of what is kept for marks.
    pub fn bytes_away(&self) -> usize {
        let of = |sequence: &Sequence| {
            sequence.away.as_ref().map_or(0, Vec::len) + sequence.kept.values().map(Vec::len).sum::<usize>()
        };
        self.all.values().map(of).sum()
    }

    /// Makes the model free for something else: the sequence that it holds is saved, and what is kept for its marks.
    ///
    /// # Errors
    /// Those of [`Model::save`]: it keeps its turn then.
    pub async fn leave(&mut self, model: &mut Model) -> Result<()> {
        let Some(number) = self.current else { return Ok(()) };
        let bytes = self.bytes_of_current(model).await?;
        let sequence = self.get(number)?;
        sequence.keep_marks(model).await?;
        sequence.away = bytes;
        self.current = None;
        Ok(())
    }

    async fn bytes_of_current(&mut self, model: &mut Model) -> Result<Option<Vec<u8>>> {
        let Some(number) = self.current else { return Ok(None) };
        let sequence = self.get(number)?;
        sequence.align(model).await?;
        let pending = &sequence.ids[model.pos()..];
        Ok(if model.pos() == 0 { None } else { Some(model.save(pending).await?) })
    }

    /// Gives one its turn: the model holds what it has read of it.
    ///
    /// # Errors
    /// Those of [`Model::save`] and [`Model::restore`]; [`Error::Argument`] when there is no such sequence.
    pub async fn enter(&mut self, model: &mut Model, number: u32) -> Result<()> {
        self.ids(number)?;
        if self.current != Some(number) {
            self.leave(model).await?;
            match &self.get(number)?.away {
                Some(bytes) => drop(model.restore(bytes).await?),
                None => model.reset(),
            }
            self.get(number)?.away = None;
            self.current = Some(number);
        }
        let sequence = self.get(number)?;
        sequence.align(model).await?;
        // Of marks that went with what was taken back.
        for position in
            model.marked().filter(|marked| !sequence.marks.values().any(|position| position == marked)).collect::<Vec<_>>()
        {
            model.release(position);
        }
        Ok(())
    }

    /// Puts ids behind one; [`Sequences::read`] reads them.
    ///
    /// # Errors
    /// [`Error::Argument`] for an id outside the vocabulary, [`Error::ContextFull`]: the sequence is as before then.
    pub fn append(&mut self, model: &Model, number: u32, ids: &[u32]) -> Result<()> {
        check_ids("ids", ids, model.vocab())?;
        let sequence = self.get(number)?;
        let needed = sequence.ids.len() + ids.len();
        if needed > model.positions() {
            return Err(Error::ContextFull { needed, available: model.positions() });
        }
        sequence.ids.extend(ids);
        Ok(())
    }

    /// Reads a chunk of what is not read yet, all but the last id. Returns how many ids are read (or need not be), and how many there are.
    ///
    /// # Errors
    /// Those of the model.
    pub async fn read(&mut self, model: &mut Model, number: u32) -> Result<(usize, usize)> {
        self.enter(model, number).await?;
        let ids = self.ids(number)?;
        let (pos, end) = (model.pos(), ids.len().saturating_sub(1));
        if pos < end {
            let n = model.next_chunk(end - pos).await?;
            model.prefill(&ids[pos..pos + n], false).await?;
        }
        let done = if model.pos() >= end { ids.len() } else { model.pos() };
        Ok((done, ids.len()))
    }

    /// Goes back to the first `n` ids; marks behind them end.
    ///
    /// # Errors
    /// [`Error::Argument`] when there are fewer.
    pub fn rewind(&mut self, number: u32, n: usize) -> Result<()> {
        let Sequence { ids, marks, kept, .. } = self.get(number)?;
        if n > ids.len() {
            return Err(Error::argument("mark", format!("at most {}, the tokens there are", ids.len()), n));
        }
        ids.truncate(n);
        marks.retain(|len, _| *len <= n);
        kept.retain(|position, _| marks.values().any(|other| other == position));
        Ok(())
    }

    /// Keeps what makes the way back to here short: on the device while the sequence has its turn ([`Model::mark`]), as saved bytes while
    /// another has. Its length.
    ///
    /// # Errors
    /// Those of the model.
    pub async fn mark(&mut self, model: &mut Model, number: u32) -> Result<usize> {
        self.enter(model, number).await?;
        let held = model.has_mark(model.pos());
        let position = model.mark().await?;
        let Sequence { ids, marks, kept, .. } = self.get(number)?;
        if !held && !kept.contains_key(&position) {
            // Those that were here went with the text that was here.
            marks.retain(|_, other| *other != position);
        }
        marks.insert(ids.len(), position);
        Ok(ids.len())
    }

    /// Gives up the mark of so many ids, if there is one: pages that only it holds are free ([`Model::release`]).
    ///
    /// # Errors
    /// [`Error::Argument`] when there is no such sequence.
    pub fn unmark(&mut self, model: &mut Model, number: u32, n: usize) -> Result<()> {
        let has_turn = self.current == Some(number);
        let Sequence { marks, kept, .. } = self.get(number)?;
        // The last id may be read or not: two lengths can be one position.
        if let Some(position) = marks.remove(&n).filter(|position| !marks.values().any(|other| other == position)) {
            kept.remove(&position);
            if has_turn {
                model.release(position);
            }
        }
        Ok(())
    }

    /// Another that begins as this one is: its number.
    ///
    /// # Errors
    /// Those of [`Model::save`].
    pub async fn fork(&mut self, model: &mut Model, number: u32) -> Result<u32> {
        self.ids(number)?;
        let away =
            if self.current == Some(number) { self.bytes_of_current(model).await? } else { self.get(number)?.away.clone() };
        let ids = self.ids(number)?.to_vec();
        Ok(self.hold(Sequence { ids, away, ..Sequence::default() }))
    }

    /// One as bytes, for [`Sequences::restore`] here or elsewhere.
    ///
    /// # Errors
    /// Those of [`Model::save`] and [`Model::restore`].
    pub async fn save(&mut self, model: &mut Model, number: u32) -> Result<Vec<u8>> {
        self.enter(model, number).await?;
        let pending = self.ids(number)?[model.pos()..].to_vec();
        model.save(&pending).await
    }

    /// Puts saved bytes in the place of one.
    ///
    /// # Errors
    /// Those of [`Model::restore`]: the sequence is as before then.
    pub async fn restore(&mut self, model: &mut Model, number: u32, bytes: &[u8]) -> Result<()> {
        self.ids(number)?;
        if self.current != Some(number) {
            self.leave(model).await?;
        }
        let pending = model.restore(bytes).await?;
        let ids = [model.history(), &pending].concat();
        *self.get(number)? = Sequence { ids, ..Sequence::default() };
        self.current = Some(number);
        Ok(())
    }

    /// Begins an answer to one; what it generates is put behind by [`Sequences::append`].
    ///
    /// # Errors
    /// As [`Generation::behind`], and those of the model.
    pub async fn generate(&mut self, model: &mut Model, number: u32, options: GenerateOptions) -> Result<Generation> {
        self.enter(model, number).await?;
        let ids = self.ids(number)?.to_vec();
        if !ids.is_empty() && model.pos() == ids.len() {
            model.rewind_to(ids.len() - 1).await?;
        }
        Generation::behind(model, ids, options)
    }
}

fn unknown(number: u32) -> Error {
    Error::argument("session", "one that is not disposed", number)
}
