//! Logits to a token.
//!
//! Order (llama.cpp's): biases → repeat penalty → top-k → top-p → min-p → temperature → draw. Top-p and min-p therefore look at the
//! distribution at temperature 1, and the temperature spreads only what they left. Candidates are ordered by logit descending, then
//! by id ascending; the draw walks them in that order. Every filter keeps a prefix of the order, so only as much of it is sorted as
//! the filters and the draw reach: O(V) and a small sort.
//!
//! The draw for token n of a generation is word 0 of Philox 2x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
//! 2011) with counter (n, high half of the seed) and key (low half of the seed), as a fraction of 2^32. No state: the same seed and
//! index give the same number on any device.

use crate::kernel::sample::{self, philox_2x32};
use crate::{Error, Result};
use std::cmp::Ordering;

/// How tokens are drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerOptions {
    /// Divides the logits; finite, ≥ 0. At 0 the best token is taken (greedy).
    pub temperature: f32,
    /// Keeps the k best tokens; 0 = all.
    pub top_k: usize,
    /// Keeps the fewest best tokens whose probabilities sum to at least this; in (0, 1].
    pub top_p: f32,
    /// Keeps tokens at least this fraction as probable as the best; in [0, 1].
    pub min_p: f32,
    /// Divides positive logits, multiplies negative ones, of recent tokens; finite, > 0. `None` = 1.1, and 1 when greedy.
    pub repeat_penalty: Option<f32>,
    /// How many of the last tokens (of the prompt too) count as recent.
    pub repeat_last_n: usize,
    /// Of the random numbers.
    pub seed: u64,
    /// Ids, no two the same, and what is added to the logit of each, finite: [`MAX_BIASES`](sample::MAX_BIASES) at most.
    pub logit_bias: Vec<(u32, f32)>,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 1.0,
            min_p: 0.05,
            repeat_penalty: None,
            repeat_last_n: 64,
            seed: 0,
            logit_bias: Vec::new(),
        }
    }
}

impl SamplerOptions {
    /// # Errors
    /// [`Error::Argument`] naming the first option that is out of its range.
    pub fn check(&self) -> Result<()> {
        let within = |option: &str, value: f32, fits: bool, expected: &str| {
            if fits { Ok(()) } else { Err(Error::argument(option, expected, value)) }
        };
        let Self { temperature, top_p, min_p, .. } = *self;
        let penalty = self.penalty();
        within("temperature", temperature, temperature.is_finite() && temperature >= 0.0, "a finite number ≥ 0")?;
        within("top-p", top_p, top_p > 0.0 && top_p <= 1.0, "a number in (0, 1]")?;
        within("min-p", min_p, (0.0..=1.0).contains(&min_p), "a number in [0, 1]")?;
        within("repeat-penalty", penalty, penalty.is_finite() && penalty > 0.0, "a finite number > 0")?;
        let mut ids: Vec<u32> = self.logit_bias.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::argument("logit-bias", "one bias for an id", format!("two for id {}", twice[0])));
        }
        if ids.len() > sample::MAX_BIASES {
            return Err(Error::argument("logit-bias", format!("at most {} ids", sample::MAX_BIASES), ids.len()));
        }
        match self.logit_bias.iter().find(|(_, bias)| !bias.is_finite()) {
            Some((id, bias)) => Err(Error::argument("logit-bias", "finite numbers", format!("{bias} for id {id}"))),
            None => Ok(()),
        }
    }

    /// The same for the device, where the token at position `first` is drawn with random number 0.
    pub fn on_device(&self, first: usize) -> sample::Options<'_> {
        let penalty = self.penalty();
        let recent = if penalty == 1.0 { 0 } else { self.repeat_last_n.try_into().unwrap_or(u32::MAX) };
        // Of 2^32; the least and the largest top-p below 1 stay apart from 0, which is off.
        let top_p = if self.top_p < 1.0 { ((f64::from(self.top_p) * 2f64.powi(32)) as u32).max(1) } else { 0 };
        sample::Options {
            greedy: self.is_greedy(),
            top_k: self.top_k.try_into().unwrap_or(u32::MAX),
            top_p,
            widest: (-f64::from(self.min_p).ln()).min(f64::from(f32::MAX)) as f32,
            // 0 only where greedy is set; below the least normal number it would be an infinity.
            rate: (1.0 / f64::from(self.temperature)).min(f64::from(f32::MAX)) as f32,
            penalty,
            recent,
            seed: self.seed,
            first: first as u32,
            biases: &self.logit_bias,
        }
    }

    /// Whether the best token is taken, whatever the random number.
    fn is_greedy(&self) -> bool {
        self.temperature == 0.0 || self.top_k == 1
    }

    /// The repeat penalty in force.
    pub fn penalty(&self) -> f32 {
        self.repeat_penalty.unwrap_or(if self.temperature == 0.0 { 1.0 } else { 1.1 })
    }
}

/// One token that may be drawn.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    logit: f32,
    id: u32,
}

