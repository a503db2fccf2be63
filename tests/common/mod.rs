//! What the GPU tests share: every adapter at hand, opened.

#![allow(clippy::panic, reason = "a helper of tests fails as tests do")]
#![allow(dead_code, reason = "each test program uses some of these")]

pub mod command;
pub mod golden;
pub mod tiny;
pub mod tokenizers;
pub mod toy;

use kitfox::gpu::{AdapterPick, Gpu, Host, adapters};
use std::cell::RefCell;
use std::collections::HashMap;

/// A device on every adapter at hand, each named on standard output. No adapter is a failure, unless [`gpu_expected`] says that
/// there is none: then the list is empty.
pub fn gpus() -> Vec<Gpu> {
    opened(|pick| pollster::block_on(Gpu::open(pick)))
}

/// Like [`gpus`], with all features and limits that the adapters have.
pub fn equipped_gpus() -> Vec<Gpu> {
    opened(|pick| pollster::block_on(Gpu::open_equipped(pick)))
}

fn opened(open: impl Fn(AdapterPick) -> kitfox::Result<Gpu>) -> Vec<Gpu> {
    if !gpu_expected() {
        return Vec::new();
    }
    let found = pollster::block_on(adapters());
    assert!(!found.is_empty(), "no adapter: install a driver (Mesa's lavapipe will do), or set KITFOX_NO_GPU=1");
    let named = |name: String| {
        let gpu = open(AdapterPick::Named(name)).unwrap_or_else(|error| panic!("{error}"));
        println!("on {:?} with {:?}", gpu.info(), gpu.features());
        gpu
    };
    found.into_iter().map(|info| named(info.name)).collect()
}

/// Whether tests with a GPU run at all: `KITFOX_NO_GPU=1` says that there is none, and the output says so.
pub fn gpu_expected() -> bool {
    let none = std::env::var("KITFOX_NO_GPU").is_ok_and(|value| value == "1");
    if none {
        println!("KITFOX_NO_GPU=1: nothing is tested on a GPU");
    }
    !none
}

/// A host that keeps what is found out about adapters, as the command line's does.
#[derive(Default)]
pub struct Keeping(RefCell<HashMap<String, String>>);

impl Host for Keeping {
    fn recall(&self, key: &str) -> Option<String> {
        self.0.borrow().get(key).cloned()
    }

    fn remember(&self, key: &str, words: &str) -> bool {
        self.0.borrow_mut().insert(key.to_owned(), words.to_owned());
        true
    }
}

/// Some ids below `vocab`, the same in every run.
pub fn ids(n: usize, vocab: usize) -> Vec<u32> {
    (0..n as u64).map(|ix| (ix.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u32 % vocab as u32).collect()
}
