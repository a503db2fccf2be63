//! How a sweep goes over the points at which a fault may come, and what it tells of them. `npm test` tries a spread of them, and
//! `KITFOX_ALL_POINTS=1` every one (`npm run evidence faults` makes a table of what is told).

use super::{load_options, refused};
use crate::common::golden;
use kitfox::Result;
use kitfox::gpu::inject::{Fault, Point, arm, passed};
use kitfox::session::LoadOptions;
use std::fmt::Debug;

/// A device with no feature and default limits, or that which users get: with all that the adapter has, and quicker kernels by it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    Baseline,
    Equipped,
}

impl Way {
    pub fn options(self) -> LoadOptions {
        LoadOptions { baseline: self == Self::Baseline, ..load_options() }
    }

    /// The first of two numbers for the baseline, the second otherwise; `all` where every point is tried.
    pub fn choose(self, baseline: usize, equipped: usize, all: usize) -> usize {
        let every = std::env::var("KITFOX_ALL_POINTS").is_ok_and(|value| value == "1");
        match self {
            _ if every => all,
            Self::Baseline => baseline,
            Self::Equipped => equipped,
        }
    }
}

/// What work gives.
pub trait Outcome: PartialEq + Debug {
    /// Whether it is what another kernel would give: it adds up in another order.
    fn is_near(&self, _: &Self) -> bool {
        false
    }
}

impl Outcome for () {}

impl Outcome for Vec<u32> {}

impl Outcome for Vec<f32> {
    fn is_near(&self, other: &Self) -> bool {
        golden::worst(self, other) < golden::BAR
    }
}

/// A fault at one point after the other.
pub struct Sweep {
    way: Way,
    what: String,
    fault: Fault,
    points: &'static [Point],
    /// Points that there are, and of those that were tried how many gave what they give without, how many did so by another kernel in the
    /// place of an alternative that could not be had, and how many an error.
    pub there: usize,
    pub same: usize,
    pub near: usize,
    pub errors: usize,
}

impl Sweep {
    pub fn new(way: Way, what: impl Into<String>, fault: Fault, points: &'static [Point]) -> Self {
        Self { way, what: what.into(), fault, points, there: 0, same: 0, near: 0, errors: 0 }
    }

    /// Work with a fault at point `n`: whether there was one. It gives what it gives without, or a typed error.
    pub fn at<T: Outcome>(&mut self, n: usize, want: &T, work: impl FnOnce() -> Result<T>) -> bool {
        arm(self.fault, self.points, n..n + 1);
        let worked = work();
        let reached = passed() > n;
        match worked {
            Err(error) if reached => {
                refused(&error);
                self.errors += 1;
            }
            worked => {
                let (got, place) = (worked.unwrap(), format!("{:?}, {}: {:?} at point {n}", self.way, self.what, self.fault));
                if reached && got != *want && self.way == Way::Equipped {
                    assert!(got.is_near(want), "{place}: {got:?}, not {want:?}");
                    self.near += 1;
                } else {
                    assert_eq!(got, *want, "{place}");
                    self.same += usize::from(reached);
                }
            }
        }
        if reached {
            self.there = n + 1;
        }
        reached
    }

    /// Runs `work` with a fault at every `step`th point from the first on, until there is none: the number of the first that is not there.
    pub fn at_each<T: Outcome>(mut self, step: usize, want: &T, mut work: impl FnMut() -> Result<T>) -> Self {
        let mut n = 0;
        while self.at(n, want, &mut work) {
            n += step;
        }
        self.there = n;
        self.tell();
        self
    }

    /// What `npm run evidence faults` reads.
    pub fn tell(&self) {
        let Self { way, what, fault, there, same, near, errors, .. } = self;
        println!("points | {way:?}: {what} | {fault:?} | {there} | {} | {same} | {near} | {errors}", same + near + errors);
    }
}
