//! out_t = α·y_{t−1} + (1 − α)·y_t, α = sigmoid of the head's shift projection: the shift of k or v in prefill (docs/model.md, section 2).
//!
//! The state is y before mixing: the row of token `pos − 1` is read from slot `shift_in`, the last row of this replay goes to
//! `shift_out`: never the same, so that no invocation can overwrite what another still reads. At position 0 the slot is not read.

use super::attention::cases::{Fixture, Gates};
use super::attention::{Heads, Proj, SHIFT_SLOTS};
use super::{exp, parallel};
use crate::graph::{Args, BindingDecl, BufferId, Case, Compare, Elem, Extent, Grid, Kernel, Recorder, Step, Tolerance, Variant};

/// Columns of `proj: [tokens, stride]` and `shift_rows: [SHIFT_SLOTS, 2, width]` to `y: [tokens, width]`.
pub static TOKEN_SHIFT: Kernel = Kernel {
    name: "token_shift",
    wgsl: wgsl!("token_shift"),
    bindings: &[
        BindingDecl::read("proj", Elem::F32),
        BindingDecl::write("shift_rows", Elem::F32),
        BindingDecl::write("y", Elem::F32),
    ],
    params: &["width", "head_dim", "stride", "column", "gate", "which"],
    twin,
    fast: Some(fast),
    cases,
    ..Kernel::PLAIN
};

/// A sigmoid (an exponential and a division: 1e-6 relative at most) and three roundings, of numbers up to 2.
const TOLERANCE: Tolerance = Tolerance { nmse: 1e-12, max_abs: 4e-6 };

/// What is shifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Keys.
    K,
    /// Values.
    V,
}

/// Records the shift of k or v into `y: [tokens, kv_width]`.
///
/// # Panics
/// When `columns` has no shift for it.
pub fn record(
    r: &mut Recorder<'_>,
    heads: &Heads,
    proj: BufferId,
    columns: &Proj,
    which: Which,
    shift_rows: BufferId,
    y: BufferId,
) {
    let (column, gate, which) = match which {
        Which::K => (columns.k, columns.k_shift, 0),
        Which::V => (columns.v, columns.v_shift, 1),
    };
    let gate = gate.unwrap_or_else(|| unreachable!("a shift is recorded only for a model that has it"));
    let width = heads.kv_width();
    let params = [width, heads.head_dim, columns.stride, column, gate, which].map(|param| param as u32);
    let grid = Grid::xy(Extent::Fixed((width as u32).div_ceil(64)), Extent::Tokens { per: 1 });
    let bindings = [r.whole(proj), r.whole(shift_rows), r.whole(y)];
    r.dispatch(&TOKEN_SHIFT, Variant::new(), &bindings, &params, grid);
}

fn twin(args: &mut Args<'_>) {
    let [width, head_dim, stride] = ["width", "head_dim", "stride"].map(|name| args.param(name));
    let [column, gate, which] = ["column", "gate", "which"].map(|name| args.param(name));
    let step = args.step;
    let (proj, rows, y) = (args.take_f32("proj"), args.take_f32("shift_rows"), args.take_f32("y"));
    let slot = |slot: u32| (slot as usize * 2 + which) * width;
    for c in 0..width {
        let mut before = if step.pos == 0 { 0.0 } else { f64::from(rows[slot(step.shift_in) + c]) };
        for t in 0..step.n_tokens as usize {
            let now = f64::from(proj[t * stride + column + c]);
            let alpha = 1.0 / (1.0 + (-f64::from(proj[t * stride + gate + c / head_dim])).exp());
            y[t * width + c] = (alpha * before + (1.0 - alpha) * now) as f32;
            before = now;
        }
        rows[slot(step.shift_out) + c] = before as f32;
    }
}

/// Tokens that a core takes at a time.
const TOKENS_PER_TASK: usize = 16;

fn fast(args: &mut Args<'_>) {
    let [width, head_dim, stride] = ["width", "head_dim", "stride"].map(|name| args.param(name));
    let [column, gate, which] = ["column", "gate", "which"].map(|name| args.param(name));
    let (step, n_tokens) = (args.step, args.step.n_tokens as usize);
    let (proj, rows, y) = (&*args.take_f32("proj"), args.take_f32("shift_rows"), args.take_f32("y"));
    let slot = |slot: u32| (slot as usize * 2 + which) * width;
    let row = |t: usize| &proj[t * stride + column..][..width];
    let zeros = vec![0.0; width];
    let oldest = if step.pos == 0 { &zeros } else { &rows[slot(step.shift_in)..][..width] };
    parallel::for_chunks(&mut y[..n_tokens * width], TOKENS_PER_TASK * width, |first, y| {
        for (t, y) in (first / width..).zip(y.chunks_exact_mut(width)) {
            let (before, now) = (if t == 0 { oldest } else { row(t - 1) }, row(t));
            let heads = before.chunks_exact(head_dim).zip(now.chunks_exact(head_dim));
            for (head, (y, (before, now))) in y.chunks_exact_mut(head_dim).zip(heads).enumerate() {
                let alpha = exp::sigmoid(proj[t * stride + gate + head]);
                for (y, (before, now)) in y.iter_mut().zip(before.iter().zip(now)) {
                    *y = alpha * before + (1.0 - alpha) * now;
                }
            }
        }
    });
    if let Some(last) = n_tokens.checked_sub(1) {
        rows[slot(step.shift_out)..][..width].copy_from_slice(row(last));
    }
}

fn cases() -> Vec<Case> {
    let case = |(head_dim, n_heads, pos, n_tokens, which)| {
        let heads = Heads { n_heads, n_kv_heads: n_heads, head_dim, n_layers: 1, layer: 0 };
        let mut fixture = Fixture::new(heads, true, Gates::Soft, 0, 1);
        let (proj, columns) = fixture.proj(n_tokens);
        let shift_rows = fixture.floats("shift_rows", heads.shift_words(), 2.0);
        let y = fixture.output("y", n_tokens * heads.d());
        let name = format!("heads={n_heads} head_dim={head_dim} pos={pos} tokens={n_tokens} {which:?}");
        let [shift_in, shift_out] = [pos, pos + 1].map(|turn| (turn as usize % SHIFT_SLOTS) as u32);
        let step = Step { pos, n_tokens: n_tokens as u32, shift_in, shift_out, ..Step::default() };
        let expect = [(y, Compare::F32(TOLERANCE)), (shift_rows, Compare::Exact)];
        fixture.case(name, step, &expect, |r| record(r, &heads, proj, &columns, which, shift_rows, y))
    };
    let all = [
        (16, 3, 0, 1, Which::K),
        (64, 2, 0, 70, Which::V),
        (64, 2, 63, 5, Which::K),
        (32, 1, 200, 1, Which::V),
        (128, 2, 65, 2, Which::K),
    ];
    all.map(case).into()
}
