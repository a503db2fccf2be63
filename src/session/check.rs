//! The self-test: every kernel on this adapter against its twin, on the kernels' own cases.

use crate::error::{Error, Result};
use crate::gpu::{Gpu, harness};
use crate::graph::Case;
use crate::graph::compare::Deviation;
use crate::kernel::KERNELS;

/// What one case gave.
#[derive(Debug)]
pub struct Checked {
    /// The kernel.
    pub kernel: &'static str,
    /// The case.
    pub case: String,
    /// One per compared buffer, or why the case could not run.
    pub outcome: Result<Vec<Deviation>>,
}

impl Checked {
    /// Whether every compared buffer is within its tolerance.
    pub fn passed(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|deviations| deviations.iter().all(|deviation| !deviation.failed()))
    }
}

/// Runs every case of every kernel on a GPU and compares with the twins; `seen` is called after each case.
///
/// # Errors
/// [`Error::DeviceLost`]: nothing more can be learned. A case that fails in another way is reported as such and the rest goes on.
pub async fn check(gpu: &Gpu, seen: &mut dyn FnMut(&Checked)) -> Result<Vec<Checked>> {
    let mut all = Vec::new();
    for kernel in KERNELS {
        let runs = |case: &Case| {
            let mut dispatches = case.program.graphs.iter().flat_map(|graph| &graph.dispatches);
            dispatches.all(|dispatch| dispatch.kernel.runs_on(&dispatch.variant, &gpu.features()))
        };
        for case in (kernel.cases)().into_iter().filter(runs) {
            let outcome = harness::check_case(gpu, kernel, &case).await;
            if let Err(Error::DeviceLost(why)) = outcome {
                return Err(Error::DeviceLost(format!("{}, case {}: {why}", kernel.name, case.name)));
            }
            let checked = Checked { kernel: kernel.name, case: case.name, outcome };
            seen(&checked);
            all.push(checked);
        }
    }
    Ok(all)
}
