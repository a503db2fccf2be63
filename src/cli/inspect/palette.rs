//! Colours, legends and the small things that the pictures of gates share.

use crate::cli::drawing::{Anchor, Color, Face, Shape};

pub const INK: Color = [30, 30, 30];
pub const SOFT: Color = [105, 105, 105];
pub const GRID: Color = [221, 221, 221];
pub const PAPER: Color = [255, 255, 255];
pub const MARK: Color = [200, 80, 40];

/// From nothing to all, ever darker, so that it reads without colours too.
const STOPS: [[f64; 3]; 5] =
    [[243.0, 243.0, 238.0], [198.0, 219.0, 239.0], [107.0, 174.0, 214.0], [33.0, 113.0, 181.0], [8.0, 48.0, 107.0]];

/// The colour of a share from 0 to 1.
pub fn shade(share: f64) -> Color {
    let at = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let ix = (at as usize).min(STOPS.len() - 2);
    std::array::from_fn(|channel| {
        let (from, to) = (STOPS[ix][channel], STOPS[ix + 1][channel]);
        (from + (to - from) * (at - ix as f64)).round() as u8
    })
}

/// What can be read on such a colour.
pub fn ink_on(share: f64) -> Color {
    if share > 0.5 { PAPER } else { INK }
}

/// A line of text from `at` on.
pub fn text(at: [i32; 2], face: Face, color: Color, text: impl Into<String>) -> Shape {
    anchored(at, Anchor::Start, face, color, text)
}

/// A line of text at `at`.
pub fn anchored(at: [i32; 2], anchor: Anchor, face: Face, color: Color, text: impl Into<String>) -> Shape {
    Shape::Text { at, anchor, text: text.into(), face, color }
}

/// A bar of all colours with its ends named, that ends at `right`.
pub fn legend(shapes: &mut Vec<Shape>, [right, y]: [i32; 2], [low, high]: [&str; 2]) {
    const WIDTH: i32 = 120;
    let gap = Face::Small.width();
    let end = right - gap - high.chars().count() as i32 * Face::Small.width();
    let colors = (0..WIDTH).map(|x| shade(f64::from(x) / f64::from(WIDTH - 1))).collect();
    shapes.push(anchored([right, y], Anchor::End, Face::Small, SOFT, high));
    shapes.push(Shape::Cells { at: [end - WIDTH, y - 5], size: [WIDTH, 10], columns: WIDTH as usize, colors });
    shapes.push(anchored([end - WIDTH - gap, y], Anchor::End, Face::Small, SOFT, low));
}

/// A number in three or four characters.
pub fn short(value: f64) -> String {
    match value {
        value if value >= 9_999.5 => format!("{:.0}k", value / 1000.0),
        value if value >= 99.95 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_darker() {
        let light = |share| shade(share).map(u32::from).iter().sum::<u32>();
        // By more than what rounding to 8 bits hides.
        assert!((0..25).all(|n| light(f64::from(n) / 25.0) > light(f64::from(n + 1) / 25.0)));
        assert_eq!((shade(-1.0), shade(2.0)), (shade(0.0), [8, 48, 107]));
    }

    #[test]
    fn numbers_are_short() {
        let all = [1.0, 99.94, 99.96, 9_999.4, 12_345.0].map(short);
        assert_eq!(all, ["1.0", "99.9", "100", "9999", "12k"]);
    }
}
