//! The model: its configuration, its network, and what it remembers between tokens. Knows kernels and graphs; never a GPU, a
//! file or a text.

pub mod bound;
pub mod config;
mod declare;
pub mod draw;
pub mod evict;
pub mod forgetting;
pub mod fox;
pub mod gates;
mod keys;
pub mod layer;
pub mod rope;
pub mod state;
pub mod weights;

pub use config::{Config, ForgetGate, MlpAct, OutputGate};
pub use forgetting::Forgetting;
pub use fox::Fox;
pub use gates::Gates;
pub use state::Pages;
pub use weights::{Place, Segment, Wanted};
