//! Tokens drawn on the GPU, several under way at once.
//!
//! Only ids depend on what was drawn: positions, pages and shift rows of the tokens to come are known, so the host queues a batch of
//! tokens, queues the next, and only then waits for the ids of the first, which come in one read. For its caller the model stands
//! where the last id that it has handed out is the next to be fed, as when each token is asked for; what was computed beyond is
//! taken back before anything else is done with the model.
//!
//! How many tokens a batch has follows the time of a token and of a round trip: one where a token takes long against its round trip
//! (with nothing queued ahead where it takes long against the host's work, too), up to [`MAX_IN_FLIGHT`] where it does not, and never
//! more than a frame of the screen lasts. It doubles from batch to batch, so the first token comes as early as ever.

use super::recover::By;
use super::sampler::SamplerOptions;
use super::{Device, Model};
use crate::error::{Error, Result};
use crate::gpu::{self, PendingRead};
use crate::graph::Step;
use crate::kernel::sample;
use crate::model::state::MAX_REWIND;
use std::collections::VecDeque;
use web_time::{Duration, Instant};

/// Most tokens of a batch. Two batches are under way at once, and all but one of their tokens may have to be taken back.
pub const MAX_IN_FLIGHT: usize = 16;

const _: () = assert!(MAX_IN_FLIGHT <= gpu::MAX_REPLAYS, "a batch is one submit");

const _: () = assert!(2 * MAX_IN_FLIGHT - 1 <= MAX_REWIND, "a late stop takes back two batches less a token");

/// A round trip may cost this part of a batch's time.
const ROUND_TRIP_SHARE: f64 = 0.01;

/// Seconds that a batch may last, so that text does not come by fits and starts: a frame of a usual screen.
const BATCH_SECONDS: f64 = 0.016;

/// A token that takes longer is waited for with none queued behind it.
const SLOW_TOKEN: Duration = Duration::from_millis(10);

/// Token ids that the GPU draws.
pub(super) struct Draws {
    /// Which call of [`Model::draw`] they belong to.
    turn: u64,
    options: SamplerOptions,
    /// Position of the first id.
    first: usize,
    /// Where the model stands for its caller: tokens before this position are fed.
    pos: usize,
    /// Position of the id to hand out next.
    next: usize,
    /// Position of the id to queue next, and the first that is not wanted.
    queued: usize,
    end: usize,
    ready: VecDeque<u32>,
    batches: VecDeque<Batch>,
    pace: Pace,
}

struct Batch {
    first: usize,
    n: usize,
    since: Instant,
    read: PendingRead,
}

/// How many tokens the next batch has.
struct Pace {
    n: usize,
    /// What `n` should become.
    target: usize,
    fixed: bool,
    slow: bool,
    round_trip: Duration,
    last: Option<Instant>,
}

impl Pace {
    fn new(in_flight: Option<usize>, round_trip: Duration) -> Self {
        let n = in_flight.unwrap_or(1);
        Self { n, target: n, fixed: in_flight.is_some(), slow: true, round_trip, last: None }
    }

    /// Batches under way while the ids of one are awaited. One, where it was asked for, and where a token takes so long that the host's
    /// part of it is nothing: there a second would only be wasted when the text ends.
    fn depth(&self) -> usize {
        if self.n == 1 && (self.fixed || self.slow) { 1 } else { 2 }
    }

    /// A batch of `n` tokens, queued at `since`, has come.
    fn came(&mut self, n: usize, since: Instant) {
        let now = Instant::now();
        // With batches queued ahead the device works without a pause, and a batch takes the time since the one before it.
        let alone = now - since;
        let one =
            if n == 1 { alone.saturating_sub(self.round_trip) } else { self.last.map_or(alone, |last| now - last) / n as u32 };
        self.last = Some(now);
        self.slow = one > SLOW_TOKEN;
        if !self.fixed {
            let wanted = (self.round_trip.as_secs_f64() / ROUND_TRIP_SHARE).min(BATCH_SECONDS) / one.as_secs_f64().max(1e-6);
            // 1 where a round trip is a small share of a single token.
            self.target = (wanted as usize).clamp(1, MAX_IN_FLIGHT);
            self.n = self.target.min(2 * self.n);
        }
    }
}

