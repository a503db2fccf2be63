//! The graph: dispatches as plain data. Model code records them, an executor (`gpu` or [`cpu`]) replays them.
//!
//! A [`Program`] owns a table of buffers and several graphs over it (one token, one prefill chunk, ...). Weights and state are
//! shared by the graphs of a program; scratch buffers get their storage by liveness ([`liveness`]) and share it.
//! Every buffer is an array of 32-bit words. Shapes live in the model's configuration, not here.
//!
//! Knows nothing of wgpu, files or models.

pub mod alternatives;
pub mod compare;
pub mod contract;
pub mod cpu;
pub mod liveness;

pub use alternatives::{Alternative, Alternatives, CoopScalar, CoopShape, Features, Need};
pub use contract::{Access, Args, BindingDecl, Case, Compare, Elem, Expect, Kernel, Tolerance, Variant};

use std::ops::Range;

/// Index of a buffer in [`Program::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Index of a graph in [`Program::graphs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphId(pub u32);

/// What a buffer is for: decides who gives it storage and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Written once at load, read by every replay.
    Weight,
    /// Lives between replays (KV pages, λ, shift rows). Zero at first.
    State,
    /// Written by the host before a replay (token ids, page table). Zero at first.
    Input,
    /// Read back by the host after a replay (logits).
    Output,
    /// Alive inside one replay only: storage is shared by liveness and holds garbage at first.
    Scratch,
}

/// An array of 32-bit words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// For labels, traces and errors: `layer 3 k pages`.
    pub name: String,
    /// Length in 32-bit words.
    pub words: usize,
    /// What it is for.
    pub role: Role,
}

/// A window of a buffer as one dispatch sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Of the program.
    pub buffer: BufferId,
    /// First word: a multiple of [`WINDOW_ALIGN_WORDS`].
    pub first_word: usize,
    /// Words in the window.
    pub words: usize,
}

/// WebGPU's default storage-buffer offset alignment, 256 bytes, in words.
pub const WINDOW_ALIGN_WORDS: usize = 64;
/// WebGPU's default largest binding, 128 MiB, in words: tensors beyond it are split in parts.
pub const MAX_BINDING_WORDS: usize = (128 << 20) / 4;
/// WebGPU's default largest number of workgroups on an axis.
pub const MAX_GROUPS: u32 = 65_535;

/// The few words that differ from one replay to the next; binding 9 of every kernel that asks for it.
/// `shaders/shared/step.wgsl` declares the same struct, and `tests/kernels/shaders.rs` compares the two.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Step {
    /// Position of the first token of this replay: tokens already in the KV pages.
    pub pos: u32,
    /// Tokens in this replay: 1 when decoding, at most the chunk in prefill.
    pub n_tokens: u32,
    /// Workgroups per head that share the keys in decode attention: ⌈(pages − first_page) / pages_per_split⌉.
    pub n_splits: u32,
    /// KV pages that each of them takes.
    pub pages_per_split: u32,
    /// Which slot of the shift rows holds token `pos - 1`.
    pub shift_in: u32,
    /// Which slot of the shift rows takes the last token of this replay; never `shift_in`.
    pub shift_out: u32,
    /// KV page with the first key that the first token of this replay sees: 0 without a sliding window.
    pub first_page: u32,
    /// Padding to 32 bytes.
    pub pad: u32,
}

impl Step {
    /// Names of the words, in order.
    pub const FIELDS: [&'static str; 8] =
        ["pos", "n_tokens", "n_splits", "pages_per_split", "shift_in", "shift_out", "first_page", "pad"];
}

/// Number of workgroups on one axis; some follow the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// Always this many.
    Fixed(u32),
    /// ⌈n_tokens / per⌉.
    Tokens {
        /// Tokens that one workgroup takes.
        per: u32,
    },
    /// `step.n_splits`.
    Splits,
}

impl Extent {
    /// Workgroups for this step.
    pub fn at(self, step: &Step) -> u32 {
        match self {
            Self::Fixed(n) => n,
            Self::Tokens { per } => step.n_tokens.div_ceil(per),
            Self::Splits => step.n_splits,
        }
    }
}

/// Workgroups on x, y, z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid(pub [Extent; 3]);

impl Grid {
    /// `x` workgroups in a row.
    pub fn x(x: Extent) -> Self {
        Self([x, Extent::Fixed(1), Extent::Fixed(1)])
    }

    /// A plane of workgroups.
    pub fn xy(x: Extent, y: Extent) -> Self {
        Self([x, y, Extent::Fixed(1)])
    }

    /// `n` workgroups, folded over x and y so that no axis passes [`MAX_GROUPS`].
    /// The kernel's number is `workgroup_id.x + workgroup_id.y * num_workgroups.x`, and may reach past `n`.
    pub fn linear(n: u32) -> Self {
        if n <= MAX_GROUPS {
            return Self::x(Extent::Fixed(n));
        }
        let x = 1 << 15;
        Self::xy(Extent::Fixed(x), Extent::Fixed(n.div_ceil(x)))
    }

    /// Workgroups for this step.
    pub fn at(&self, step: &Step) -> [u32; 3] {
        self.0.map(|extent| extent.at(step))
    }
}

/// One dispatch: a kernel variant, its windows in the order of the variant's active bindings, its constants for ever.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// What runs.
    pub kernel: &'static Kernel,
    /// Its flags and constants.
    pub variant: Variant,
    /// One window for each binding that the variant has.
    pub bindings: Vec<Binding>,
    /// Values of [`Kernel::params`], in order (floats as bits).
    pub params: Vec<u32>,
    /// Workgroups.
    pub grid: Grid,
    /// Skipped in a replay that wants no logits (all prefill chunks but the last).
    pub only_for_logits: bool,
}

