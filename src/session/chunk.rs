//! How many tokens of a prompt a replay has.
//!
//! Until a submit is done a GPU shows no page, and one that lasts long is taken for hung; a short one leaves most of a large GPU idle.
//! How long a token takes differs a thousandfold between adapters. So the time of each replay is measured, and the next has as many
//! tokens as last about [`AIM`]. Two replays are under way at once: the device never waits for the host, a caller who stops waits for
//! two at most, and what a replay takes is the time since the one before it was done.
//!
//! The same seed, device and build must give the same text, whatever the clock says. So every replay of a prompt but its last has whole
//! tiles: as many tokens as the largest workgroup of the graph takes, and whole pages. Wherever replays begin, a token has the same
//! place and the same neighbours in its workgroup, and each of its sums the same terms in the same order. (Neighbours matter:
//! attention passes over the pages that are dead for the first query of a workgroup.) Where pages are short, replays have a single
//! tile, so that what is refused, and which keys slide away, depends on the tokens before alone.

use super::{Device, Model};
use crate::error::Result;
use crate::gpu::Submitted;
use std::collections::VecDeque;
use web_time::{Duration, Instant};

/// What a replay should take.
const AIM: Duration = Duration::from_millis(25);
/// What makes the next one shorter.
const LONGEST: Duration = Duration::from_millis(50);
/// Replays under way at once.
const DEPTH: usize = 2;
/// A replay is at most so many times as long as the one that was measured.
const GROWTH: usize = 4;

/// Tokens of the replays of prompts.
pub(super) struct Chunks {
    /// What the buffers are sized for.
    most: usize,
    tile: usize,
    n: usize,
    fixed: bool,
    under_way: VecDeque<UnderWay>,
    last: Option<Instant>,
}

/// A replay that the device may not be done with.
struct UnderWay {
    n: usize,
    since: Instant,
    submitted: Submitted,
}

impl Chunks {
    /// Always `most` tokens.
    pub fn fixed(most: usize) -> Self {
        Self { most, tile: most, n: most, fixed: true, under_way: VecDeque::new(), last: None }
    }

    /// `most` tokens at first, then whole tiles by measured time.
    pub fn measured(most: usize, tile: usize) -> Self {
        // A single tile leaves nothing to choose.
        if most < 2 * tile { Self::fixed(most) } else { Self { tile, n: most / tile * tile, fixed: false, ..Self::fixed(most) } }
    }

    /// Gives up what is under way, on a device that is gone.
    pub fn forget(&mut self) {
        (self.under_way, self.last) = (VecDeque::new(), None);
    }

    /// A replay of `n` tokens was seen to be done; it was `waited` for.
    fn came(&mut self, n: usize, since: Instant, waited: Duration) {
        let now = Instant::now();
        let took = now - self.last.map_or(since, |last| last.max(since));
        self.last = Some(now);
        // What was done before anyone looked took less, who knows how much.
        if took <= AIM || 4 * waited >= took {
            self.took(n, took);
        }
    }

    /// A replay of `n` tokens took so long.
    fn took(&mut self, n: usize, took: Duration) {
        let fitting = (n as f64 * AIM.as_secs_f64() / took.as_secs_f64().max(1e-6)) as usize;
        let wanted = match took {
            _ if self.fixed => return,
            _ if took > LONGEST => fitting.min(self.n),
            _ if took < AIM => fitting.min(GROWTH * n).max(self.n),
            _ => self.n,
        };
        self.n = (wanted.min(self.most) / self.tile * self.tile).max(self.tile);
    }
}

impl Model {
    /// Tokens that the next replay of a long prompt should have; on a GPU this follows the time of those before, unless it was given at
    /// load. Every replay but the last of a prompt should have so many: then the numbers do not depend on how many they are.
    pub fn chunk(&self) -> usize {
        self.chunks.n
    }

    /// Tokens of the shortest replay that all but the last of a prompt may have: who wants to be heard of often, and wants the same numbers
    /// all the same, reads so many at a time.
    pub fn tile(&self) -> usize {
        self.chunks.tile
    }

    /// Tokens of one replay at most.
    pub fn max_chunk(&self) -> usize {
        self.chunks.most
    }

    /// Tokens of the next replay of a prompt of which `left` are not read yet: [`Model::chunk`], fewer where pages are short.
    ///
    /// # Errors
    /// What the device reports.
    pub async fn next_chunk(&mut self, left: usize) -> Result<usize> {
        let n = left.min(self.chunks.n);
        if self.chunks.fixed || n <= self.chunks.tile || !self.pages.evicts() {
            return Ok(n);
        }
        self.lasting(async |model| model.look(n).await).await?;
        Ok(if self.pages.is_short(n) { self.chunks.tile } else { n })
    }

