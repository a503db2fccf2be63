//! The table of rotary positions: cos and sin of position · base^(−2c/h) for each channel c of half a head.

use std::ops::Range;

/// Words of a position: h/2 cosines, h/2 sines.
pub fn row_words(head_dim: usize) -> usize {
    head_dim
}

/// The rows of some positions, computed in f64 (at 65,536 an f32 angle would be off by 4e-3).
pub fn rows(positions: Range<usize>, head_dim: usize, base: f64) -> Vec<f32> {
    let half = head_dim / 2;
    let speeds: Vec<f64> = (0..half).map(|c| base.powf(-2.0 * c as f64 / head_dim as f64)).collect();
    let mut rows = Vec::with_capacity(positions.len() * row_words(head_dim));
    for position in positions {
        let angles = || speeds.iter().map(|speed| position as f64 * speed);
        rows.extend(angles().map(|angle| angle.cos() as f32));
        rows.extend(angles().map(|angle| angle.sin() as f32));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_turns_the_first_channels_fastest() {
        let rows = rows(0..3, 16, 10_000.0);
        assert_eq!(rows[..8], [1.0; 8]);
        assert_eq!(rows[8..16], [0.0; 8]);
        let at = |position: usize, c: usize| (rows[position * 16 + c], rows[position * 16 + 8 + c]);
        assert_eq!(at(2, 0), (2f64.cos() as f32, 2f64.sin() as f32));
        assert_eq!(at(1, 4), (0.01f64.cos() as f32, 0.01f64.sin() as f32));
    }
}
