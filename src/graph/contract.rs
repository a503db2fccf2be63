//! What a kernel declares, and what its twin and its test cases are given.
//!
//! A kernel is one shader file and one Rust file with a `static` [`Kernel`], named in `kernel::KERNELS`.
//! Storage bindings of a shader have the index of their [`BindingDecl`] (0 to 7), `params` has binding 8, `step` binding 9,
//! all in group 0. `tests/kernels/shaders.rs` compares the shader with the declaration, without a GPU.

use super::{Alternatives, BufferId, Dispatch, Program, Step};
use std::fmt;

/// Binding index of the uniform `params`.
pub const PARAMS_BINDING: u32 = 8;
/// Binding index of the uniform `step`.
pub const STEP_BINDING: u32 = 9;

/// Whether a kernel writes a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// `var<storage, read>`.
    Read,
    /// `var<storage, read_write>`: written, perhaps read too.
    Write,
}

/// Element type of a binding's array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Elem {
    /// `array<f32>`.
    F32,
    /// `array<vec4<f32>>`.
    F32x4,
    /// `array<u32>`.
    U32,
    /// `array<vec2<u32>>`.
    U32x2,
    /// `array<vec4<u32>>`.
    U32x4,
}

impl Elem {
    /// 32-bit words of one element.
    pub fn words(self) -> usize {
        match self {
            Self::F32 | Self::U32 => 1,
            Self::U32x2 => 2,
            Self::F32x4 | Self::U32x4 => 4,
        }
    }
}

/// One storage binding of a shader.
#[derive(Clone, Copy, Debug)]
pub struct BindingDecl {
    /// Its name in the shader.
    pub name: &'static str,
    /// Whether it is written.
    pub access: Access,
    /// Element type.
    pub elem: Elem,
    /// Present only in variants with one of these flags; in all when empty.
    pub only_if: &'static [&'static str],
}

impl BindingDecl {
    /// A binding that the kernel reads.
    pub const fn read(name: &'static str, elem: Elem) -> Self {
        Self { name, access: Access::Read, elem, only_if: &[] }
    }

    /// A binding that the kernel writes.
    pub const fn write(name: &'static str, elem: Elem) -> Self {
        Self { name, access: Access::Write, elem, only_if: &[] }
    }

    /// The same, only in variants with one of these flags.
    pub const fn only_if(self, flags: &'static [&'static str]) -> Self {
        Self { only_if: flags, ..self }
    }

    fn active(&self, variant: &Variant) -> bool {
        self.only_if.is_empty() || self.only_if.iter().any(|flag| variant.has(flag))
    }
}

/// Flags (for `#ifdef`) and constants (prepended as `const NAME = 5u;`) that select one pipeline of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Variant {
    /// Names that `#ifdef` sees.
    pub flags: Vec<&'static str>,
    /// `u32` constants.
    pub consts: Vec<(&'static str, u32)>,
}

impl Variant {
    /// No flags, no constants.
    pub fn new() -> Self {
        Self::default()
    }

    /// With this flag too.
    #[must_use]
    pub fn flag(mut self, flag: &'static str) -> Self {
        self.flags.push(flag);
        self
    }

    /// With this flag too, if `on`.
    #[must_use]
    pub fn flag_if(self, on: bool, flag: &'static str) -> Self {
        if on { self.flag(flag) } else { self }
    }

    /// With this constant too.
    #[must_use]
    pub fn constant(mut self, name: &'static str, value: u32) -> Self {
        self.consts.push((name, value));
        self
    }

    /// Whether the flag is set.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// The value of a constant.
    ///
    /// # Panics
    /// When the kernel asks for a constant that it did not declare.
    pub fn get(&self, name: &str) -> u32 {
        let found = self.consts.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| unreachable!("constant {name} is checked when the dispatch is recorded")).1
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let consts = self.consts.iter().map(|(name, value)| format!("{name}={value}"));
        write!(f, "{}", self.flags.iter().map(|flag| (*flag).to_owned()).chain(consts).collect::<Vec<_>>().join(" "))
    }
}

