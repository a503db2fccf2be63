//! U ≥ max |q·k|/√h where q and k are normed: static, and right for every query to come (docs/model.md, section 4).
//!
//! q = q̂ ∘ w_q with ‖q̂‖ ≤ √h, k likewise. Without rotation q·k = Σ q̂_i k̂_i w_q,i w_k,i, so U = √h · max_i |w_q,i · w_k,i|. A rotation mixes the
//! channels i and i + h/2: U = √h · max_i max(|w_q,i|, |w_q,i+h/2|) · max(|w_k,i|, |w_k,i+h/2|). Keys stored as k + Δk add ‖q‖ · ‖Δk‖/√h.

/// Relative slack for the roundings of norms, products and sums in f32.
const ROUNDINGS: f64 = 1e-4;

/// Half a step of f16: relative, and absolute where numbers are subnormal.
const F16_STEPS: [f64; 2] = [4.882_812_5e-4, 2.980_232_238_769_531_3e-8];

/// The weight of q's norm, the same in all channels, whose [`score_bound`] is `bound` where all weights of k's are 1.
pub fn norm_of(bound: f64, head_dim: usize, kv_f16: bool) -> f32 {
    let stored = if kv_f16 { F16_STEPS[0] + F16_STEPS[1] } else { 0.0 };
    (bound / ((head_dim as f64).sqrt() * (1.0 + stored) * (1.0 + ROUNDINGS))) as f32
}

/// τ = 2U − ln ε of a head: how far behind its end (and ln G) a page is dead. Rounded up: a page may die late, never early.
pub fn tau(bound: f64, ln_epsilon: f64) -> f32 {
    ((2.0 * bound - ln_epsilon) as f32).next_up()
}

/// U of a head, from the weights of its norms, `[h]` each.
pub fn score_bound(q: &[f32], k: &[f32], rotated: bool, kv_f16: bool) -> f64 {
    let size = |weights: &[f32], i: usize| {
        let pair = if rotated { (i + weights.len() / 2) % weights.len() } else { i };
        f64::from(weights[i].abs().max(weights[pair].abs()))
    };
    let largest = |products: &mut dyn Iterator<Item = f64>| products.fold(0.0, f64::max);
    let root = (q.len() as f64).sqrt();
    let exact = root * largest(&mut (0..q.len()).map(|i| size(q, i) * size(k, i)));
    // Half a step of f16 is 2^-11 of a channel, or 2^-25 where it is subnormal: ‖Δk‖ ≤ √h · (2^-11 · max|w_k| + 2^-25).
    let [q_most, k_most] = [q, k].map(|weights| largest(&mut weights.iter().map(|w| f64::from(w.abs()))));
    let stored = if kv_f16 { root * q_most * (k_most * F16_STEPS[0] + F16_STEPS[1]) } else { 0.0 };
    (exact + stored) * (1.0 + ROUNDINGS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::inputs;

    #[test]
    fn a_norm_made_for_a_bound_has_it() {
        assert_eq!(F16_STEPS, [2f64.powi(-11), 2f64.powi(-25)]);
        for (bound, head_dim, rotated, kv_f16) in [(14.0, 64, false, true), (0.5, 16, true, true), (300.0, 128, false, false)] {
            let q = vec![norm_of(bound, head_dim, kv_f16); head_dim];
            let made = score_bound(&q, &vec![1.0; head_dim], rotated, kv_f16);
            assert!((made / bound - 1.0).abs() < 1e-7, "{made} for {bound}");
        }
    }

    #[test]
    fn no_normed_pair_of_rows_passes_the_bound_and_some_come_near() {
        let h = 16;
        for (seed, rotated) in (0..40).map(|seed| (seed, seed % 2 == 1)) {
            let [wq, wk] = [1, 2].map(|n| inputs::floats(100 + 2 * seed + n, h, 3.0));
            let bound = score_bound(&wq, &wk, rotated, true);
            let mut most = 0.0f64;
            for draw in 0..200 {
                // All of a row in one channel is the worst case; random rows are the usual one.
                let row = |n: u32, w: &[f32], angle: f64| -> Vec<f64> {
                    let x = if draw < h {
                        (0..h).map(|c| if c == draw { 1.0 } else { 0.0 }).collect()
                    } else {
                        inputs::floats(9000 + 400 * seed + 2 * draw as u32 + n, h, 1.0)
                    };
                    let rms = (x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / h as f64).sqrt();
                    let y: Vec<f64> = x.iter().zip(w).map(|(x, w)| f64::from(*x) / rms * f64::from(*w)).collect();
                    let turned = |c: usize| {
                        if c < h / 2 {
                            y[c] * angle.cos() - y[c + h / 2] * angle.sin()
                        } else {
                            y[c] * angle.cos() + y[c - h / 2] * angle.sin()
                        }
                    };
                    if rotated { (0..h).map(turned).collect() } else { y }
                };
                let angle = draw as f64;
                let (q, k) = (row(0, &wq, angle), row(if draw < h { 0 } else { 1 }, &wk, if draw < h { angle } else { 0.3 }));
                let score: f64 = q.iter().zip(k).map(|(q, k)| q * f64::from(half::f16::from_f64(k).to_f32())).sum();
                most = most.max(score.abs() / (h as f64).sqrt());
            }
            assert!(most <= bound, "seed {seed}: {most} over {bound}");
            assert!(rotated || most > bound * 0.99, "seed {seed}: {most} far below {bound}");
        }
    }
}
