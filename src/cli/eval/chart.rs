//! The two plots of the evaluations: a curve with error bars, and a map of cells from none to all.

use crate::cli::axis::Axis;
use crate::cli::drawing::{Anchor, CHARACTER, Color, Drawing, Face, Shape};

const INK: Color = [30, 30, 30];
const GRID: Color = [221, 221, 221];
const CURVE: Color = [31, 90, 166];
const BAR: Color = [168, 195, 226];
const MARK: Color = [200, 80, 40];
/// Left, top, right and bottom margins.
const MARGIN: [i32; 4] = [90, 70, 40, 70];

/// A point of a curve.
pub struct Point {
    /// Where it is.
    pub x: f64,
    /// Its value.
    pub y: f64,
    /// Half the length of its error bar.
    pub error: f64,
}

/// A straight line to compare a curve with.
pub struct Reference {
    /// Its ends.
    pub points: [[f64; 2]; 2],
    /// What it means.
    pub meaning: String,
}

/// A curve.
pub struct LineChart {
    /// Above it.
    pub title: String,
    /// Under the x axis.
    pub x_label: String,
    /// Above the y axis.
    pub y_label: String,
    /// At least one.
    pub points: Vec<Point>,
    /// A vertical line, and what it means.
    pub mark: Option<(f64, String)>,
    /// What the curve is compared with.
    pub reference: Option<Reference>,
}

impl LineChart {
    /// As a picture.
    pub fn draw(&self) -> Drawing {
        let size = [960, 560];
        let mut shapes = Vec::new();
        let x_axis = Axis::new(0.0, self.points.iter().map(|p| p.x).fold(1.0, f64::max), MARGIN[0], size[0] - MARGIN[2]);
        let compared = self.reference.iter().flat_map(|reference| reference.points).map(|[_, y]| (y, y));
        let bars = self.points.iter().map(|p| (p.y - p.error, p.y + p.error)).chain(compared);
        let (low, high) = bars.fold((f64::MAX, f64::MIN), |(low, high), (from, to)| (low.min(from), high.max(to)));
        let y_axis = Axis::new(low, high, size[1] - MARGIN[3], MARGIN[1]);
        for tick in &y_axis.ticks {
            let y = y_axis.pixel(*tick);
            shapes.push(line(&[[MARGIN[0], y], [size[0] - MARGIN[2], y]], 1, GRID));
            shapes.push(text([MARGIN[0] - CHARACTER, y], Anchor::End, &y_axis.label(*tick)));
        }
        for tick in &x_axis.ticks {
            let (x, bottom) = (x_axis.pixel(*tick), size[1] - MARGIN[3]);
            shapes.push(line(&[[x, bottom], [x, bottom + 6]], 1, INK));
            shapes.push(text([x, bottom + 20], Anchor::Middle, &x_axis.label(*tick)));
        }
        if let Some((x, meaning)) = &self.mark {
            let x = x_axis.pixel(*x);
            shapes.push(line(&[[x, MARGIN[1]], [x, size[1] - MARGIN[3]]], 1, MARK));
            shapes.push(Shape::Text {
                at: [x + 6, MARGIN[1] + 12],
                anchor: Anchor::Start,
                text: meaning.clone(),
                face: Face::Normal,
                color: MARK,
            });
        }
        if let Some(Reference { points, meaning }) = &self.reference {
            let ends = points.map(|[x, y]| [x_axis.pixel(x), y_axis.pixel(y)]);
            shapes.push(line(&ends, 2, BAR));
            let middle = [(ends[0][0] + ends[1][0]) / 2 - CHARACTER, (ends[0][1] + ends[1][1]) / 2];
            shapes.push(text(middle, Anchor::End, meaning));
        }
        for point in &self.points {
            let x = x_axis.pixel(point.x);
            let (top, bottom) = (y_axis.pixel(point.y + point.error), y_axis.pixel(point.y - point.error));
            shapes.push(line(&[[x, top], [x, bottom]], 3, BAR));
        }
        let curve: Vec<_> = self.points.iter().map(|point| [x_axis.pixel(point.x), y_axis.pixel(point.y)]).collect();
        shapes.push(line(&curve, 2, CURVE));
        let corner = [MARGIN[0], size[1] - MARGIN[3]];
        shapes.push(line(&[[MARGIN[0], MARGIN[1]], corner, [size[0] - MARGIN[2], corner[1]]], 1, INK));
        labels(&mut shapes, size, [&self.title, &self.x_label, &self.y_label]);
        Drawing { size, shapes }
    }
}

