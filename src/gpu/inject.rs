//! Faults on demand, for the tests of what happens then (feature `fault-injection`, which only the tests' builds have: the package asks
//! for it of itself among its dev-dependencies, where it brings no crate along, so that nothing is built twice for it).
//!
//! The room's calls pass points, which are counted thread by thread: a test arms a fault at some of them. A device is lost by
//! `device.destroy()`, so that wgpu itself reports it, when and as it likes. A refused buffer is made with usages that no device takes:
//! it is really invalid, and what is done with it fails as it would.

/// Where a fault may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A device is asked for: what is refused is no adapter at all, what is wrong another one.
    Open,
    /// A buffer is made.
    Buffer,
    /// A pipeline is made.
    Pipeline,
    /// Words are written into a buffer.
    Write,
    /// Commands are submitted.
    Submit,
    /// A read that was queued is waited for.
    Read,
}

/// What comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The allocation is refused.
    OutOfMemory,
    /// What is made is invalid.
    Validation,
    /// The device is gone.
    Lost,
    /// A pipeline computes nothing, as one that a driver compiled wrongly might.
    Wrong,
}

/// What comes at a point of this thread.
#[cfg(not(feature = "fault-injection"))]
pub(super) fn due(_: Point) -> Option<Fault> {
    None
}

/// Whether software adapters pass for hardware on this thread.
#[cfg(not(feature = "fault-injection"))]
pub(super) fn software_passes() -> bool {
    false
}

#[cfg(feature = "fault-injection")]
pub use armed::{arm, let_software_pass, passed};
#[cfg(feature = "fault-injection")]
pub(super) use armed::{due, software_passes};

#[cfg(feature = "fault-injection")]
mod armed {
    use super::{Fault, Point};
    use std::cell::Cell;
    use std::ops::Range;

    /// The fault, at which kinds of points, and at which of them.
    #[derive(Clone)]
    struct Plan {
        fault: Fault,
        points: &'static [Point],
        at: Range<usize>,
    }

    thread_local! {
        static PLAN: Cell<Option<Plan>> = const { Cell::new(None) };
        static PASSED: Cell<usize> = const { Cell::new(0) };
        static SOFTWARE_PASSES: Cell<bool> = const { Cell::new(false) };
    }

    /// From now on software adapters pass for hardware on this thread, or do not: for trying what only `auto` does.
    pub fn let_software_pass(pass: bool) {
        SOFTWARE_PASSES.set(pass);
    }

    /// Whether they do.
    pub(in crate::gpu) fn software_passes() -> bool {
        SOFTWARE_PASSES.get()
    }

    /// From now on the fault comes on this thread at those points whose number, counted from 0, is `at`; with an empty range they are
    /// only counted.
    pub fn arm(fault: Fault, points: &'static [Point], at: Range<usize>) {
        PLAN.set(Some(Plan { fault, points, at }));
        PASSED.set(0);
    }

    /// Such points that this thread has passed since it was armed. Nothing comes any more.
    pub fn passed() -> usize {
        PLAN.set(None);
        PASSED.get()
    }

    /// What comes at a point of this thread.
    pub(in crate::gpu) fn due(point: Point) -> Option<Fault> {
        let plan = PLAN.take()?;
        PLAN.set(Some(plan.clone()));
        if !plan.points.contains(&point) {
            return None;
        }
        let number = PASSED.get();
        PASSED.set(number + 1);
        plan.at.contains(&number).then_some(plan.fault)
    }
}
