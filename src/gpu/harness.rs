//! Runs a kernel's test cases on a device and lets [`crate::graph::compare`] judge them against the twins: in the tests, and on
//! the user's own adapter.

use super::{Executor, Gpu};
use crate::error::{Error, Result};
use crate::graph::compare::{Deviation, compare, first_contents, guarded, run_cpu};
use crate::graph::{BufferId, Case, GraphId, Kernel};

/// Runs a case of a kernel on the GPU and through the twins: one [`Deviation`] per expected buffer, failed or not, and one per
/// buffer that was written past its end.
///
/// # Errors
/// What the device reported, with the kernel and the case.
pub async fn check_case(gpu: &Gpu, kernel: &Kernel, case: &Case) -> Result<Vec<Deviation>> {
    let got = run_gpu(gpu, case).await.map_err(|error| match error {
        Error::Gpu { place, message } => Error::Gpu { place: format!("{}: {}: {place}", kernel.name, case.name), message },
        other => other,
    })?;
    Ok(compare(case, &got, &run_cpu(case, false)))
}

/// Runs a case on the GPU: the words of every buffer afterwards, with its guards.
async fn run_gpu(gpu: &Gpu, case: &Case) -> Result<Vec<Vec<u32>>> {
    let program = guarded(&case.program);
    let executor = Executor::as_recorded(gpu.clone(), &program).await?;
    let ids = || (0..program.buffers.len() as u32).map(BufferId);
    for (id, words) in ids().zip(first_contents(case)) {
        executor.write(id, 0, &words);
    }
    for graph in (0..program.graphs.len() as u32).map(GraphId) {
        executor.replay(graph, &case.step, true)?;
    }
    let mut got = Vec::with_capacity(program.buffers.len());
    for id in ids() {
        got.push(executor.read(id, 0, program.get(id).words).await?);
    }
    Ok(got)
}
