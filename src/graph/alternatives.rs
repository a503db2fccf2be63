//! What a device has beyond WebGPU's baseline, and other ways to run a dispatch that use it.
//!
//! A recorded graph carries the baseline variant of every kernel, which runs anywhere. A kernel may declare [`Alternatives`]: other
//! variants of itself with the same bindings and params, and perhaps another grid. Which of them a device takes is decided where the
//! device is (`gpu::tune`), after each was compared with the twin there; here are only the words for it.

use super::{Case, Dispatch, Grid, Kernel, Program, Tolerance, Variant};
use std::fmt;

/// WebGPU's default largest number of invocations in a workgroup.
pub const BASE_INVOCATIONS: u32 = 256;
/// WebGPU's default workgroup memory in bytes.
pub const BASE_WORKGROUP_BYTES: u32 = 16 << 10;

/// Element type of a cooperative matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CoopScalar {
    /// Half precision.
    F16,
    /// Single precision.
    F32,
}

/// A shape of cooperative matrices: A `[m, k]` times B `[k, n]` added to C `[m, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CoopShape {
    /// Rows of A and C.
    pub m: u32,
    /// Columns of B and C.
    pub n: u32,
    /// Columns of A, rows of B.
    pub k: u32,
    /// Elements of A and B.
    pub ab: CoopScalar,
    /// Elements of C.
    pub c: CoopScalar,
}

/// What an open device has; the default is WebGPU's baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// Smallest and largest size that a subgroup may have; which one a shader gets is known only when it runs.
    pub subgroups: Option<(u32, u32)>,
    /// `f16` in shaders.
    pub f16: bool,
    /// Shapes of cooperative matrices; empty without them.
    pub coop: Vec<CoopShape>,
    /// Timestamps between the dispatches of a pass.
    pub timestamps: bool,
    /// Invocations of a workgroup, on x and y and in all.
    pub max_invocations: u32,
    /// Bytes of workgroup memory.
    pub max_workgroup_bytes: u32,
    /// Whether it runs on a CPU, where few invocations go side by side.
    pub software: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            subgroups: None,
            f16: false,
            coop: Vec::new(),
            timestamps: false,
            max_invocations: BASE_INVOCATIONS,
            max_workgroup_bytes: BASE_WORKGROUP_BYTES,
            software: false,
        }
    }
}

impl Features {
    /// A device that has everything: what tests without a device ask kernels for.
    pub fn everything() -> Self {
        let coop = |size, ab| CoopShape { m: size, n: size, k: size, ab, c: CoopScalar::F32 };
        Self {
            subgroups: Some((4, 128)),
            f16: true,
            coop: vec![coop(16, CoopScalar::F16), coop(8, CoopScalar::F16), coop(8, CoopScalar::F32)],
            timestamps: true,
            max_invocations: 1024,
            max_workgroup_bytes: 48 << 10,
            software: false,
        }
    }

    /// Whether the device has it.
    pub fn meets(&self, need: Need) -> bool {
        match need {
            Need::Subgroups => self.subgroups.is_some(),
            Need::F16 => self.f16,
            Need::Coop(shape) => self.coop.contains(&shape),
            Need::Invocations(n) => self.max_invocations >= n,
            Need::WorkgroupBytes(n) => self.max_workgroup_bytes >= n,
        }
    }
}

/// For people: `subgroups of 32, f16, timestamps, 1024 invocations, 48 KiB of workgroup memory`.
impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subgroups = self.subgroups.map(|(least, most)| match least == most {
            true => format!("subgroups of {least}"),
            false => format!("subgroups of {least} to {most}"),
        });
        let named = [(self.f16, "f16"), (!self.coop.is_empty(), "cooperative matrices"), (self.timestamps, "timestamps")];
        let mut has: Vec<String> = subgroups.into_iter().collect();
        has.extend(named.into_iter().filter(|(there, _)| *there).map(|(_, name)| name.to_owned()));
        has.extend((self.max_invocations > BASE_INVOCATIONS).then(|| format!("{} invocations", self.max_invocations)));
        let kib = self.max_workgroup_bytes >> 10;
        has.extend((self.max_workgroup_bytes > BASE_WORKGROUP_BYTES).then(|| format!("{kib} KiB of workgroup memory")));
        write!(f, "{}", if has.is_empty() { "WebGPU's baseline".to_owned() } else { has.join(", ") })
    }
}

/// Something beyond the baseline that a variant cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// Subgroup operations; the shader must be right for every size from 4 to 128.
    Subgroups,
    /// `f16` in the shader.
    F16,
    /// Cooperative matrices of this shape.
    Coop(CoopShape),
    /// So many invocations in a workgroup.
    Invocations(u32),
    /// So many bytes of workgroup memory.
    WorkgroupBytes(u32),
}

/// Another way to run a dispatch: same bindings, params and twin.
#[derive(Clone, Debug)]
pub struct Alternative {
    /// The kernel itself, or another of `kernel::ALTERNATIVE_KERNELS` where the two have less than half their lines in common.
    pub kernel: &'static Kernel,
    /// Flags and constants.
    pub variant: Variant,
    /// Workgroups.
    pub grid: Grid,
    /// How far from the twin it may be in place of what a case says, when it rounds on the way; the reason stands in its file.
    pub tolerance: Option<Tolerance>,
}