/// How far a shader may be from its twin, with the reason beside it in the kernel's file.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Σ(got − want)² / Σ want².
    pub nmse: f64,
    /// Largest |got − want|.
    pub max_abs: f64,
}

impl Tolerance {
    /// The mean of squares where every number is off by the last bit of an f16's 11.
    pub const F16_STEP: f64 = 1.0 / (1u64 << 20) as f64;

    /// The same for numbers that are as far off as a mean of squares of `nmse` says, if that is further. The largest may be
    /// off by as many times more: the mean judges. What may not be off at all may not.
    pub fn at_least(self, nmse: f64) -> Self {
        let times = if self.nmse > 0.0 { (nmse / self.nmse).max(1.0) } else { 1.0 };
        Self { nmse: self.nmse * times, max_abs: self.max_abs * times }
    }
}

/// A kernel's declaration, twin and cases.
#[derive(Debug)]
pub struct Kernel {
    /// Stem of the shader file, of the Rust file and of every label.
    pub name: &'static str,
    /// The shader's text before preprocessing.
    pub wgsl: &'static str,
    /// Storage bindings, in order of their index.
    pub bindings: &'static [BindingDecl],
    /// Names of the `u32` fields of `params`, in order; no binding 8 when empty. (Floats travel as bits.)
    pub params: &'static [&'static str],
    /// Whether binding 9 is there.
    pub uses_step: bool,
    /// Flags that a variant may have.
    pub flags: &'static [&'static str],
    /// Constants that every variant must have.
    pub consts: &'static [&'static str],
    /// The obvious loop that defines what the shader must give. Never optimized.
    pub twin: fn(&mut Args<'_>),
    /// Quicker CPU code for the CPU device, checked against the twin.
    pub fast: Option<fn(&mut Args<'_>)>,
    /// Other variants for devices that have more than the baseline, each checked against the twin there.
    pub alternatives: Option<Alternatives>,
    /// Inputs on which shader, `fast` and twin are compared.
    pub cases: fn() -> Vec<Case>,
    /// A small input for a dispatch like this one, of the same variant and with the same alternatives: what they are judged by before a
    /// model uses them. `None`: one of `cases` ([`Dispatch::probe`]).
    pub probe: Option<fn(&Dispatch) -> Case>,
}

impl Kernel {
    /// What most kernels are: they see the step, and have no flags, constants, quicker code or alternatives. Each gives the rest itself.
    pub const PLAIN: Self = Self {
        name: "",
        wgsl: "",
        bindings: &[],
        params: &[],
        uses_step: true,
        flags: &[],
        consts: &[],
        twin: |_| unreachable!("every kernel has a twin"),
        fast: None,
        alternatives: None,
        cases: || unreachable!("every kernel has cases"),
        probe: None,
    };
}

impl Kernel {
    /// The bindings that a variant has, in order.
    pub fn active_bindings<'a>(&'static self, variant: &'a Variant) -> impl Iterator<Item = &'static BindingDecl> + use<'a> {
        self.bindings.iter().filter(|declaration| declaration.active(variant))
    }

    /// Like [`Kernel::active_bindings`], with each binding's index in the shader.
    pub fn active_indices<'a>(
        &'static self,
        variant: &'a Variant,
    ) -> impl Iterator<Item = (u32, &'static BindingDecl)> + use<'a> {
        (0u32..).zip(self.bindings.iter()).filter(|(_, declaration)| declaration.active(variant))
    }

    /// Place of a param in the list.
    pub(super) fn param_ix(&self, name: &str) -> usize {
        let ix = self.params.iter().position(|known| *known == name);
        ix.unwrap_or_else(|| unreachable!("{}: param {name} is not declared", self.name))
    }

    pub(super) fn check_variant(&self, variant: &Variant) {
        for flag in &variant.flags {
            assert!(self.flags.contains(flag), "{}: flag {flag} is not declared", self.name);
        }
        let given: Vec<_> = variant.consts.iter().map(|(name, _)| *name).collect();
        assert!(given == self.consts, "{}: constants {:?} declared, {given:?} given", self.name, self.consts);
    }
}

