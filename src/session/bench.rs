//! How fast a model reads a prompt and writes tokens here, and how near that is to the device's own floor.
//!
//! Reading and writing are timed apart: runs after one that warms up, medians with the slowest and quickest beside them. The floor of
//! a token is what the device needs at best: bytes of weights and live keys and values over its best copy rate, and the dispatches of
//! a token at the time of an empty one that depends on the one before ([`floor`]).

use super::draw::check_in_flight;
use super::{Device, Model, Sampler, SamplerOptions};
use crate::gpu::floor;
use crate::{Error, Result};
use serde_json::{Value, json};
use std::future::{Future, poll_fn};
use std::pin::pin;
use web_time::{Duration, Instant};

/// Timed runs of one kind, in seconds.
#[derive(Clone, Debug, Default)]
pub struct Times(pub Vec<f64>);

impl Times {
    /// The middle one.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    /// Rates of `n` things: median, slowest, quickest.
    pub fn rates(&self, n: usize) -> [f64; 3] {
        let rate = |seconds: f64| n as f64 / seconds;
        [self.median(), self.0.iter().copied().fold(0.0, f64::max), self.0.iter().copied().fold(f64::MAX, f64::min)].map(rate)
    }
}

/// A prompt of `n` tokens: a text again and again where the model has a tokenizer, seeded ids else.
///
/// # Errors
/// [`Error::Tokenizer`]; [`Error::Argument`] for a text without tokens.
pub fn prompt(model: &Model, text: Option<&str>, n: usize) -> Result<Vec<u32>> {
    let mut ids = Vec::from_iter(model.bos());
    match (text, model.tokenizer("bench")) {
        (Some(text), Ok(tokenizer)) => {
            let text = tokenizer.encode(text)?;
            if text.is_empty() {
                return Err(Error::argument("text", "text of at least one token", "an empty text"));
            }
            while ids.len() < n {
                ids.extend(&text);
            }
        }
        _ => ids.extend((0..n as u64).map(|ix| (ix.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u32 % model.vocab() as u32)),
    }
    ids.truncate(n);
    Ok(ids)
}

/// Seconds for all of the prompt but its last token, which belongs to the decoding that follows.
///
/// # Errors
/// Those of [`Model::prefill`].
pub async fn time_prefill(model: &mut Model, ids: &[u32]) -> Result<f64> {
    model.reset();
    let ids = &ids[..ids.len() - 1];
    let start = Instant::now();
    let chunk = model.chunk();
    for ids in ids.chunks(chunk) {
        model.prefill(ids, false).await?;
    }
    model.settle().await?;
    Ok(start.elapsed().as_secs_f64())
}

/// Seconds for the last token of the prompt and `n` sampled ones.
///
/// # Errors
/// Those of [`Model::draw`], and of [`Model::step`] on the CPU.
pub async fn time_decode(model: &mut Model, ids: &[u32], n: usize, in_flight: Option<usize>) -> Result<f64> {
    let options = SamplerOptions { seed: 1, ..SamplerOptions::default() };
    let start = Instant::now();
    let last = &ids[ids.len() - 1..];
    if model.draws_on_device() {
        let turn = model.draw(last, &options, ids.len() + n, in_flight)?;
        for _ in 0..n {
            model.drawn(turn).await?;
        }
    } else {
        let (mut sampler, mut history) = (Sampler::new(options)?, ids.to_vec());
        let mut logits = model.step(last[0]).await?;
        for ix in 1..=n {
            history.push(sampler.sample(&logits, &history)?);
            if ix < n {
                logits = model.step(history[history.len() - 1]).await?;
            }
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

/// A future's output and the time that its polls took: what this thread spent on it where it waits between two polls, as in a browser.
/// Natively a poll waits for the device itself.
pub async fn busy<F: Future>(future: F) -> (F::Output, Duration) {
    let (mut future, mut spent) = (pin!(future), Duration::ZERO);
    let output = poll_fn(|context| {
        let start = Instant::now();
        let polled = future.as_mut().poll(context);
        spent += start.elapsed();
        polled
    });
    let output = output.await;
    (output, spent)
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Tokens of the prompt, at least 2: decoding starts behind them.
    pub context: usize,
    /// Tokens to generate in a run.
    pub n: usize,
    /// Timed runs.
    pub runs: usize,
    /// Tokens under way on a GPU at once; `None`: as many as pay.
    pub in_flight: Option<usize>,
    /// Whether a GPU's floor is measured, too.
    pub floor: bool,
    /// What the prompt says, again and again; `None`: seeded ids.
    pub text: Option<String>,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self { context: 1024, n: 128, runs: 5, in_flight: None, floor: true, text: None }
    }
}

/// A measurement, phase by phase: its caller can do something else between two of them.
pub struct Bench {
    options: BenchOptions,
    ids: Vec<u32>,
    /// Phases that are done.
    done: usize,
    prefill: Times,
    decode: Times,
    cpu: Times,
    live_kv: f64,
    /// Bytes a second of the device's copy, seconds of a dispatch.
    floor: [Option<f64>; 2],
}

impl Bench {
    /// # Errors
    /// [`Error::Argument`] for an option out of its range, [`Error::ContextFull`] when prompt and tokens do not fit, those of [`prompt`].
    pub fn new(model: &Model, options: BenchOptions) -> Result<Self> {
        for (option, value, least) in [("context", options.context, 2), ("n", options.n, 1), ("runs", options.runs, 1)] {
            if value < least {
                return Err(Error::argument(option, format!("at least {least}"), value));
            }
        }
        check_in_flight(options.in_flight)?;
        let needed = options.context.saturating_add(options.n);
        if needed > model.positions() {
            return Err(Error::ContextFull { needed, available: model.positions() });
        }
        let ids = prompt(model, options.text.as_deref(), options.context)?;
        let (prefill, decode, cpu) = (Times::default(), Times::default(), Times::default());
        Ok(Self { options, ids, done: 0, prefill, decode, cpu, live_kv: 1.0, floor: [None; 2] })
    }

    /// Measures the next phase: one reading of the prompt, one writing behind it, or a part of the floor. Gives how many are done, and
    /// how many there are.
    ///
    /// # Errors
    /// Those of the model and of its device.
    pub async fn measure(&mut self, model: &mut Model) -> Result<(usize, usize)> {
        let of_runs = 2 * (self.options.runs + 1);
        let of_floor = if self.options.floor && model.draws_on_device() { 2 } else { 0 };
        match (self.done, model.device()) {
            (done, _) if done == of_runs + of_floor => return Ok((done, done)),
            (done, _) if done < of_runs && done.is_multiple_of(2) => {
                let seconds = time_prefill(model, &self.ids).await?;
                self.live_kv = model.live_kv_fraction().await?;
                // The first run warms up.
                self.prefill.0.extend((done > 1).then_some(seconds));
            }
            (done, _) if done < of_runs => {
                let (seconds, spent) = busy(time_decode(model, &self.ids, self.options.n, self.options.in_flight)).await;
                self.decode.0.extend((done > 1).then_some(seconds?));
                self.cpu.0.extend((done > 1).then_some(spent.as_secs_f64()));
            }
            (done, Device::Gpu(executor)) if done == of_runs => {
                self.floor[0] = Some(floor::copy_rate(executor.gpu()).await?);
            }
            (_, Device::Gpu(executor)) => {
                let in_flight = self.options.in_flight.unwrap_or(8);
                self.floor[1] = Some(floor::dispatch_time(executor.gpu(), model.dispatches_per_token(), in_flight).await?);
            }
            (_, Device::Cpu(_)) => unreachable!("only a GPU has phases beyond the runs"),
        }
        self.done += 1;
        Ok((self.done, of_runs + of_floor))
    }

    /// The figures, under the keys of `kitfox bench --json`. CPU time is that of [`busy`].
    ///
    /// # Panics
    /// Before a timed run was measured.
    pub fn report(&self, model: &Model) -> Value {
        let (config, &BenchOptions { context, n, .. }) = (model.config(), &self.options);
        let [prefill_rate, prefill_slowest, prefill_quickest] = self.prefill.rates(context - 1);
        let [decode_rate, decode_slowest, decode_quickest] = self.decode.rates(n);
        let decode_ms = 1e3 / decode_rate;
        let (dispatches, bytes) = (model.dispatches_per_token(), model.bytes_per_token(context, self.live_kv));
        let [copy, dispatch] = self.floor;
        let floor_ms = copy.zip(dispatch).map(|(copy, dispatch)| (bytes as f64 / copy + dispatches as f64 * dispatch) * 1e3);
        let backend = match model.device() {
            Device::Gpu(executor) => &executor.gpu().info().backend,
            Device::Cpu(_) => "cpu",
        };
        json!({
            "adapter": model.device_name(), "backend": backend,
            "shape": [config.hidden, config.n_layers, config.n_heads, config.vocab],
            "quant": model.matrix_types(),
            "context": context,
            "prefill_tokens_per_s": prefill_rate, "prefill_spread": [prefill_slowest, prefill_quickest],
            "decode_tokens_per_s": decode_rate, "decode_spread": [decode_slowest, decode_quickest],
            "decode_ms": decode_ms,
            "dispatches_per_token": dispatches,
            "copy_gb_s": copy.map(|rate| rate / 1e9), "dispatch_us": dispatch.map(|seconds| seconds * 1e6),
            "floor_ms": floor_ms, "floor_fraction": floor_ms.map(|floor| floor / decode_ms),
            "bytes_per_token": bytes,
            "live_kv_fraction": self.live_kv,
            "peak_device_bytes": model.bytes(),
            "cpu_us_per_token": self.cpu.median() * 1e6 / n as f64,
        })
    }
}
