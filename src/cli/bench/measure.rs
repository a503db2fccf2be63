//! Timed runs: a prompt is read, then tokens are written behind it.

use cpu_time::ThreadTime;
use kitfox::Result;
use kitfox::session::{Model, Sampler, SamplerOptions};
use pollster::block_on;
use std::time::Instant;

/// Timed runs of one kind.
#[derive(Default)]
pub struct Times(Vec<f64>);

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

/// The runs of one side of a comparison.
#[derive(Default)]
pub struct Runs {
    /// Seconds of reading the prompt but for its last token.
    pub prefill: Times,
    /// Seconds of writing.
    pub decode: Times,
    /// CPU time of this thread in it, microseconds a token.
    pub cpu_us: Times,
    /// Live part of the pages behind the prompt, in the last run.
    pub live_kv: f64,
    /// Tokens under way at once at the end of the last run.
    pub in_flight: usize,
}

impl Runs {
    /// One run: the prompt, then `n` tokens. The first run of a model warms it up and is not to count.
    pub fn run(&mut self, model: &mut Model, ids: &[u32], n: usize, in_flight: Option<usize>, counts: bool) -> Result<()> {
        let read = time_prefill(model, ids)?;
        self.live_kv = block_on(model.live_kv_fraction())?;
        let (written, cpu) = time_decode(model, ids, n, in_flight)?;
        self.in_flight = model.in_flight();
        if counts {
            self.prefill.0.push(read);
            self.decode.0.push(written);
            self.cpu_us.0.push(cpu * 1e6 / n as f64);
        }
        Ok(())
    }
}

/// Seconds for all of the prompt but its last token, which belongs to the decoding that follows.
pub fn time_prefill(model: &mut Model, ids: &[u32]) -> Result<f64> {
    model.reset();
    let ids = &ids[..ids.len() - 1];
    let start = Instant::now();
    let chunk = model.chunk();
    for ids in ids.chunks(chunk) {
        block_on(model.prefill(ids, false))?;
    }
    block_on(model.settle())?;
    Ok(start.elapsed().as_secs_f64())
}

/// Seconds for the last token of the prompt and `n` sampled ones, and CPU seconds of this thread in them.
fn time_decode(model: &mut Model, ids: &[u32], n: usize, in_flight: Option<usize>) -> Result<(f64, f64)> {
    let options = SamplerOptions { seed: 1, ..SamplerOptions::default() };
    let (start, cpu) = (Instant::now(), ThreadTime::now());
    let last = &ids[ids.len() - 1..];
    if model.draws_on_device() {
        let turn = model.draw(last, &options, ids.len() + n, in_flight)?;
        for _ in 0..n {
            block_on(model.drawn(turn))?;
        }
    } else {
        let (mut sampler, mut history) = (Sampler::new(options)?, ids.to_vec());
        let mut logits = block_on(model.step(last[0]))?;
        for ix in 1..=n {
            history.push(sampler.sample(&logits, &history)?);
            if ix < n {
                logits = block_on(model.step(history[history.len() - 1]))?;
            }
        }
    }
    Ok((start.elapsed().as_secs_f64(), cpu.elapsed().as_secs_f64()))
}
