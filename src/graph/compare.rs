//! The judge: what two runs of a [`Case`] left in its buffers, compared, without a GPU.
//!
//! Every buffer of a case starts as [`GUARD`], a NaN both as f32 and as two f16, with [`GUARD_WORDS`] more words behind its end
//! that no window reaches. So a read of what nobody wrote shows as a NaN, a missing write as a guard where the twin has a
//! number, a write too many as a number where the twin has a guard, and a write past the end as a broken tail.

use super::cpu::Executor;
use super::{BufferId, Case, Compare, Kernel, Program, Role, Tolerance};
use half::f16;
use std::fmt;

/// The pattern of words that were never written.
pub const GUARD: u32 = 0x7fed_7fed;
/// Guard words behind the end of every buffer.
pub const GUARD_WORDS: usize = 64;

/// How one buffer of a case compares.
#[derive(Clone, Debug, PartialEq)]
pub struct Deviation {
    /// [`Case::name`](super::Case).
    pub case: String,
    /// Its name in the program.
    pub buffer: String,
    /// Σ(got − want)² / Σ want²; 0 when compared bit for bit.
    pub nmse: f64,
    /// Largest |got − want|; 0 when compared bit for bit.
    pub max_abs: f64,
    /// What is allowed, unless compared bit for bit.
    pub tolerance: Option<(f64, f64)>,
    /// Why the comparison fails, with place, got and want; `None` when it holds.
    pub problem: Option<String>,
}

impl Deviation {
    /// Whether the comparison fails.
    pub fn failed(&self) -> bool {
        self.problem.is_some()
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, buffer, nmse, max_abs, tolerance, problem } = self;
        if !case.is_empty() {
            write!(f, "{case}: ")?;
        }
        write!(f, "{buffer}: ")?;
        match tolerance {
            Some((nmse_limit, max_limit)) => {
                write!(f, "nmse {nmse:.2e} (limit {nmse_limit:.2e}), max {max_abs:.2e} (limit {max_limit:.2e})")?;
            }
            None => write!(f, "bit for bit")?,
        }
        write!(f, ": {}", problem.as_deref().unwrap_or("ok"))
    }
}

/// The case's program with guards: longer buffers, the same windows, and no storage shared by liveness.
pub fn guarded(program: &Program) -> Program {
    let mut program = program.clone();
    for buffer in &mut program.buffers {
        buffer.words += GUARD_WORDS;
        if buffer.role == Role::Scratch {
            buffer.role = Role::State;
        }
    }
    program
}

/// The first contents of every buffer of the [`guarded`] program.
///
/// # Panics
/// When the case gives a buffer more words than it has: a bug of the case.
pub fn first_contents(case: &Case) -> Vec<Vec<u32>> {
    let guards = |buffer: &super::Buffer| vec![GUARD; buffer.words + GUARD_WORDS];
    let mut contents: Vec<_> = case.program.buffers.iter().map(guards).collect();
    for (id, words) in &case.contents {
        let buffer = case.program.get(*id);
        assert!(words.len() <= buffer.words, "{}: {} words for {} of {}", case.name, words.len(), buffer.name, buffer.words);
        contents[id.0 as usize][..words.len()].copy_from_slice(words);
    }
    contents
}

/// Runs a case on the CPU, through the twins or the `fast` code: the words of every buffer afterwards.
pub fn run_cpu(case: &Case, fast: bool) -> Vec<Vec<u32>> {
    let program = guarded(&case.program);
    let mut executor = Executor::new(&program, fast);
    let ids = || (0..program.buffers.len() as u32).map(BufferId);
    for (id, words) in ids().zip(first_contents(case)) {
        executor.write(id, 0, &words);
    }
    for graph in &program.graphs {
        executor.replay(graph, &case.step, true);
    }
    ids().map(|id| executor.read(id).to_vec()).collect()
}

/// Compares a kernel's `fast` code with its twin: one entry per expected buffer; none when the kernel has no `fast` code.
pub fn check_fast(kernel: &Kernel, case: &Case) -> Vec<Deviation> {
    if kernel.fast.is_none() {
        return Vec::new();
    }
    compare(case, &run_cpu(case, true), &run_cpu(case, false))
}

/// Compares what a device left with what the twins left: one entry per expected buffer, and one per buffer whose tail is broken.
pub fn compare(case: &Case, got: &[Vec<u32>], want: &[Vec<u32>]) -> Vec<Deviation> {
    compare_within(case, None, got, want)
}

