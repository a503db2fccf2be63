//! Λ = −λ = Σ −log f as unsigned 32.32 fixed point, on the CPU: `u64` = whole · 2^32 + fraction · 2^32.
//!
//! A single f32 sum loses D = λ_i − λ_j in long contexts (its step is 8e-3 at λ = −143,000). Here a token's −log f is rounded once
//! to 2^-32 and summed by integers: chunks of any size give the same bits, and differences are exact. Λ stays below 2^32 for
//! 262,144 tokens of gates that all saturate at [`MAX`].

/// Largest −log f: e^−16384 is 0 in any format, and 2^18 such tokens still fit.
pub const MAX: f64 = 16384.0;

const ONE: f64 = (1u64 << 32) as f64;

/// −log sigmoid(z) = softplus(−z), on the grid.
pub fn forgotten(z: f64) -> u64 {
    let m = (-z).max(0.0) + (-z.abs()).exp().ln_1p();
    fixed(m.clamp(0.0, MAX))
}

/// −log f that is known, on the grid.
pub fn known(m: f32) -> u64 {
    fixed(f64::from(m).clamp(0.0, MAX))
}

/// A number from 0 to below 2^32 on the grid.
pub fn fixed(x: f64) -> u64 {
    (x * ONE).round_ties_even() as u64
}

/// The fixed-point number of a pair of words.
pub fn join(low: u32, whole: u32) -> u64 {
    u64::from(whole) << 32 | u64::from(low)
}

/// The pair of words (fraction, whole).
pub fn split(lam: u64) -> [u32; 2] {
    [lam as u32, (lam >> 32) as u32]
}

/// As a float.
pub fn value(lam: u64) -> f64 {
    lam as f64 / ONE
}

/// Reads entry `ix` of an array of pairs.
pub fn read(words: &[u32], ix: usize) -> u64 {
    join(words[2 * ix], words[2 * ix + 1])
}

/// Writes entry `ix` of an array of pairs.
pub fn write(words: &mut [u32], ix: usize, lam: u64) {
    words[2 * ix..2 * ix + 2].copy_from_slice(&split(lam));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_of_any_size_are_close_and_finite() {
        for (z, m) in [(0.0, 2f64.ln()), (60.0, 0.0), (-60.0, 60.0), (-1e30, MAX), (1e30, 0.0), (4.6, 0.010_001_652_1)] {
            assert!((value(forgotten(z)) - m).abs() < 1e-9, "{z}");
        }
    }

    #[test]
    fn words_and_numbers_are_the_same() {
        let mut words = [0; 4];
        write(&mut words, 1, 0x1234_5678_9abc_def0);
        assert_eq!(words, [0, 0, 0x9abc_def0, 0x1234_5678]);
        assert_eq!(read(&words, 1), 0x1234_5678_9abc_def0);
        assert_eq!(value(join(1 << 31, 3)), 3.5);
    }
}
