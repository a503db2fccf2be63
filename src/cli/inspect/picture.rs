//! The picture of what a model forgets: the text as its last token (or another) sees it, the matrix of every head, how far back each
//! reaches, and which pages of keys stay alive.

use super::matrix::{Matrix, Seen, Selection, Which};
use super::palette::{GRID, INK, SOFT, anchored, ink_on, legend, shade, short, text};
use super::shaded;
use crate::cli::axis::Axis;
use crate::cli::drawing::{Anchor, Color, Drawing, Face, Shape};
use kitfox::kernel::attention::PAGE;
use kitfox::model::Forgetting;

pub const MARGIN: i32 = 28;
/// The least width inside the margins.
const WIDTH: i32 = 760;
/// Left of the matrices and of the heat map.
const NAMES: i32 = 68;
/// Pixels of a small matrix, and between two.
pub const SMALL: i32 = 76;
const GAP: i32 = 8;
const CELL: [i32; 2] = [48, 22];
const TIMELINE: i32 = 150;

/// What there is to draw.
pub struct Facts<'a> {
    pub name: &'a str,
    pub which: Which,
    pub selection: &'a Selection,
    pub forgetting: &'a Forgetting<'a>,
    pub tokens: &'a [String],
    pub seen: &'a Seen,
    /// Query heads that share a key head.
    pub group: usize,
    /// Where pages die.
    pub ln_epsilon: Option<f64>,
}

impl Facts<'_> {
    /// How a value of a cell is shaded: weights are small where many keys share a row.
    pub fn share(&self, value: f64) -> f64 {
        match self.which {
            Which::F => value,
            Which::A => value.sqrt(),
        }
    }

    /// The legend of such cells, that ends at a point.
    pub fn legend(&self, shapes: &mut Vec<Shape>, at: [i32; 2]) {
        legend(shapes, at, [&format!("{} 0", self.which.name()), "1"]);
    }

    /// What the matrix is, for people.
    pub fn meaning(&self) -> &'static str {
        match self.which {
            Which::F => "F = exp(D): what the gates leave of each earlier token",
            Which::A => "A = softmax(q·k/sqrt(h) + D): attention weights; cells shaded by the root",
        }
    }

    /// How many tokens a cell of the matrices stands for, where it is not one.
    pub fn blocks(&self) -> String {
        match self.seen.matrices.first() {
            Some(Matrix { block, .. }) if *block > 1 => format!("; a cell is the largest of {block} × {block}"),
            _ => String::new(),
        }
    }

    /// The cells of a matrix; nothing above the diagonal.
    pub fn colors(&self, matrix: &Matrix) -> Vec<Color> {
        let cell = |(ix, value): (usize, &f32)| {
            if ix % matrix.n > ix / matrix.n { [255; 3] } else { shade(self.share(f64::from(*value))) }
        };
        matrix.cells.iter().enumerate().map(cell).collect()
    }

    fn heads(&self) -> String {
        let Selection { layers, .. } = self.selection;
        let [n_layers, ..] = self.forgetting.shape();
        match self.selection.n_pairs() {
            1 => format!("layer {}, head {}", layers.start, self.selection.heads.start),
            n if layers.len() < n_layers => format!("layer {}, mean of its {n} heads", layers.start),
            n => format!("mean of all {n} heads"),
        }
    }
}

/// Everything that is looked at, on one page.
pub fn overview(facts: &Facts<'_>) -> Drawing {
    let columns = facts.selection.heads.len() as i32;
    let side = SMALL.min((2400 / columns - GAP).max(12));
    let width = WIDTH.max(NAMES + columns * (side + GAP)).max(NAMES + columns * CELL[0]);
    let mut shapes = Vec::new();
    title(&mut shapes, facts, facts.meaning());
    let mut y = shaded_text(&mut shapes, facts, 84, width) + 34;
    y = matrices(&mut shapes, facts, y, width, side) + 34;
    y = contexts(&mut shapes, facts, y, width) + 34;
    y = timeline(&mut shapes, facts, y, width);
    Drawing { size: [width + 2 * MARGIN, y + MARGIN], shapes }
}

/// The first two lines.
pub fn title(shapes: &mut Vec<Shape>, facts: &Facts<'_>, meaning: &str) {
    let [n_layers, n_heads, n_tokens] = facts.forgetting.shape();
    shapes.push(text([MARGIN, 26], Face::Normal, INK, format!("What it forgets: {}", facts.name)));
    let size = format!("{n_layers} layers of {n_heads} heads, {n_tokens} tokens. {meaning}");
    shapes.push(text([MARGIN, 50], Face::Small, SOFT, size));
}

