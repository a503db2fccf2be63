//! Ring 2: every kernel equals its twin, on every adapter at hand, and so does its `fast` code, on all of its cases.

use crate::common;
use crate::common::toy;
use crate::common::toy::TOY;
use kitfox::Result;
use kitfox::gpu::harness::{alternatives, check_alternative, check_case};
use kitfox::graph::compare::{Deviation, check_fast};
use kitfox::graph::{Args, Case, Features, Kernel};
use kitfox::kernel::KERNELS;

/// Runs all cases and prints one table; `KITFOX_SHOW_DEVIATIONS=1` prints the passing rows too. Returns the number of failures.
/// KITFOX_KERNEL=NAME leaves one of them, for whoever writes it.
fn judge(by: &str, check: impl Fn(&Kernel, &Case) -> Result<Vec<Deviation>>) -> usize {
    let show = std::env::var("KITFOX_SHOW_DEVIATIONS").is_ok_and(|value| value == "1");
    let wanted = std::env::var("KITFOX_KERNEL").ok();
    let (mut failures, mut n_cases) = (0, 0);
    let kernels: Vec<_> = KERNELS.iter().filter(|kernel| wanted.as_ref().is_none_or(|name| kernel.name == name)).collect();
    assert!(!kernels.is_empty(), "KITFOX_KERNEL: no kernel {wanted:?} in kernel::KERNELS");
    for kernel in kernels {
        let cases = (kernel.cases)();
        assert!(!cases.is_empty(), "{} has no cases", kernel.name);
        for case in &cases {
            assert!(!case.expect.is_empty(), "{}: {} expects nothing", kernel.name, case.name);
            let found = check(kernel, case).unwrap_or_else(|error| {
                println!("{by}: {error}");
                failures += 1;
                Vec::new()
            });
            // A kernel may have no fast code.
            n_cases += usize::from(!found.is_empty());
            for deviation in found {
                failures += usize::from(deviation.failed());
                if show || deviation.failed() {
                    println!("{by}: {}: {deviation}", kernel.name);
                }
            }
        }
    }
    println!("{by}: {n_cases} cases");
    failures
}

#[test]
fn every_kernel_equals_its_twin_on_every_adapter() {
    let check = |gpu| move |kernel: &Kernel, case: &Case| pollster::block_on(check_case(gpu, kernel, case));
    let failures: usize = common::gpus().iter().map(|gpu| judge(&gpu.info().name, check(gpu))).sum();
    assert_eq!(failures, 0, "comparisons failed, see the table above");
}

/// On devices with all they have, whose shaders are compiled without wgpu's checks: the baseline and every alternative.
#[test]
fn every_alternative_equals_the_twin_on_every_adapter() {
    let check = |gpu| {
        move |kernel: &Kernel, case: &Case| {
            let mut found = pollster::block_on(check_case(gpu, kernel, case))?;
            // What pays on hardware alone is compared here, too.
            let features = Features { software: false, ..gpu.features().clone() };
            for way in alternatives(&features, kernel, case) {
                let deviations = pollster::block_on(check_alternative(gpu, kernel, case, &way))?;
                let label = |deviation: Deviation| Deviation { case: format!("{}: {}", case.name, way.0.label()), ..deviation };
                found.extend(deviations.into_iter().map(label));
            }
            Ok(found)
        }
    };
    let failures: usize = common::equipped_gpus().iter().map(|gpu| judge(&gpu.info().name, check(gpu))).sum();
    assert_eq!(failures, 0, "comparisons failed, see the table above");
}

#[test]
fn fast_code_equals_its_twin() {
    let compare = |kernel: &Kernel, case: &Case| Ok(if kernel.fast.is_some() { check_fast(kernel, case) } else { Vec::new() });
    assert_eq!(judge("fast", compare), 0, "comparisons failed, see the table above");
}

/// The test of the test: the toy kernel with one thing wrong at a time.
#[test]
fn a_wrong_kernel_is_caught() {
    let breakages = [
        ("a[row + i] *", "a[row + i] * 1.0001 *", "worst at"),
        ("a[row + i] *", "a[row + i + 64u] *", "worst at"),
        ("i >= params.width", "i + 1u >= params.width", "not a finite number at 99: got NaN"),
        ("y[t * params.width + i] =", "y[t * params.width + i + 1u] =", "not a finite number at 0: got NaN"),
        ("t >= step.n_tokens", "t >= 99u", "not a finite number at 200: got"),
        ("y[t * params.width + i] =", "y[t * params.width + i] = bitcast<f32>(step.n_tokens | 0x7f800000u) +", "got NaN"),
    ];
    for gpu in common::gpus() {
        let found = pollster::block_on(check_case(&gpu, &TOY, &toy::case(&TOY))).unwrap();
        assert!(found.iter().all(|deviation| !deviation.failed()), "{found:?}");
        for (from, to, expected) in breakages {
            let wgsl = TOY.wgsl.replacen(from, to, 1);
            assert_ne!(wgsl, TOY.wgsl, "{from}");
            // A kernel is a static of the program, its name the key of its pipelines; a test leaks its few.
            let name = format!("toy with {to}").leak();
            let kernel: &'static Kernel = Box::leak(Box::new(Kernel { name, wgsl: wgsl.leak(), ..TOY }));
            let found = pollster::block_on(check_case(&gpu, kernel, &toy::case(kernel))).unwrap();
            let told = found.iter().filter(|deviation| deviation.failed()).map(ToString::to_string).collect::<Vec<_>>();
            assert!(told.iter().any(|told| told.contains(expected)), "{from} -> {to}: {found:?}");
        }
    }
}

#[test]
fn wrong_fast_code_is_caught() {
    fn right(args: &mut Args<'_>) {
        (TOY.twin)(args);
    }
    fn wrong(args: &mut Args<'_>) {
        args.take_f32("y").fill(1.0);
    }
    for (fast, holds) in [(right as fn(&mut Args<'_>), true), (wrong, false)] {
        let kernel: &'static Kernel = Box::leak(Box::new(Kernel { fast: Some(fast), ..TOY }));
        let found = check_fast(kernel, &toy::case(kernel));
        assert_eq!(found.iter().all(|deviation| !deviation.failed()), holds, "{found:?}");
    }
}