/// Cells with shares from 0 to 1.
pub struct HeatMap {
    /// Above it.
    pub title: String,
    /// Under the columns.
    pub x_label: String,
    /// Above the names of the rows.
    pub y_label: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Names of the rows.
    pub rows: Vec<String>,
    /// Row after row.
    pub shares: Vec<f64>,
}

impl HeatMap {
    /// As a picture.
    pub fn draw(&self) -> Drawing {
        let cell = [80, 40];
        let grid = [self.columns.len() as i32 * cell[0], self.rows.len() as i32 * cell[1]];
        let size = [(MARGIN[0] + grid[0] + MARGIN[2]).max(480), MARGIN[1] + grid[1] + MARGIN[3]];
        let mut shapes = Vec::new();
        for (row, (name, shares)) in self.rows.iter().zip(self.shares.chunks(self.columns.len())).enumerate() {
            let y = MARGIN[1] + row as i32 * cell[1];
            shapes.push(text([MARGIN[0] - CHARACTER, y + cell[1] / 2], Anchor::End, name));
            for (column, share) in shares.iter().enumerate() {
                let x = MARGIN[0] + column as i32 * cell[0];
                shapes.push(Shape::Box { at: [x, y], size: [cell[0] - 1, cell[1] - 1], color: shade(*share) });
                let color = if *share > 0.5 { [255, 255, 255] } else { INK };
                let text = format!("{:.0}%", share * 100.0);
                shapes.push(Shape::Text {
                    at: [x + cell[0] / 2, y + cell[1] / 2],
                    anchor: Anchor::Middle,
                    text,
                    face: Face::Normal,
                    color,
                });
            }
        }
        for (column, name) in self.columns.iter().enumerate() {
            let x = MARGIN[0] + column as i32 * cell[0] + cell[0] / 2;
            shapes.push(text([x, MARGIN[1] + grid[1] + 18], Anchor::Middle, name));
        }
        labels(&mut shapes, size, [&self.title, &self.x_label, &self.y_label]);
        Drawing { size, shapes }
    }
}

/// From pale to blue: a scale of lightness, so that it reads without colours too.
fn shade(share: f64) -> Color {
    let (none, all) = ([236.0, 236.0, 232.0], CURVE.map(f64::from));
    std::array::from_fn(|ix| (none[ix] + (all[ix] - none[ix]) * share).round() as u8)
}

fn labels(shapes: &mut Vec<Shape>, size: [i32; 2], [title, x, y]: [&str; 3]) {
    shapes.push(text([CHARACTER, 18], Anchor::Start, &shortened(title, (size[0] / CHARACTER - 2) as usize)));
    shapes.push(text([CHARACTER, 48], Anchor::Start, y));
    shapes.push(text([size[0] - MARGIN[2], size[1] - 20], Anchor::End, x));
}

/// A long name loses its middle.
fn shortened(text: &str, n: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= n {
        return text.to_owned();
    }
    let (head, tail) = (n.saturating_sub(3) / 2, n.saturating_sub(3).div_ceil(2));
    letters[..head].iter().chain(&['.'; 3]).chain(&letters[letters.len() - tail..]).collect()
}

fn line(points: &[[i32; 2]], width: u32, color: Color) -> Shape {
    Shape::Line { points: points.to_vec(), width, color }
}

fn text(at: [i32; 2], anchor: Anchor, text: &str) -> Shape {
    Shape::Text { at, anchor, text: text.to_owned(), face: Face::Normal, color: INK }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_title_keeps_both_ends() {
        assert_eq!(shortened("short", 10), "short");
        assert_eq!(shortened("Per-token loss: /models/fox.gguf", 16), "Per-to...ox.gguf");
    }
}
