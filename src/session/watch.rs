//! A run that is watched (`--check`): each dispatch on the GPU is compared with its twin on the very inputs that it had, and the first number
//! that is not finite is told with its layer. For debugging: it is as slow as the twins and the copies are.
//!
//! What is compared, and how, is what the kernel's own cases say of the bindings that it writes, of a variant with the same flags where
//! there is one. Their inputs are independent numbers of the order of 1; where a real run has larger ones, the largest absolute error is
//! measured against the largest of them, and where their terms cancel, the error is that of the terms ([`CANCELS`]).

use super::Model;
use crate::error::{Error, Result};
use crate::gpu;
use crate::graph::compare::{Deviation, GUARD, compare_buffer};
use crate::graph::{Access, Binding, Compare, Dispatch, GraphId, Program, Role, Step, Tolerance, cpu};
use half::f16;
use std::collections::HashMap;
use std::ops::Range;

/// How many times smaller than a case's, as a part of its terms, a sum of a real run may be: so much larger is its error as a part of the
/// sum. A kernel that does something else is off by far more.
const CANCELS: f64 = 32.0;

/// What was found so far.
#[derive(Default)]
pub struct Watch {
    dispatches: usize,
    worst: Option<(String, Deviation)>,
    /// By kernel and variant: how what it writes is compared, binding by binding.
    known: HashMap<String, Vec<Option<Compare>>>,
}

impl Model {
    /// From now on every dispatch is compared with its twin: calls end at the first that differs ([`Error::Gpu`]) or gives a number that is
    /// not finite ([`Error::NotFinite`]), both with layer and kernel.
    ///
    /// # Errors
    /// [`Error::Argument`] on the CPU.
    pub fn watch(&mut self) -> Result<()> {
        if !self.draws_on_device() {
            let expected =
                "a GPU, whose dispatches are compared with their twins (kitfox check --device cpu compares the CPU's code)";
            return Err(Error::argument("check", expected, self.device_name()));
        }
        self.watch = Some(Box::default());
        Ok(())
    }

    /// What was found since [`Model::watch`].
    pub fn watched(&self) -> Option<&Watch> {
        self.watch.as_deref()
    }
}

impl Watch {
    /// Dispatches that were compared.
    pub fn dispatches(&self) -> usize {
        self.dispatches
    }

    /// The dispatch that was furthest from its twin as a part of what is allowed, and how far.
    pub fn worst(&self) -> Option<(&str, &Deviation)> {
        self.worst.as_ref().map(|(place, deviation)| (&place[..], deviation))
    }

    /// Runs some dispatches of a graph, one by one.
    ///
    /// # Errors
    /// What the device reports, [`Error::NotFinite`] for the first number that is none, and [`Error::Gpu`] for the first dispatch that is
    /// not as its twin, both with layer and kernel.
    pub(super) async fn run(
        &mut self,
        gpu: &gpu::Executor,
        program: &Program,
        graph: GraphId,
        range: Range<usize>,
        step: &Step,
    ) -> Result<()> {
        for ix in range {
            let recorded = &program.graph(graph).dispatches[ix];
            let chosen = &gpu.program().graph(graph).dispatches[ix];
            let mut before = Vec::new();
            for binding in &recorded.bindings {
                before.push(window(gpu, binding).await?);
            }
            gpu.replay_range(graph, ix..ix + 1, step)?;
            let want = twin(recorded, &before, step);
            let name = format!("{} [{}]", chosen.kernel.name, chosen.variant);
            let place = format!("{}, kernel {name}, dispatch {ix} of {}", layer_of(program, recorded), program.graph(graph).name);
            let how = self.known.entry(name).or_insert_with(|| comparisons(recorded, chosen, gpu)).clone();
            let rounds = how.iter().flatten().any(|how| matches!(how, Compare::F16x2(_)));
            for (ix, how) in how.into_iter().enumerate() {
                let Some(how) = how else { continue };
                let mut got = window(gpu, &recorded.bindings[ix]).await?;
                let buffer = &program.get(recorded.bindings[ix].buffer).name;
                if let Some(number) = not_finite(how, &got, &before[ix]) {
                    return Err(Error::NotFinite { place: format!("{place}, {buffer}"), got: number });
                }
                let mut want = want[ix].clone();
                let how = scaled(how, rounds, &want, &before[ix]);
                ignore_unwritten(how, &before[ix], &mut got, &mut want);
                self.note(&place, compare_buffer(how, buffer, &got, &want))?;
            }
            self.dispatches += 1;
        }
        Ok(())
    }

