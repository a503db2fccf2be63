//! y = W · norm(x) for one token, with the layer's small steps fused into it: RMSNorm before (`NORM`), a bias (`BIAS`), the
//! residual sum (`RESIDUAL`) or the gated unit (`GLU`) after, and the few f32 rows of the gates behind the rows of W (`GATES`).
//!
//! Decoding reads every weight once and small models wait for dispatches, not for memory: one dispatch where there would be four.

use super::layout::{self, N_FLAGS, Part, SCALES, WeightType};
use crate::graph::{Alternatives, Args, BindingDecl, BufferId, Elem, Grid, Kernel, Recorder};

pub(super) mod cases;
mod fast;

pub(super) const BINDINGS: &[BindingDecl] = &[
    BindingDecl::read("data", Elem::U32x4),
    BindingDecl::read("scales", Elem::U32).only_if(&[SCALES]),
    BindingDecl::read("x", Elem::F32x4),
    BindingDecl::read("norm_weight", Elem::F32x4).only_if(&["NORM"]),
    BindingDecl::read("gates", Elem::F32x4).only_if(&["GATES"]),
    BindingDecl::write("y", Elem::F32),
    BindingDecl::read("bias", Elem::F32).only_if(&["BIAS"]),
];
pub(super) const PARAMS: &[&str] = &["n_rows", "k", "out_offset", "eps", "n_gates", "gates_offset", "bias_offset"];
pub(super) const FLAGS: &[&str] =
    &layout::flags::<{ N_FLAGS + 7 }>(&["NORM", "GATES", "BIAS", "RESIDUAL", "GLU", "SIGMOID", "LAST_ROW"]);

/// `data, scales: [n_rows, k]` and `x: [k]` (the last row of `[tokens, k]` with `LAST_ROW`) to n_rows words of `y`, or half of
/// them with `GLU`.
pub static MATVEC: Kernel = Kernel {
    name: "matvec",
    wgsl: wgsl!("matvec"),
    bindings: BINDINGS,
    params: PARAMS,
    flags: FLAGS,
    consts: &["WG", "LANES"],
    twin,
    fast: Some(fast::fast),
    alternatives: Some(Alternatives { needs: &[], of: super::matvec_sub::offers }),
    probe: Some(cases::probe),
    cases: cases::cases,
    ..Kernel::PLAIN
};

const WG: u32 = 64;
/// Invocations that share four rows. More would shorten the walk along a row, and lengthen the sum at its end; of 8, 16, 32 and
/// 64, 8 is best on software adapters (d = 512), while hardware hides its latency with more.
const LANES: u32 = 16;

/// What happens to the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// y = W·x.
    Store,
    /// y += W·x.
    Residual,
    /// W has gate rows, then as many value rows: y_i = act(gate_i) · value_i.
    Glu(GluAct),
}

/// What the gate rows of a gated unit are passed through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GluAct {
    /// silu(z) = z · sigmoid(z).
    Silu,
    /// sigmoid(z).
    Sigmoid,
}

/// RMSNorm of x before the product.
#[derive(Clone, Copy, Debug)]
pub struct Norm {
    /// f32 `[k]`.
    pub weight: BufferId,
    /// Added to the mean square.
    pub eps: f32,
}

/// What is added to the product of each row.
#[derive(Clone, Copy, Debug)]
pub struct Bias {
    /// f32.
    pub buffer: BufferId,
    /// Its word for row 0.
    pub offset: usize,
}

/// Further f32 rows for the same x.
#[derive(Clone, Copy, Debug)]
pub struct Gates {
    /// f32 `[n_gates, k]`.
    pub weight: BufferId,
    /// Its rows: a model's have one a head for the forget gate and, where keys or values are shifted, one a key head for each shift.
    pub n_gates: usize,
    /// Words before the first gate's product in y.
    pub out_offset: usize,
}

/// What to record.
#[derive(Clone, Copy, Debug)]
pub struct MatVec {
    /// W.
    pub part: Part,
    /// `[k]`, or `[tokens, k]` with `last_row`.
    pub x: BufferId,
    /// Where the product goes.
    pub y: BufferId,
    /// Words before row 0's product in y.
    pub out_offset: usize,
    /// RMSNorm before.
    pub norm: Option<Norm>,
    /// Further rows; not with [`Epilogue::Glu`], and stored whatever the epilogue.
    pub gates: Option<Gates>,
    /// Added to the product; not with [`Epilogue::Glu`], nor to the gates.
    pub bias: Option<Bias>,
    /// What happens to the product.
    pub epilogue: Epilogue,
    /// x is the row of the step's last token.
    pub last_row: bool,
}

