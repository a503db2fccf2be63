//! kitfox runs the Forgetting Transformer (FoX, arXiv 2503.02130) on WebGPU and on the CPU. This file is the map of the house.
//!
//! ```text
//! 5   web            main.rs, cli/       surfaces: parse, print, convert errors
//!        \            /
//! 4      session                         a model, a device, a text, a sampler: prefill, step, generate
//!       /   |    \    \
//! 3 model  gpu  format text              model does not know gpu; gpu does not know model
//!      \    |     |     |
//! 2   kernel|     |     |                kernel does not know gpu
//!        \  |     |     |                gpu knows kernels, and runs whatever a graph has recorded
//! 1     graph     |     |                what kernels record and devices replay
//!           \     |    /
//! 0        num, error, json
//! ```
//!
//! Arrows go down only, past a room, too: session and the surfaces may name every room below them but json. `gpu` names `kernel` because a
//! device judges each kernel against its twin before a model uses it, times the ways to run it, and is measured by two of them (`gpu::harness`,
//! `tune`, `floor`); for that it needs their list, which no graph has. `tests/layers.rs` reads the sources and holds them. `wgpu` is named only in `gpu`,
//! JavaScript only in `web`, `std::fs` only in the command line and in `format`'s file source.
#![deny(unsafe_code)]

pub mod error;
pub mod format;
pub mod gpu;
pub mod graph;
mod json;
pub mod kernel;
pub mod model;
pub mod num;
pub mod session;
pub mod text;
#[cfg(target_arch = "wasm32")]
pub mod web;

pub use error::{Error, Result};

/// The README's Rust example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
