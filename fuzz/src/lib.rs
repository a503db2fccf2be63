//! Runs an input as the mutations of `npm test` do, and keeps track of what the worst ones cost.

#[path = "../../tests/common/hostile/mod.rs"]
pub mod hostile;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Tries an input of a kind; panics where a promise is broken.
pub fn run(name: &str, bytes: &[u8]) {
    static WORST_US: AtomicU64 = AtomicU64::new(0);
    static PEAK_KB: AtomicU64 = AtomicU64::new(0);
    let cost = hostile::target(name).measured(bytes);
    let (us, kb) = (cost.cpu.as_micros() as u64, cost.peak_bytes >> 10);
    let (slower, larger) = (us > WORST_US.fetch_max(us, Relaxed), kb > PEAK_KB.fetch_max(kb, Relaxed));
    // tools/fuzz.mjs reads the last of these lines.
    if slower || larger {
        eprintln!("kitfox: worst {} us, peak {} KB", WORST_US.load(Relaxed), PEAK_KB.load(Relaxed));
    }
}