/// # Errors
/// [`Error::Argument`] for a number of tokens in flight that cannot be.
pub fn check_in_flight(in_flight: Option<usize>) -> Result<()> {
    match in_flight {
        Some(n) if !(1..=MAX_IN_FLIGHT).contains(&n) => {
            Err(Error::argument("in-flight", format!("1 to {MAX_IN_FLIGHT} tokens"), n))
        }
        _ => Ok(()),
    }
}

impl Model {
    /// Whether tokens are drawn on the device, by [`Model::draw`]: on a GPU, yes.
    pub fn draws_on_device(&self) -> bool {
        matches!(self.device, Device::Gpu(_))
    }

    /// Most tokens that are under way at once now: those of the batches that are drawn while the first of them is awaited; 1 where none is
    /// drawn.
    pub fn in_flight(&self) -> usize {
        self.draws.as_ref().map_or(1, |draws| draws.pace.n * draws.pace.depth())
    }

    /// Reads up to [`Model::max_chunk`] tokens, the last of a prompt, and begins to draw those behind them: ids for the positions before
    /// `end`, `in_flight` to a read ([`None`]: as many as pay). Gives the turn that [`Model::drawn`] asks for.
    ///
    /// # Errors
    /// As [`Model::prefill`]; [`Error::Argument`] for options out of their range, and on the CPU.
    pub async fn draw(&mut self, ids: &[u32], options: &SamplerOptions, end: usize, in_flight: Option<usize>) -> Result<u64> {
        self.lasting(async |model| model.try_draw(ids, options, end, in_flight).await).await
    }

    async fn try_draw(&mut self, ids: &[u32], options: &SamplerOptions, end: usize, in_flight: Option<usize>) -> Result<u64> {
        options.check()?;
        check_in_flight(in_flight)?;
        if !self.draws_on_device() {
            return Err(Error::argument("device", "a GPU: the CPU's tokens are drawn by Sampler", self.device_name()));
        }
        let step = self.prepare(ids)?;
        self.run(self.graphs.prefill, &step, true).await?;
        self.hold(ids, By::Prefill)?;
        let pos = self.pages.n_tokens();
        self.device.write(self.network.draw.options, 0, &options.on_device(pos).words());
        self.turn += 1;
        let (turn, pace) = (self.turn, Pace::new(in_flight, self.round_trip));
        let (ready, batches) = (VecDeque::new(), VecDeque::new());
        let (options, end) = (options.clone(), end.min(self.positions));
        self.draws = Some(Draws { turn, options, first: pos, pos, next: pos, queued: pos, end, ready, batches, pace });
        Ok(turn)
    }

    /// The next id of a turn, and whether more are at hand without waiting. From then on the model stands before that id, which is
    /// the next to be fed.
    ///
    /// # Errors
    /// [`Error::Argument`] after the last position that was asked for, or when the model was used for something else meanwhile;
    /// [`Error::NotFinite`] when a logit is no number, and what the device reports.
    pub async fn drawn(&mut self, turn: u64) -> Result<(u32, bool)> {
        self.lasting(async |model| model.try_drawn(turn).await).await
    }

    async fn try_drawn(&mut self, turn: u64) -> Result<(u32, bool)> {
        let Some(draws) = self.draws.as_ref().filter(|draws| draws.turn == turn) else {
            return Err(Error::argument("turn", "the last call of draw", "another, or the model was used since"));
        };
        if draws.ready.is_empty() {
            self.await_batch().await?;
        }
        let Some((word, draws)) = self.draws.as_mut().and_then(|draws| Some((draws.ready.pop_front()?, draws))) else {
            return Err(Error::argument("draws", "no more ids than were asked for", "one more"));
        };
        draws.pos = draws.next;
        draws.next += 1;
        match sample::outcome(word) {
            Ok(id) => {
                self.history.truncate(draws.pos);
                self.history.push(id);
                Ok((id, !draws.ready.is_empty()))
            }
            Err((id, got)) => Err(Error::NotFinite { place: format!("logit of token {id}"), got: got.to_string() }),
        }
    }