/// The same with another tolerance for what is compared as f32.
pub fn compare_within(case: &Case, tolerance: Option<Tolerance>, got: &[Vec<u32>], want: &[Vec<u32>]) -> Vec<Deviation> {
    let deviation = |buffer: &super::Buffer| Deviation {
        case: case.name.clone(),
        buffer: buffer.name.clone(),
        nmse: 0.0,
        max_abs: 0.0,
        tolerance: None,
        problem: None,
    };
    let expected = case.expect.iter().map(|expect| {
        let buffer = case.program.get(expect.buffer);
        let ix = expect.buffer.0 as usize;
        let mut deviation = deviation(buffer);
        let how = match (expect.compare, tolerance) {
            (Compare::F32(_), Some(tolerance)) => Compare::F32(tolerance),
            (how, _) => how,
        };
        compare_words(how, &got[ix][..buffer.words], &want[ix][..buffer.words], &mut deviation);
        deviation
    });
    let tails = case.program.buffers.iter().zip(got).filter_map(|(buffer, got)| {
        let at = got[buffer.words..].iter().position(|word| *word != GUARD)?;
        Some(Deviation { problem: Some(format!("written {at} words past its end")), ..deviation(buffer) })
    });
    expected.chain(tails).collect()
}

/// Compares what two runs left in one buffer, of no case; words that are [`GUARD`] in both are left out.
pub fn compare_buffer(how: Compare, buffer: &str, got: &[u32], want: &[u32]) -> Deviation {
    let (case, buffer) = (String::new(), buffer.to_owned());
    let mut deviation = Deviation { case, buffer, nmse: 0.0, max_abs: 0.0, tolerance: None, problem: None };
    compare_words(how, got, want, &mut deviation);
    deviation
}

fn compare_words(how: Compare, got: &[u32], want: &[u32], deviation: &mut Deviation) {
    // Where neither wrote there is nothing to compare; guards are no numbers.
    let pairs = || got.iter().zip(want).enumerate().filter(|(_, (got, want))| got != want || **want != GUARD);
    match how {
        Compare::Exact => {
            let wrong: Vec<_> = pairs().filter(|(_, (got, want))| got != want).collect();
            if let Some((at, (got, want))) = wrong.first() {
                let of = wrong.len();
                deviation.problem = Some(format!("{of} words differ, first at {at}: got {got:#010x}, want {want:#010x}"));
            }
        }
        Compare::F32(tolerance) => {
            let number = |word: u32| f64::from(f32::from_bits(word));
            let numbers = pairs().map(|(at, (got, want))| (at, number(*got), number(*want)));
            compare_numbers(tolerance, numbers, deviation);
        }
        Compare::F16x2(tolerance) => {
            let half = |word: u32, high: usize| f64::from(f16::from_bits((word >> (16 * high)) as u16).to_f32());
            let halves =
                pairs().flat_map(|(at, (got, want))| [0, 1].map(|high| (2 * at + high, half(*got, high), half(*want, high))));
            compare_numbers(tolerance, halves, deviation);
        }
        Compare::Fixed64(tolerance) => compare_fixed(tolerance, got, want, deviation),
    }
}

fn compare_numbers(tolerance: Tolerance, numbers: impl Iterator<Item = (usize, f64, f64)>, deviation: &mut Deviation) {
    let (mut error, mut power) = (0.0, 0.0);
    let mut worst = (0, 0.0, 0.0);
    for (at, got, want) in numbers {
        if !(got.is_finite() && want.is_finite()) && deviation.problem.is_none() {
            deviation.problem = Some(format!("not a finite number at {at}: got {got}, want {want}"));
        }
        let off = (got - want).abs();
        error += off * off;
        power += want * want;
        if off > deviation.max_abs {
            deviation.max_abs = off;
            worst = (at, got, want);
        }
    }
    judge(tolerance, error, power, deviation, || {
        let (at, got, want) = worst;
        format!("worst at {at}: got {got}, want {want}")
    });
}

/// 32.32 fixed point, low word first. The difference is taken in integers: it may be smaller than an f64 step of the numbers.
fn compare_fixed(tolerance: Tolerance, got: &[u32], want: &[u32], deviation: &mut Deviation) {
    let unit = f64::from(1u32 << 31) * 2.0;
    let number = |pair: &[u32]| u64::from(pair[0]) | u64::from(pair[1]) << 32;
    let (mut error, mut power, mut worst) = (0.0, 0.0, (0, 0, 0));
    for (at, (got, want)) in got.chunks_exact(2).zip(want.chunks_exact(2)).enumerate() {
        if got == want && want == [GUARD; 2] {
            continue;
        }
        let (got, want) = (number(got), number(want));
        let off = got.abs_diff(want) as f64 / unit;
        error += off * off;
        power += (want as f64 / unit).powi(2);
        if off > deviation.max_abs {
            deviation.max_abs = off;
            worst = (at, got, want);
        }
    }
    judge(tolerance, error, power, deviation, || {
        let (at, got, want) = worst;
        format!("worst at pair {at}: got {}, want {}", got as f64 / unit, want as f64 / unit)
    });
}

