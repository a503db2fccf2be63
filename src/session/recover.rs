//! What happens when the device is lost: it is opened again, the weights are read again from where they came from, and the tokens of the
//! sequence once more, so that the call goes on as if nothing had been.
//!
//! The continuation is the same because everything is done in the same way again: the same adapter with the same kernels, the tokens in
//! the replays in which they came (a chunk of a prompt rounds otherwise than its tokens one by one), a sequence that came as bytes from
//! those bytes. Drawing has no state but the position. What the device had drawn last is drawn once more, and compared.
//!
//! Reading anew where pages die finds the same pages dead, as that depends on the tokens alone. Which pages slide away with `--overflow slide`
//! depends on more: on what was computed ahead and taken back, and how far the way back was open. So it is written down, position by position
//! (eight bytes a key head for each page of tokens), and what slid is let go of where it was; what comes out otherwise all the same is
//! [`Error::DeviceLost`] until the caller begins a sequence.
//!
//! On the CPU nothing is lost, and nothing is kept for it. A source of bytes stays in memory, as it was the caller's to choose.
//!
//! A layer ([`super::layer`]) has no sequence and no file: its weights are kept on the host.

use super::device::{Device, DeviceChoice, Opened, gone};
use super::draw::Draws;
use super::load::weights::Origin;
use super::model::Model;
use super::pages::{Mark, Sightings};
use crate::error::{Error, Result};
use crate::graph::Step;
use crate::model::Pages;
use crate::model::evict::LetGo;
use std::rc::Rc;

/// Times that a call, or a load, tries to come back.
pub(super) const TRIES: usize = 2;

/// Replays between two waits, so that they do not pile up.
const REPLAYS: usize = 32;

/// What can be brought back when its device was lost.
pub(super) trait Recover {
    /// Opens the device again, with all that was on it.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] where that cannot be, what the source reports, and what the new device does. The device counts as lost then.
    async fn recover(&mut self, why: String) -> Result<()>;
}

/// Does some work, and once more when the device was lost meanwhile and is back. The work must leave things as they were when it fails.
pub(super) async fn lasting<S: Recover, T>(subject: &mut S, mut work: impl AsyncFnMut(&mut S) -> Result<T>) -> Result<T> {
    let mut outcome = work(subject).await;
    for _ in 0..TRIES {
        let Err(Error::DeviceLost(why)) = outcome else { return outcome };
        outcome = match subject.recover(why).await {
            Ok(()) => work(subject).await,
            Err(error) => Err(error),
        };
    }
    outcome
}

/// The graph by which tokens were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Prefill,
    Score,
    Decode,
}

/// How the tokens held were read: where that began, and the replays since, equal ones counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    /// A saved sequence, and its tokens.
    base: Option<(Rc<[u8]>, usize)>,
    /// By which graph, tokens of a replay, and how many such replays.
    replays: Vec<(By, usize, usize)>,
    /// What the sequence was done with at some tokens, where pages slide; in a sequence that is read anew the first `n_again` are done with
    /// by now.
    let_go: Vec<(usize, LetGo)>,
    n_again: usize,
}

impl Log {
    /// A sequence of `n_tokens` that came as bytes.
    pub fn of_bytes(bytes: Rc<[u8]>, n_tokens: usize) -> Self {
        Self { base: Some((bytes, n_tokens)), ..Self::default() }
    }

    /// What a sequence of `n_tokens` is done with now.
    pub fn note_let_go(&mut self, n_tokens: usize, now: LetGo) {
        let last = self.n_again.checked_sub(1).map(|ix| &self.let_go[ix].1);
        if last.map_or(now.is_nothing(), |last| *last == now) {
            return;
        }
        self.let_go.insert(self.n_again, (n_tokens, now));
        self.n_again += 1;
    }

    /// What a sequence that is read anew was done with next, at `n_tokens` or before.
    pub fn next_let_go(&mut self, n_tokens: usize) -> Option<&LetGo> {
        let (_, then) = self.let_go.get(self.n_again).filter(|(at, _)| *at <= n_tokens)?;
        self.n_again += 1;
        Some(then)
    }

    /// The same sequence with nothing of it read yet.
    fn anew(&self) -> Self {
        Self { base: self.base.clone(), replays: Vec::new(), let_go: self.let_go.clone(), n_again: 0 }
    }

    /// One more replay.
    pub fn add(&mut self, by: By, n: usize) {
        match self.replays.last_mut() {
            Some((last, of, times)) if (*last, *of) == (by, n) => *times += 1,
            _ => self.replays.push((by, n, 1)),
        }
    }

    /// The sequence has `n_tokens` again, as it had between two replays.
    pub fn shorten(&mut self, n_tokens: usize) {
        self.let_go.retain(|(at, _)| *at <= n_tokens && n_tokens > 0);
        self.n_again = self.let_go.len();
        self.drop_replays(n_tokens);
    }