    /// Reads ids of any number without asking for logits.
    ///
    /// # Errors
    /// As [`Model::prefill`].
    pub async fn read(&mut self, mut ids: &[u32]) -> Result<()> {
        while !ids.is_empty() {
            let (now, later) = ids.split_at(self.next_chunk(ids.len()).await?);
            self.prefill(now, false).await?;
            ids = later;
        }
        Ok(())
    }

    /// Waits until there is room for another replay of a prompt.
    pub(super) async fn await_room(&mut self) -> Result<()> {
        while self.chunks.under_way.len() >= DEPTH {
            let (Some(UnderWay { n, since, submitted }), Device::Gpu(gpu)) = (self.chunks.under_way.pop_front(), &self.device)
            else {
                break;
            };
            let asked = Instant::now();
            gpu.gpu().finish(submitted).await?;
            self.chunks.came(n, since, asked.elapsed());
        }
        Ok(())
    }

    /// Counts a replay of `n` tokens, just queued, as under way.
    pub(super) fn queued(&mut self, n: usize, since: Instant) {
        if let Device::Gpu(gpu) = &self.device {
            self.chunks.under_way.push_back(UnderWay { n, since, submitted: gpu.gpu().submitted() });
        }
    }

    /// Times a tile on a GPU in hardware, so that the first prompt begins with what fits. On a software adapter a tile takes long, and
    /// more never pay.
    pub(super) async fn time_tile(&mut self) -> Result<()> {
        let hardware = matches!(&self.device, Device::Gpu(gpu) if !gpu.gpu().info().software);
        let tile = self.chunks.tile;
        if self.chunks.fixed || !hardware {
            return Ok(());
        }
        let start = Instant::now();
        self.prefill(&vec![0; tile], false).await?;
        self.settle().await?;
        let took = start.elapsed().saturating_sub(self.round_trip);
        self.chunks.n = tile;
        self.chunks.took(tile, took);
        self.reset();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds replays whose time is `base + n · per_token`, and gives the tokens of each.
    fn run(chunks: &mut Chunks, base_ms: f64, per_token_ms: f64, n_replays: usize) -> Vec<usize> {
        let replays = (0..n_replays).map(|_| {
            let n = chunks.n;
            chunks.took(n, Duration::from_secs_f64((base_ms + n as f64 * per_token_ms) / 1e3));
            n
        });
        replays.collect()
    }

    #[test]
    fn replays_grow_to_what_fits_and_shrink_when_they_take_too_long() {
        let mut chunks = Chunks::measured(1024, 64);
        chunks.n = 64;
        // 5 ms and 20 µs a token: 1024 last 25.5 ms.
        let sizes = run(&mut chunks, 5.0, 0.02, 12);
        assert!(sizes.is_sorted() && sizes[1] <= 64 * GROWTH && sizes[11] >= 768, "{sizes:?}");
        // Ten times slower, as on a long context: at once as many as last half of what is too long, and no fewer.
        let sizes = run(&mut chunks, 5.0, 0.2, 6);
        assert!(sizes[1..].iter().all(|n| (64..=192).contains(n)), "{sizes:?}");
        // A tile is the least, however long it takes.
        assert_eq!(run(&mut chunks, 0.0, 100.0, 3)[2], 64);
        // Every size on the way is whole tiles, and within what the buffers hold.
        let mut chunks = Chunks::measured(1000, 128);
        for took in [1, 30, 900, 2, 60, 1, 1, 1, 1, 51, 26, 1] {
            assert!(chunks.n.is_multiple_of(128) && (128..=896).contains(&chunks.n), "{}", chunks.n);
            chunks.took(chunks.n, Duration::from_millis(took));
        }
    }

    #[test]
    fn a_short_rest_of_a_prompt_says_nothing_of_longer_ones() {
        let mut chunks = Chunks::measured(1024, 64);
        chunks.n = 512;
        chunks.took(3, Duration::from_millis(4));
        assert_eq!(chunks.n, 512);
        chunks.took(512, Duration::ZERO);
        assert_eq!(chunks.n, 1024);
    }

    #[test]
    fn what_was_given_or_leaves_no_choice_is_kept() {
        for mut chunks in [Chunks::fixed(100), Chunks::measured(100, 64)] {
            chunks.took(100, Duration::from_secs(9));
            chunks.took(100, Duration::from_micros(9));
            assert_eq!((chunks.n, chunks.most), (100, 100));
        }
    }

    /// The host was away: how long the device took nobody knows.
    #[test]
    fn a_replay_that_nobody_waited_for_does_not_shrink_the_next() {
        let mut chunks = Chunks::measured(256, 64);
        let long_ago = Instant::now() - Duration::from_secs(3);
        chunks.came(256, long_ago, Duration::ZERO);
        assert_eq!(chunks.n, 256);
        chunks.last = None;
        chunks.came(256, long_ago, Duration::from_secs(2));
        assert_eq!(chunks.n, 64);
    }
}
