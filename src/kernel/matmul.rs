//! y = x · Wᵀ for a chunk of tokens (prefill), with a bias (`BIAS`) and the residual sum (`RESIDUAL`) in its epilogue.
//!
//! Tiled twice: a tile of outputs a workgroup, a smaller one in each invocation's registers. Weights are dequantized on their way
//! into workgroup memory, once for all tokens of the tile.

use super::dot::Matrix;
use super::gemm;
use super::layout::{self, N_FLAGS, Part, SCALES, WeightType};
use super::matvec::Bias;
use super::parallel;
use super::{matmul_coop, matmul_wide};
use crate::graph::{
    Alternative, Alternatives, Args, BindingDecl, BufferId, Dispatch, Elem, Extent, Features, Grid, Kernel, Recorder, Tolerance,
    Variant,
};

pub mod cases;

pub(super) const BINDINGS: &[BindingDecl] = &[
    BindingDecl::read("data", Elem::U32x4),
    BindingDecl::read("scales", Elem::U32).only_if(&[SCALES]),
    BindingDecl::read("x", Elem::F32x4),
    BindingDecl::write("y", Elem::F32),
    BindingDecl::read("bias", Elem::F32).only_if(&["BIAS"]),
];
pub(super) const PARAMS: &[&str] = &["n_rows", "k", "out_stride", "out_offset", "bias_offset"];

/// `data, scales: [n_rows, k]` and `x: [tokens, k]` to columns of `y: [tokens, out_stride]`.
pub static MATMUL: Kernel = Kernel {
    name: "matmul",
    wgsl: wgsl!("matmul"),
    bindings: BINDINGS,
    params: PARAMS,
    flags: &layout::flags::<{ N_FLAGS + 3 }>(&["BIAS", "RESIDUAL", "WIDE"]),
    consts: &["TILE"],
    twin,
    fast: Some(fast),
    cases: cases::cases,
    alternatives: Some(Alternatives { needs: &[], of: offers }),
    probe: Some(cases::probe),
    ..Kernel::PLAIN
};

/// One sum of k ≤ 1280 terms in f32, one after the other: a relative error of about √k · 6e-8 = 2e-6 of the largest partial sum.
pub(super) const TOLERANCE: Tolerance = Tolerance { nmse: 1e-12, max_abs: 1e-5 };

/// What to record.
#[derive(Clone, Copy, Debug)]
pub struct MatMul {
    /// W.
    pub part: Part,
    /// `[tokens, k]`.
    pub x: BufferId,
    /// `[tokens, out_stride]`.
    pub y: BufferId,
    /// Words from a token's row of y to the next.
    pub out_stride: usize,
    /// Words before row 0's product in a token's row of y.
    pub out_offset: usize,
    /// Added to the product.
    pub bias: Option<Bias>,
    /// y += x · Wᵀ.
    pub residual: bool,
}

impl MatMul {
    /// Records it for the step's tokens.
    pub fn record(&self, r: &mut Recorder<'_>) {
        let part = &self.part;
        let mut bindings = part.bindings(r);
        bindings.extend([r.whole(self.x), r.whole(self.y)]);
        bindings.extend(self.bias.map(|bias| r.whole(bias.buffer)));
        // Few rows: more, smaller tiles, or most of the GPU would wait.
        let tile = if part.n_rows < 1024 { layout::MIN_TILE as u32 } else { 64 };
        let variant = part.ty.variant().flag_if(self.residual, "RESIDUAL").flag_if(tile == 64, "WIDE");
        let variant = variant.flag_if(self.bias.is_some(), "BIAS").constant("TILE", tile);
        let bias_offset = self.bias.map_or(0, |bias| bias.offset);
        let params = [part.n_rows, part.k, self.out_stride, self.out_offset, bias_offset].map(|param| param as u32);
        let grid = Grid::xy(Extent::Fixed((part.n_rows as u32).div_ceil(tile)), Extent::Tokens { per: tile });
        r.dispatch(&MATMUL, variant, &bindings, &params, grid);
    }
}

