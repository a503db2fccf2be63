//! A loaded model with its one sequence: prefill, step, score.

use super::chunk::Chunks;
use super::device::Device;
use super::draw::Draws;
use super::generate::check_ids;
use super::load::weights::Origin;
use super::pages::{Mark, Sightings};
use super::recover::{By, Log};
use super::sampler::SamplerOptions;
use super::watch::Watch;
use crate::error::{Error, Result};
use crate::graph::{GraphId, Program, Role, Step};
use crate::kernel::attention::Kv;
use crate::model::{Config, Fox, Pages};
use crate::text::Tokenizer;
use std::ops::Range;
use web_time::{Duration, Instant};

/// The graphs of a model.
pub(super) struct Graphs {
    pub decode: GraphId,
    pub prefill: GraphId,
    pub score: Option<GraphId>,
    pub draw: GraphId,
    pub decode_and_draw: GraphId,
}

/// A model on a device, and the tokens it has read so far.
pub struct Model {
    pub(super) file: String,
    pub(super) matrix_types: String,
    /// Of configuration and weights: [`super::snapshot`].
    pub(super) fingerprint: u64,
    pub(super) config: Config,
    pub(super) tokenizer: Option<Tokenizer>,
    pub(super) device: Device,
    pub(super) device_name: String,
    pub(super) device_note: Option<String>,
    pub(super) program: Program,
    pub(super) network: Fox,
    pub(super) graphs: Graphs,
    pub(super) pages: Pages,
    pub(super) context: usize,
    pub(super) context_note: Option<String>,
    pub(super) positions: usize,
    /// ln ε, where pages die by it.
    pub(super) pruning: Option<f64>,
    pub(super) pruning_note: Option<String>,
    pub(super) score_bounds: Option<Vec<f64>>,
    pub(super) sightings: Sightings,
    pub(super) marks: Vec<Mark>,
    /// The ids of the tokens held.
    pub(super) history: Vec<u32>,
    pub(super) chunks: Chunks,
    /// Which sequence this is: one more at each reset.
    pub(super) sequence: u64,
    pub(super) draws: Option<Draws>,
    pub(super) turn: u64,
    pub(super) round_trip: Duration,
    /// How the tokens held were read.
    pub(super) log: Log,
    pub(super) recoveries: u64,
    pub(super) watch: Option<Box<Watch>>,
    /// What it can be loaded from again when its device is lost; none on the CPU.
    pub(super) origin: Option<Origin>,
}

impl Model {
    /// The file, directory or URL it came from.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Element types of its matrices in the file, that of most bytes first: `Q4_K, Q6_K`.
    pub fn matrix_types(&self) -> &str {
        &self.matrix_types
    }

    /// Its configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Its tokenizer; `action` names the call that needs one.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`].
    pub fn tokenizer(&self, action: &'static str) -> Result<&Tokenizer> {
        self.tokenizer.as_ref().ok_or_else(|| Error::NoTokenizer { file: self.file.clone(), action })
    }

    /// The begin token, if the model has one, and the ids of a text.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`], which names `action`, and [`Error::Tokenizer`].
    pub fn ids_of(&self, action: &'static str, text: &str) -> Result<Vec<u32>> {
        Ok(self.bos().into_iter().chain(self.tokenizer(action)?.encode(text)?).collect())
    }

    /// The adapter's name, or `cpu`.
    pub fn device_name(&self) -> &str {
        &self.device_name
    }

    /// Why `auto` did not choose a GPU.
    pub fn device_note(&self) -> Option<&str> {
        self.device_note.as_deref()
    }

    /// The device itself, for counters and tests.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The dispatches of the model's graphs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Dispatches that one generated token costs, drawing it included where the device does that.
    pub fn dispatches_per_token(&self) -> usize {
        let graph = if self.draws_on_device() { self.graphs.decode_and_draw } else { self.graphs.decode };
        self.program.graph(graph).dispatches.len()
    }

