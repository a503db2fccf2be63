//! The weights of one layer of the encoder family (docs/model.md, section 3): `q_proj k_proj v_proj out_proj` [d, d], `f_proj` [heads, d] and its
//! bias `[heads]`, as floats or, for BitNet b1.58, ternary.
//!
//! A ternary matrix is never kept as floats: its rows are TQ2_0 blocks with d = 1, its one scale stands beside it.

use crate::num::ternary;
use crate::{Error, Result};
use std::sync::Arc;

/// The matrices, in the order in which they are used.
pub const MATRICES: [&str; 5] = ["q_proj", "k_proj", "v_proj", "f_proj", "out_proj"];

/// Largest hidden size.
pub const MAX_HIDDEN: usize = 1 << 14;

/// Which keys a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All of them; λ_i − λ_j is positive for later keys.
    Encoder,
    /// Its own and earlier ones.
    Decoder,
}

/// What the matrices do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerConfig {
    /// d: width of a token.
    pub hidden_size: usize,
    /// Heads; they divide d.
    pub num_heads: usize,
    /// Which keys a query sees.
    pub mode: Mode,
    /// Whether the projections are BitNet b1.58: ternary weights, int8 activations.
    pub bitnet: bool,
}

/// Weights as they come from training, row by row, `[out, in]`.
#[derive(Clone, Copy, Debug)]
pub struct LayerFloats<'a> {
    /// `[d, d]`.
    pub q_proj: &'a [f32],
    /// `[d, d]`.
    pub k_proj: &'a [f32],
    /// `[d, d]`.
    pub v_proj: &'a [f32],
    /// `[num_heads, d]`.
    pub f_proj: &'a [f32],
    /// `[num_heads]`; zeros when there is none.
    pub f_bias: Option<&'a [f32]>,
    /// `[d, d]`.
    pub out_proj: &'a [f32],
}

/// The weights of a matrix.
#[derive(Clone, Debug, PartialEq)]
pub enum Weights {
    /// Row by row.
    Floats(Vec<f32>),
    /// [`ternary`] rows and what every weight is multiplied by.
    Ternary {
        /// [`ternary::row_bytes`] a row.
        blocks: Vec<u8>,
        /// mean|W|.
        scale: f32,
    },
}

/// A layer, checked: every matrix has its shape, every number is finite. A clone shares the weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    pub(super) config: LayerConfig,
    /// In the order of [`MATRICES`].
    pub(super) matrices: Arc<[Weights; 5]>,
    pub(super) f_bias: Vec<f32>,
}

impl LayerConfig {
    /// # Errors
    /// [`Error::Argument`] for a hidden size or number of heads that cannot be run.
    pub fn check(&self) -> Result<()> {
        let Self { hidden_size, num_heads, .. } = *self;
        if !(1..=MAX_HIDDEN).contains(&hidden_size) {
            return Err(Error::argument("hidden_size", format_args!("1 to {MAX_HIDDEN}"), hidden_size));
        }
        if num_heads == 0 || !hidden_size.is_multiple_of(num_heads) {
            return Err(Error::argument("num_heads", format_args!("a divisor of hidden_size {hidden_size}"), num_heads));
        }
        Ok(())
    }

    /// Rows of a matrix.
    pub fn n_rows(&self, matrix: usize) -> usize {
        if MATRICES[matrix] == "f_proj" { self.num_heads } else { self.hidden_size }
    }
}

impl Layer {
    /// Takes the weights over; with `bitnet`, rounds each matrix to −1, 0, 1 times its mean magnitude.
    ///
    /// # Errors
    /// [`Error::Argument`] for a configuration that cannot be run and for a matrix of another size, [`Error::NotFinite`] for a weight
    /// that is no finite number; both name it.
    pub fn new(config: LayerConfig, weights: &LayerFloats<'_>) -> Result<Self> {
        config.check()?;
        let LayerFloats { q_proj, k_proj, v_proj, f_proj, f_bias, out_proj } = *weights;
        let given = [q_proj, k_proj, v_proj, f_proj, out_proj];
        let d = config.hidden_size;
        for (ix, matrix) in given.iter().enumerate() {
            check_values(MATRICES[ix], &[config.n_rows(ix), d], matrix)?;
        }
        let f_bias = f_bias.map_or_else(|| vec![0.0; config.num_heads], <[f32]>::to_vec);
        check_values("f_proj.bias", &[config.num_heads], &f_bias)?;
        let matrices = given.map(|matrix| if config.bitnet { to_ternary(matrix, d) } else { Weights::Floats(matrix.to_vec()) });
        Ok(Self { config, matrices: Arc::new(matrices), f_bias })
    }

    /// Its configuration.
    pub fn config(&self) -> &LayerConfig {
        &self.config
    }

    /// The matrices, in the order of [`MATRICES`].
    pub fn matrices(&self) -> &[Weights; 5] {
        &self.matrices
    }

    /// `[num_heads]`.
    pub fn f_bias(&self) -> &[f32] {
        &self.f_bias
    }
}

fn to_ternary(matrix: &[f32], width: usize) -> Weights {
    let scale = ternary::scale(matrix);
    let mut blocks = Vec::new();
    for row in matrix.chunks_exact(width) {
        ternary::quantize_row(row, scale, &mut blocks);
    }
    Weights::Ternary { blocks, scale }
}

/// The right number of finite numbers.
fn check_values(name: &str, shape: &[usize], values: &[f32]) -> Result<()> {
    let n: usize = shape.iter().product();
    if values.len() != n {
        return Err(Error::argument(name, format_args!("{shape:?}, {n} numbers"), values.len()));
    }
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(Error::NotFinite { place: name.to_owned(), got: format!("{} at element {at}", values[at]) }),
        None => Ok(()),
    }
}
