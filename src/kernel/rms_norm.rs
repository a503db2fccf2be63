//! y = x / √(mean(x²) + eps) · w over rows inside a token's row: one row a token (the norms over d in prefill; decode does them
//! in the prologue of the product that follows), or one a head (q_norm, k_norm, output norm).
//!
//! Each token has the same weights `[rows_per_token, width]`; a norm that all heads share is expanded at load.

use super::{Rows, inputs};
use crate::graph::{
    Args, Binding, BindingDecl, Case, Compare, Elem, Expect, Extent, Grid, Kernel, Program, Recorder, Role, Step, Tolerance,
    Variant,
};

/// Rows inside `x: [tokens, in_stride]` to rows inside `y: [tokens, out_stride]`; without `COPY` there is no `x`, and `y` is normalized in place.
pub static RMS_NORM: Kernel = Kernel {
    name: "rms_norm",
    wgsl: wgsl!("rms_norm"),
    bindings: &[
        BindingDecl::read("x", Elem::F32).only_if(&["COPY"]),
        BindingDecl::read("weight", Elem::F32),
        BindingDecl::write("y", Elem::F32),
    ],
    params: &["rows_per_token", "width", "in_stride", "in_offset", "out_stride", "out_offset", "w_offset", "eps"],
    flags: &["COPY"],
    consts: &["WG", "LANES"],
    twin,
    cases,
    ..Kernel::PLAIN
};

/// A sum of squares in f32 (relative error ~1e-6 at width 1536, halved by the root), a root of 2 ulp and two products.
const TOLERANCE: Tolerance = Tolerance { nmse: 1e-12, max_abs: 1e-5 };

const WG: u32 = 64;

/// What to record.
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm {
    /// Where the rows are, `rows_per_token` of them from its column on; `None` normalizes `y` in place.
    pub x: Option<Rows>,
    /// Where they go.
    pub y: Rows,
    /// Window of f32 weights.
    pub weight: Binding,
    /// Words before the first weight in that window.
    pub weight_offset: usize,
    /// Rows a token: 1, or the number of heads.
    pub rows_per_token: usize,
    /// Floats of a row.
    pub width: usize,
    /// Added to the mean square.
    pub eps: f32,
}

impl RmsNorm {
    /// Records it for the step's tokens.
    pub fn record(&self, r: &mut Recorder<'_>) {
        let lanes = (self.width as u32).next_power_of_two().clamp(8, WG);
        let variant = Variant::new().flag_if(self.x.is_some(), "COPY");
        let variant = variant.constant("WG", WG).constant("LANES", lanes);
        let from = self.x.unwrap_or(self.y);
        let x = self.x.map(|x| r.whole(x.buffer));
        let bindings: Vec<Binding> = x.into_iter().chain([self.weight, r.whole(self.y.buffer)]).collect();
        let words = [self.rows_per_token, self.width, from.stride, from.column, self.y.stride, self.y.column, self.weight_offset];
        let params: Vec<u32> = words.into_iter().map(|word| word as u32).chain([self.eps.to_bits()]).collect();
        let grid = Grid::xy(Extent::Fixed((self.rows_per_token as u32).div_ceil(WG / lanes)), Extent::Tokens { per: 1 });
        r.dispatch(&RMS_NORM, variant, &bindings, &params, grid);
    }
}

fn twin(args: &mut Args<'_>) {
    let (rows, width, eps) = (args.param("rows_per_token"), args.param("width"), f64::from(args.param_f32("eps")));
    let (in_stride, in_offset) = (args.param("in_stride"), args.param("in_offset"));
    let (out_stride, out_offset, w_offset) = (args.param("out_stride"), args.param("out_offset"), args.param("w_offset"));
    let x: Option<&[f32]> = args.take_if("COPY", "x").map(|words| bytemuck::cast_slice(words));
    let (weight, y) = (args.take_f32("weight"), args.take_f32("y"));
    for t in 0..args.step.n_tokens as usize {
        for row in 0..rows {
            let from = t * in_stride + in_offset + row * width;
            let values: Vec<f64> = x.unwrap_or(y)[from..from + width].iter().map(|value| f64::from(*value)).collect();
            let mean = values.iter().map(|value| value * value).sum::<f64>() / width as f64;
            for (i, value) in values.into_iter().enumerate() {
                let w = f64::from(weight[w_offset + row * width + i]);
                y[t * out_stride + out_offset + row * width + i] = (value / (mean + eps).sqrt() * w) as f32;
            }
        }
    }
}

fn cases() -> Vec<Case> {
    let heads = [(16, 8, 3), (32, 5, 1), (64, 8, 17), (128, 3, 2)];
    let heads = heads.into_iter().flat_map(|shape| [(shape, true), (shape, false)]);
    let rows = [(32, 1, 1), (100, 1, 3), (512, 1, 5), (1536, 1, 2)].map(|shape| (shape, false));
    let mut cases: Vec<Case> = heads.chain(rows).map(|(shape, in_place)| case(shape, in_place, 1.5)).collect();
    // So small that eps decides.
    cases.push(case((64, 1, 2), false, 1e-3));
    cases
}

fn case((width, rows_per_token, tokens): (usize, usize, usize), in_place: bool, scale: f32) -> Case {
    let (stride, offset, weight_offset) = (rows_per_token * width + 24, 8, 4);
    let weights = weight_offset + rows_per_token * width;
    let mut program = Program::default();
    let x = program.buffer("x", (tokens + 1) * stride, Role::Input);
    let weight = program.buffer("weight", weights, Role::Weight);
    let y = program.buffer("y", (tokens + 1) * (stride + 4), Role::Output);
    let x_rows = (!in_place).then_some(Rows { buffer: x, stride, column: offset });
    let y_rows = Rows { buffer: y, stride: stride + 4, column: offset + 1 };
    let weight_window = program.whole(weight);
    let mut r = program.record("rms_norm");
    RmsNorm { x: x_rows, y: y_rows, weight: weight_window, weight_offset, rows_per_token, width, eps: 1e-5 }.record(&mut r);
    r.finish();
    Case {
        name: format!("tokens={tokens} rows={rows_per_token} width={width} scale={scale} in_place={in_place}"),
        program,
        contents: vec![
            (x, inputs::words(3, (tokens + 1) * stride, scale)),
            (weight, inputs::words(4, weights, 1.5)),
            (y, inputs::words(5, (tokens + 1) * (stride + 4), scale)),
        ],
        step: Step { n_tokens: tokens as u32, ..Step::default() },
        expect: vec![Expect { buffer: y, compare: Compare::F32(TOLERANCE) }],
    }
}