    fn note(&mut self, place: &str, deviation: Deviation) -> Result<()> {
        if deviation.failed() {
            return Err(Error::Gpu { place: place.to_owned(), message: format!("it is not as its twin: {deviation}") });
        }
        if self.worst.as_ref().is_none_or(|(_, worst)| share(&deviation) > share(worst)) {
            self.worst = Some((place.to_owned(), deviation));
        }
        Ok(())
    }
}

/// The larger part of what is allowed that a deviation takes.
fn share(deviation: &Deviation) -> f64 {
    let part = |error: f64, limit: f64| if error == 0.0 { 0.0 } else { error / limit };
    deviation.tolerance.map_or(0.0, |(nmse, max_abs)| part(deviation.nmse, nmse).max(part(deviation.max_abs, max_abs)))
}

async fn window(gpu: &gpu::Executor, binding: &Binding) -> Result<Vec<u32>> {
    gpu.read(binding.buffer, binding.first_word, binding.words).await
}

/// What the twin makes of the windows.
fn twin(recorded: &Dispatch, before: &[Vec<u32>], step: &Step) -> Vec<Vec<u32>> {
    let mut windows = before.to_vec();
    cpu::over(recorded, step, &mut windows, recorded.kernel.twin);
    windows
}

/// How each binding of a dispatch is compared; not those that it only reads, or of which no case says anything.
fn comparisons(recorded: &Dispatch, chosen: &Dispatch, gpu: &gpu::Executor) -> Vec<Option<Compare>> {
    let kernel = recorded.kernel;
    let offered = recorded.alternatives(gpu.gpu().features());
    let taken = offered.into_iter().find(|offer| offer.kernel.name == chosen.kernel.name && offer.variant == chosen.variant);
    let tolerance = taken.and_then(|alternative| alternative.tolerance);
    let cases = (kernel.cases)();
    let of_case = |name: &str, alike: bool| {
        let found = cases.iter().flat_map(|case| {
            let own = case.program.graphs.iter().flat_map(|graph| &graph.dispatches);
            let own =
                own.filter(|other| other.kernel.name == kernel.name && (!alike || other.variant.flags == recorded.variant.flags));
            own.flat_map(|other| kernel.active_bindings(&other.variant).zip(&other.bindings))
                .filter(|(declaration, _)| declaration.name == name)
                .filter_map(|(_, binding)| case.expect.iter().find(|expect| expect.buffer == binding.buffer))
                .map(|expect| expect.compare)
        });
        found.reduce(wider)
    };
    let written = kernel.active_bindings(&recorded.variant).map(|declaration| {
        let how = if declaration.access == Access::Write {
            of_case(declaration.name, true).or_else(|| of_case(declaration.name, false))
        } else {
            None
        };
        match (how, tolerance) {
            (Some(Compare::F32(_)), Some(tolerance)) => Some(Compare::F32(tolerance)),
            (how, _) => how,
        }
    });
    written.collect()
}

/// What allows more of two.
fn wider(a: Compare, b: Compare) -> Compare {
    let max = |a: Tolerance, b: Tolerance| Tolerance { nmse: a.nmse.max(b.nmse), max_abs: a.max_abs.max(b.max_abs) };
    match (a, b) {
        (Compare::F32(a), Compare::F32(b)) => Compare::F32(max(a, b)),
        (Compare::F16x2(a), Compare::F16x2(b)) => Compare::F16x2(max(a, b)),
        (Compare::Fixed64(a), Compare::Fixed64(b)) => Compare::Fixed64(max(a, b)),
        // Keys and values are f32 in some cases and f16 in others: those with the same flags agree.
        (a, _) => a,
    }
}

fn halves(word: u32) -> [f32; 2] {
    [word as u16, (word >> 16) as u16].map(|half| f16::from_bits(half).to_f32())
}

