//! Memory does not grow: two hundred answers of one model, and twenty models one after the other. Each run is a process of its own, whose
//! resident memory the system counts.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::common::tiny::Tiny;
use crate::common::tokenizers;
use kitfox::session::{DeviceChoice, GenerateOptions, Generation, LoadOptions, Model, SamplerOptions};
use pollster::block_on;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the process that is watched is to do.
const TASK: &str = "KITFOX_LEAK_TASK";
const ANSWERS: usize = 200;
const MODELS: usize = 20;

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn load(folder: &Path, device: DeviceChoice) -> Model {
    let options = LoadOptions { device, context: Some(256), chunk: Some(32), baseline: true, ..LoadOptions::default() };
    let checkpoint = block_on(kitfox::format::open(folder)).unwrap();
    block_on(Model::load(checkpoint, options, &mut |_| Ok(()))).unwrap()
}

/// Words that no other round has.
fn words(seed: u64, n: u64) -> String {
    (0..n).map(|ix| format!("{:x} ", (seed * n + ix + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect()
}

fn answer(model: &mut Model, seed: u64) {
    model.reset();
    // Whatever is kept of a text is kept of this one, too.
    assert!(model.tokenizer("encode").unwrap().encode(&words(seed, 1000)).unwrap().len() > 1000);
    let sampler = SamplerOptions { seed, ..SamplerOptions::default() };
    let options = GenerateOptions { max_tokens: 8, sampler, ignore_eos: true, ..GenerateOptions::default() };
    let mut answer = Generation::new(model, &words(seed, 3), options).unwrap();
    while block_on(answer.next(model)).unwrap().is_some() {}
}

/// The watched process: after each answer, or each model, a line with its memory.
#[test]
fn watched() {
    let Ok(task) = std::env::var(TASK) else { return };
    let (what, device, folder) = {
        let mut words = task.splitn(3, ' ');
        (words.next().unwrap().to_owned(), words.next().unwrap().to_owned(), PathBuf::from(words.next().unwrap()))
    };
    let device = if device == "gpu" { DeviceChoice::Gpu } else { DeviceChoice::Cpu };
    if what == "answers" {
        let mut model = load(&folder, device);
        for seed in 0..ANSWERS as u64 {
            answer(&mut model, seed);
            println!("resident {} {}", resident_kib(), model.bytes());
        }
    } else {
        for seed in 0..MODELS as u64 {
            let mut model = load(&folder, device);
            answer(&mut model, seed);
            drop(model);
            println!("resident {} 0", resident_kib());
        }
    }
}

/// Resident KiB and the device's bytes after each round.
fn watch(what: &str, device: &str) -> Vec<(usize, u64)> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("leaks").join(format!("{what} {device}"));
    let folder = Tiny::new(Some(tokenizers::byte_level())).write(&folder);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "leaks::watched", "--nocapture", "--test-threads=1"])
        // One arena: how many others the allocator keeps depends on which threads of a software driver met.
        .env("MALLOC_ARENA_MAX", "1")
        .env(TASK, format!("{what} {device} {}", folder.display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}\n{}", String::from_utf8_lossy(&child.stderr));
    // The first line stands behind the test's own name.
    let numbers = said.split("resident ").skip(1).map(|words| {
        let mut words = words.split_whitespace();
        (words.next().unwrap().parse().unwrap(), words.next().unwrap().parse().unwrap())
    });
    numbers.collect()
}

/// What an allocator touches late comes in steps of 64 KiB, so a slope of zero reads as a few KiB. By the line of least squares through all rounds but the
/// first fifth, in which caches fill: KiB a round.
fn slope(rounds: &[(usize, u64)]) -> f64 {
    let rest = &rounds[rounds.len() / 5..];
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / rest.len() as f64;
    let (x, y) = (mean(&mut (0..rest.len()).map(|ix| ix as f64)), mean(&mut rest.iter().map(|(kib, _)| *kib as f64)));
    let both = rest.iter().enumerate().map(|(ix, (kib, _))| (ix as f64 - x, *kib as f64 - y));
    let (up, across) = both.fold((0.0, 0.0), |(up, across), (dx, dy)| (up + dx * dy, across + dx * dx));
    up / across
}

#[test]
fn memory_does_not_grow_over_two_hundred_answers_nor_over_twenty_models() {
    let gpu = common::gpu_expected().then_some("gpu");
    for device in ["cpu"].into_iter().chain(gpu) {
        // What resident memory does by itself in twenty rounds is up to 45 KiB a round; a thousand words left behind are 150 KiB.
        let most_answer = if device == "cpu" { 4.0 } else { 8.0 };
        for (what, n, most_kib) in [("answers", ANSWERS, most_answer), ("models", MODELS, 64.0)] {
            let rounds = watch(what, device);
            assert_eq!(rounds.len(), n, "{what} on {device}");
            let slope = slope(&rounds);
            println!("{what} on {device}: {slope:.2} KiB a round, from {} to {} KiB", rounds[0].0, rounds[n - 1].0);
            assert!(slope < most_kib, "{what} on {device}: {slope:.2} KiB a round: {rounds:?}");
            assert!(rounds.iter().all(|(_, bytes)| *bytes == rounds[0].1), "{what} on {device}: bytes on the device");
        }
    }
}
