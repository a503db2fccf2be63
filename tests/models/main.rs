//! Whole models: the official numbers, generating, chunks, pruning, gates, saved state.

#[path = "../common/mod.rs"]
mod common;

mod attention;
mod chunks;
mod draws;
mod faults;
mod gates;
mod generate;
mod golden;
mod import;
mod in_flight;
mod json_escape;
mod lambda;
mod layer;
mod lessons;
mod measured;
mod model;
mod mutated;
mod plan;
mod prune;
mod pruned_mass;
mod sampler;
mod sequences;
mod slide;
mod snapshot;
mod state;
mod streams;
mod switches;
mod text;
mod watch;
mod wide;
mod wrong_kernels;
