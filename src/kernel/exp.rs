//! Exponentials for the `fast` code, written so that a compiler makes vectors of them: no branch, no cast.

/// Below, e^x stays what it is here, 9e-27: beside 1 it is far below the last bit, and products of smaller numbers would be
/// subnormal, which takes a CPU ten times as long.
pub const LEAST: f32 = -60.0;

/// e^x for x ≤ 0 to 2e-7 relative down to [`LEAST`]: 2^n · e^r, |r| ≤ ln 2 / 2, Cephes' polynomial.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2^23: adding it leaves the nearest integer in the low bits
    let x = x.max(LEAST);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let p = ((((1.987_569_1e-4 * r + 1.398_199_9e-3) * r + 8.333_452e-3) * r + 4.166_579_6e-2) * r + 1.666_666_5e-1) * r + 0.5;
    let y = p * r * r + r + 1.0;
    f32::from_bits(y.to_bits().wrapping_add(shifted.to_bits() << 23))
}

/// 1 / (1 + e^−x), from the exponential that cannot overflow.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// sigmoid(x), or x · sigmoid(x).
#[inline(always)]
pub fn gate(silu: bool, x: f32) -> f32 {
    sigmoid(x) * if silu { x } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_wherever_it_counts() {
        for ix in 0..60_000 {
            let x = -(ix as f32) / 1000.0;
            let want = f64::from(x).exp();
            assert!((f64::from(exp(x)) / want - 1.0).abs() < 3e-7, "{x}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(-1e30) < 1e-26);
    }

    #[test]
    fn sigmoids_are_close_on_both_sides() {
        for x in (-600..=600).map(|x| x as f32 / 10.0) {
            let want = 1.0 / (1.0 + (-f64::from(x)).exp());
            assert!((f64::from(sigmoid(x)) / want - 1.0).abs() < 5e-7, "{x}");
        }
        assert_eq!((sigmoid(1e30), gate(true, -1e3) > -1e-20), (1.0, true));
    }
}
