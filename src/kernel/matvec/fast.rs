//! Quick code for the CPU device.

use crate::graph::Args;
use crate::kernel::dot::{self, Matrix};
use crate::kernel::layout::WeightType;
use crate::kernel::{exp, parallel};
use fearless_simd::{Level, dispatch};

/// Rows that a core takes at a time.
const ROWS_PER_TASK: usize = 64;

pub(super) fn fast(args: &mut Args<'_>) {
    let ty = WeightType::of(|flag| args.has(flag));
    let (n_rows, k, out_offset) = (args.param("n_rows"), args.param("k"), args.param("out_offset"));
    let data = args.take("data");
    let scales: &[u32] = if ty.has_scales() { args.take("scales") } else { &[] };
    let matrix = Matrix { ty, k, data, scales };
    let first = if args.has("LAST_ROW") { (args.step.n_tokens as usize - 1) * k } else { 0 };
    let mut x = args.take_f32("x")[first..first + k].to_vec();
    if args.has("NORM") {
        let scale = 1.0 / (dot::dot(&x, &x) / k as f32 + args.param_f32("eps")).sqrt();
        for (x, w) in x.iter_mut().zip(args.take_f32("norm_weight")) {
            *x *= scale * *w;
        }
    }
    let arranged = dot::arrange(ty, &x);
    let mut rows = vec![0.0; n_rows];
    parallel::for_chunks(&mut rows, ROWS_PER_TASK, |first, out| matrix.dot_rows(first, &arranged, out));
    if let Some(bias) = args.take_if("BIAS", "bias") {
        let bias: &[f32] = &bytemuck::cast_slice(bias)[args.param("bias_offset")..];
        rows.iter_mut().zip(bias).for_each(|(row, bias)| *row += bias);
    }
    let gates = args.take_if("GATES", "gates");
    let y = args.take_f32("y");
    let out = &mut y[out_offset..];
    if args.has("GLU") {
        let (gate, value) = rows.split_at(n_rows / 2);
        let silu = !args.has("SIGMOID");
        dispatch!(Level::new(), _ => {
            for ((y, gate), value) in out.iter_mut().zip(gate).zip(value) {
                *y = exp::gate(silu, *gate) * value;
            }
        });
    } else if args.has("RESIDUAL") {
        out.iter_mut().zip(rows).for_each(|(y, row)| *y += row);
    } else {
        out[..n_rows].copy_from_slice(&rows);
    }
    if let Some(gates) = gates {
        let out = &mut y[args.param("gates_offset")..][..args.param("n_gates")];
        for (y, gate) in out.iter_mut().zip(bytemuck::cast_slice(gates).chunks_exact(k)) {
            *y = dot::dot(gate, &x);
        }
    }
}