    /// Bytes that a decoded token reads at least, with `n` tokens held: every weight of the decode graph but the embedding (one row
    /// of it), and the live part ([`Model::live_kv_fraction`]) of keys, values and λ.
    pub fn bytes_per_token(&self, n: usize, live: f64) -> u64 {
        let graph = self.program.graph(self.graphs.decode);
        let bound =
            graph.dispatches.iter().filter(|dispatch| dispatch.kernel.name != "embed").flat_map(|dispatch| &dispatch.bindings);
        let mut weights: Vec<_> = bound.map(|binding| binding.buffer).collect();
        weights.sort_unstable();
        weights.dedup();
        let words = weights.into_iter().map(|buffer| self.program.get(buffer)).filter(|buffer| buffer.role == Role::Weight);
        let Config { n_layers, n_heads, n_kv_heads, head_dim, window, .. } = self.config;
        let row_words = Kv::row_words(head_dim, self.network.kv_f16());
        let seen = n.min(window.unwrap_or(n));
        let kv_words = live * (n_layers * seen * (2 * n_kv_heads * row_words + 2 * n_heads)) as f64;
        4 * (words.map(|buffer| buffer.words as u64).sum::<u64>() + kv_words as u64)
    }

    /// Waits until everything asked of the device is done.
    ///
    /// # Errors
    /// What the device reported meanwhile.
    pub async fn settle(&mut self) -> Result<()> {
        self.lasting(async |model| model.device.flush().await).await
    }

    /// Tokens that pages are set aside for.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Why that is less than the model states, if it is ([`crate::session::LoadOptions::context`]).
    pub fn context_note(&self) -> Option<&str> {
        self.context_note.as_deref()
    }

    /// Tokens held.
    pub fn pos(&self) -> usize {
        self.draws.as_ref().map_or(self.pages.n_tokens(), Draws::pos)
    }

    /// Token put before each document.
    pub fn bos(&self) -> Option<u32> {
        self.config.bos
    }

    /// Token that ends a document.
    pub fn eos(&self) -> Option<u32> {
        self.config.eos
    }

    /// Tokens in the vocabulary.
    pub fn vocab(&self) -> usize {
        self.config.vocab
    }

    /// Whether [`Model::score`] can be called.
    pub fn has_scores(&self) -> bool {
        self.graphs.score.is_some()
    }

    /// Bytes on the device: weights, KV pages, scratch.
    pub fn bytes(&self) -> u64 {
        self.device.bytes()
    }

    /// Forgets the sequence.
    pub fn reset(&mut self) {
        self.end_draws();
        self.pages.reset();
        self.unsee();
        self.sequence += 1;
    }

    /// Which sequence it holds: a number that no earlier one had. Whoever shares a model knows by it that it was reset in between.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Reads up to [`Model::max_chunk`] tokens; with `want_logits`, gives the logits `[V]` after the last. Without, at most two replays
    /// are left under way.
    ///
    /// # Errors
    /// [`Error::ContextFull`], [`Error::Argument`] (no tokens, too many, an id outside the vocabulary), [`Error::NotFinite`] for a logit
    /// that is no finite number, device errors. The
    /// sequence is as before after an error. A device that is lost is opened again, with all that it held; [`Error::DeviceLost`] is told
    /// where that cannot be, and the next call tries again.
    pub async fn prefill(&mut self, ids: &[u32], want_logits: bool) -> Result<Option<Vec<f32>>> {
        self.lasting(async |model| model.try_prefill(ids, want_logits).await).await
    }

    async fn try_prefill(&mut self, ids: &[u32], want_logits: bool) -> Result<Option<Vec<f32>>> {
        self.await_room().await?;
        self.look(ids.len()).await?;
        let since = Instant::now();
        self.feed(self.graphs.prefill, ids, want_logits).await?;
        if !want_logits {
            self.queued(ids.len(), since);
        }
        let logits = if want_logits { Some(self.device.read_f32(self.network.logits, self.config.vocab).await?) } else { None };
        self.check_logits(logits.as_deref().unwrap_or_default(), self.pages.n_tokens() + ids.len() - 1)?;
        self.hold(ids, By::Prefill)?;
        Ok(logits)
    }

    /// Reads one token and gives the logits `[V]` after it.
    ///
    /// # Errors
    /// As [`Model::prefill`].
    pub async fn step(&mut self, id: u32) -> Result<Vec<f32>> {
        self.lasting(async |model| model.try_step(id).await).await
    }

    async fn try_step(&mut self, id: u32) -> Result<Vec<f32>> {
        self.look(1).await?;
        self.feed(self.graphs.decode, &[id], true).await?;
        let logits = self.device.read_f32(self.network.logits, self.config.vocab).await?;
        self.check_logits(&logits, self.pages.n_tokens())?;
        self.hold(&[id], By::Decode)?;
        Ok(logits)
    }

