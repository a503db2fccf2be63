//! Runs a kernel's test cases on a device and lets [`crate::graph::compare`] judge them against the twins: in the tests, and on
//! the user's own adapter. The alternatives of a case's dispatches are judged by the baseline's twin.

use super::{Executor, Gpu};
use crate::error::{Error, Result};
use crate::graph::compare::{Deviation, compare, compare_within, first_contents, guarded, run_cpu};
use crate::graph::{Alternative, BufferId, Case, Dispatch, Features, GraphId, Kernel, Program};

/// Runs a case of a kernel on the GPU and through the twins: one [`Deviation`] per expected buffer, failed or not, and one per
/// buffer that was written past its end.
///
/// # Errors
/// What the device reported, with the kernel and the case.
pub async fn check_case(gpu: &Gpu, kernel: &Kernel, case: &Case) -> Result<Vec<Deviation>> {
    let got = run_gpu(gpu, case, &case.program).await.map_err(named(kernel, case))?;
    Ok(compare(case, &got, &run_cpu(case, false)))
}

/// The ways to run a case on a device with these features beside the recorded one: an alternative of the kernel's first dispatch, and the program
/// in which every dispatch of the kernel takes the alternative of that rank (or its last).
pub fn alternatives(features: &Features, kernel: &Kernel, case: &Case) -> Vec<(Alternative, Program)> {
    let own = |dispatch: &Dispatch| dispatch.kernel.name == kernel.name;
    let Some(first) = case.program.graphs.iter().flat_map(|graph| &graph.dispatches).find(|dispatch| own(dispatch)) else {
        return Vec::new();
    };
    let offered = first.alternatives(features).into_iter().enumerate();
    let ways = offered.map(|(rank, alternative)| {
        let program = case.program.taking(|dispatch| {
            let mut offered = if own(dispatch) { dispatch.alternatives(features) } else { Vec::new() };
            offered.truncate(rank + 1);
            offered.pop()
        });
        (alternative, program)
    });
    ways.collect()
}

/// Like [`check_case`], for one of its [`alternatives`].
///
/// # Errors
/// What the device reported, with the kernel and the case.
pub async fn check_alternative(
    gpu: &Gpu,
    kernel: &Kernel,
    case: &Case,
    (alternative, program): &(Alternative, Program),
) -> Result<Vec<Deviation>> {
    let got = run_gpu(gpu, case, program).await.map_err(named(kernel, case))?;
    Ok(compare_within(case, alternative.tolerance, &got, &run_cpu(case, false)))
}

fn named<'a>(kernel: &'a Kernel, case: &'a Case) -> impl Fn(Error) -> Error + 'a {
    move |error| match error {
        Error::Gpu { place, message } => Error::Gpu { place: format!("{}: {}: {place}", kernel.name, case.name), message },
        other => other,
    }
}

/// Runs a case on the GPU: the words of every buffer afterwards, with its guards.
async fn run_gpu(gpu: &Gpu, case: &Case, program: &Program) -> Result<Vec<Vec<u32>>> {
    let program = guarded(program);
    let executor = Executor::new(gpu.clone(), &program).await?;
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