    /// The same, but what it is done with is to be done with again.
    fn drop_replays(&mut self, n_tokens: usize) {
        let mut surplus = self.n_tokens().saturating_sub(n_tokens);
        while let (Some((_, n, times)), true) = (self.replays.last_mut(), surplus > 0) {
            surplus = surplus.saturating_sub(*n);
            *times -= 1;
            if *times == 0 {
                self.replays.pop();
            }
        }
        if surplus > 0 {
            self.base = None;
        }
    }

    /// Tokens in all.
    fn n_tokens(&self) -> usize {
        let began = self.base.as_ref().map_or(0, |(_, n)| *n);
        began + self.replays.iter().map(|(_, n, times)| n * times).sum::<usize>()
    }

    /// Replay by replay.
    fn replays(&self) -> impl Iterator<Item = (By, usize)> {
        self.replays.iter().flat_map(|(by, n, times)| std::iter::repeat_n((*by, *n), *times))
    }
}

/// A sequence as the host knows it.
struct Held {
    pages: Pages,
    history: Vec<u32>,
    log: Log,
    marks: Vec<Mark>,
    draws: Option<Draws>,
    sequence: u64,
}

impl Model {
    /// How often the device was lost and everything brought back since the load.
    pub fn recoveries(&self) -> u64 {
        self.recoveries
    }

    /// Does some work with the model, and once more when the device was lost meanwhile and is back: [`lasting`]. Every call of the model
    /// passes here.
    pub(super) async fn lasting<T>(&mut self, work: impl AsyncFnMut(&mut Self) -> Result<T>) -> Result<T> {
        lasting(self, work).await
    }
}

impl Recover for Model {
    /// Brings device, weights and sequence back. Where that fails the sequence is known as before.
    async fn recover(&mut self, why: String) -> Result<()> {
        let Some(mut origin) = self.origin.take() else { return Err(Error::DeviceLost(why)) };
        let device = self.device_again(&mut origin, &why).await;
        self.origin = Some(origin);
        // What was under way is of the old device.
        (self.sightings, self.device) = (Sightings::default(), device?);
        self.chunks.forget();
        let draws = self.draws.take().map(Draws::interrupted);
        let n_tokens = draws.as_ref().map_or(self.pages.n_tokens(), Draws::pos);
        let held = Held {
            pages: self.pages.clone(),
            history: self.history.clone(),
            log: self.log.clone(),
            marks: std::mem::take(&mut self.marks),
            draws,
            sequence: self.sequence,
        };
        let again = self.read_again(&held, n_tokens).await.map_err(|error| match error {
            // It had room for these tokens.
            Error::PagesFull { .. } => gone(&why, error),
            error => error,
        });
        self.sequence = held.sequence;
        if let Err(error) = again {
            // The next call finds it lost, and tries again.
            if let Device::Gpu(gpu) = &self.device {
                gpu.gpu().destroy();
            }
            let Held { pages, history, log, marks, draws, .. } = held;
            (self.pages, self.history, self.log, self.marks, self.draws) = (pages, history, log, marks, draws);
            self.sightings = Sightings::default();
            return Err(error);
        }
        (self.history, self.draws) = (held.history, held.draws);
        self.recoveries += 1;
        self.device.note_recovery(self.recoveries, &why);
        Ok(())
    }
}

impl Model {
    /// The same device with the same program and weights.
    async fn device_again(&self, origin: &mut Origin, why: &str) -> Result<Device> {
        let mut device = self.device.again(origin.options.device, origin.options.baseline, why).await?;
        if let Err(error) = origin.reopen().await {
            return Err(gone(why, error));
        }
        let filled = origin.fill(&self.network, &self.program, &self.config, &mut device, &mut |_| Ok(())).await;
        let filled = filled.map_err(|error| if matches!(error, Error::Io { .. }) { gone(why, error) } else { error })?;
        if filled.fingerprint != self.fingerprint {
            let expected = format!("the model that was loaded, {:#018x}", self.fingerprint);
            return Err(Error::format(
                &self.file,
                "weights, read again after the device was lost",
                expected,
                format!("{:#018x}", filled.fingerprint),
            ));
        }
        Ok(device)
    }

