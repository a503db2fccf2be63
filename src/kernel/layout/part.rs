//! A weight matrix as the graph knows it.

use super::WeightType;
use crate::graph::{Binding, BufferId, Recorder};

/// A matrix `[n_rows, k]`, or some rows of one that is too large for a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Type of the weights.
    pub ty: WeightType,
    /// Rows: outputs.
    pub n_rows: usize,
    /// Columns: inputs; a multiple of [`WeightType::block`].
    pub k: usize,
    /// [`WeightType::data_words`] words.
    pub data: BufferId,
    /// [`WeightType::scale_words`] words; for the types that have scales.
    pub scales: Option<BufferId>,
}

impl Part {
    /// The windows of `data` and, if it has them, `scales`.
    pub fn bindings(&self, r: &Recorder<'_>) -> Vec<Binding> {
        assert!(self.k > 0 && self.k.is_multiple_of(self.ty.block()), "{} rows of {} weights", self.ty.name(), self.k);
        assert!(self.scales.is_some() == self.ty.has_scales(), "scales belong to the block types alone");
        std::iter::once(self.data).chain(self.scales).map(|buffer| r.whole(buffer)).collect()
    }
}
