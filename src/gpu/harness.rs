//! Runs a kernel's test cases on a device and lets [`crate::graph::compare`] judge them against the twins: in the tests, and on
//! the user's own adapter. The alternatives of a case's dispatches are judged by the baseline's twin.

use super::pipeline::pipelines;
use super::{Executor, Gpu};
use crate::error::{Error, Result};
use crate::graph::compare::{Deviation, compare, compare_within, first_contents, guarded, run_cpu};
use crate::graph::{Alternative, BufferId, Case, Dispatch, Features, GraphId, Kernel, Program};
use crate::kernel::parallel;

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
    let Some(first) = case.first_of(kernel) else { return Vec::new() };
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

/// An alternative with a case of its kernel, and the program that takes it: an item of [`alternatives`].
pub struct Trial {
    /// The kernel in whose place it stands.
    pub kernel: &'static Kernel,
    /// The input.
    pub case: Case,
    /// The alternative and the program.
    pub way: (Alternative, Program),
}

/// Like [`check_alternative`] for each of several, in one program with one wait.
///
/// # Errors
/// What the device reported of all of them together: which of them it was then shows when each is checked alone.
pub async fn check_together(gpu: &Gpu, trials: &[Trial]) -> Result<Vec<Result<Vec<Deviation>>>> {
    let dispatches = |trial: &'_ Trial| trial.way.1.graphs.iter().flat_map(|graph| &graph.dispatches).count();
    let wanted: Vec<_> = trials
        .iter()
        .flat_map(|trial| trial.way.1.graphs.iter().flat_map(|graph| &graph.dispatches))
        .map(|dispatch| (dispatch.kernel, &dispatch.variant))
        .collect();
    let mut compiled = pipelines(gpu, &wanted).await.into_iter();
    let mut refused: Vec<Option<Error>> = Vec::new();
    for trial in trials {
        let mut errors = compiled.by_ref().take(dispatches(trial)).filter_map(Result::err);
        let error = errors.next().map(named(trial.kernel, &trial.case));
        errors.for_each(drop);
        refused.push(error);
    }
    let runs = || trials.iter().zip(&refused).filter(|(_, error)| error.is_none()).map(|(trial, _)| trial);
    let programs: Vec<Program> = runs().map(|trial| guarded(&trial.way.1)).collect();
    let (together, first_buffers) = joined(&programs);
    let executor = Executor::new(gpu.clone(), &together).await?;
    let mut graph = (0..).map(GraphId);
    for ((trial, program), first) in runs().zip(&programs).zip(&first_buffers) {
        for (id, words) in (*first..).map(BufferId).zip(first_contents(&trial.case)) {
            executor.write(id, 0, &words);
        }
        for graph in graph.by_ref().take(program.graphs.len()) {
            executor.replay(graph, &trial.case.step, true)?;
        }
    }
    // Every copy is queued before the first is awaited; meanwhile the twins run.
    let mut reads = Vec::new();
    for (buffer, id) in together.buffers.iter().zip((0..).map(BufferId)) {
        reads.push(executor.start_read(id, 0, buffer.words)?);
    }
    let cases: Vec<&Case> = runs().map(|trial| &trial.case).collect();
    let want = parallel::map_ranges(cases.len(), 1, |range| run_cpu(cases[range.start], false));
    let mut reads = reads.into_iter();
    let mut deviations = Vec::new();
    for ((trial, program), want) in runs().zip(&programs).zip(&want) {
        let mut got = Vec::with_capacity(program.buffers.len());
        for read in reads.by_ref().take(program.buffers.len()) {
            got.push(executor.finish_read(read).await?);
        }
        deviations.push(compare_within(&trial.case, trial.way.0.tolerance, &got, want));
    }
    let mut deviations = deviations.into_iter();
    Ok(refused.into_iter().map(|error| error.map_or_else(|| Ok(deviations.next().unwrap_or_default()), Err)).collect())
}

/// Programs side by side, and the first buffer of each.
fn joined(programs: &[Program]) -> (Program, Vec<u32>) {
    let (mut all, mut first_buffers) = (Program::default(), Vec::new());
    for program in programs {
        let first = all.buffers.len() as u32;
        first_buffers.push(first);
        all.buffers.extend(program.buffers.iter().cloned());
        all.graphs.extend(program.graphs.iter().cloned().map(|mut graph| {
            for binding in graph.dispatches.iter_mut().flat_map(|dispatch| &mut dispatch.bindings) {
                binding.buffer.0 += first;
            }
            graph
        }));
    }
    (all, first_buffers)
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
