//! The choice among the ways to run a dispatch: what disagrees with its twin or does not compile is passed over and told, and what
//! was found out is found out once.

use crate::common;
use crate::common::toy;
use crate::common::toy::{BINDINGS, TOY, toy_wgsl};
use kitfox::Error;
use kitfox::gpu::inject::{Fault, Point, arm, passed};
use kitfox::gpu::{Executor, Host, harness, set_host, tune};
use kitfox::graph::{Alternative, Alternatives, Case, Dispatch, Features, GraphId, Kernel, Need, Program, Step};
use kitfox::kernel::KERNELS;
use pollster::block_on;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// The toy, which also offers a variant that does not compile, one that gives other numbers, one that needs what no device has, and
/// one that is right.
static VARIED: Kernel = Kernel {
    name: "varied",
    wgsl: toy_wgsl!(
        "  var product = a[row + i] * a[row + params.width + i];
#ifdef BROKEN
  product = nothing;
#endif
#ifdef WRONG
  product *= 1.001;
#endif
#ifdef RIGHT
  product = a[row + params.width + i] * a[row + i];
#endif"
    ),
    bindings: BINDINGS,
    params: &["width"],
    flags: &["BROKEN", "WRONG", "ABSENT", "RIGHT"],
    twin: |args| (TOY.twin)(args),
    alternatives: Some(Alternatives { needs: &[("ABSENT", Need::Invocations(u32::MAX))], of: offered }),
    probe: Some(|_| toy::case(&VARIED)),
    cases: || vec![toy::case(&VARIED)],
    ..Kernel::PLAIN
};

fn offered(dispatch: &Dispatch, _: &Features) -> Vec<Alternative> {
    let flags = ["BROKEN", "ABSENT", "WRONG", "RIGHT"].into_iter();
    flags
        .map(|flag| Alternative {
            kernel: dispatch.kernel,
            variant: dispatch.variant.clone().flag(flag),
            grid: dispatch.grid,
            tolerance: None,
        })
        .collect()
}

fn step() -> Step {
    Step { n_tokens: 2, ..Step::default() }
}

fn flags(program: &Program) -> Vec<&'static str> {
    program.graphs[0].dispatches[0].variant.flags.clone()
}

#[derive(Default)]
struct Memory {
    kept: RefCell<HashMap<String, String>>,
    n_writes: RefCell<usize>,
    /// The last words first.
    written: RefCell<Vec<String>>,
}

impl Host for Memory {
    fn recall(&self, key: &str) -> Option<String> {
        self.kept.borrow().get(key).cloned()
    }

    fn remember(&self, key: &str, words: &str) -> bool {
        *self.n_writes.borrow_mut() += 1;
        self.written.borrow_mut().insert(0, words.to_owned());
        self.kept.borrow_mut().insert(key.to_owned(), words.to_owned());
        true
    }
}

fn the_case() -> Case {
    toy::case(&VARIED)
}

#[test]
fn only_what_agrees_with_the_twin_is_taken_and_the_rest_is_told() {
    for gpu in common::equipped_gpus() {
        // No host keeps anything: the kernel's order decides, and nothing is measured.
        let chosen = block_on(tune::choose(&gpu, &the_case().program, &|_| step())).unwrap();
        assert_eq!(flags(&chosen), ["RIGHT"]);
        let notes = gpu.notes().join("\n");
        assert!(notes.contains("varied [BROKEN] is not used: ") && notes.contains("nothing"), "{notes}");
        assert!(notes.contains("varied [WRONG] is not used: two of three tokens: y: nmse"), "{notes}");
        assert!(!notes.contains("ABSENT") && !notes.contains("RIGHT"), "{notes}");
    }
}

#[test]
fn what_was_found_out_is_kept_by_adapter_and_decides_from_then_on() {
    let memory = Rc::new(Memory::default());
    set_host(Rc::clone(&memory) as Rc<dyn Host>);
    for gpu in common::equipped_gpus() {
        memory.kept.borrow_mut().clear();
        let program = the_case().program;
        let first = block_on(tune::choose(&gpu, &program, &|_| step())).unwrap();
        let (n_writes, n_notes) = (*memory.n_writes.borrow(), gpu.notes().len());
        assert_eq!((memory.kept.borrow().len(), n_notes), (1, 2));
        let again = block_on(tune::choose(&gpu, &program, &|_| step())).unwrap();
        assert_eq!(flags(&again), flags(&first));
        assert_eq!(*memory.n_writes.borrow(), n_writes, "nothing new");
        assert_eq!(gpu.notes().len(), n_notes, "a note is told once");

        // A choice that was kept decides, whatever the order says.
        for (taken, want) in [("varied [RIGHT]", &["RIGHT"][..]), ("varied []", &[])] {
            for words in memory.kept.borrow_mut().values_mut() {
                let mut known: serde_json::Value = serde_json::from_str(words).unwrap();
                let choices = known["choices"].as_object_mut().unwrap();
                choices.values_mut().for_each(|choice| *choice = taken.into());
                *words = known.to_string();
            }
            let chosen = block_on(tune::choose(&gpu, &program, &|_| step())).unwrap();
            assert_eq!(flags(&chosen), want);
        }
        // Words that mean nothing are forgotten.
        memory.kept.borrow_mut().values_mut().for_each(|words| words.truncate(20));
        block_on(tune::choose(&gpu, &program, &|_| step())).unwrap();
        assert!(*memory.n_writes.borrow() > n_writes);
    }
}

