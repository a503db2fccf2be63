//! Hostile input, one call a kind: what `npm test` mutates (tests/formats/mutations) and what libFuzzer is given (fuzz/) goes the same way,
//! and is held to the same bounds: an error of one line or a result, no panic, [`MAX_CPU`], [`most_bytes`] of memory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each program uses some of these")]

pub mod exercise;
pub mod seeds;

use cpu_time::ThreadTime;
use std::time::Duration;

/// A kind of input.
pub struct Target {
    /// As `npm run fuzz` calls it.
    pub name: &'static str,
    /// Whether kitfox takes these bytes; panics where a promise is broken.
    pub exercise: fn(&[u8]) -> bool,
    /// Inputs that it takes, by name.
    pub seeds: fn() -> Vec<(&'static str, Vec<u8>)>,
}

/// All kinds.
pub const TARGETS: [Target; 7] = [
    Target { name: "gguf", exercise: exercise::gguf, seeds: seeds::gguf },
    Target { name: "safetensors", exercise: exercise::safetensors, seeds: seeds::safetensors },
    Target { name: "config", exercise: exercise::config, seeds: seeds::config },
    Target { name: "tokenizer", exercise: exercise::tokenizer, seeds: seeds::tokenizer },
    Target { name: "manifest", exercise: exercise::manifest, seeds: seeds::manifest },
    Target { name: "snapshot", exercise: exercise::snapshot, seeds: seeds::snapshot },
    Target { name: "preprocess", exercise: exercise::preprocess, seeds: seeds::preprocess },
];

/// The kind of this name.
pub fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).unwrap()
}

/// Time of the thread that one input may take: not of the clock, which runs on while other programs do.
pub const MAX_CPU: Duration = Duration::from_secs(2);

/// Memory that an input of `n` bytes may take beside itself.
pub fn most_bytes(n: usize) -> u64 {
    4 * n as u64 + (64 << 20)
}

/// What an input took.
pub struct Cost {
    pub accepted: bool,
    pub cpu: Duration,
    /// The most that was allocated at once, by this thread.
    pub peak_bytes: u64,
}

impl Target {
    /// Tries an input.
    ///
    /// # Panics
    /// When a promise is broken.
    pub fn measured(&self, bytes: &[u8]) -> Cost {
        self.within(MAX_CPU, bytes)
    }

    /// Tries an input that may take so much of the thread's time.
    pub fn within(&self, most: Duration, bytes: &[u8]) -> Cost {
        // What is made once for all inputs is no input's cost.
        if self.name == "snapshot" {
            exercise::warm_up();
        }
        let mut accepted = false;
        let started = ThreadTime::now();
        let allocated = allocation_counter::measure(|| accepted = (self.exercise)(bytes));
        let (cpu, peak_bytes) = (started.elapsed(), allocated.bytes_max);
        assert!(cpu < most, "{}: {} bytes took {cpu:?}", self.name, bytes.len());
        assert!(peak_bytes <= most_bytes(bytes.len()), "{}: {} bytes took {peak_bytes} in memory", self.name, bytes.len());
        Cost { accepted, cpu, peak_bytes }
    }
}
