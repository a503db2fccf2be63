//! One head's matrix, large: each cell of a short text with its token, on the diagonal where row and column of the token meet.

use super::matrix::Matrix;
use super::palette::{INK, SOFT, anchored, shade, text};
use super::picture::{Facts, MARGIN, shaded_text, title};
use super::shaded::label;
use crate::cli::axis::Axis;
use crate::cli::drawing::{Anchor, Drawing, Face, Shape};

/// Tokens that have room for their text.
const NAMED: usize = 64;
/// Cells on a side at most.
pub const MOST: usize = 640;
/// Pixels of a cell at most.
const LARGEST: usize = 22;
const LEFT: i32 = 40;
/// Right of the matrix: the last tokens' texts.
const RIGHT: i32 = 150;

/// The picture.
pub fn draw(facts: &Facts<'_>) -> Drawing {
    let (layer, head) = (facts.selection.layers.start, facts.selection.heads.start);
    let context = facts.forgetting.effective_context(layer, head);
    let mut shapes = Vec::new();
    title(&mut shapes, facts, facts.meaning());
    let words = format!("Layer {layer}, head {head}: effective context {context:.1} tokens{}", facts.blocks());
    shapes.push(text([MARGIN, 74], Face::Small, INK, words));
    let matrix = &facts.seen.matrices[0];
    let is_named = facts.tokens.len() <= NAMED;
    let cell = (MOST / matrix.n).clamp(if is_named { 12 } else { 1 }, LARGEST) as i32;
    let side = cell * matrix.n as i32;
    let width = (LEFT + side + RIGHT).max(760);
    let (left, top) = (MARGIN + LEFT, 128);
    facts.legend(&mut shapes, [MARGIN + width, 100]);
    shapes.push(text([MARGIN, 100], Face::Small, SOFT, "key j across, query i down, tokens from 0"));
    if is_named {
        cells(&mut shapes, facts, matrix, [left, top], cell);
    } else {
        let colors = facts.colors(matrix);
        shapes.push(Shape::Cells { at: [left, top], size: [side, side], columns: matrix.n, colors });
    }
    ticks(&mut shapes, matrix, [left, top], cell, facts.tokens.len());
    let y = shaded_text(&mut shapes, facts, top + side + 60, width);
    Drawing { size: [width + 2 * MARGIN, y + MARGIN], shapes }
}

/// Cells that say what they are, and the tokens' texts.
fn cells(shapes: &mut Vec<Shape>, facts: &Facts<'_>, matrix: &Matrix, [left, top]: [i32; 2], cell: i32) {
    let names: Vec<String> = facts.tokens.iter().map(|token| label(token)).collect();
    for (i, name) in names.iter().enumerate() {
        let y = top + i as i32 * cell;
        for (j, key) in names[..=i].iter().enumerate() {
            let value = f64::from(matrix.cells[i * matrix.n + j]);
            let (at, size) = ([left + j as i32 * cell, y], [cell - 1, cell - 1]);
            let title = format!("{} [{i} {name}, {j} {key}] = {value:.4}", facts.which.name());
            let shape = Box::new(Shape::Box { at, size, color: shade(facts.share(value)) });
            shapes.push(Shape::Titled { shape, title });
        }
        let at = [left + (i as i32 + 1) * cell + 4, y + cell / 2];
        let face = if cell < 14 { Face::Tiny } else { Face::Small };
        shapes.push(text(at, face, INK, name.clone()));
    }
}

/// Round token numbers, left and below.
fn ticks(shapes: &mut Vec<Shape>, matrix: &Matrix, [left, top]: [i32; 2], cell: i32, n_tokens: usize) {
    let side = cell * matrix.n as i32;
    for tick in Axis::new(0.0, n_tokens as f64, 0, 1).ticks.into_iter().filter(|tick| tick.fract() == 0.0) {
        let token = tick as usize;
        if token >= n_tokens {
            continue;
        }
        let at = (token / matrix.block) as i32 * cell + cell / 2;
        shapes.push(anchored([left - 8, top + at], Anchor::End, Face::Small, SOFT, token.to_string()));
        shapes.push(anchored([left + at, top + side + 14], Anchor::Middle, Face::Small, SOFT, token.to_string()));
    }
}
