//! A model on a device: load, prefill, step, generate. `load.rs` joins `format`, `model` and the devices for a model, `layer.rs`
//! for a single layer.
//!
//! It knows every room below it and no surface: it prints nothing, opens no file by its path, and never names wgpu or JavaScript.

pub mod attention;
pub mod bench;
pub mod check;
mod chunk;
pub mod device;
pub mod draw;
mod gates;
pub mod generate;
pub mod layer;
pub mod limits;
pub mod load;
mod memory;
pub mod model;
pub mod pages;
mod recover;
pub mod sampler;
pub mod score;
pub mod sequences;
pub mod snapshot;
pub mod trace;
mod watch;

pub use crate::model::Gates;
pub use crate::model::evict::Overflow;
pub use attention::AttentionRow;
pub use device::{Device, DeviceChoice};
pub use generate::{FinishReason, GenerateOptions, Generation, Piece};
pub use layer::{ForgettingAttentionLayer, LayerOptions};
pub use load::{KvType, LoadOptions, Progress};
pub use model::Model;
pub use pages::{KvBytes, Pruning};
pub use sampler::{Sampler, SamplerOptions};
pub use score::Scoring;
pub use sequences::Sequences;
pub use watch::Watch;
