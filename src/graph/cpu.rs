//! Runs a graph on the CPU, through the kernels' twins or their `fast` code: the fallback where there is no WebGPU, the
//! debugger, and the judge of every shader.

use super::contract::Args;
use super::{Binding, BufferId, Dispatch, Graph, Program, Step, liveness};
use crate::error::{Error, Result};
use std::hint::black_box;

/// What a scratch slot holds before it is written: a NaN, so that a kernel that reads garbage shows.
pub const GARBAGE: u32 = 0x7fc0_dead;

/// Asks the system for the memory of a program's buffers, in one piece, and gives it back: a refusal is an error here, and the end of the
/// process where the buffers are made.
///
/// # Errors
/// [`Error::OutOfMemory`] with the bytes of all buffers.
pub fn check_memory(program: &Program) -> Result<()> {
    let words = liveness::words(program);
    let mut trial: Vec<u32> = Vec::new();
    // Unseen, the compiler would leave it out.
    black_box(&mut trial).try_reserve_exact(words).map_err(|refused| Error::OutOfMemory {
        what: "the model's buffers on the CPU".to_owned(),
        bytes: words as u64 * 4,
        reason: refused.to_string(),
    })
}

/// The buffers of one program in main memory.
pub struct Executor {
    storage: Vec<Vec<u32>>,
    /// By buffer: its index in `storage`; `None` for scratch that no dispatch binds.
    place: Vec<Option<usize>>,
    fast: bool,
}

impl Executor {
    /// Allocates every buffer: zeros, and [`GARBAGE`] in scratch. With `fast`, kernels that have quicker CPU code use it.
    pub fn new(program: &Program, fast: bool) -> Self {
        let plan = liveness::plan(program);
        let slots = plan.slot_words.iter().map(|words| vec![GARBAGE; *words]);
        let storage = slots.chain(liveness::lasting(program).map(|buffer| vec![0; buffer.words])).collect();
        Self { storage, place: plan.places(program), fast }
    }

    /// Writes words into a buffer.
    pub fn write(&mut self, buffer: BufferId, first_word: usize, words: &[u32]) {
        let ix = self.storage_ix(buffer);
        self.storage[ix][first_word..first_word + words.len()].copy_from_slice(words);
    }

    /// The words of a buffer (for scratch: of the slot that it shares).
    pub fn read(&self, buffer: BufferId) -> &[u32] {
        &self.storage[self.storage_ix(buffer)]
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        self.storage.iter().map(|words| words.len() as u64 * 4).sum()
    }

    /// Runs a graph's dispatches in order; those marked `only_for_logits` only when `logits` is set.
    pub fn replay(&mut self, graph: &Graph, step: &Step, logits: bool) {
        for dispatch in &graph.dispatches[graph.range(logits)] {
            self.run(dispatch, step);
        }
    }

    /// Runs one dispatch.
    pub fn run(&mut self, dispatch: &Dispatch, step: &Step) {
        let kernel = dispatch.kernel;
        let run = if self.fast { kernel.fast.unwrap_or(kernel.twin) } else { kernel.twin };
        self.with_args(dispatch, step, run);
    }

    /// `f` with what a dispatch's twin would be given.
    pub fn with_args<T>(&mut self, dispatch: &Dispatch, step: &Step, f: impl FnOnce(&mut Args<'_>) -> T) -> T {
        // The recorder refuses a buffer bound twice, and buffers alive together never share a slot: each is taken once.
        let places: Vec<usize> = dispatch.bindings.iter().map(|binding| self.storage_ix(binding.buffer)).collect();
        let mut taken: Vec<Vec<u32>> = places.iter().map(|place| std::mem::take(&mut self.storage[*place])).collect();
        let windows = taken.iter_mut().zip(&dispatch.bindings).map(|(words, binding)| window(words, binding));
        let result = f(&mut args(dispatch, step, windows));
        for (place, words) in places.into_iter().zip(taken) {
            self.storage[place] = words;
        }
        result
    }

    fn storage_ix(&self, buffer: BufferId) -> usize {
        let place = self.place[buffer.0 as usize];
        place.unwrap_or_else(|| unreachable!("scratch buffer {buffer:?} is bound by no dispatch"))
    }
}

/// `f` with what a dispatch's twin would be given, were these words its windows.
pub fn over<T>(dispatch: &Dispatch, step: &Step, windows: &mut [Vec<u32>], f: impl FnOnce(&mut Args<'_>) -> T) -> T {
    f(&mut args(dispatch, step, windows.iter_mut().map(Vec::as_mut_slice)))
}

fn args<'a>(dispatch: &'a Dispatch, step: &Step, windows: impl Iterator<Item = &'a mut [u32]>) -> Args<'a> {
    Args {
        kernel: dispatch.kernel,
        variant: &dispatch.variant,
        step: *step,
        groups: dispatch.grid.at(step),
        params: &dispatch.params,
        windows: windows.map(Some).collect(),
    }
}

fn window<'a>(words: &'a mut [u32], binding: &Binding) -> &'a mut [u32] {
    &mut words[binding.first_word..binding.first_word + binding.words]
}
