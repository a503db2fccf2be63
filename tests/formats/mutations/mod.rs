//! Ten thousand inputs that are nearly right, in the units of their format: numbers, names, entries, values of JSON, lines; each is tried
//! as tests/common/hostile says and held to its bounds. The seed is fixed: a failure comes again, shrunk to few edits.

mod binary;
mod json;
mod lines;

use crate::hostile_input::{TARGETS, Target, exercise, target};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use std::cell::Cell;
use std::time::Duration;

/// One change: where, what, and with which number. What it means is the format's business, and any numbers mean something.
#[derive(Clone, Copy, Debug)]
pub struct Edit {
    pub at: usize,
    pub what: u8,
    pub number: u64,
}

impl Edit {
    /// One of these.
    pub fn pick<T: Copy>(self, of: &[T]) -> T {
        of[self.number as usize % of.len()]
    }

    /// A place below `n`, which is not 0.
    pub fn place(self, n: usize) -> usize {
        self.at % n
    }
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = (any::<usize>(), any::<u8>(), any::<u64>()).prop_map(|(at, what, number)| Edit { at, what, number });
    proptest::collection::vec(edit, 1..5)
}

/// Any bytes at all: what has no format left.
fn of_bytes(mut bytes: Vec<u8>, edits: &[Edit]) -> Vec<u8> {
    for edit in edits {
        if bytes.is_empty() {
            break;
        }
        let at = edit.place(bytes.len());
        let n = (edit.number as usize % 64).min(bytes.len() - at);
        match edit.what % 6 {
            0 => bytes[at] = edit.number as u8,
            1 => bytes[at] ^= 1 << (edit.number % 8),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..at + n)),
            4 => bytes = [&bytes[..at + n], &bytes[at..]].concat(),
            _ => bytes[at..at + n].fill([0, 0xff, b'[', b'"'][edit.number as usize % 4]),
        }
    }
    bytes
}

fn mutated(target: &str, seed: &[u8], edits: &[Edit]) -> Vec<u8> {
    // Some of all are of bytes alone, and some of the others end so.
    let raw = edits[0].what;
    if raw.is_multiple_of(16) {
        return of_bytes(seed.to_vec(), edits);
    }
    let new = match target {
        "gguf" => binary::Gguf::read(seed).edited(edits).written(),
        "safetensors" => json::safetensors(seed, edits),
        "config" | "manifest" => json::edited(seed, edits),
        "tokenizer" => json::tokenizer(seed, edits),
        "snapshot" => binary::session(seed, edits),
        "preprocess" => lines::edited(seed, edits),
        other => unreachable!("no mutations of {other}"),
    };
    if raw % 16 == 1 { of_bytes(new, &edits[edits.len() - 1..]) } else { new }
}

/// Inputs of each kind: more where more is read.
const CASES: [(&str, u32); 7] = [
    ("gguf", 2500),
    ("safetensors", 2000),
    ("config", 1500),
    ("tokenizer", 1500),
    ("manifest", 500),
    ("snapshot", 1000),
    ("preprocess", 1000),
];

fn ten_thousandth(target: &Target, cases: u32) {
    let seeds = (target.seeds)();
    for (name, seed) in &seeds {
        assert!(target.measured(seed).accepted, "the {} {name} is right", target.name);
    }
    let config = Config { cases, rng_seed: RngSeed::Fixed(0xf0), failure_persistence: None, ..Config::default() };
    let (accepted, worst, most) = (Cell::new(0), Cell::new(Duration::ZERO), Cell::new(0));
    let result = TestRunner::new(config).run(&(0..seeds.len(), edits()), |(seed, edits)| {
        let input = mutated(target.name, &seeds[seed].1, &edits);
        // What breaks a promise panics, and proptest looks for fewer edits that do.
        let cost = target.measured(&input);
        accepted.set(accepted.get() + u32::from(cost.accepted));
        worst.set(worst.get().max(cost.cpu));
        most.set(most.get().max(cost.peak_bytes));
        Ok::<(), TestCaseError>(())
    });
    if let Err(error) = result {
        panic!("{}: {error}", target.name);
    }
    let share = accepted.get();
    println!("{}: {share} of {cases} taken, worst {:?}, most {} KB", target.name, worst.get(), most.get() >> 10);
    // Mutations that are all refused at the door, or none at all, try nothing.
    assert!((cases / 50..cases - cases / 50).contains(&share), "{}: {share} of {cases} are taken", target.name);
}

