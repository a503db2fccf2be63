//! Reports to the trackers of other programs about GPUs (tests/README.md has the table), each under its symptom.

use crate::common;
use kitfox::gpu::Executor;
use kitfox::gpu::harness::check_case;
use kitfox::graph::{Case, GraphId};
use kitfox::kernel::KERNELS;
use kitfox::kernel::rms_norm::RMS_NORM;
use pollster::block_on;

/// onnxruntime#31626: in f16 the mean of squares is infinite from 256 on, and 1 / ∞ is finite. The twin sums in f64.
#[test]
fn an_outlier_channel_of_800_overflows_no_variance() {
    let mut outliers = 0;
    for gpu in common::gpus() {
        for mut case in (RMS_NORM.cases)() {
            let (_, words) = &mut case.contents[0];
            for (ix, word) in words.iter_mut().enumerate().filter(|(ix, _)| ix % 37 == 5) {
                *word = f32::to_bits(if ix % 2 == 0 { 800.0 } else { -800.0 });
                outliers += 1;
            }
            for deviation in block_on(check_case(&gpu, &RMS_NORM, &case)).unwrap() {
                assert!(!deviation.failed(), "{}: {deviation}", case.name);
            }
        }
    }
    assert!(outliers > 0 || !common::gpu_expected());
}

/// wgpu#4500, #3181, #8151: a barrier that is lost shows as a sum that is another one now and then. Four kinds of input of every kernel, and a
/// thousand times the first of those that add up in a workgroup's memory.
#[test]
fn a_reduction_gives_the_same_bits_a_thousand_times() {
    for gpu in common::gpus() {
        let tried = KERNELS.iter().flat_map(|kernel| {
            let cases = (kernel.cases)();
            let (apart, adds_up) = (cases.len().div_ceil(4), ["rms_norm", "attn_merge", "matvec"].contains(&kernel.name));
            let rounds = move |ix| if ix == 0 && adds_up { 1000 } else { 40 };
            cases.into_iter().step_by(apart).enumerate().map(move |(ix, case)| (kernel, case, rounds(ix)))
        });
        for (kernel, Case { program, contents, step, expect, .. }, rounds) in tried {
            let executor = block_on(Executor::new(gpu.clone(), &program)).unwrap();
            let mut first: Option<Vec<Vec<u32>>> = None;
            for round in 0..rounds {
                for (buffer, words) in &contents {
                    executor.write(*buffer, 0, words);
                }
                for graph in 0..program.graphs.len() {
                    executor.replay(GraphId(graph as u32), &step, true).unwrap();
                }
                let read = |buffer| block_on(executor.read(buffer, 0, program.get(buffer).words)).unwrap();
                let words: Vec<Vec<u32>> = expect.iter().map(|expect| read(expect.buffer)).collect();
                assert!(first.get_or_insert_with(|| words.clone()) == &words, "{}: round {round}", kernel.name);
            }
        }
    }
}
