//! `x[t] = E[ids[pos + t]]`: the rows of the embedding matrix for this replay's tokens, dequantized.
//!
//! A matrix over 128 MiB comes in parts, a dispatch each; an id outside the part at hand leaves its row of x alone. The host
//! refuses ids outside the vocabulary before they get here.

use super::inputs;
use super::layout::{self, N_FLAGS, Part, SCALES, WeightType};
use crate::graph::{
    Args, BindingDecl, BufferId, Case, Compare, Elem, Expect, Extent, Grid, Kernel, Program, Recorder, Role, Step, Tolerance,
};

/// `data, scales: [n_rows, k]` and `ids: [context]`, by position, to `x: [tokens, k]`.
pub static EMBED: Kernel = Kernel {
    name: "embed",
    wgsl: wgsl!("embed"),
    bindings: &[
        BindingDecl::read("data", Elem::U32x4),
        BindingDecl::read("scales", Elem::U32).only_if(&[SCALES]),
        BindingDecl::read("ids", Elem::U32),
        BindingDecl::write("x", Elem::F32x4),
    ],
    params: &["first_row", "n_rows", "k"],
    flags: &layout::flags::<N_FLAGS>(&[]),
    consts: &["WG"],
    twin,
    cases,
    ..Kernel::PLAIN
};

const WG: u32 = 64;

/// A weight is rounded once at most (see [`layout::block`]): no order of operations changes it. Only the sign of a zero may be
/// lost.
const TOLERANCE: Tolerance = Tolerance { nmse: 0.0, max_abs: 0.0 };

/// Records it for one part, whose first row is row `first_row` of the whole matrix.
pub fn record(r: &mut Recorder<'_>, ids: BufferId, part: &Part, first_row: usize, x: BufferId) {
    let mut bindings = part.bindings(r);
    bindings.extend([r.whole(ids), r.whole(x)]);
    let variant = part.ty.variant().constant("WG", WG);
    let grid = Grid::xy(Extent::Fixed((part.k as u32 / 4).div_ceil(WG)), Extent::Tokens { per: 1 });
    r.dispatch(&EMBED, variant, &bindings, &[first_row as u32, part.n_rows as u32, part.k as u32], grid);
}

fn twin(args: &mut Args<'_>) {
    let ty = WeightType::of(|flag| args.has(flag));
    let (first_row, n_rows, k) = (args.param("first_row"), args.param("n_rows"), args.param("k"));
    let data = args.take("data");
    let scales: &[u32] = if ty.has_scales() { args.take("scales") } else { &[] };
    let (ids, x) = (args.take("ids"), args.take_f32("x"));
    for t in 0..args.step.n_tokens as usize {
        let id = ids[args.step.pos as usize + t] as usize;
        if (first_row..first_row + n_rows).contains(&id) {
            x[t * k..(t + 1) * k].copy_from_slice(&layout::read_row(ty, k, data, scales, id - first_row));
        }
    }
}

/// Position of the cases' first token.
const POS: usize = 3;

fn cases() -> Vec<Case> {
    let shapes = [(32, 5, 0), (36, 5, 0), (96, 7, 4), (512, 130, 2), (768, 5, 3), (1280, 64, 1000)];
    let mut cases = Vec::new();
    for ty in WeightType::ALL {
        // Narrow ones as narrow as the type allows.
        let shapes = shapes.map(|(k, rows, first_row)| (k.max(ty.block()), rows, first_row));
        let fits = shapes.into_iter().filter(|(k, ..)| k.is_multiple_of(ty.block()));
        cases.extend(fits.map(|(k, rows, first_row)| case(ty, k, rows, first_row)));
    }
    cases
}

/// Ids below, inside and above the part, behind those of earlier tokens; one token more in the buffer than in the step.
fn case(ty: WeightType, k: usize, rows: usize, first_row: usize) -> Case {
    let (first, last) = (first_row as u32, (first_row + rows) as u32 - 1);
    let ids = vec![first, last, first.wrapping_sub(1), last + 1, first + rows as u32 / 2, first];
    let mut program = Program::default();
    let mut contents = Vec::new();
    let part = layout::sample_part(&mut program, &mut contents, ty, rows, k);
    let ids_buffer = program.buffer("ids", POS + ids.len(), Role::Input);
    let x = program.buffer("x", ids.len() * k, Role::Output);
    let mut r = program.record("embed");
    record(&mut r, ids_buffer, &part, first_row, x);
    r.finish();
    contents.push((x, inputs::words(2, ids.len() * k, 1.0)));
    let n_tokens = ids.len() as u32 - 1;
    contents.push((ids_buffer, [vec![last; POS], ids].concat()));
    Case {
        name: format!("{} k={k} rows={rows} first_row={first_row}", ty.name()),
        program,
        contents,
        step: Step { pos: POS as u32, n_tokens, ..Step::default() },
        expect: vec![Expect { buffer: x, compare: Compare::F32(TOLERANCE) }],
    }
}
