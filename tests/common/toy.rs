//! A kernel for the tests of the tests: small, right, and easy to break.

use kitfox::graph::{
    Args, BindingDecl, Case, Compare, Elem, Expect, Extent, Grid, Kernel, Program, Role, Step, Tolerance, Variant,
};
use kitfox::kernel::inputs;

/// The toy's bindings.
pub const BINDINGS: &[BindingDecl] = &[BindingDecl::read("a", Elem::F32), BindingDecl::write("y", Elem::F32)];

/// The WGSL of a toy: y[t, i] is what `$product`, of `a`, `row` and `i`, leaves in `product`.
macro_rules! toy_wgsl {
    ($($product:literal),+) => {
        concat!(
            "// y[t, i] = a[t, i] · a[t, width + i]
@group(0) @binding(0) var<storage, read> a: array<f32>; // [tokens, 2·width]
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // [tokens, width]
struct Params { width: u32 }
@group(0) @binding(8) var<uniform> params: Params;
#import step
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let i = id.x;
  let t = id.y;
  if (i >= params.width || t >= step.n_tokens) { return; }
  let row = t * 2u * params.width;
",
            $($product,)+
            "
  y[t * params.width + i] = product;
}
"
        )
    };
}
#[allow(unused_imports, reason = "not every program that has this file makes another toy")]
pub(crate) use toy_wgsl;

/// y[t, i] = a[t, i] · a[t, width + i] for the step's tokens.
pub static TOY: Kernel = Kernel {
    name: "toy",
    wgsl: toy_wgsl!("  let product = a[row + i] * a[row + params.width + i];"),
    bindings: BINDINGS,
    params: &["width"],
    twin,
    cases,
    ..Kernel::PLAIN
};

fn twin(args: &mut Args<'_>) {
    let width = args.param("width");
    let (a, y) = (args.take_f32("a"), args.take_f32("y"));
    for t in 0..args.step.n_tokens as usize {
        for i in 0..width {
            y[t * width + i] = a[t * 2 * width + i] * a[(t * 2 + 1) * width + i];
        }
    }
}

fn cases() -> Vec<Case> {
    vec![case(&TOY)]
}

/// Buffers for three tokens and a step of two: nothing may touch the last row.
pub fn case(kernel: &'static Kernel) -> Case {
    let (tokens, width) = (3, 100);
    let mut program = Program::default();
    let a = program.buffer("a", tokens * 2 * width, Role::Input);
    let y = program.buffer("y", tokens * width, Role::Output);
    let mut r = program.record("toy");
    let windows = [r.whole(a), r.whole(y)];
    let grid = Grid::xy(Extent::Fixed(2), Extent::Fixed(tokens as u32));
    r.dispatch(kernel, Variant::new(), &windows, &[width as u32], grid);
    r.finish();
    Case {
        name: "two of three tokens".to_owned(),
        program,
        contents: vec![(a, inputs::words(7, tokens * 2 * width, 8.0))],
        step: Step { n_tokens: 2, ..Step::default() },
        expect: vec![Expect { buffer: y, compare: Compare::F32(Tolerance { nmse: 1e-12, max_abs: 4e-6 }) }],
    }
}
