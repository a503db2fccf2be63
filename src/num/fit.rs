//! The searches behind the quantizers of Q4_K and Q6_K: which scale (and minimum) makes the smallest squared error when the values
//! are rounded to integers.
//!
//! For given integers the best scale is linear regression; for a given scale the best integers are the nearest ones. Neither alone
//! finds the best pair, so many first scales are tried around the one that spans the largest value: cutting off a rare large value
//! often pays, since it leaves finer steps for all others.

/// Values beyond ±65504 are infinite in f16, and a scale must not be.
pub fn to_f16(value: f32) -> half::f16 {
    half::f16::from_f32(value.clamp(-65504.0, 65504.0))
}

/// The nearest integer (ties to even) for |v| < 2²²: adding 3·2²² leaves no bits behind the point. Much faster than `round`, which
/// is a call on common targets.
pub fn nearest(v: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0;
    (v + SHIFT) - SHIFT
}

/// Nearest integers of `x[i] · inverse + offset`, within `low ..= high`. A NaN (0 · ∞) becomes `low`.
pub fn integers<const N: usize>(x: &[f32; N], inverse: f32, offset: f32, [low, high]: [f32; 2]) -> [f32; N] {
    x.map(|v| nearest((v * inverse + offset).max(low).min(high)))
}

/// Σ (x − (scale · q + offset))².
pub fn error<const N: usize>(x: &[f32; N], q: &[f32; N], scale: f32, offset: f32) -> f32 {
    x.iter().zip(q).map(|(x, q)| x - (scale * q + offset)).map(|d| d * d).sum()
}

/// The scale a, of either sign, for x ≈ a·q with q in `−levels ..= levels − 1`; 0 when all values are.
pub fn scale<const N: usize>(x: &[f32; N], levels: f32) -> f32 {
    let max = x.iter().fold(0f32, |max, &v| if v.abs() > max.abs() { v } else { max });
    let mut best = (f32::INFINITY, 0.0);
    if max == 0.0 {
        return 0.0;
    }
    for step in -STEPS..=STEPS {
        // The value of largest magnitude goes to the end that has one level more.
        let inverse = -(levels + step as f32 * STEP) / max;
        let q = integers(x, inverse, 0.0, [-levels, levels - 1.0]);
        let squares: f32 = q.iter().map(|q| q * q).sum();
        let products: f32 = x.iter().zip(&q).map(|(x, q)| x * q).sum();
        if squares > 0.0 {
            let a = products / squares;
            let error = error(x, &q, a, 0.0);
            if error < best.0 {
                best = (error, a);
            }
        }
    }
    best.1
}

/// Scale a ≥ 0 and minimum m ≥ 0 for x ≈ a·q − m with q in `0 ..= levels`.
pub fn scale_and_min<const N: usize>(x: &[f32; N], levels: f32) -> (f32, f32) {
    let low = x.iter().fold(0f32, |low, &v| low.min(v));
    let high = x.iter().fold(f32::MIN, |high, &v| high.max(v));
    if high <= low {
        return (0.0, -low);
    }
    let n = N as f32;
    let sum: f32 = x.iter().sum();
    let mut best = (f32::INFINITY, (high - low) / levels, -low);
    for step in -STEPS..=STEPS {
        let inverse = (levels + step as f32 * STEP) / (high - low);
        let q = integers(x, inverse, -low * inverse, [0.0, levels]);
        let q_sum: f32 = q.iter().sum();
        let squares: f32 = q.iter().map(|q| q * q).sum();
        let products: f32 = x.iter().zip(&q).map(|(x, q)| x * q).sum();
        let determinant = n * squares - q_sum * q_sum;
        if determinant <= 0.0 {
            continue;
        }
        let (mut a, mut m) = ((n * products - q_sum * sum) / determinant, (q_sum * products - sum * squares) / determinant);
        if m < 0.0 {
            // Above 0 there is nothing: the best line through the origin.
            (a, m) = (products / squares, 0.0);
        }
        let error = error(x, &q, a, -m);
        if a > 0.0 && error < best.0 {
            best = (error, a, m);
        }
    }
    (best.1, best.2)
}

/// First scales on either side of the one that spans all values, and the levels between them.
const STEPS: i32 = 12;
const STEP: f32 = 0.15;