/// The toy, recorded in a way that gives other numbers; with `REPAIRED` an alternative gives the right ones.
macro_rules! spoiled {
    ($name:ident, $label:literal, $factor:literal, $offers:expr) => {
        static $name: Kernel = Kernel {
            name: $label,
            wgsl: toy_wgsl!(
                "  var product = a[row + i] * a[row + params.width + i];
#ifndef REPAIRED
  product *= ",
                $factor,
                ";
#endif"
            ),
            bindings: BINDINGS,
            params: &["width"],
            flags: &["REPAIRED"],
            twin: |args| (TOY.twin)(args),
            alternatives: Some(Alternatives { needs: &[], of: $offers }),
            cases: || vec![toy::case(&$name)],
            ..Kernel::PLAIN
        };
    };
}

spoiled!(SPOILED, "spoiled", 1.01, |_, _| Vec::new());
spoiled!(SPOILED_TOO, "spoiled_too", 1.01, |_, _| Vec::new());
// Off by less than the last bit of an f16, and by more than the toy's tolerance.
spoiled!(ROUNDED, "rounded", 1.0005, |_, _| Vec::new());
spoiled!(REPAIRED, "repaired", 1.01, |dispatch, _| {
    let variant = dispatch.variant.clone().flag("REPAIRED");
    vec![Alternative { kernel: dispatch.kernel, variant, grid: dispatch.grid, tolerance: None }]
});

/// Whether or not the host keeps anything, on devices with and without features.
#[test]
fn a_recorded_kernel_that_gives_other_numbers_is_an_error_that_is_not_kept_or_an_alternative_is_taken() {
    for keeps in [false, true] {
        let memory = Rc::new(Memory::default());
        if keeps {
            set_host(Rc::clone(&memory) as Rc<dyn Host>);
        }
        for gpu in common::gpus().into_iter().chain(common::equipped_gpus()) {
            let choose = |kernel| block_on(tune::choose(&gpu, &toy::case(kernel).program, &|_| step()));
            for _ in 0..2 {
                let error = choose(&SPOILED).unwrap_err();
                let Error::Kernel { kernel, adapter, reason } = &error else { unreachable!("{error}") };
                assert_eq!((&kernel[..], adapter), ("spoiled []", &gpu.info().name));
                assert!(reason.contains("y: nmse") && reason.contains("got "), "{error}");
                assert!(memory.kept.borrow().values().all(|words| !words.contains("spoiled []")));
            }
            // Neither of two is kept, whichever is named.
            let mut both = toy::case(&SPOILED).program;
            both.graphs.extend(toy::case(&SPOILED_TOO).program.graphs);
            for _ in 0..2 {
                assert!(matches!(block_on(tune::choose(&gpu, &both, &|_| step())), Err(Error::Kernel { .. })));
                assert!(memory.kept.borrow().values().all(|words| !words.contains("spoiled")));
            }
            // What rounding explains is a reason for another way, not to refuse the device.
            assert!(block_on(harness::check_case(&gpu, &ROUNDED, &toy::case(&ROUNDED))).unwrap()[0].failed());
            assert_eq!(flags(&choose(&ROUNDED).unwrap()), [""; 0]);
            assert!(
                gpu.notes().iter().any(|note| note.starts_with("rounded [] rounds otherwise than its twin: ")),
                "{:?}",
                gpu.notes()
            );
            assert!(block_on(tune::check_recorded(&gpu, &toy::case(&SPOILED).program)).is_err());
            assert_eq!(flags(&choose(&REPAIRED).unwrap()), ["REPAIRED"]);
            assert!(block_on(tune::check_recorded(&gpu, &toy::case(&REPAIRED).program)).is_err());
            assert!(block_on(tune::check_recorded(&gpu, &toy::case(&TOY).program)).is_ok());
        }
    }
}

