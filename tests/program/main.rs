//! The built program, as a shell runs it.

#[path = "../common/mod.rs"]
mod common;

mod bench;
mod cli;
mod eval;
mod gates;
mod leaks;
mod limits;
mod manifest;
mod outputs;
mod session_file;