/// What a twin is given: the same windows, params and step as the shader.
pub struct Args<'a> {
    pub(super) kernel: &'static Kernel,
    /// Flags and constants.
    pub variant: &'a Variant,
    /// The step's words.
    pub step: Step,
    /// Workgroups on x, y, z.
    pub groups: [u32; 3],
    pub(super) params: &'a [u32],
    pub(super) windows: Vec<Option<&'a mut [u32]>>,
}

impl<'a> Args<'a> {
    /// A param by name.
    ///
    /// # Panics
    /// When the kernel's declaration has no such param.
    pub fn param(&self, name: &str) -> usize {
        self.param_bits(name) as usize
    }

    /// A param by name, read as the bits of an `f32`.
    pub fn param_f32(&self, name: &str) -> f32 {
        f32::from_bits(self.param_bits(name))
    }

    fn param_bits(&self, name: &str) -> u32 {
        self.params[self.kernel.param_ix(name)]
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: &str) -> bool {
        self.variant.has(flag)
    }

    /// A constant by name.
    pub fn constant(&self, name: &str) -> usize {
        self.variant.get(name) as usize
    }

    /// Takes a binding's window as words, once.
    ///
    /// # Panics
    /// When the binding is not declared, not in this variant, or taken before.
    pub fn take(&mut self, name: &str) -> &'a mut [u32] {
        let variant = self.variant;
        let ix = self.kernel.active_bindings(variant).position(|declaration| declaration.name == name);
        let ix = ix.unwrap_or_else(|| unreachable!("{}: no binding {name} in this variant", self.kernel.name));
        self.windows[ix].take().unwrap_or_else(|| unreachable!("{}: binding {name} taken twice", self.kernel.name))
    }

    /// Takes a binding's window as floats, once.
    pub fn take_f32(&mut self, name: &str) -> &'a mut [f32] {
        bytemuck::cast_slice_mut(self.take(name))
    }

    /// Takes a binding's window if the variant has it.
    pub fn take_if(&mut self, flag: &str, name: &str) -> Option<&'a mut [u32]> {
        self.has(flag).then(|| self.take(name))
    }
}

/// How the words of a buffer are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Compare {
    /// As f32, within a tolerance.
    F32(Tolerance),
    /// As pairs of f16 (low half first), within a tolerance.
    F16x2(Tolerance),
    /// As pairs of words (low, high) of a 32.32 fixed-point number, within a tolerance.
    Fixed64(Tolerance),
    /// Bit for bit.
    Exact,
}

impl PartialEq for Tolerance {
    fn eq(&self, other: &Self) -> bool {
        self.nmse.to_bits() == other.nmse.to_bits() && self.max_abs.to_bits() == other.max_abs.to_bits()
    }
}

/// A buffer that a case looks at after its replay. All other words of written buffers are the harness's guards.
#[derive(Clone, Copy, Debug)]
pub struct Expect {
    /// Of the case's program.
    pub buffer: BufferId,
    /// How.
    pub compare: Compare,
}

/// One input on which shader and twin must agree: a small program (recorded by the kernel's own recording function, as the
/// graph 0), the first contents of its buffers, a step, and what to compare.
pub struct Case {
    /// Says what is special: `q4_0 k=96 rows=5`.
    pub name: String,
    /// Buffers and one graph.
    pub program: Program,
    /// First contents, by buffer; buffers that are not named hold a guard pattern.
    pub contents: Vec<(BufferId, Vec<u32>)>,
    /// What its graph is replayed with.
    pub step: Step,
    /// What to compare.
    pub expect: Vec<Expect>,
}