impl Alternative {
    /// For people and files: `kernel [variant]`.
    pub fn label(&self) -> String {
        format!("{} [{}]", self.kernel.name, self.variant)
    }
}

/// What a kernel offers beside the variants that are recorded.
#[derive(Clone, Copy, Debug)]
pub struct Alternatives {
    /// By flag: what a variant with it needs. A flag may be named several times.
    pub needs: &'static [(&'static str, Need)],
    /// The alternatives of a dispatch on a device, the one that is most likely the quickest first. Those whose needs the device
    /// does not meet are left out by [`Dispatch::alternatives`].
    pub of: fn(&Dispatch, &Features) -> Vec<Alternative>,
}

impl Kernel {
    /// What a variant needs beyond the baseline.
    pub fn needs(&self, variant: &Variant) -> Vec<Need> {
        let by_flag = self.alternatives.map_or(&[][..], |alternatives| alternatives.needs);
        by_flag.iter().filter(|(flag, _)| variant.has(flag)).map(|(_, need)| *need).collect()
    }
}

impl Dispatch {
    /// What could run in its place on a device with these features, in the kernel's order of preference.
    ///
    /// # Panics
    /// When an alternative breaks the kernel's declaration or binds other buffers: a bug of the kernel's file.
    pub fn alternatives(&self, features: &Features) -> Vec<Alternative> {
        let Some(alternatives) = self.kernel.alternatives else { return Vec::new() };
        let mut offered = (alternatives.of)(self, features);
        offered.retain(|offer| offer.kernel.needs(&offer.variant).into_iter().all(|need| features.meets(need)));
        for offer in &offered {
            offer.kernel.check_variant(&offer.variant);
            let indices = |kernel: &'static Kernel, variant| kernel.active_indices(variant).map(|(ix, _)| ix).collect::<Vec<_>>();
            let (bound, wanted) = (indices(self.kernel, &self.variant), indices(offer.kernel, &offer.variant));
            assert!(bound == wanted, "{} binds {wanted:?}, recorded {bound:?}", offer.label());
            assert!(offer.kernel.params == self.kernel.params, "{} has other params", offer.label());
        }
        offered
    }

    /// The dispatch as it was recorded, as one of the ways to run it.
    pub fn recorded(&self) -> Alternative {
        Alternative { kernel: self.kernel, variant: self.variant.clone(), grid: self.grid, tolerance: None }
    }

    /// A small input for a dispatch like this one: the kernel's own, else the least of its cases of this variant, or of the variant that is
    /// nearest. Every variant that a model records has one of its own (`tests/models/wrong_kernels.rs`).
    pub fn probe(&self) -> Option<Case> {
        if let Some(probe) = self.kernel.probe {
            return Some(probe(self));
        }
        let mut cases = (self.kernel.cases)();
        cases.retain(|case| case.first_of(self.kernel).is_some());
        cases.into_iter().min_by_key(|case| {
            let variant = case.first_of(self.kernel).map_or(&self.variant, |first| &first.variant);
            let lacks = |a: &Variant, b: &Variant| a.flags.iter().filter(|flag| !b.has(flag)).count();
            let other_flags = lacks(variant, &self.variant) + lacks(&self.variant, variant);
            let other_consts = variant.consts.iter().zip(&self.variant.consts).filter(|(a, b)| a != b).count();
            (other_flags, other_consts, case.program.buffers.iter().map(|buffer| buffer.words).sum::<usize>())
        })
    }

    /// A param by name.
    ///
    /// # Panics
    /// When the kernel declares no such param.
    pub fn param(&self, name: &str) -> u32 {
        self.params[self.kernel.param_ix(name)]
    }

    /// The same dispatch with another value of a param.
    ///
    /// # Panics
    /// As [`Dispatch::param`].
    #[must_use]
    pub fn with_param(mut self, name: &str, value: u32) -> Self {
        let ix = self.kernel.param_ix(name);
        self.params[ix] = value;
        self
    }

    /// The same dispatch in another way.
    #[must_use]
    pub fn taking(&self, alternative: &Alternative) -> Self {
        Self { kernel: alternative.kernel, variant: alternative.variant.clone(), grid: alternative.grid, ..self.clone() }
    }
}

impl Case {
    /// Its first dispatch of a kernel.
    pub fn first_of(&self, kernel: &Kernel) -> Option<&Dispatch> {
        self.program.graphs.iter().flat_map(|graph| &graph.dispatches).find(|dispatch| dispatch.kernel.name == kernel.name)
    }
}

impl Program {
    /// The same program with some dispatches in other ways: `choose` gives the alternative to take, if any.
    #[must_use]
    pub fn taking(&self, mut choose: impl FnMut(&Dispatch) -> Option<Alternative>) -> Self {
        let mut program = self.clone();
        for dispatch in program.graphs.iter_mut().flat_map(|graph| &mut graph.dispatches) {
            if let Some(alternative) = choose(dispatch) {
                *dispatch = dispatch.taking(&alternative);
            }
        }
        program
    }
}
