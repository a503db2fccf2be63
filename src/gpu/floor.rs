//! What a device can do at best, measured on it: the rate at which it copies memory, and the time of a dispatch that depends on
//! the one before. From both comes the floor of a token's time (performance is quoted as a part of it).

use super::{Executor, Gpu};
use crate::error::Result;
use crate::graph::{GraphId, MAX_BINDING_WORDS, Program, Role, Step};
use crate::kernel::Rows;
use crate::kernel::copy;
use crate::kernel::rms_norm::RmsNorm;
use web_time::Instant;

/// Words of the two buffers that are copied, one to the other: WebGPU's default largest binding, so that 256 MiB move, well beyond
/// any cache.
const COPY_WORDS: usize = MAX_BINDING_WORDS;
/// Copies before one wait.
const COPIES: usize = 32;
/// Runs, of which the quickest counts.
const RUNS: usize = 20;

/// Bytes read and written a second by a kernel that copies 128 MiB, the best of 20 runs.
///
/// # Errors
/// [`crate::Error::OutOfMemory`] when the device has no room for the two buffers, and what it reports.
pub async fn copy_rate(gpu: &Gpu) -> Result<f64> {
    let mut program = Program::default();
    let [x, y] = ["copied", "copy"].map(|name| program.buffer(name, COPY_WORDS, Role::State));
    let mut r = program.record("copy");
    copy::record(&mut r, x, y);
    let graph = r.finish();
    let seconds = best_time(gpu, &program, graph, COPIES).await?;
    Ok(2.0 * 4.0 * COPY_WORDS as f64 * COPIES as f64 / seconds)
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
    Ok(best_time(gpu, &program, graph, in_flight).await? / (n_dispatches * in_flight) as f64)
}

/// Seconds for `n` replays of a graph and one wait, the best of 20 runs after one that touches the memory.
async fn best_time(gpu: &Gpu, program: &Program, graph: GraphId, n: usize) -> Result<f64> {
    let executor = Executor::new(gpu.clone(), program).await?;
    let step = Step { n_tokens: 1, ..Step::default() };
    let mut best = f64::MAX;
    for run in 0..=RUNS {
        let start = Instant::now();
        for _ in 0..n {
            executor.replay(graph, &step, true)?;
        }
        gpu.settle().await?;
        if run > 0 {
            best = best.min(start.elapsed().as_secs_f64());
        }
    }
    Ok(best)
}
