//! How quick each way to run a kernel is on a device: the recorded one and its alternatives, on one input.

use super::{Executor, Gpu, harness};
use crate::error::Result;
use crate::graph::{Case, GraphId, Kernel};
use web_time::Instant;

/// Replays before one wait, and such runs, of which the quickest counts.
const REPLAYS: usize = 20;
const RUNS: usize = 10;

/// `kernel [variant]` and seconds a replay of the case's first graph, for each way; the recorded one first.
///
/// # Errors
/// What the device reports.
pub async fn race(gpu: &Gpu, kernel: &Kernel, case: &Case) -> Result<Vec<(String, f64)>> {
    let recorded = case.program.graphs[0].dispatches.iter().find(|dispatch| dispatch.kernel.name == kernel.name);
    let label = recorded.map_or(String::new(), |dispatch| format!("{} [{}]", kernel.name, dispatch.variant));
    let others = harness::alternatives(gpu.features(), kernel, case);
    let others = others.into_iter().map(|(alternative, program)| (alternative.label(), program));
    let mut times = Vec::new();
    for (label, program) in [(label, case.program.clone())].into_iter().chain(others) {
        let executor = Executor::new(gpu.clone(), &program).await?;
        for (buffer, words) in &case.contents {
            executor.write(*buffer, 0, words);
        }
        let mut best = f64::MAX;
        for run in 0..=RUNS {
            let start = Instant::now();
            for _ in 0..REPLAYS {
                executor.replay(GraphId(0), &case.step, true)?;
            }
            executor.gpu().settle().await?;
            if run > 0 {
                best = best.min(start.elapsed().as_secs_f64() / REPLAYS as f64);
            }
        }
        times.push((label, best));
    }
    Ok(times)
}
