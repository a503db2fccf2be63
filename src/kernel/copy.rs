//! y = x, 16 bytes an invocation: how fast the device streams its memory is the ground of `kitfox bench`'s floor. (Copies between
//! buffers may run on an engine of their own, several times slower than what a kernel reaches.)

use super::inputs;
use crate::graph::{
    Args, BindingDecl, BufferId, Case, Compare, Elem, Expect, Grid, Kernel, Program, Recorder, Role, Step, Variant,
};

/// `x: [n]` to `y: [n]`, elements of four words.
pub static COPY: Kernel = Kernel {
    name: "copy",
    wgsl: include_str!("../../shaders/copy.wgsl"),
    bindings: &[BindingDecl::read("x", Elem::U32x4), BindingDecl::write("y", Elem::U32x4)],
    params: &["n"],
    uses_step: false,
    flags: &[],
    consts: &[],
    twin,
    fast: None,
    alternatives: None,
    cases,
};

/// Records it for all of `x`, whose words are a multiple of four; `y` has as many.
pub fn record(r: &mut Recorder<'_>, x: BufferId, y: BufferId) {
    let bindings = [r.whole(x), r.whole(y)];
    let n = (bindings[0].words / 4) as u32;
    r.dispatch(&COPY, Variant::new(), &bindings, &[n], Grid::linear(n.div_ceil(256)));
}

fn twin(args: &mut Args<'_>) {
    let words = 4 * args.param("n");
    let (x, y) = (args.take("x"), args.take("y"));
    y[..words].copy_from_slice(&x[..words]);
}

fn cases() -> Vec<Case> {
    let case = |n: usize| {
        let mut program = Program::default();
        let x = program.buffer("x", 4 * n, Role::Input);
        let y = program.buffer("y", 4 * n, Role::Output);
        let mut r = program.record("copy");
        record(&mut r, x, y);
        r.finish();
        Case {
            name: format!("n={n}"),
            program,
            contents: vec![(x, inputs::words(3, 4 * n, 1.0))],
            step: Step::default(),
            expect: vec![Expect { buffer: y, compare: Compare::Exact }],
        }
    };
    [1, 255, 257, 5000].map(case).into()
}
