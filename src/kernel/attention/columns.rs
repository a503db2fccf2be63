//! What a layer projects for its attention, and the vectors beside it: columns of one buffer, word offsets of another.

use crate::graph::BufferId;

/// Columns of the stacked input projection `[tokens, stride]`.
#[derive(Clone, Copy, Debug)]
pub struct Proj {
    /// Floats of a token's row.
    pub stride: usize,
    /// First of d columns.
    pub q: usize,
    /// First of kv_width columns.
    pub k: usize,
    /// First of kv_width columns.
    pub v: usize,
    /// First of d columns of the output gate.
    pub gate: Option<usize>,
    /// First of n_heads columns of the forget gate; without it the bias alone is the gate.
    pub f: Option<usize>,
    /// First of n_kv_heads columns of k's shift.
    pub k_shift: Option<usize>,
    /// First of n_kv_heads columns of v's shift.
    pub v_shift: Option<usize>,
}

/// A layer's vectors and the model's rotary table in one buffer, so that decode attention stays within eight bindings: word
/// offsets.
#[derive(Clone, Copy, Debug)]
pub struct Vectors {
    /// Of f32.
    pub buffer: BufferId,
    /// `[d]`; norms of q and k come together or not at all.
    pub q_norm: Option<usize>,
    /// `[kv_width]`.
    pub k_norm: Option<usize>,
    /// `[n_heads]`; without it nothing is forgotten (f = 1).
    pub f_bias: Option<usize>,
    /// Gates that are replayed: they take the place of the model's own.
    pub f_table: Option<GateTable>,
    /// `[d]`.
    pub out_norm: Option<usize>,
    /// `[positions, 2 (cos, sin), head_dim / 2]`, rotating q and k.
    pub rope: Option<usize>,
}

/// Forget gates by position, for measurements: −log f of token t is row t mod `period` of `[period, n_heads]`, as it is.
#[derive(Clone, Copy, Debug)]
pub struct GateTable {
    /// First word.
    pub at: usize,
    /// Rows after which it begins anew.
    pub period: usize,
}

/// What the output gate is passed through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateAct {
    /// o · sigmoid(g).
    Sigmoid,
    /// o · silu(g).
    Silu,
}

impl GateAct {
    /// g to the factor of o.
    pub(in crate::kernel) fn apply(silu: bool, g: f64) -> f64 {
        let sigmoid = 1.0 / (1.0 + (-g).exp());
        if silu { g * sigmoid } else { sigmoid }
    }
}

/// Flag of the forget gate's kind.
pub(in crate::kernel) fn forget_flag(proj: &Proj, vectors: &Vectors) -> &'static str {
    match (proj.f, vectors.f_bias) {
        _ if vectors.f_table.is_some() => "F_TABLE",
        (Some(_), Some(_)) => "F_FULL",
        (None, Some(_)) => "F_BIAS",
        (None, None) => "F_NONE",
        (Some(_), None) => unreachable!("a projected forget gate has a bias: the model gives zeros where a checkpoint has none"),
    }
}

/// The params `f_bias` and `period` of a forget gate: where its biases, or its table, begin.
pub(in crate::kernel) fn forget_params(vectors: &Vectors) -> [usize; 2] {
    vectors.f_table.map_or([vectors.f_bias.unwrap_or(0), 1], |GateTable { at, period }| [at, period])
}