impl MatVec {
    /// Records it.
    pub fn record(&self, r: &mut Recorder<'_>) {
        let Self { part, norm, gates, bias, epilogue, .. } = self;
        let glu = matches!(epilogue, Epilogue::Glu(_));
        let plain = gates.is_none() && bias.is_none();
        assert!(!glu || (plain && part.n_rows.is_multiple_of(2)), "a gated unit has pairs of rows, no gates and no bias");
        let mut bindings = part.bindings(r);
        bindings.push(r.whole(self.x));
        bindings.extend(norm.map(|norm| r.whole(norm.weight)));
        bindings.extend(gates.map(|gates| r.whole(gates.weight)));
        bindings.push(r.whole(self.y));
        bindings.extend(bias.map(|bias| r.whole(bias.buffer)));
        let variant = part
            .ty
            .variant()
            .flag_if(norm.is_some(), "NORM")
            .flag_if(gates.is_some(), "GATES")
            .flag_if(*epilogue == Epilogue::Residual, "RESIDUAL")
            .flag_if(bias.is_some(), "BIAS")
            .flag_if(glu, "GLU")
            .flag_if(*epilogue == Epilogue::Glu(GluAct::Sigmoid), "SIGMOID")
            .flag_if(self.last_row, "LAST_ROW");
        let variant = variant.constant("WG", WG).constant("LANES", LANES);
        let (n_gates, gates_offset) = gates.map_or((0, 0), |gates| (gates.n_gates, gates.out_offset));
        let eps = norm.map_or(0.0, |norm| norm.eps).to_bits();
        let bias_offset = bias.map_or(0, |bias| bias.offset);
        let counts = [n_gates, gates_offset, bias_offset].map(|param| param as u32);
        let params = [&[part.n_rows as u32, part.k as u32, self.out_offset as u32, eps], &counts[..]].concat();
        let wg_rows = WG / LANES * 4;
        let groups = (part.n_rows as u32).div_ceil(wg_rows) + (n_gates as u32).div_ceil(wg_rows);
        r.dispatch(&MATVEC, variant, &bindings, &params, Grid::linear(groups));
    }
}

pub(super) fn twin(args: &mut Args<'_>) {
    let ty = WeightType::of(|flag| args.has(flag));
    let (n_rows, k, out_offset) = (args.param("n_rows"), args.param("k"), args.param("out_offset"));
    let data = args.take("data");
    let scales: &[u32] = if ty.has_scales() { args.take("scales") } else { &[] };
    let first = if args.has("LAST_ROW") { (args.step.n_tokens as usize - 1) * k } else { 0 };
    let mut x: Vec<f64> = args.take_f32("x")[first..first + k].iter().map(|x| f64::from(*x)).collect();
    if args.has("NORM") {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / k as f64;
        let rms = (mean + f64::from(args.param_f32("eps"))).sqrt();
        for (x, w) in x.iter_mut().zip(args.take_f32("norm_weight")) {
            *x = *x / rms * f64::from(*w);
        }
    }
    let product = |row: &[f32]| -> f64 { row.iter().zip(&x).map(|(w, x)| f64::from(*w) * x).sum() };
    let row = |row: usize| product(&layout::read_row(ty, k, data, scales, row));
    let gates = args.take_if("GATES", "gates");
    let bias = args.take_if("BIAS", "bias").map(|words| &bytemuck::cast_slice::<u32, f32>(words)[args.param("bias_offset")..]);
    let y = args.take_f32("y");
    if args.has("GLU") {
        for i in 0..n_rows / 2 {
            let gate = row(i);
            let numerator = if args.has("SIGMOID") { 1.0 } else { gate };
            y[out_offset + i] = (numerator / (1.0 + (-gate).exp()) * row(n_rows / 2 + i)) as f32;
        }
    } else {
        for i in 0..n_rows {
            let before = if args.has("RESIDUAL") { f64::from(y[out_offset + i]) } else { 0.0 };
            let bias = bias.map_or(0.0, |bias| f64::from(bias[i]));
            y[out_offset + i] = (before + row(i) + bias) as f32;
        }
    }
    if let Some(gates) = gates {
        let (n_gates, offset) = (args.param("n_gates"), args.param("gates_offset"));
        for (i, gate) in bytemuck::cast_slice(gates).chunks_exact(k).take(n_gates).enumerate() {
            y[offset + i] = product(gate) as f32;
        }
    }
}
