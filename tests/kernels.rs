//! Ring 2: every kernel equals its twin, on every adapter at hand, and so does its `fast` code, on all of its cases.

mod common;

use kitfox::gpu::harness::check_case;
use kitfox::graph::compare::{Deviation, check_fast};
use kitfox::graph::{Case, Kernel};
use kitfox::kernel::KERNELS;

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