/// A load that ended while all were checked together tells the next to find out which it was.
#[test]
fn after_a_lost_device_each_is_checked_alone() {
    let memory = Rc::new(Memory::default());
    set_host(Rc::clone(&memory) as Rc<dyn Host>);
    for gpu in common::equipped_gpus() {
        memory.kept.borrow_mut().clear();
        memory.written.borrow_mut().clear();
        let program = the_case().program;
        let first = block_on(tune::choose(&gpu, &program, &|_| step())).unwrap();
        let written = || memory.written.borrow().iter().rev().map(|words| serde_json::from_str(words).unwrap()).collect();
        let together: Vec<serde_json::Value> = written();
        // Nothing is known, all are under suspicion, all are cleared.
        assert_eq!(together.iter().map(|known| known["lost"] == true).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(together[1]["verdicts"], serde_json::json!({}));
        let in_between = together[1].to_string();
        memory.kept.borrow_mut().values_mut().for_each(|words| words.clone_from(&in_between));
        memory.written.borrow_mut().clear();
        let again = block_on(tune::choose(&gpu, &program, &|_| step())).unwrap();
        // Which of the two that agree is the quicker is for the clock to say, each time anew.
        for taken in [flags(&first), flags(&again)] {
            assert!(taken.is_empty() || taken == ["RIGHT"], "{taken:?}");
        }
        let alone: Vec<serde_json::Value> = written();
        let suspects = alone.iter().map(|known| {
            let verdicts = known["verdicts"].as_object().unwrap();
            verdicts.values().filter(|verdict| **verdict == "the device was lost while it was checked").count()
        });
        assert_eq!(suspects.collect::<Vec<_>>(), [0, 1, 1, 1, 1, 0]);
        assert_eq!(alone[5]["verdicts"], together[2]["verdicts"]);
    }
}

#[test]
fn a_device_with_the_baseline_only_takes_what_was_recorded() {
    for gpu in common::gpus() {
        let mut program = the_case().program;
        let matvec = KERNELS.iter().find(|kernel| kernel.name == "matvec").unwrap();
        program.graphs = (matvec.cases)()[0].program.graphs.clone();
        let chosen = block_on(tune::choose(&gpu, &program, &|_| step())).unwrap();
        assert_eq!(chosen.graphs[0].dispatches[0].kernel.name, "matvec");
        assert_eq!(gpu.notes(), Vec::<String>::new());
    }
}

/// Without a GPU: what is judged at load is what the model would use.
#[test]
fn every_alternative_has_an_input_to_be_judged_by() {
    let everything = Features::everything();
    for kernel in KERNELS {
        if kernel.alternatives.is_none() {
            continue;
        }
        let mut seen = Vec::new();
        for case in (kernel.cases)() {
            let dispatch = &case.program.graphs[0].dispatches[0];
            if dispatch.kernel.name != kernel.name || seen.contains(&dispatch.variant) {
                continue;
            }
            seen.push(dispatch.variant.clone());
            let probe = dispatch.probe().unwrap();
            let judged = probe.program.graphs[0].dispatches[0].alternatives(&everything);
            for offer in dispatch.alternatives(&everything) {
                let alike =
                    |other: &Alternative| other.kernel.name == offer.kernel.name && other.variant.flags == offer.variant.flags;
                assert!(judged.iter().any(alike), "{} in the place of [{}]", offer.label(), dispatch.variant);
            }
        }
    }
}

#[test]
fn a_trace_has_a_time_for_every_dispatch() {
    for gpu in common::gpus() {
        let program = the_case().program;
        let executor = block_on(Executor::new(gpu, &program)).unwrap();
        assert!(block_on(executor.trace(GraphId(0), &step())).is_err(), "no timestamps in the baseline");
    }
    for gpu in common::equipped_gpus().into_iter().filter(|gpu| gpu.features().timestamps) {
        let mut program = the_case().program;
        let dispatch = program.graphs[0].dispatches[0].clone();
        program.graphs[0].dispatches.push(dispatch);
        let executor = block_on(Executor::new(gpu, &program)).unwrap();
        let trace = block_on(executor.trace(GraphId(0), &step())).unwrap();
        assert_eq!(trace.iter().map(|(kernel, _)| *kernel).collect::<Vec<_>>(), ["varied"; 2]);
        assert!(trace.iter().all(|(_, seconds)| (0.0..10.0).contains(seconds)), "{trace:?}");
        // What a trace sets aside may be refused, one after the other, and the next trace works.
        for fault in [Fault::OutOfMemory, Fault::Validation] {
            let mut n = 0;
            loop {
                arm(fault, &[Point::Buffer], n..n + 1);
                let traced = block_on(executor.trace(GraphId(0), &step()));
                let reached = passed() > n;
                let code = traced.as_ref().err().map(Error::code);
                assert!(
                    matches!((reached, code), (false, None) | (true, Some("out-of-memory" | "gpu"))),
                    "{fault:?} {n}: {traced:?}"
                );
                if !reached {
                    break;
                }
                n += 1;
            }
            assert_eq!(n, 3, "{fault:?}: timestamps, and two buffers for them");
        }
    }
}