/// Best first: logit descending, id ascending. No NaN gets here.
fn by_rank(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// Draws the tokens of one generation.
#[derive(Clone, Debug)]
pub struct Sampler {
    options: SamplerOptions,
    /// Kept from token to token: no allocation in steady state.
    candidates: Vec<Candidate>,
    recent: Vec<u32>,
    n_drawn: u32,
}

impl Sampler {
    /// # Errors
    /// [`Error::Argument`] as [`SamplerOptions::check`].
    pub fn new(options: SamplerOptions) -> Result<Self> {
        options.check()?;
        Ok(Self { options, candidates: Vec::new(), recent: Vec::new(), n_drawn: 0 })
    }

    /// The next token. `logits`: `[V]`; `history`: the tokens so far, prompt included.
    ///
    /// # Errors
    /// [`Error::NotFinite`] when a logit is NaN or an infinity.
    pub fn sample(&mut self, logits: &[f32], history: &[u32]) -> Result<u32> {
        self.take_candidates(logits, history)?;
        let uniform =
            f64::from(philox_2x32([self.n_drawn, (self.options.seed >> 32) as u32], self.options.seed as u32)[0]) / 2f64.powi(32);
        self.n_drawn = self.n_drawn.wrapping_add(1);
        if self.options.is_greedy() {
            let best = self.candidates.iter().min_by(|a, b| by_rank(a, b));
            return Ok(best.unwrap_or_else(|| unreachable!("there is at least one logit")).id);
        }
        Ok(self.draw(uniform))
    }

    /// All tokens with their biased and penalised logits.
    fn take_candidates(&mut self, logits: &[f32], history: &[u32]) -> Result<()> {
        if logits.is_empty() {
            return Err(Error::argument("logits", "at least one", "none"));
        }
        if let Some(ix) = logits.iter().position(|logit| !logit.is_finite()) {
            return Err(Error::NotFinite { place: format!("logit of token {ix}"), got: logits[ix].to_string() });
        }
        self.candidates.clear();
        // Adding zero turns -0 into 0, which ranks equal.
        self.candidates.extend(logits.iter().zip(0u32..).map(|(&logit, id)| Candidate { logit: logit + 0.0, id }));
        for &(id, bias) in &self.options.logit_bias {
            if let Some(candidate) = self.candidates.get_mut(id as usize) {
                candidate.logit = (candidate.logit + bias).clamp(f32::MIN, f32::MAX) + 0.0;
            }
        }
        let penalty = self.options.penalty();
        if penalty == 1.0 {
            return Ok(());
        }
        self.recent.clear();
        self.recent.extend(&history[history.len().saturating_sub(self.options.repeat_last_n)..]);
        self.recent.sort_unstable();
        self.recent.dedup();
        for &id in &self.recent {
            if let Some(candidate) = self.candidates.get_mut(id as usize) {
                let logit = candidate.logit;
                let penalised = if logit > 0.0 { logit / penalty } else { logit * penalty };
                candidate.logit = penalised.clamp(f32::MIN, f32::MAX);
            }
        }
        Ok(())
    }

    fn draw(&mut self, uniform: f64) -> u32 {
        let SamplerOptions { temperature, top_k, top_p, min_p, .. } = self.options;
        let all = &mut self.candidates;
        if 0 < top_k && top_k < all.len() {
            all.select_nth_unstable_by(top_k, by_rank);
            all.truncate(top_k);
        }
        let best = all.iter().map(|candidate| candidate.logit).fold(f32::MIN, f32::max);
        let weight = |candidate: &Candidate| (f64::from(candidate.logit) - f64::from(best)).exp();
        // Top-p sums over all that top-k left, min-p or not.
        let total = if top_p < 1.0 { all.iter().map(weight).sum() } else { 0.0 };
        let floor = f64::from(best) + f64::from(min_p).ln();
        all.retain(|candidate| f64::from(candidate.logit) >= floor);
        let mut ranked = Ranked { all, n_sorted: 0 };
        if top_p < 1.0 {
            let n_kept = ranked.first_reaching(weight, f64::from(top_p) * total, |sum, bound| sum >= bound);
            ranked.all.truncate(n_kept + 1);
            ranked.n_sorted = ranked.n_sorted.min(n_kept + 1);
        }
        let spread = |candidate: &Candidate| ((f64::from(candidate.logit) - f64::from(best)) / f64::from(temperature)).exp();
        let total: f64 = ranked.all.iter().map(spread).sum();
        let drawn = ranked.first_reaching(spread, uniform * total, |sum, bound| sum > bound);
        ranked.all[drawn].id
    }
}

/// Candidates of which only the first `n_sorted` are in order, and better than the rest.
struct Ranked<'a> {
    all: &'a mut Vec<Candidate>,
    n_sorted: usize,
}

impl Ranked<'_> {
    /// Index of the first candidate at which the running sum of weights reaches the bound, else of the last with a weight.
    fn first_reaching(&mut self, weight: impl Fn(&Candidate) -> f64, bound: f64, reaches: impl Fn(f64, f64) -> bool) -> usize {
        let (mut sum, mut last) = (0.0, 0);
        for ix in 0..self.all.len() {
            if ix == self.n_sorted {
                self.sort_more();
            }
            let one = weight(&self.all[ix]);
            sum += one;
            if one > 0.0 {
                last = ix;
            }
            if reaches(sum, bound) {
                return ix;
            }
        }
        last
    }

    /// Sorts at least as many again as are sorted: each is moved O(1) times on average.
    fn sort_more(&mut self) {
        let rest = &mut self.all[self.n_sorted..];
        let n = rest.len().min(64.max(3 * self.n_sorted));
        if n < rest.len() {
            rest.select_nth_unstable_by(n, by_rank);
        }
        rest[..n].sort_unstable_by(by_rank);
        self.n_sorted += n;
    }
}