/// A part's own title, and where the part begins.
fn heading(shapes: &mut Vec<Shape>, y: i32, words: String) -> i32 {
    shapes.push(text([MARGIN, y], Face::Small, INK, words));
    y + 18
}

/// The text up to the row that is looked at.
pub fn shaded_text(shapes: &mut Vec<Shape>, facts: &Facts<'_>, y: i32, width: i32) -> i32 {
    let (row, which) = (&facts.seen.row, facts.which.name());
    // The token itself is marked, and would outshine the others.
    let earlier = &row[..row.len() - 1];
    let most = match facts.which {
        Which::F => 1.0,
        Which::A => earlier.iter().copied().fold(1e-9, f64::max),
    };
    let words = format!("The text as token {} sees it: {which}, {}", facts.selection.row, facts.heads());
    let high = if facts.which == Which::F { "1".to_owned() } else { format!("{most:.2}") };
    legend(shapes, [MARGIN + width, y], [&format!("{which} 0"), &high]);
    let top = heading(shapes, y, words);
    top + shaded::draw(shapes, [MARGIN, top], width, facts.tokens, row, most)
}

fn row_name(shapes: &mut Vec<Shape>, y: i32, layer: usize) {
    shapes.push(anchored([MARGIN + NAMES - 10, y], Anchor::End, Face::Small, SOFT, format!("layer {layer}")));
}

fn matrices(shapes: &mut Vec<Shape>, facts: &Facts<'_>, y: i32, width: i32, side: i32) -> i32 {
    let Selection { layers, heads, .. } = facts.selection;
    let words = format!("{} of each head: query i down, key j across{}", facts.which.name(), facts.blocks());
    facts.legend(shapes, [MARGIN + width, y]);
    let top = heading(shapes, y, words) + 14;
    for (column, head) in heads.clone().enumerate() {
        let x = MARGIN + NAMES + column as i32 * (side + GAP) + side / 2;
        let name = if side > 45 { format!("head {head}") } else { head.to_string() };
        shapes.push(anchored([x, top - 10], Anchor::Middle, Face::Small, SOFT, name));
    }
    for (row, layer) in layers.clone().enumerate() {
        let y = top + row as i32 * (side + GAP);
        row_name(shapes, y + side / 2, layer);
        for (column, head) in heads.clone().enumerate() {
            let x = MARGIN + NAMES + column as i32 * (side + GAP);
            let matrix = &facts.seen.matrices[row * heads.len() + column];
            let context = facts.forgetting.effective_context(layer, head);
            let title = format!("layer {layer}, head {head}: effective context {context:.1} tokens");
            let colors = facts.colors(matrix);
            let image = Shape::Cells { at: [x, y], size: [side, side], columns: matrix.n, colors };
            shapes.push(Shape::Titled { shape: Box::new(image), title });
            let corners = [[x, y], [x, y + side], [x + side, y + side]];
            shapes.push(Shape::Line { points: corners.to_vec(), width: 1, color: GRID });
        }
    }
    top + layers.len() as i32 * (side + GAP) - GAP
}

/// The heat map of effective contexts, by the logarithm.
fn contexts(shapes: &mut Vec<Shape>, facts: &Facts<'_>, y: i32, width: i32) -> i32 {
    let Selection { layers, heads, n_tokens, .. } = facts.selection;
    let words = "Effective context in tokens: sum of a row of F, mean of the last 64";
    legend(shapes, [MARGIN + width, y], ["1", &format!("{n_tokens} (log)")]);
    let top = heading(shapes, y, words.to_owned()) + 14;
    for (column, head) in heads.clone().enumerate() {
        let x = MARGIN + NAMES + column as i32 * CELL[0] + CELL[0] / 2;
        shapes.push(anchored([x, top - 10], Anchor::Middle, Face::Small, SOFT, format!("h {head}")));
    }
    for (row, layer) in layers.clone().enumerate() {
        let y = top + row as i32 * CELL[1];
        row_name(shapes, y + CELL[1] / 2, layer);
        for (column, head) in heads.clone().enumerate() {
            let x = MARGIN + NAMES + column as i32 * CELL[0];
            let tokens = facts.forgetting.effective_context(layer, head);
            let share = tokens.ln() / (*n_tokens as f64).ln().max(1e-9);
            shapes.push(Shape::Box { at: [x, y], size: [CELL[0] - 1, CELL[1] - 1], color: shade(share) });
            let at = [x + CELL[0] / 2, y + CELL[1] / 2];
            shapes.push(anchored(at, Anchor::Middle, Face::Small, ink_on(share), short(tokens)));
        }
    }
    top + layers.len() as i32 * CELL[1]
}

