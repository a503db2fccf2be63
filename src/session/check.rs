//! The self-test: every kernel on this adapter, or the CPU's fast code of it, against its twin, on the kernels' own cases.

use crate::error::{Error, Result};
use crate::gpu::{Gpu, harness};
use crate::graph::compare::{Deviation, check_fast};
use crate::graph::{Alternative, Case, Kernel, Program};
use crate::kernel::{ALTERNATIVE_KERNELS, KERNELS};

/// What one case gave.
#[derive(Debug)]
pub struct Checked {
    /// Its name, as `kitfox check` takes it.
    pub kernel: &'static str,
    /// Its name, unique among the kernel's.
    pub case: String,
    /// The kernel's alternative, if it was not the recorded variant that ran.
    pub variant: Option<String>,
    /// One per compared buffer, or why the case could not run.
    pub outcome: Result<Vec<Deviation>>,
}

impl Checked {
    /// Whether every compared buffer is within its tolerance.
    pub fn passed(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|deviations| deviations.iter().all(|deviation| !deviation.failed()))
    }
}

/// Runs every case of some kernels on a GPU, then in every other way that the device offers, and compares with the twins; `seen` is
/// called after each. Of an alternative kernel these are the cases of the kernel in whose place it stands, in its own ways alone.
///
/// # Errors
/// [`Error::DeviceLost`]: nothing more can be learned. A case that fails in another way is reported as such and the rest goes on.
pub async fn check(gpu: &Gpu, kernels: &[&'static Kernel], seen: &mut dyn FnMut(&Checked)) -> Result<Vec<Checked>> {
    let mut all = Vec::new();
    for kernel in kernels {
        let is_alternative = ALTERNATIVE_KERNELS.iter().any(|known| known.name == kernel.name);
        all.extend(if is_alternative {
            check_alternative(gpu, kernel, seen).await?
        } else {
            check_kernel(gpu, kernel, seen).await?
        });
    }
    Ok(all)
}

/// The same of one kernel.
///
/// # Errors
/// As [`check`].
pub async fn check_kernel(gpu: &Gpu, kernel: &'static Kernel, seen: &mut dyn FnMut(&Checked)) -> Result<Vec<Checked>> {
    let cases = (kernel.cases)();
    let recorded = cases.iter().map(|case| (case, None));
    let others = cases
        .iter()
        .flat_map(|case| harness::alternatives(gpu.features(), kernel, case).into_iter().map(move |way| (case, Some(way))));
    compare(gpu, kernel, recorded.chain(others), seen).await
}

/// The same of one of [`ALTERNATIVE_KERNELS`]: none where the device does not offer it.
async fn check_alternative(gpu: &Gpu, kernel: &'static Kernel, seen: &mut dyn FnMut(&Checked)) -> Result<Vec<Checked>> {
    let cases = (kernel.cases)();
    let stands_for = |case: &Case| KERNELS.iter().find(|own| own.alternatives.is_some() && case.first_of(own).is_some()).copied();
    let mut all = Vec::new();
    for case in &cases {
        let Some(own) = stands_for(case) else { continue };
        let mut ways = harness::alternatives(gpu.features(), own, case);
        ways.retain(|(alternative, _)| alternative.kernel.name == kernel.name);
        all.extend(compare(gpu, own, ways.into_iter().map(|way| (case, Some(way))), seen).await?);
    }
    Ok(all)
}

/// Cases of a kernel, each as it was recorded or in another way.
async fn compare<'a>(
    gpu: &Gpu,
    kernel: &'static Kernel,
    runs: impl Iterator<Item = (&'a Case, Option<(Alternative, Program)>)>,
    seen: &mut dyn FnMut(&Checked),
) -> Result<Vec<Checked>> {
    let mut all = Vec::new();
    for (case, way) in runs {
        let outcome = match &way {
            None => harness::check_case(gpu, kernel, case).await,
            Some(way) => harness::check_alternative(gpu, kernel, case, way).await,
        };
        if let Err(Error::DeviceLost(why)) = outcome {
            return Err(Error::DeviceLost(format!("{}, case {}: {why}", kernel.name, case.name)));
        }
        let variant = way.map(|(alternative, _)| alternative.label());
        let checked = Checked { kernel: kernel.name, case: case.name.clone(), variant, outcome };
        seen(&checked);
        all.push(checked);
    }
    Ok(all)
}

/// The CPU's fast code of one kernel. One without it runs as its twin, which is nothing to compare.
pub fn check_kernel_on_cpu(kernel: &'static Kernel) -> Vec<Checked> {
    let cases = if kernel.fast.is_some() { (kernel.cases)() } else { Vec::new() };
    let checked =
        |case: Case| Checked { kernel: kernel.name, variant: None, outcome: Ok(check_fast(kernel, &case)), case: case.name };
    cases.into_iter().map(checked).collect()
}
