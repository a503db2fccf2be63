//! y = x, 16 bytes an invocation: how fast the device streams its memory is the ground of `kitfox bench`'s floor. (Copies between
//! buffers may run on an engine of their own, several times slower than what a kernel reaches.)
//!
//! A binding reaches 128 MiB by WebGPU's default; up to four pairs of buffers stand for one pair that is larger.

use super::inputs;
use crate::graph::{
    Args, BindingDecl, BufferId, Case, Compare, Elem, Expect, Grid, Kernel, Program, Recorder, Role, Step, Variant,
};

/// `x0 … x3: [n]` to `y0 … y3: [n]`, elements of four words.
pub static COPY: Kernel = Kernel {
    name: "copy",
    wgsl: wgsl!("copy"),
    bindings: &[
        BindingDecl::read("x0", Elem::U32x4),
        BindingDecl::write("y0", Elem::U32x4),
        BindingDecl::read("x1", Elem::U32x4).only_if(&["PAIRS_2", "PAIRS_4"]),
        BindingDecl::write("y1", Elem::U32x4).only_if(&["PAIRS_2", "PAIRS_4"]),
        BindingDecl::read("x2", Elem::U32x4).only_if(&["PAIRS_4"]),
        BindingDecl::write("y2", Elem::U32x4).only_if(&["PAIRS_4"]),
        BindingDecl::read("x3", Elem::U32x4).only_if(&["PAIRS_4"]),
        BindingDecl::write("y3", Elem::U32x4).only_if(&["PAIRS_4"]),
    ],
    params: &["n"],
    uses_step: false,
    flags: &["PAIRS_1", "PAIRS_2", "PAIRS_4"],
    twin,
    cases,
    ..Kernel::PLAIN
};

/// How many pairs there can be.
pub const PAIRS: [usize; 3] = [1, 2, 4];

/// Records it for all of some buffers ([`PAIRS`] says how many) of as many words each, a multiple of four.
pub fn record(r: &mut Recorder<'_>, from: &[BufferId], to: &[BufferId]) {
    let flag = match from.len() {
        1 => "PAIRS_1",
        2 => "PAIRS_2",
        4 => "PAIRS_4",
        n => unreachable!("{n} pairs are not 1, 2 or 4"),
    };
    assert!(from.len() == to.len(), "buffers are copied in pairs");
    let bindings: Vec<_> = from.iter().zip(to).flat_map(|(x, y)| [r.whole(*x), r.whole(*y)]).collect();
    assert!(bindings.iter().all(|binding| binding.words == bindings[0].words), "of one length");
    let n = (bindings[0].words / 4) as u32;
    r.dispatch(&COPY, Variant::new().flag(flag), &bindings, &[n], Grid::linear(from.len() as u32 * n.div_ceil(256)));
}

fn twin(args: &mut Args<'_>) {
    let words = 4 * args.param("n");
    for (x, y) in [("x0", "y0"), ("x1", "y1"), ("x2", "y2"), ("x3", "y3")] {
        let is_there = match x {
            "x0" => true,
            "x1" => !args.has("PAIRS_1"),
            _ => args.has("PAIRS_4"),
        };
        if is_there {
            let (x, y) = (args.take(x), args.take(y));
            y[..words].copy_from_slice(&x[..words]);
        }
    }
}

fn cases() -> Vec<Case> {
    let case = |(n_pairs, n): (usize, usize)| {
        let mut program = Program::default();
        let mut buffers =
            |name: &str, role| (0..n_pairs).map(|ix| program.buffer(format!("{name}{ix}"), 4 * n, role)).collect::<Vec<_>>();
        let (from, to) = (buffers("x", Role::Input), buffers("y", Role::Output));
        let mut r = program.record("copy");
        record(&mut r, &from, &to);
        r.finish();
        Case {
            name: format!("pairs={n_pairs} n={n}"),
            program,
            contents: from.iter().enumerate().map(|(ix, x)| (*x, inputs::words(3 + ix as u32, 4 * n, 1.0))).collect(),
            step: Step::default(),
            expect: to.into_iter().map(|buffer| Expect { buffer, compare: Compare::Exact }).collect(),
        }
    };
    [(1, 1), (1, 255), (1, 257), (1, 5000), (2, 256), (2, 700), (4, 1), (4, 5000)].map(case).into()
}