pub(super) fn twin(args: &mut Args<'_>) {
    let ty = WeightType::of(|flag| args.has(flag));
    let (n_rows, k, stride, offset) = (args.param("n_rows"), args.param("k"), args.param("out_stride"), args.param("out_offset"));
    let data = args.take("data");
    let scales: &[u32] = if ty.has_scales() { args.take("scales") } else { &[] };
    let (x, y, bias) = (args.take_f32("x"), args.take_f32("y"), bias(args));
    for row in 0..n_rows {
        let w = layout::read_row(ty, k, data, scales, row);
        for t in 0..args.step.n_tokens as usize {
            let product: f64 = x[t * k..(t + 1) * k].iter().zip(&w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            let y = &mut y[t * stride + offset + row];
            let bias = bias.map_or(0.0, |bias| f64::from(bias[row]));
            *y = (if args.has("RESIDUAL") { f64::from(*y) } else { 0.0 } + product + bias) as f32;
        }
    }
}

/// The numbers for W's rows.
fn bias<'a>(args: &mut Args<'a>) -> Option<&'a [f32]> {
    let first = args.param("bias_offset");
    args.take_if("BIAS", "bias").map(|words| &bytemuck::cast_slice(words)[first..])
}

/// Rows that a core unpacks at a time: with k = 1536, 150 KB, which stay in its cache for all tokens.
const ROWS_PER_TASK: usize = 4 * gemm::ROWS;
/// Tokens whose products a core puts into their places at a time.
const TOKENS_PER_TASK: usize = 16;

fn fast(args: &mut Args<'_>) {
    let ty = WeightType::of(|flag| args.has(flag));
    let (n_rows, k, stride, offset) = (args.param("n_rows"), args.param("k"), args.param("out_stride"), args.param("out_offset"));
    let data = args.take("data");
    let scales: &[u32] = if ty.has_scales() { args.take("scales") } else { &[] };
    let matrix = Matrix { ty, k, data, scales };
    let n_tokens = args.step.n_tokens as usize;
    let x = gemm::Panels::new(ty, k, &args.take_f32("x")[..n_tokens * k]);
    let tasks = parallel::map_ranges(n_rows, ROWS_PER_TASK, |rows| x.products(&matrix, rows));
    let (residual, y, bias) = (args.has("RESIDUAL"), args.take_f32("y"), bias(args));
    parallel::for_chunks(&mut y[..n_tokens * stride], TOKENS_PER_TASK * stride, |first, y| {
        for (t, y) in (first / stride..).zip(y.chunks_exact_mut(stride)) {
            for (rows, products) in y[offset..offset + n_rows].chunks_mut(ROWS_PER_TASK).zip(&tasks) {
                for (y, product) in rows.iter_mut().zip(&products[t * products.len() / n_tokens..]) {
                    *y = if residual { *y + product } else { *product };
                }
            }
            if let Some(bias) = bias {
                y[offset..offset + n_rows].iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
            }
        }
    });
}

/// What could take its place, best first.
fn offers(dispatch: &Dispatch, features: &Features) -> Vec<Alternative> {
    // Fewer rows give too few large tiles to go round.
    if features.software || dispatch.param("n_rows") < 512 {
        return Vec::new();
    }
    matmul_coop::offer(dispatch, features).into_iter().chain([matmul_wide::offer(dispatch)]).collect()
}

/// A kernel with this one's flags and further ones, in tiles of `[rows, tokens]`.
pub(super) fn offered(
    dispatch: &Dispatch,
    kernel: &'static Kernel,
    flags: &[&'static str],
    consts: &[u32],
    [rows, tokens]: [u32; 2],
) -> Alternative {
    let own = dispatch.variant.flags.iter().copied().filter(|flag| kernel.flags.contains(flag));
    let variant = Variant {
        flags: own.chain(flags.iter().copied()).collect(),
        consts: kernel.consts.iter().copied().zip(consts.iter().copied()).collect(),
    };
    let grid = Grid::xy(Extent::Fixed(dispatch.param("n_rows").div_ceil(rows)), Extent::Tokens { per: tokens });
    Alternative { kernel, variant, grid, tolerance: None }
}