    /// Reads the first `n_tokens` of a sequence as they were read, with its marks, and draws again what was drawn last.
    async fn read_again(&mut self, held: &Held, n_tokens: usize) -> Result<()> {
        let Held { history, marks, .. } = held;
        let mut log = held.log.clone();
        log.drop_replays(n_tokens);
        self.pages.reset();
        self.history.clear();
        if let Some((bytes, _)) = &log.base {
            self.try_restore(bytes).await?;
        }
        self.log = log.anew();
        let logits = held.draws.is_some();
        for (ix, (by, n)) in log.replays().enumerate() {
            let position = self.pages.n_tokens();
            // Before the marks: nothing slides while there is one.
            self.let_go_again(position);
            if marks.iter().any(|mark| mark.position == position) {
                self.try_mark().await?;
            }
            self.look(n).await?;
            let graph = match by {
                By::Prefill => self.graphs.prefill,
                By::Score => self.graphs.score.unwrap_or(self.graphs.prefill),
                By::Decode => self.graphs.decode,
            };
            self.replay(graph, &history[position..position + n], logits && position + n == n_tokens)?;
            self.hold(&history[position..position + n], by)?;
            if ix % REPLAYS == REPLAYS - 1 {
                self.device.flush().await?;
            }
        }
        self.let_go_again(n_tokens);
        if marks.iter().any(|mark| mark.position == n_tokens) {
            self.try_mark().await?;
        }
        self.pages.leave_at_least(held.pages.least());
        if let (Some(now), Some(then)) = (self.pages.let_go(), held.pages.let_go())
            && now.has_taken_more(&then)
        {
            return Err(Error::DeviceLost("read anew, the sequence would let go of other keys than it did".to_owned()));
        }
        if let Some(draws) = &held.draws {
            self.draw_again(draws, history).await?;
        }
        self.device.flush().await
    }

    /// The state in which the next token is to be drawn.
    async fn draw_again(&mut self, draws: &Draws, history: &[u32]) -> Result<()> {
        self.device.write(self.network.draw.options, 0, &draws.options_words());
        let Some(position) = draws.last_drawn() else { return Ok(()) };
        let step = Step { pos: position as u32 - 1, n_tokens: 1, ..Step::default() };
        self.device.replay(&self.program, self.graphs.draw, &step, true)?;
        let drawn = self.device.read_words(self.network.ids, position, 1).await?;
        if drawn == history[position..=position] {
            return Ok(());
        }
        let place = "drawing a token again after the device was lost".to_owned();
        Err(Error::Gpu { place, message: format!("expected id {}, got {}", history[position], drawn[0]) })
    }
}

/// The device of a load that was lost under way, opened again.
pub(super) async fn opened_again(choice: DeviceChoice, baseline: bool, hardware: bool, why: &str) -> Result<Opened> {
    let opened = Opened::open(choice, baseline).await?;
    if opened.is_hardware() == hardware {
        Ok(opened)
    } else {
        Err(Error::DeviceLost(format!("{why}; there is {} now", opened.name())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_cut_between_replays_and_within_runs_of_equal_ones() {
        let mut log = Log::default();
        for (by, n) in [(By::Prefill, 64), (By::Prefill, 64), (By::Prefill, 9), (By::Decode, 1), (By::Decode, 1), (By::Decode, 1)]
        {
            log.add(by, n);
        }
        assert_eq!((log.n_tokens(), log.replays.len()), (140, 3));
        log.shorten(138);
        assert_eq!(log.replays.last(), Some(&(By::Decode, 1, 1)));
        log.shorten(64);
        assert_eq!(log.replays().collect::<Vec<_>>(), [(By::Prefill, 64)]);
        log.shorten(0);
        assert_eq!(log.replays().count(), 0);
    }

    #[test]
    fn what_slid_away_is_done_with_once_more_where_it_was_and_stays_gone_on_the_way_back() {
        let config = serde_json::json!({ "model_type": "forgetting_transformer", "vocab_size": 9, "hidden_size": 32,
            "num_hidden_layers": 1, "num_heads": 2 });
        let config = crate::model::Config::from_json(config.as_object().unwrap()).unwrap();
        let eviction = crate::model::evict::Eviction { prune: true, overflow: crate::model::evict::Overflow::Slide };
        let mut pages = Pages::evicting(&config, 40, 3, eviction);
        let mut log = Log::default();
        let mut read = |n: usize| {
            pages.reserve(n).unwrap();
            log.note_let_go(pages.n_tokens(), pages.let_go().unwrap());
            pages.advance(n);
            log.add(By::Prefill, n);
        };
        (0..6).for_each(|_| read(64));
        assert_eq!(log.let_go.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [192, 256, 320]);
        let mut anew = log.anew();
        assert!(anew.next_let_go(191).is_none());
        assert_eq!(anew.next_let_go(192), Some(&log.let_go[0].1));
        assert!(anew.next_let_go(192).is_none() && anew.next_let_go(300).is_some());
        log.shorten(300);
        assert_eq!(log.let_go.len(), 2);
        log.note_let_go(300, pages.let_go().unwrap());
        assert_eq!(log.let_go.last(), Some(&(300, pages.let_go().unwrap())));
        log.shorten(0);
        assert!(log.let_go.is_empty() && log.anew().next_let_go(usize::MAX).is_none());
    }

    #[test]
    fn what_came_as_bytes_is_kept_until_the_sequence_is_shorter() {
        let mut log = Log::of_bytes(Rc::from([7].as_slice()), 5);
        log.add(By::Decode, 1);
        log.shorten(5);
        assert!(log.base.is_some() && log.n_tokens() == 5);
        log.shorten(0);
        assert!(log.base.is_none() && log.n_tokens() == 0);
    }
}