    /// Reads up to [`Model::max_chunk`] tokens and gives the logits after each, [n, V] row by row.
    ///
    /// # Errors
    /// As [`Model::prefill`]; [`Error::Argument`] when the model was loaded without scores.
    pub async fn score(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        self.lasting(async |model| model.try_score(ids).await).await
    }

    async fn try_score(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        let (Some(graph), Some(scores)) = (self.graphs.score, self.network.scores) else {
            return Err(Error::argument("scores", "a model loaded with scores", "one loaded without"));
        };
        self.look(ids.len()).await?;
        self.feed(graph, ids, true).await?;
        let logits = self.device.read_f32(scores, ids.len() * self.config.vocab).await?;
        self.check_logits(&logits, self.pages.n_tokens())?;
        self.hold(ids, By::Score)?;
        Ok(logits)
    }

    /// One token through every pipeline before the first that counts, so that compilation does not land on the first answer.
    pub(super) async fn warm_up(&mut self) -> Result<()> {
        if !self.draws_on_device() {
            return Ok(());
        }
        self.lasting(async |model| model.try_warm_up().await).await
    }

    async fn try_warm_up(&mut self) -> Result<()> {
        self.reset();
        self.step(0).await?;
        if let Device::Gpu(gpu) = &self.device {
            self.round_trip = Self::time_round_trip(gpu, &self.network).await?;
        }
        self.reset();
        // Two batches, of which one is read: the buffers of both are there from now on.
        let turn = self.draw(&[0], &SamplerOptions::default(), self.context, Some(2)).await?;
        if self.pos() < self.context {
            self.drawn(turn).await?;
        }
        self.rehearse_looks().await?;
        self.reset();
        self.time_tile().await
    }

    /// Counts tokens as held, after their replay.
    pub(super) fn hold(&mut self, ids: &[u32], by: By) -> Result<()> {
        self.history.extend(ids);
        self.advance(ids.len(), by)
    }

    pub(super) fn replay(&mut self, graph: GraphId, ids: &[u32], logits: bool) -> Result<()> {
        let step = self.prepare(ids)?;
        self.device.replay(&self.program, graph, &step, logits)
    }

    /// Runs a graph, watched if that is asked for.
    pub(super) async fn run(&mut self, graph: GraphId, step: &Step, logits: bool) -> Result<()> {
        if let (Some(watch), Device::Gpu(gpu)) = (&mut self.watch, &self.device) {
            let range = self.program.graph(graph).range(logits);
            return watch.run(gpu, &self.program, graph, range, step).await;
        }
        self.device.replay(&self.program, graph, step, logits)
    }

    /// Runs some dispatches of a graph, watched if that is asked for.
    pub(super) async fn run_range(&mut self, graph: GraphId, range: Range<usize>, step: &Step) -> Result<()> {
        if let (Some(watch), Device::Gpu(gpu)) = (&mut self.watch, &self.device) {
            return watch.run(gpu, &self.program, graph, range, step).await;
        }
        self.device.replay_range(&self.program, graph, range, step)
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Refuses logits that are not finite: `[n, V]`, row by row, after the tokens from `first` on.
    fn check_logits(&self, logits: &[f32], first: usize) -> Result<()> {
        let Some(at) = logits.iter().position(|logit| !logit.is_finite()) else { return Ok(()) };
        let (row, id) = (at / self.config.vocab, at % self.config.vocab);
        Err(Error::NotFinite {
            place: format!("logit of token {id} behind {} tokens", first + row + 1),
            got: logits[at].to_string(),
        })
    }

    async fn feed(&mut self, graph: GraphId, ids: &[u32], logits: bool) -> Result<()> {
        let step = self.prepare(ids)?;
        self.run(graph, &step, logits).await
    }

    /// Checks ids, gives them pages and writes them where a replay reads them: the step of that.
    pub(super) fn prepare(&mut self, ids: &[u32]) -> Result<Step> {
        let (n, pos) = (ids.len(), self.pos());
        let most = self.max_chunk();
        if !(1..=most).contains(&n) {
            return Err(Error::argument("ids", format!("1 to {most} tokens a call"), n));
        }
        if pos + n > self.positions {
            return Err(Error::ContextFull { needed: pos + n, available: self.positions });
        }
        check_ids("ids", ids, self.config.vocab)?;
        self.end_draws();
        self.reserve(n)?;
        self.device.write(self.network.ids, pos, ids);
        Ok(self.pages.step(n))
    }
}
