//! Kernels and what runs them: every variant against its twin, on every adapter at hand.
//!
//! One program of many modules: each program of tests instantiates the asynchronous functions that it calls anew, which takes longer than
//! compiling the tests.

#[path = "../common/mod.rs"]
mod common;

mod executor;
mod kernels;
mod lambda;
mod lessons;
mod long_context;
mod shaders;
mod variants;