fn judge(tolerance: Tolerance, error: f64, power: f64, deviation: &mut Deviation, worst: impl FnOnce() -> String) {
    // All zeros wanted: the relative error has no meaning, and the largest absolute error judges alone.
    deviation.nmse = if power > 0.0 { error / power } else { 0.0 };
    deviation.tolerance = Some((tolerance.nmse, tolerance.max_abs));
    let holds = deviation.nmse <= tolerance.nmse && deviation.max_abs <= tolerance.max_abs;
    if !holds && deviation.problem.is_none() {
        deviation.problem = Some(worst());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Expect, Step};

    const TOLERANCE: Tolerance = Tolerance { nmse: 1e-6, max_abs: 1e-3 };

    /// Compares one buffer, its guards appended.
    fn judge_words(how: Compare, got: &[u32], want: &[u32]) -> Vec<Deviation> {
        let mut program = Program::default();
        let buffer = program.buffer("y", want.len(), Role::Output);
        let expect = vec![Expect { buffer, compare: how }];
        let case = Case { name: "case".to_owned(), program, contents: Vec::new(), step: Step::default(), expect };
        let tail =
            |words: &[u32]| vec![words.iter().copied().chain([GUARD; GUARD_WORDS]).take(want.len() + GUARD_WORDS).collect()];
        compare(&case, &tail(got), &tail(want))
    }

    fn floats(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    fn halves(values: [f32; 2]) -> u32 {
        let [low, high] = values.map(|value| u32::from(f16::from_f32(value).to_bits()));
        low | high << 16
    }

    #[test]
    fn what_is_within_the_tolerance_holds() {
        let cases = [
            (Compare::F32(TOLERANCE), floats(&[1.0, -2.0001, 0.0]), floats(&[1.0, -2.0, -0.0])),
            (Compare::F16x2(TOLERANCE), vec![halves([1.0, 0.5]), GUARD], vec![halves([1.0, 0.5]), GUARD]),
            (Compare::Fixed64(TOLERANCE), vec![u32::MAX, 4, GUARD, GUARD], vec![0, 5, GUARD, GUARD]),
            (Compare::Exact, vec![7, GUARD], vec![7, GUARD]),
        ];
        for (how, got, want) in cases {
            let [deviation] = &judge_words(how, &got, &want)[..] else { panic!("one buffer is expected") };
            assert!(!deviation.failed(), "{deviation}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let nan = f32::NAN.to_bits();
        let cases = [
            (Compare::F32(TOLERANCE), floats(&[1.0, -2.1]), floats(&[1.0, -2.0]), "worst at 1: got -2.0999"),
            (Compare::F32(TOLERANCE), floats(&[0.01; 2]), floats(&[0.0; 2]), "worst at 0"),
            (Compare::F32(TOLERANCE), vec![0, nan], floats(&[0.0, 1.0]), "not a finite number at 1"),
            (Compare::F32(TOLERANCE), vec![0, nan], vec![0, nan], "not a finite number at 1"),
            (Compare::F32(TOLERANCE), vec![0, GUARD], floats(&[0.0, 1.0]), "not a finite number at 1"),
            (Compare::F32(TOLERANCE), floats(&[0.0, 1.0]), vec![0, GUARD], "not a finite number at 1"),
            (Compare::F16x2(TOLERANCE), vec![halves([1.0, 2.0])], vec![halves([1.0, 3.0])], "worst at 1: got 2, want 3"),
            (Compare::F16x2(TOLERANCE), vec![GUARD], vec![halves([1.0, 3.0])], "not a finite number at 0"),
            (Compare::Fixed64(TOLERANCE), vec![0, 5], vec![1 << 31, 5], "worst at pair 0: got 5, want 5.5"),
            (Compare::Fixed64(TOLERANCE), vec![GUARD, GUARD], vec![1, 0], "worst at pair 0"),
            (Compare::Exact, vec![7, 8, 9], vec![7, 1, 2], "2 words differ, first at 1: got 0x00000008, want 0x00000001"),
        ];
        for (how, got, want, expected) in cases {
            let [deviation] = &judge_words(how, &got, &want)[..] else { panic!("one buffer is expected") };
            assert!(deviation.to_string().contains(expected), "{deviation}");
        }
    }

    #[test]
    fn a_write_past_the_end_is_told() {
        let found = judge_words(Compare::Exact, &[1, 2, 3], &[1, 2]);
        assert!(!found[0].failed());
        assert_eq!(found[1].problem.as_deref(), Some("written 0 words past its end"));
    }
}
