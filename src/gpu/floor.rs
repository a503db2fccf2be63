//! What a device can do at best, measured on it: the rate at which it copies memory, and the time of a dispatch that depends on
//! the one before. From both comes the floor of a token's time (performance is quoted as a part of it).

use super::{Executor, Gpu};
use crate::error::{Error, Result};
use crate::graph::{GraphId, MAX_BINDING_WORDS, Program, Role, Step};
use crate::kernel::Rows;
use crate::kernel::copy::{self, PAIRS};
use crate::kernel::rms_norm::RmsNorm;
use web_time::Instant;

/// Words of each buffer that is copied: WebGPU's default largest binding, so that a copy of 256 MiB is one of two buffers.
const COPY_WORDS: usize = MAX_BINDING_WORDS;
/// Copies before one wait, and the seconds in which there should be time for more than one.
const COPIES: usize = 32;
const RUN_SECONDS: f64 = 0.05;
/// Runs, of which the quickest counts.
const RUNS: usize = 20;
/// On a GPU in software, where a copy takes the better part of a second and its rate is the CPU's.
const SOFTWARE_RUNS: usize = 3;

/// How fast a device copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyRate {
    /// Bytes read and written a second.
    pub bytes_per_s: f64,
    /// Bytes that each copy read, and as many written.
    pub bytes: u64,
}

/// The best rate of copies of 256 MiB and of 512 MiB (read, and written as well), by one dispatch each: the best of 20 runs of either. 512 MiB
/// are left out where the device has no room for them, and on a GPU in software.
///
/// # Errors
/// [`Error::OutOfMemory`] when it has no room for 256 MiB twice, and what it reports.
pub async fn copy_rate(gpu: &Gpu) -> Result<CopyRate> {
    let mut best = copy_rate_of(gpu, PAIRS[1]).await?;
    if gpu.info().software {
        return Ok(best);
    }
    match copy_rate_of(gpu, PAIRS[2]).await {
        Ok(rate) if rate.bytes_per_s > best.bytes_per_s => best = rate,
        Ok(_) | Err(Error::OutOfMemory { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(best)
}

async fn copy_rate_of(gpu: &Gpu, n_pairs: usize) -> Result<CopyRate> {
    let mut program = Program::default();
    let mut buffers = |name: &str| (0..n_pairs).map(|_| program.buffer(name, COPY_WORDS, Role::State)).collect::<Vec<_>>();
    let (from, to) = (buffers("copied"), buffers("copy"));
    let mut r = program.record("copy");
    copy::record(&mut r, &from, &to);
    let graph = r.finish();
    let executor = Executor::new(gpu.clone(), &program).await?;
    // The first touches the memory.
    time(gpu, &executor, graph, 1).await?;
    let once = time(gpu, &executor, graph, 1).await?;
    let n = ((RUN_SECONDS / once) as usize).clamp(1, COPIES);
    let n_runs = if gpu.info().software { SOFTWARE_RUNS } else { RUNS };
    let seconds = best_time(gpu, &executor, graph, n, n_runs).await?;
    let bytes = 4 * (n_pairs * COPY_WORDS) as u64;
    Ok(CopyRate { bytes_per_s: 2.0 * bytes as f64 * n as f64 / seconds, bytes })
}

/// Seconds that a dispatch adds which does next to nothing but needs the result of the one before: `n_dispatches` in a pass,
/// `in_flight` passes submitted before one is awaited; the best of 20 runs.
///
/// # Errors
/// What the device reports.
pub async fn dispatch_time(gpu: &Gpu, n_dispatches: usize, in_flight: usize) -> Result<f64> {
    let mut program = Program::default();
    let weight = program.buffer("weight", 64, Role::Weight);
    let y = program.buffer("y", 64, Role::State);
    let mut r = program.record("empty");
    for _ in 0..n_dispatches {
        let weight = r.whole(weight);
        let y = Rows { buffer: y, stride: 16, column: 0 };
        RmsNorm { x: None, y, weight, weight_offset: 0, rows_per_token: 1, width: 16, eps: 1e-6 }.record(&mut r);
    }
    let graph = r.finish();
    let executor = Executor::new(gpu.clone(), &program).await?;
    time(gpu, &executor, graph, in_flight).await?;
    Ok(best_time(gpu, &executor, graph, in_flight, RUNS).await? / (n_dispatches * in_flight) as f64)
}

/// Seconds for `n` replays of a graph and one wait, the best of all runs.
async fn best_time(gpu: &Gpu, executor: &Executor, graph: GraphId, n: usize, n_runs: usize) -> Result<f64> {
    let mut best = f64::MAX;
    for _ in 0..n_runs {
        best = best.min(time(gpu, executor, graph, n).await?);
    }
    Ok(best)
}

async fn time(gpu: &Gpu, executor: &Executor, graph: GraphId, n: usize) -> Result<f64> {
    let step = Step { n_tokens: 1, ..Step::default() };
    let start = Instant::now();
    for _ in 0..n {
        executor.replay(graph, &step, true)?;
    }
    gpu.settle().await?;
    Ok(start.elapsed().as_secs_f64())
}