/// The numbers of the words that differ from what was there before.
fn numbers<'a>(how: Compare, words: &'a [u32], before: &'a [u32]) -> impl Iterator<Item = f32> + 'a {
    let written = words.iter().zip(before).filter(|(word, before)| word != before);
    written.flat_map(move |(word, _)| match how {
        Compare::F32(_) => [f32::from_bits(*word), 0.0],
        Compare::F16x2(_) => halves(*word),
        Compare::Fixed64(_) | Compare::Exact => [0.0; 2],
    })
}

fn not_finite(how: Compare, got: &[u32], before: &[u32]) -> Option<String> {
    numbers(how, got, before).find(|number| !number.is_finite()).map(|number| number.to_string())
}

/// The tolerance for numbers of this size, of a dispatch that rounds to f16 or does not. A case has thousands of numbers, of which few fall on
/// the other side of a rounding; of the few that a token writes, or that follow from them, it may be every one.
fn scaled(how: Compare, rounds: bool, want: &[u32], before: &[u32]) -> Compare {
    let largest = numbers(how, want, before).map(f32::abs).fold(1.0, f32::max);
    let scale = |Tolerance { nmse, max_abs }: Tolerance| Tolerance {
        nmse: (nmse * CANCELS.powi(2)).max(if rounds { Tolerance::F16_STEP } else { 0.0 }),
        max_abs: max_abs * CANCELS * f64::from(largest),
    };
    match how {
        Compare::F32(tolerance) => Compare::F32(scale(tolerance)),
        Compare::F16x2(tolerance) => Compare::F16x2(scale(tolerance)),
        how => how,
    }
}

/// Words that neither has written are no numbers to compare, whatever was there.
fn ignore_unwritten(how: Compare, before: &[u32], got: &mut [u32], want: &mut [u32]) {
    let of = if matches!(how, Compare::Fixed64(_)) { 2 } else { 1 };
    for ((got, want), before) in got.chunks_mut(of).zip(want.chunks_mut(of)).zip(before.chunks(of)) {
        if got == before && want == before {
            got.fill(GUARD);
            want.fill(GUARD);
        }
    }
}

/// Where a dispatch belongs, by the weights and states that it is bound to.
fn layer_of(program: &Program, dispatch: &Dispatch) -> String {
    let names =
        || dispatch.bindings.iter().map(|binding| program.get(binding.buffer)).filter(|buffer| buffer.role != Role::Scratch);
    let layer = names().find_map(|buffer| Some((buffer.name.strip_prefix("blk.")?.split('.').next()?, &buffer.name)));
    match (layer, names().next()) {
        (Some((layer, name)), _) => format!("layer {layer} ({name})"),
        (None, Some(buffer)) => buffer.name.clone(),
        (None, None) => "between weights".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{Executor, Gpu};
    use crate::kernel::rms_norm::RMS_NORM;
    use pollster::block_on;

    #[test]
    fn a_dispatch_that_does_something_else_than_its_twin_is_told() {
        let Some(gpu) = Gpu::for_tests() else { return };
        let case = (RMS_NORM.cases)().remove(0);
        for wrong in [false, true] {
            let mut program = case.program.clone();
            if wrong {
                // Larger than the numbers: whatever the kernel makes of it, it is not what the twin gives.
                let eps = RMS_NORM.params.iter().position(|name| *name == "eps").unwrap();
                program.graphs[0].dispatches[0].params[eps] = 100f32.to_bits();
            }
            let executor = block_on(Executor::new(gpu.clone(), &program)).unwrap();
            for (buffer, words) in &case.contents {
                executor.write(*buffer, 0, words);
            }
            let mut watch = Watch::default();
            let range = case.program.graph(GraphId(0)).range(true);
            let run = block_on(watch.run(&executor, &case.program, GraphId(0), range, &case.step));
            match run {
                Ok(()) => assert!(!wrong && watch.dispatches() > 0 && watch.worst().is_some()),
                Err(error) => assert!(
                    wrong && error.to_string().contains("kernel rms_norm") && error.to_string().contains("not as its twin"),
                    "{error}"
                ),
            }
        }
    }
}
