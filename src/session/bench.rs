//! How fast a model reads a prompt and writes tokens here, and how near that is to the device's own floor.
//!
//! Reading and writing are timed apart: runs after one that warms up, medians with the slowest and quickest beside them. The floor of
//! a token is what the device needs at best: bytes of weights and live keys and values over its best copy rate, and the dispatches of
//! a token at the time of an empty one that depends on the one before ([`floor`]).

use super::draw::check_in_flight;
use super::{Device, Model, Sampler, SamplerOptions};
use crate::gpu::floor::{self, CopyRate};
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
    model.read(ids).await?;
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
        let turn = model.draw(last, &options, ids.len() + n, in_flight).await?;
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
    measured: Measured,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Tokens of the prompt.
    pub context: usize,
    /// Tokens written behind it in a run.
    pub n: usize,
    /// Seconds of reading the prompt but for its last token.
    pub prefill: Times,
    /// Seconds of writing.
    pub decode: Times,
    /// CPU seconds of it, of the thread that asks for the tokens.
    pub cpu: Times,
    /// Live part of the pages behind the prompt, in the last run.
    pub live_kv: f64,
    /// Tokens under way at once at the end of the last run.
    pub in_flight: usize,
    /// The device's best copy rate.
    pub copy: Option<CopyRate>,
    /// Seconds of a dispatch that does next to nothing.
    pub dispatch: Option<f64>,
}

impl Measured {
    /// Nothing yet.
    pub fn new(context: usize, n: usize) -> Self {
        let [prefill, decode, cpu] = [const { Times(Vec::new()) }; 3];
        Self { context, n, prefill, decode, cpu, live_kv: 1.0, in_flight: 1, copy: None, dispatch: None }
    }

    /// The figures, under the keys of `kitfox bench --json`; what is not known is null.
    ///
    /// # Panics
    /// Before a timed run was measured.
    pub fn report(&self, model: &Model) -> Value {
        let config = model.config();
        let [prefill_rate, prefill_slowest, prefill_quickest] = self.prefill.rates(self.context - 1);
        let [decode_rate, decode_slowest, decode_quickest] = self.decode.rates(self.n);
        let decode_ms = 1e3 / decode_rate;
        let (dispatches, bytes) = (model.dispatches_per_token(), model.bytes_per_token(self.context, self.live_kv));
        let floor_ms = self
            .copy
            .zip(self.dispatch)
            .map(|(copy, dispatch)| (bytes as f64 / copy.bytes_per_s + dispatches as f64 * dispatch) * 1e3);
        let gpu = match model.device() {
            Device::Gpu(executor) => Some(executor.gpu()),
            Device::Cpu(_) => None,
        };
        let start_up = gpu.map(|gpu| gpu.start_up());
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        json!({
            "adapter": model.device_name(), "backend": gpu.map_or("cpu", |gpu| &gpu.info().backend),
            "shape": [config.hidden, config.n_layers, config.n_heads, config.vocab],
            "quant": model.matrix_types(),
            "context": self.context,
            "chunk": model.chunk(),
            "prefill_tokens_per_s": prefill_rate, "prefill_spread": [prefill_slowest, prefill_quickest],
            "decode_tokens_per_s": decode_rate, "decode_spread": [decode_slowest, decode_quickest],
            "decode_ms": decode_ms,
            "in_flight": self.in_flight,
            "dispatches_per_token": dispatches,
            "copy_gb_s": self.copy.map(|copy| copy.bytes_per_s / 1e9), "copy_bytes": self.copy.map(|copy| copy.bytes),
            "dispatch_us": self.dispatch.map(|seconds| seconds * 1e6),
            "floor_ms": floor_ms, "floor_fraction": floor_ms.map(|floor| floor / decode_ms),
            "bytes_per_token": bytes,
            "live_kv_fraction": self.live_kv,
            "log_pruning_tolerance": model.log_pruning_tolerance(),
            "peak_device_bytes": model.bytes(),
            "cpu_us_per_token": self.cpu.median() * 1e6 / self.n as f64,
            "startup_check_ms": start_up.as_ref().map(|start_up| milliseconds(start_up.check)),
            "startup_tune_ms": start_up.as_ref().map(|start_up| milliseconds(start_up.tune)),
        })
    }
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
        let measured = Measured::new(options.context, options.n);
        Ok(Self { options, ids, done: 0, measured })
    }

    /// Measures the next phase: one reading of the prompt, one writing behind it, or a part of the floor. Gives how many are done, and
    /// how many there are.
    ///
    /// # Errors
    /// Those of the model and of its device.
    pub async fn measure(&mut self, model: &mut Model) -> Result<(usize, usize)> {
        let of_runs = 2 * (self.options.runs + 1);
        let of_floor = if self.options.floor && model.draws_on_device() { 2 } else { 0 };
        let measured = &mut self.measured;
        match (self.done, model.device()) {
            (done, _) if done == of_runs + of_floor => return Ok((done, done)),
            (done, _) if done < of_runs && done.is_multiple_of(2) => {
                let seconds = time_prefill(model, &self.ids).await?;
                measured.live_kv = model.live_kv_fraction().await?;
                // The first run warms up.
                measured.prefill.0.extend((done > 1).then_some(seconds));
            }
            (done, _) if done < of_runs => {
                let (seconds, spent) = busy(time_decode(model, &self.ids, self.options.n, self.options.in_flight)).await;
                measured.in_flight = model.in_flight();
                measured.decode.0.extend((done > 1).then_some(seconds?));
                measured.cpu.0.extend((done > 1).then_some(spent.as_secs_f64()));
            }
            (done, Device::Gpu(executor)) if of_floor > 0 && done == of_runs => {
                // Where there is no room for buffers of that size beside the model, the floor stays unknown.
                measured.copy = match floor::copy_rate(executor.gpu()).await {
                    Err(Error::OutOfMemory { .. }) => None,
                    rate => Some(rate?),
                };
            }
            (_, Device::Gpu(executor)) => {
                let dispatches = model.dispatches_per_token();
                measured.dispatch = Some(floor::dispatch_time(executor.gpu(), dispatches, measured.in_flight).await?);
            }
            (_, Device::Cpu(_)) => unreachable!("only a GPU has phases beyond the runs"),
        }
        self.done += 1;
        Ok((self.done, of_runs + of_floor))
    }

    /// The figures ([`Measured::report`]). CPU time is that of [`busy`].
    ///
    /// # Panics
    /// Before a timed run was measured.
    pub fn report(&self, model: &Model) -> Value {
        self.measured.report(model)
    }
}