/// Dispatches in order. Each sees what the earlier ones wrote.
#[derive(Clone, Debug)]
pub struct Graph {
    /// For traces: `decode`, `prefill`.
    pub name: String,
    /// In order; those that are only for logits are the last.
    pub dispatches: Vec<Dispatch>,
}

impl Graph {
    /// The dispatches that a replay has, with or without logits.
    pub fn range(&self, logits: bool) -> Range<usize> {
        let has = |dispatch: &&Dispatch| logits || !dispatch.only_for_logits;
        0..self.dispatches.iter().take_while(has).count()
    }
}

/// Buffers and the graphs over them.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// All buffers of all graphs.
    pub buffers: Vec<Buffer>,
    /// By [`GraphId`].
    pub graphs: Vec<Graph>,
}

impl Program {
    /// Declares a buffer. A buffer of no words is given one: WebGPU has no empty bindings.
    pub fn buffer(&mut self, name: impl Into<String>, words: usize, role: Role) -> BufferId {
        let id = u32::try_from(self.buffers.len()).unwrap_or_else(|_| unreachable!("a program has fewer than 2^32 buffers"));
        self.buffers.push(Buffer { name: name.into(), words: words.max(1), role });
        BufferId(id)
    }

    /// Starts a graph; [`Recorder::finish`] adds it to the program.
    pub fn record(&mut self, name: &str) -> Recorder<'_> {
        Recorder { program: self, graph: Graph { name: name.to_owned(), dispatches: Vec::new() }, for_logits: false }
    }

    /// The buffer behind an id.
    pub fn get(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0 as usize]
    }

    /// The graph behind an id.
    pub fn graph(&self, id: GraphId) -> &Graph {
        &self.graphs[id.0 as usize]
    }

    /// The whole of a buffer as a window.
    pub fn whole(&self, id: BufferId) -> Binding {
        Binding { buffer: id, first_word: 0, words: self.get(id).words }
    }
}

/// Takes down the dispatches of one graph and checks each against its kernel's declaration.
pub struct Recorder<'p> {
    program: &'p mut Program,
    graph: Graph,
    for_logits: bool,
}

impl Recorder<'_> {
    /// Declares a scratch buffer of `words` words.
    pub fn scratch(&mut self, name: &str, words: usize) -> BufferId {
        let name = format!("{} {name}", self.graph.name);
        self.program.buffer(name, words, Role::Scratch)
    }

    /// The program under this recorder.
    pub fn program(&self) -> &Program {
        self.program
    }

    /// The whole of a buffer as a window.
    pub fn whole(&self, id: BufferId) -> Binding {
        self.program.whole(id)
    }

    /// From here on, dispatches run only in replays that want logits.
    pub fn for_logits(&mut self) {
        self.for_logits = true;
    }

    /// Adds a dispatch.
    ///
    /// # Panics
    /// When it breaks the kernel's declaration: that is a bug of the recording function, never of a model file.
    pub fn dispatch(&mut self, kernel: &'static Kernel, variant: Variant, bindings: &[Binding], params: &[u32], grid: Grid) {
        let dispatch = Dispatch {
            kernel,
            variant,
            bindings: bindings.to_vec(),
            params: params.to_vec(),
            grid,
            only_for_logits: self.for_logits,
        };
        self.check(&dispatch);
        self.graph.dispatches.push(dispatch);
    }

    fn check(&self, dispatch: &Dispatch) {
        let Dispatch { kernel, variant, bindings, params, grid, .. } = dispatch;
        let name = kernel.name;
        kernel.check_variant(variant);
        let declared = kernel.active_bindings(variant).count();
        assert!(declared == bindings.len(), "{name}: {declared} bindings declared, {} given", bindings.len());
        assert!(kernel.params.len() == params.len(), "{name}: {} params declared, {} given", kernel.params.len(), params.len());
        for (ix, (declaration, window)) in kernel.active_bindings(variant).zip(bindings).enumerate() {
            let at = format!("{name}.{}", declaration.name);
            let buffer = self.program.get(window.buffer);
            assert!(
                window.words > 0 && window.first_word + window.words <= buffer.words,
                "{at}: window past the end of {}",
                buffer.name
            );
            assert!(window.first_word.is_multiple_of(WINDOW_ALIGN_WORDS), "{at}: window of {} not on 256 bytes", buffer.name);
            assert!(window.words <= MAX_BINDING_WORDS, "{at}: window of {} over 128 MiB", buffer.name);
            assert!(window.words.is_multiple_of(declaration.elem.words()), "{at}: {} words are no whole elements", window.words);
            let twice = bindings[..ix].iter().any(|other| other.buffer == window.buffer);
            assert!(!twice, "{at}: {} is bound twice in one dispatch", buffer.name);
        }
        for extent in grid.0 {
            let groups = match extent {
                Extent::Fixed(n) => n,
                Extent::Tokens { per } => per, // the chunk is small; `per` must not be zero
                Extent::Splits => 1,
            };
            assert!((1..=MAX_GROUPS).contains(&groups), "{name}: {groups} workgroups on an axis");
        }
    }

    /// Adds the graph to the program.
    pub fn finish(self) -> GraphId {
        let id =
            u32::try_from(self.program.graphs.len()).unwrap_or_else(|_| unreachable!("a program has fewer than 2^32 graphs"));
        self.program.graphs.push(self.graph);
        GraphId(id)
    }
}
