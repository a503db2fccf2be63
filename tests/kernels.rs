//! Ring 2: every kernel equals its twin, on every adapter at hand, and so does its `fast` code, on all of its cases.

mod common;

use kitfox::gpu::harness::check_case;
use kitfox::graph::compare::{Deviation, check_fast};
use kitfox::graph::{Args, Case, Kernel};
use kitfox::kernel::KERNELS;
use kitfox::kernel::silu_gate::SILU_GATE;

/// Runs all cases and prints one table; `KITFOX_SHOW_DEVIATIONS=1` prints the passing rows too.
fn judge(by: &str, check: impl Fn(&Kernel, &Case) -> Vec<Deviation>) -> usize {
    let show = std::env::var("KITFOX_SHOW_DEVIATIONS").is_ok_and(|value| value == "1");
    let mut failures = 0;
    for kernel in KERNELS {
        let cases = (kernel.cases)();
        assert!(!cases.is_empty(), "{} has no cases", kernel.name);
        for case in &cases {
            assert!(!case.expect.is_empty(), "{}: {} expects nothing", kernel.name, case.name);
            for deviation in check(kernel, case) {
                failures += usize::from(deviation.failed());
                if show || deviation.failed() {
                    println!("{by}: {}: {deviation}", kernel.name);
                }
            }
        }
    }
    failures
}

#[test]
fn every_kernel_equals_its_twin_on_every_adapter() {
    let check = |gpu| move |kernel: &Kernel, case: &Case| pollster::block_on(check_case(gpu, kernel, case)).unwrap();
    let failures: usize = common::gpus().iter().map(|gpu| judge(&gpu.info().name, check(gpu))).sum();
    assert_eq!(failures, 0, "comparisons failed, see the table above");
}

#[test]
fn fast_code_equals_its_twin() {
    assert_eq!(judge("fast", check_fast), 0, "comparisons failed, see the table above");
}

/// The test of the test: silu_gate with one thing wrong at a time.
#[test]
fn a_wrong_kernel_is_caught() {
    let breakages = [
        ("g / (1.0", "g * 1.0001 / (1.0", "worst at"),
        ("i >= params.width", "i + 1u >= params.width", "not a finite number"),
        ("y[t * params.width + i] =", "y[t * params.width + i + 1u] =", ""),
        ("t >= step.n_tokens", "t >= 99u", "not a finite number"),
        ("gate_up[row + i]", "gate_up[row + i + 64u]", "worst at"),
    ];
    for gpu in common::gpus() {
        for (from, to, expected) in breakages {
            let wgsl = SILU_GATE.wgsl.replacen(from, to, 1);
            assert_ne!(wgsl, SILU_GATE.wgsl, "{from}");
            // A kernel is a static of the program; a test leaks its few.
            let name: &'static str = format!("wrong {from}").leak();
            let kernel: &'static Kernel = Box::leak(Box::new(Kernel { name, wgsl: wgsl.leak(), ..SILU_GATE }));
            let mut case = (SILU_GATE.cases)().remove(1);
            // One token fewer than the buffers hold: nothing may touch the last row.
            case.step.n_tokens -= 1;
            case.program.graphs[0].dispatches[0].kernel = kernel;
            case.program.graphs[0].dispatches[0].grid.0[1] = kitfox::graph::Extent::Fixed(3);
            let found = pollster::block_on(check_case(&gpu, kernel, &case)).unwrap();
            let told = found.iter().filter(|deviation| deviation.failed()).map(ToString::to_string).collect::<Vec<_>>();
            assert!(!told.is_empty() && told[0].contains(expected), "{from} -> {to}: {told:?}");
        }
    }
}

#[test]
fn wrong_fast_code_is_caught() {
    fn fast(args: &mut Args<'_>) {
        (SILU_GATE.twin)(args);
    }
    fn wrong(args: &mut Args<'_>) {
        args.take_f32("y").fill(1.0);
    }
    for (fast, right) in [(fast as fn(&mut Args<'_>), true), (wrong, false)] {
        let kernel: &'static Kernel = Box::leak(Box::new(Kernel { fast: Some(fast), ..SILU_GATE }));
        for mut case in (SILU_GATE.cases)() {
            case.program.graphs[0].dispatches[0].kernel = kernel;
            let found = check_fast(kernel, &case);
            assert_eq!(found.iter().all(|deviation| !deviation.failed()), right, "{found:?}");
        }
    }
}
