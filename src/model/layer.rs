//! The layer of the encoder family (docs/model.md, section 3), over a whole sequence at once:
//!
//! ```text
//! q, k, v, z = x·Wqᵀ, x·Wkᵀ, x·Wvᵀ, x·Wfᵀ + b       Λ = Σ −log(sigmoid(z) + 1e-6)
//! o = attention(q, k, v, Λ)                         y = o·Woᵀ
//! ```
//! With ternary weights (BitNet b1.58), x and o are rounded to int8 first and the products are of integers.

use crate::graph::{BufferId, GraphId, Program, Recorder, Role};
use crate::kernel::layout::{Part, WeightType};
use crate::kernel::matmul::MatMul;
use crate::kernel::quantize_rows::{self, Activations};
use crate::kernel::ternary::{self, TernaryPart};
use crate::kernel::{attn_full, forget_sum, ternary_matmul};

/// Sizes and switches.
#[derive(Clone, Copy, Debug)]
pub struct LayerShape {
    /// d: width of a token; heads of `d / n_heads` channels that [`attn_full::takes_head_dim`].
    pub d: usize,
    /// Heads of queries, keys and values alike.
    pub n_heads: usize,
    /// Whether queries see earlier keys only.
    pub causal: bool,
    /// Tokens of a sequence at most.
    pub max_tokens: usize,
}

/// A matrix on the device.
#[derive(Clone, Copy, Debug)]
pub enum LayerMatrix {
    /// f32.
    Dense(Part),
    /// Two bits a weight.
    Ternary(TernaryPart),
}

impl LayerMatrix {
    /// Where its weights lie.
    pub fn data(&self) -> BufferId {
        match self {
            Self::Dense(part) => part.data,
            Self::Ternary(part) => part.data,
        }
    }
}

/// The layer's buffers.
#[derive(Clone, Debug)]
pub struct LayerNetwork {
    shape: LayerShape,
    /// Input `[max_tokens, d]`.
    pub x: BufferId,
    /// Result `[max_tokens, d]`.
    pub y: BufferId,
    /// q, k, v `[d, d]`, f `[n_heads, d]`, out `[d, d]`.
    pub matrices: [LayerMatrix; 5],
    /// `[n_heads]`.
    pub f_bias: BufferId,
    /// `[max_tokens, stride]`: q, k, v, z.
    proj: BufferId,
    /// `[max_tokens, n_heads]` pairs of words.
    lam: BufferId,
    /// `[max_tokens, d]`: what the heads give.
    o: BufferId,
    /// x, later o, in int8.
    quantized: Option<Activations>,
}

impl LayerNetwork {
    /// Declares the buffers; with `scales` of the five matrices these are ternary.
    pub fn declare(program: &mut Program, shape: LayerShape, scales: Option<[f32; 5]>) -> Self {
        let LayerShape { d, n_heads, max_tokens, .. } = shape;
        let matrix = |program: &mut Program, (ix, name): (usize, &str)| {
            let n_rows = if name == "f" { n_heads } else { d };
            match scales {
                None => {
                    let words = WeightType::F32.data_words(n_rows, d);
                    let data = program.buffer(format!("{name} weights"), words, Role::Weight);
                    LayerMatrix::Dense(Part { ty: WeightType::F32, n_rows, k: d, data, scales: None })
                }
                Some(scales) => {
                    let data = program.buffer(format!("{name} weights"), n_rows * ternary::row_words(d), Role::Weight);
                    LayerMatrix::Ternary(TernaryPart { n_rows, width: d, data, scale: scales[ix] })
                }
            }
        };
        let matrices = [(0, "q"), (1, "k"), (2, "v"), (3, "f"), (4, "out")].map(|named| matrix(program, named));
        let mut scratch = |name: &str, words: usize| program.buffer(name, max_tokens * words, Role::Scratch);
        let (proj, lam, o) = (scratch("projections", stride(&shape)), scratch("gate sums", 2 * n_heads), scratch("heads", d));
        let quantized = scales.map(|_| Activations {
            q: scratch("int8 activations", ternary::activation_words(d)),
            scales: scratch("activation scales", 1),
        });
        Self {
            shape,
            x: program.buffer("x", max_tokens * d, Role::Input),
            y: program.buffer("y", max_tokens * d, Role::Output),
            matrices,
            f_bias: program.buffer("f bias", n_heads, Role::Weight),
            proj,
            lam,
            o,
            quantized,
        }
    }

    /// Records the layer for the step's tokens.
    pub fn record(&self, program: &mut Program) -> GraphId {
        let LayerShape { d, n_heads, causal, .. } = self.shape;
        let stride = stride(&self.shape);
        let [q, k, v, f, out] = &self.matrices;
        let mut r = program.record("layer");
        self.quantize(&mut r, self.x);
        for (matrix, column) in [(q, 0), (k, d), (v, 2 * d), (f, 3 * d)] {
            self.product(&mut r, matrix, self.x, self.proj, stride, column);
        }
        forget_sum::record(&mut r, self.proj, stride, 3 * d, self.f_bias, self.lam, n_heads);
        attn_full::record(&mut r, (n_heads, d / n_heads, causal), self.proj, stride, self.lam, self.o);
        self.quantize(&mut r, self.o);
        self.product(&mut r, out, self.o, self.y, d, 0);
        r.finish()
    }

    fn quantize(&self, r: &mut Recorder<'_>, x: BufferId) {
        if let Some(to) = self.quantized {
            quantize_rows::record(r, x, to, self.shape.d);
        }
    }

    /// y's columns from `column` on = x · Wᵀ; of a ternary W, with what x was quantized to.
    fn product(&self, r: &mut Recorder<'_>, matrix: &LayerMatrix, x: BufferId, y: BufferId, stride: usize, column: usize) {
        match (matrix, self.quantized) {
            (LayerMatrix::Dense(part), _) => {
                MatMul { part: *part, x, y, out_stride: stride, out_offset: column, bias: None, residual: false }.record(r);
            }
            (LayerMatrix::Ternary(part), Some(x)) => ternary_matmul::record(r, part, x, y, stride, column),
            (LayerMatrix::Ternary(_), None) => unreachable!("ternary matrices and int8 activations are declared together"),
        }
    }
}

/// Floats of a token's row of projections: whole vectors of four.
fn stride(shape: &LayerShape) -> usize {
    (3 * shape.d + shape.n_heads).next_multiple_of(4)
}