macro_rules! kinds {
    ($($test:ident: $ix:literal,)*) => {$(
        #[test]
        fn $test() {
            let (name, cases) = CASES[$ix];
            ten_thousandth(target(name), cases);
        }
    )*};
}

kinds! {
    mutated_gguf_gives_an_error_or_a_checkpoint: 0,
    mutated_safetensors_give_an_error_or_a_checkpoint: 1,
    mutated_configurations_give_an_error_or_a_model: 2,
    mutated_tokenizers_give_an_error_or_a_tokenizer: 3,
    mutated_manifests_give_an_error_or_a_manifest: 4,
    mutated_sessions_give_an_error_or_a_session: 5,
    mutated_shaders_give_an_error_or_wgsl: 6,
}

#[test]
fn they_are_ten_thousand_of_all_kinds() {
    assert_eq!(CASES.map(|(name, _)| name), TARGETS.map(|target| target.name));
    assert_eq!(CASES.iter().map(|(_, cases)| cases).sum::<u32>(), 10_000);
    // `npm run fuzz` has the same.
    let fuzzed =
        include_str!("../../../fuzz/Cargo.toml").split("[[bin]]\nname = \"").skip(1).map(|bin| bin.split('"').next().unwrap());
    assert_eq!(fuzzed.collect::<Vec<_>>(), TARGETS.map(|target| target.name));
}

/// The corpus that libFuzzer starts from is what the seeds are: `KITFOX_WRITE_CORPUS=1` writes it.
#[test]
fn the_corpus_is_what_the_seeds_are() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let write = std::env::var("KITFOX_WRITE_CORPUS").is_ok_and(|value| value == "1");
    for target in &TARGETS {
        let folder = corpus.join(target.name);
        for (name, seed) in (target.seeds)() {
            if write {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(folder.join(name), &seed).unwrap();
            }
            let kept = std::fs::read(folder.join(name)).unwrap_or_default();
            // Sums in another order on another CPU are other last bits of a session's keys.
            let same = if target.name == "snapshot" { kept.len() == seed.len() } else { kept == seed };
            assert!(same, "fuzz/corpus/{}/{name} is not what it is made of: KITFOX_WRITE_CORPUS=1 writes it", target.name);
        }
        // And what fuzzing once found stays found: every file of the corpus is tried.
        for file in std::fs::read_dir(&folder).unwrap() {
            target.measured(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }
}

/// The measure itself would notice.
#[test]
fn a_call_that_takes_too_much_is_noticed() {
    fn greedy(bytes: &[u8]) -> bool {
        let claimed = vec![0u8; bytes[0] as usize * (1 << 20)];
        std::hint::black_box(&claimed).len() > 1
    }
    fn slow(_: &[u8]) -> bool {
        let started = cpu_time::ThreadTime::now();
        while started.elapsed() < Duration::from_millis(20) {}
        true
    }
    let of = |exercise| Target { name: "test", exercise, seeds: Vec::new };
    assert_eq!(of(greedy).measured(&[60]).peak_bytes, 60 << 20);
    assert!(std::panic::catch_unwind(|| of(greedy).measured(&[65])).is_err());
    assert!(std::panic::catch_unwind(|| of(slow).within(Duration::from_millis(20), &[0])).is_err());
    assert_eq!(exercise::joined(&[b"a", b"bc"]), b"\x01\0\0\0abc");
}
