//! Which kernel does a dispatch on this adapter: the first of its alternatives that compiles and agrees with its twin on a small
//! input, else the kernel that was recorded, which runs everywhere.
//!
//! An alternative is looked at once per device and variant. One that fails is dropped and the reason kept ([`Gpu::notes`]).

use super::{Executor, Gpu, harness};
use crate::error::{Error, Result};
use crate::graph::{Alternative, Dispatch, Grid, Kernel, Variant};

/// The kernel, variant and grid of a dispatch.
pub(super) struct Choice {
    pub(super) kernel: &'static Kernel,
    pub(super) variant: Variant,
    pub(super) grid: Grid,
}

/// # Errors
/// [`Error::DeviceLost`] alone: whatever else an alternative does is a reason to do without it.
pub(super) async fn choose(gpu: &Gpu, dispatch: &Dispatch) -> Result<Choice> {
    for alternative in dispatch.kernel.alternatives {
        let Some((variant, grid)) = (alternative.plan)(dispatch, &gpu.features) else { continue };
        if agrees(gpu, alternative, dispatch, &variant).await? {
            return Ok(Choice { kernel: alternative.kernel, variant, grid });
        }
    }
    Ok(Choice { kernel: dispatch.kernel, variant: dispatch.variant.clone(), grid: dispatch.grid })
}

async fn agrees(gpu: &Gpu, alternative: &Alternative, dispatch: &Dispatch, variant: &Variant) -> Result<bool> {
    let key = (alternative.kernel.name, variant.clone());
    if let Some(known) = gpu.judged.borrow().get(&key) {
        return Ok(*known);
    }
    let case = (alternative.probe)(dispatch, variant);
    // Boxed: the probe's own executor leads back here, by type if not by run (it takes its program as recorded).
    let found = Box::pin(harness::check_case(gpu, alternative.kernel, &case)).await;
    let reason = match found {
        Err(Error::DeviceLost(why)) => return Err(Error::DeviceLost(why)),
        Err(error) => Some(error.to_string()),
        Ok(found) => found.iter().find(|deviation| deviation.failed()).map(ToString::to_string),
    };
    if let Some(reason) = &reason {
        let (kernel, instead) = (alternative.kernel.name, dispatch.kernel.name);
        gpu.notes.borrow_mut().push(format!("{kernel} [{variant}] is not used on this adapter, {instead} is: {reason}"));
    }
    gpu.judged.borrow_mut().insert(key, reason.is_none());
    Ok(reason.is_none())
}

impl Gpu {
    /// What was found wanting on this adapter, for people: one sentence each.
    pub fn notes(&self) -> Vec<String> {
        self.notes.borrow().clone()
    }
}

impl Executor {
    /// Each dispatch of a graph as it is done on this adapter: kernel and variant.
    pub fn kernels(&self, graph: crate::graph::GraphId) -> Vec<String> {
        self.chosen(graph).map(|(kernel, variant)| format!("{kernel} {variant}").trim_end().to_owned()).collect()
    }
}