/// Live pages of each layer that is looked at, by token.
fn live(facts: &Facts<'_>) -> Vec<Vec<usize>> {
    let Selection { layers, heads, n_tokens, .. } = facts.selection;
    let kv_heads = || heads.start / facts.group..heads.end.div_ceil(facts.group);
    let of_layer = |layer: usize| {
        let mut sums = vec![0; *n_tokens];
        for kv_head in kv_heads() {
            let live = facts.forgetting.live_pages(layer, kv_head, facts.group, facts.ln_epsilon);
            sums.iter_mut().zip(live).for_each(|(sum, live)| *sum += live);
        }
        sums
    };
    layers.clone().map(of_layer).collect()
}

/// Live pages over time, layer upon layer, in front of all that were filled.
fn timeline(shapes: &mut Vec<Shape>, facts: &Facts<'_>, y: i32, width: i32) -> i32 {
    const LAYERS: [f64; 2] = [0.3, 0.95];
    let Selection { layers, heads, n_tokens, .. } = facts.selection;
    let live = live(facts);
    let n_heads = layers.len() * (heads.end.div_ceil(facts.group) - heads.start / facts.group);
    let filled = |t: usize| (t + 1).div_ceil(PAGE) * n_heads;
    let (end, all) = (live.iter().map(|layer| layer[n_tokens - 1]).sum::<usize>(), filled(n_tokens - 1));
    let rule = match facts.ln_epsilon {
        Some(ln) => format!("dead ones weigh less than {:.1e} of a row", ln.exp()),
        None => "none dies by its gates here".to_owned(),
    };
    let words = format!("Live pages of {PAGE} keys after each token: {end} of {all} at the end; {rule}");
    let top = heading(shapes, y, words);
    let (left, bottom) = (MARGIN + NAMES, top + TIMELINE);
    let pages = Axis::new(0.0, all as f64, bottom, top);
    let times = Axis::new(0.0, (*n_tokens as f64).max(2.0), left, MARGIN + width);
    let (columns, rows) = ((MARGIN + width - left) as usize, TIMELINE as usize);
    let color = |ix: usize| {
        let (x, y) = (ix % columns, ix / columns);
        let t = x as f64 / columns as f64 * times.high();
        let level = (rows - y) as f64 / rows as f64 * pages.high();
        let t = t as usize;
        if t >= *n_tokens || level > filled(t) as f64 {
            return [255; 3];
        }
        let mut sum = 0.0;
        let layer = live.iter().position(|layer| {
            sum += layer[t] as f64;
            level <= sum
        });
        let tint = |layer: usize| LAYERS[0] + (LAYERS[1] - LAYERS[0]) * layer as f64 / (live.len().max(2) - 1) as f64;
        layer.map_or(GRID, |layer| shade(tint(layer)))
    };
    let colors = (0..columns * rows).map(color).collect();
    shapes.push(Shape::Cells { at: [left, top], size: [columns as i32, TIMELINE], columns, colors });
    for tick in &pages.ticks {
        let y = pages.pixel(*tick);
        shapes.push(anchored([left - 10, y], Anchor::End, Face::Small, SOFT, pages.label(*tick)));
        shapes.push(Shape::Line { points: vec![[left - 5, y], [left, y]], width: 1, color: SOFT });
    }
    for tick in &times.ticks {
        let x = times.pixel(*tick);
        shapes.push(Shape::Line { points: vec![[x, bottom], [x, bottom + 5]], width: 1, color: SOFT });
        shapes.push(anchored([x, bottom + 14], Anchor::Middle, Face::Small, SOFT, times.label(*tick)));
    }
    shapes.push(Shape::Line { points: vec![[left, top], [left, bottom], [MARGIN + width, bottom]], width: 1, color: SOFT });
    let stack = match layers.len() {
        1 => String::new(),
        _ => format!(", layer {} at the bottom, the last darkest", layers.start),
    };
    let words = format!("tokens read; grey: pages that were filled; blue: live{stack}");
    shapes.push(anchored([MARGIN + width, bottom + 34], Anchor::End, Face::Small, SOFT, words));
    bottom + 40
}