    /// Queues what should be under way, and waits for the oldest batch.
    async fn await_batch(&mut self) -> Result<()> {
        while let Some(n) = self.draws.as_ref().and_then(Draws::to_queue) {
            self.look(n).await?;
            // Where pages run out, ids that need none more still come.
            let Some(draws) = &self.draws else { break };
            let room = self.pages.room() + usize::from(self.pages.n_tokens() == draws.queued);
            let fits = if self.pages.refuses(n) { room.min(n) } else { n };
            if fits == 0 && !draws.batches.is_empty() {
                break;
            }
            self.queue_batch(if fits == 0 { n } else { fits }).await?;
        }
        let (Some(draws), Device::Gpu(gpu)) = (&mut self.draws, &self.device) else { return Ok(()) };
        let Some(batch) = draws.batches.pop_front() else { return Ok(()) };
        let words = gpu.finish_read(batch.read).await?;
        // A call that was dropped while it waited has taken its batch along.
        if batch.first != draws.next {
            let expected = format!("the ids from position {} on", draws.next);
            return Err(Error::argument(
                "draws",
                expected,
                format!("those from {} on: a call was dropped before its end", batch.first),
            ));
        }
        draws.pace.came(batch.n, batch.since);
        draws.ready.extend(words);
        Ok(())
    }

    /// Queues `n` tokens and the read of their ids.
    async fn queue_batch(&mut self, n: usize) -> Result<()> {
        let Some(Draws { queued: first, .. }) = self.draws else { return Ok(()) };
        let since = Instant::now();
        let mut steps = Vec::with_capacity(n);
        for position in first..first + n {
            if self.pages.n_tokens() == position {
                // The logits of all tokens before it are there: those of the prompt.
                let step = Step { pos: position as u32 - 1, n_tokens: 1, ..Step::default() };
                self.run(self.graphs.draw, &step, true).await?;
                continue;
            }
            self.reserve(1)?;
            steps.push(self.pages.step(1));
            // What is written and read between two pages belongs between their tokens.
            if self.pages.room() == 1 {
                self.submit_steps(&mut steps).await?;
            }
            self.advance(1, By::Decode)?;
        }
        self.submit_steps(&mut steps).await?;
        if let (Some(draws), Device::Gpu(gpu)) = (&mut self.draws, &self.device) {
            let read = gpu.begin_read(self.network.ids, first, n);
            draws.batches.push_back(Batch { first, n, since, read });
            draws.queued += n;
        }
        Ok(())
    }

    /// One submit for tokens that are to be fed and drawn.
    async fn submit_steps(&mut self, steps: &mut Vec<Step>) -> Result<()> {
        if self.is_watched() {
            for step in steps.drain(..) {
                self.run(self.graphs.decode_and_draw, &step, true).await?;
            }
        }
        if let (Device::Gpu(gpu), false) = (&self.device, steps.is_empty()) {
            gpu.replay_each(self.graphs.decode_and_draw, steps)?;
        }
        steps.clear();
        Ok(())
    }

    /// How long the ids of a batch take from a device that has nothing else to do.
    pub(super) async fn time_round_trip(gpu: &gpu::Executor, network: &crate::model::Fox) -> Result<Duration> {
        let mut best = Duration::MAX;
        for _ in 0..2 {
            let start = Instant::now();
            gpu.read(network.ids, 0, 1).await?;
            best = best.min(start.elapsed());
        }
        Ok(best)
    }
}

impl Draws {
    pub(super) fn pos(&self) -> usize {
        self.pos
    }

    /// The same after the loss of the device: what was under way is to be drawn again.
    pub(super) fn interrupted(self) -> Self {
        Self { queued: self.next, ready: VecDeque::new(), batches: VecDeque::new(), ..self }
    }

    /// Position of the id that was handed out last.
    pub(super) fn last_drawn(&self) -> Option<usize> {
        (self.next > self.first).then_some(self.pos)
    }

    /// How it is drawn, for the device.
    pub(super) fn options_words(&self) -> Vec<u32> {
        self.options.on_device(self.first).words()
    }

    /// The reads that are under way.
    pub(super) fn batches(self) -> impl Iterator<Item = PendingRead> {
        self.batches.into_iter().map(|batch| batch.read)
    }

    /// Tokens of the batch to queue now, if there is one.
    fn to_queue(&self) -> Option<usize> {
        let n = self.pace.n.min(self.end.saturating_sub(self.queued));
        (n > 0 && self.batches.len() < self.pace.depth()).then_some(n)
    }
}
