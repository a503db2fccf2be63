//! What the gates of a text mean for its keys: how much of each a later token can still see, how far back a head reaches, and when
//! pages die.
//!
//! With c_i = Σ_{l ≤ i} log f_l, D_ij = c_i − c_j and F_ij = e^{D_ij} for j ≤ i: the factor on the weight of key j in row i (docs/model.md, section 1;
//! Lin et al., arXiv 2503.02130). Outside a sliding window F is 0. The *effective context* of a head is Σ_j F_ij, in tokens, averaged over
//! the last rows of the text ([`EFFECTIVE_ROWS`]): i + 1 where nothing is forgotten, 1 where all but the token itself is. A page is dead
//! from the token on where Λ_t > Λ_b + τ + ln G_b for every query head of its key head, as the kernels find it
//! ([`crate::kernel::attention::Prune`]). Sums are f64.

use super::Gates;
use super::bound::tau;
use crate::kernel::attention::PAGE;

/// Rows that an effective context is averaged over, the last ones: a page of them, so that one token's gate does not decide.
pub const EFFECTIVE_ROWS: usize = PAGE;

/// The decay of every layer and head of a text.
pub struct Forgetting<'a> {
    gates: &'a Gates,
    window: Option<usize>,
    /// c, `[layers, heads, tokens]`.
    sums: Vec<f64>,
}

impl<'a> Forgetting<'a> {
    /// Of a text's gates; `window`: keys that a query sees, its own the last, where the model has a sliding window.
    pub fn new(gates: &'a Gates, window: Option<usize>) -> Self {
        let [n_layers, n_heads, n_tokens] = gates.shape();
        let mut sums = Vec::with_capacity(n_layers * n_heads * n_tokens);
        for of_head in gates.log_f().chunks_exact(n_tokens) {
            let mut sum = 0.0;
            sums.extend(of_head.iter().map(|log_f| {
                sum += f64::from(*log_f);
                sum
            }));
        }
        Self { gates, window, sums }
    }

    /// Layers, heads, tokens.
    pub fn shape(&self) -> [usize; 3] {
        self.gates.shape()
    }

    fn sums(&self, layer: usize, head: usize) -> &[f64] {
        let [_, n_heads, n_tokens] = self.shape();
        &self.sums[(layer * n_heads + head) * n_tokens..][..n_tokens]
    }

    /// The first key that row `i` sees.
    pub fn first_key(&self, i: usize) -> usize {
        self.window.map_or(0, |window| (i + 1).saturating_sub(window))
    }

    /// D_ij; −∞ for a key that row `i` does not see.
    pub fn d(&self, layer: usize, head: usize, i: usize, j: usize) -> f64 {
        if !(self.first_key(i)..=i).contains(&j) {
            return f64::NEG_INFINITY;
        }
        let sums = self.sums(layer, head);
        sums[i] - sums[j]
    }

    /// F_ij = e^{D_ij}, from 0 to 1.
    pub fn f(&self, layer: usize, head: usize, i: usize, j: usize) -> f64 {
        self.d(layer, head, i, j).exp()
    }

    /// F_ij of row `i`, for j from 0 to i.
    pub fn row(&self, layer: usize, head: usize, i: usize) -> impl Iterator<Item = f64> + use<'_> {
        (0..=i).map(move |j| self.f(layer, head, i, j))
    }

    /// Σ_j F_ij in tokens, averaged over the last [`EFFECTIVE_ROWS`] rows (over all of a shorter text).
    pub fn effective_context(&self, layer: usize, head: usize) -> f64 {
        let n_tokens = self.shape()[2];
        let rows = n_tokens.saturating_sub(EFFECTIVE_ROWS)..n_tokens;
        let n_rows = rows.len() as f64;
        rows.map(|i| self.row(layer, head, i).sum::<f64>()).sum::<f64>() / n_rows
    }

    /// Live pages of a key head after each token, `[tokens]`: those that this or a later token may look at. `group` query heads share
    /// it; without `ln_epsilon`, or bounds of the scores, pages go by the window alone.
    pub fn live_pages(&self, layer: usize, kv_head: usize, group: usize, ln_epsilon: Option<f64>) -> Vec<usize> {
        let n_tokens = self.shape()[2];
        let heads = || kv_head * group..(kv_head + 1) * group;
        let ends = ln_epsilon
            .filter(|_| self.window.is_none())
            .map(|ln_epsilon| heads().map(|head| self.page_ends(layer, head, ln_epsilon)).collect::<Option<Vec<_>>>());
        let ends = ends.flatten();
        let mut first = 0;
        let live = |t: usize| {
            if let Some(ends) = &ends {
                let dead = |page: usize| heads().zip(ends).all(|(head, ends)| ends[page] < -self.sums(layer, head)[t]);
                while first < (t + 1) / PAGE && dead(first) {
                    first += 1;
                }
            } else if self.window.is_some() {
                // As of the token that comes next.
                first = self.first_key(t + 1) / PAGE;
            }
            (t + 1).div_ceil(PAGE).saturating_sub(first)
        };
        (0..n_tokens).map(live).collect()
    }

    /// E_b = Λ_b + τ + ln G_b of each whole page, with Λ = −c and G_t = f_t · G_{t−1} + 1 (docs/model.md, section 4).
    fn page_ends(&self, layer: usize, head: usize, ln_epsilon: f64) -> Option<Vec<f64>> {
        let tau = f64::from(tau(self.gates.bound(layer, head)?, ln_epsilon));
        let mut g = 0.0;
        let by_token = self.gates.head(layer, head).iter().zip(self.sums(layer, head)).map(|(log_f, sum)| {
            g = f64::from(*log_f).exp() * g + 1.0;
            tau - sum + f64::ln(g)
        });
        Some(by_token.skip(PAGE - 1).step_by(PAGE).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half() -> f32 {
        0.5f32.ln()
    }

    #[test]
    fn what_is_left_is_the_product_of_the_gates_between() {
        // One head forgets half a token, another nothing, the third all of it.
        let log_f = [[half(); 4], [0.0; 4], [-16384.0; 4]].concat();
        let gates = Gates::new([1, 3, 4], log_f, None).unwrap();
        let forgetting = Forgetting::new(&gates, None);
        let row = |head| forgetting.row(0, head, 3).collect::<Vec<_>>();
        for (got, want) in row(0).iter().zip([0.125, 0.25, 0.5, 1.0]) {
            assert!((got - want).abs() < 1e-7, "{got} {want}");
        }
        assert_eq!((row(1), row(2)), (vec![1.0; 4], vec![0.0, 0.0, 0.0, 1.0]));
        assert_eq!(forgetting.d(0, 1, 1, 2), f64::NEG_INFINITY, "the future is not seen");
        // Rows of 1, 2, 3 and 4 keys.
        let mean = (1.0 + 1.5 + 1.75 + 1.875) / 4.0;
        for (head, want) in [(0, mean), (1, 2.5), (2, 1.0)] {
            let got = forgetting.effective_context(0, head);
            assert!((got - want).abs() < 1e-7, "head {head}: {got}, not {want}");
        }
        let windowed = Forgetting::new(&gates, Some(2));
        assert_eq!(windowed.row(0, 1, 3).collect::<Vec<_>>(), [0.0, 0.0, 1.0, 1.0]);
        assert_eq!(windowed.effective_context(0, 1), (1.0 + 2.0 + 2.0 + 2.0) / 4.0);
    }

    #[test]
    fn only_the_last_rows_count_in_an_effective_context() {
        let n = EFFECTIVE_ROWS + 100;
        let forgetful_first = [vec![-50.0; 100], vec![0.0; EFFECTIVE_ROWS]].concat();
        let gates = Gates::new([1, 1, n], forgetful_first, None).unwrap();
        // The last gate of the first part lets that token through: rows have 2, 3, .. keys.
        let want = (2..=EFFECTIVE_ROWS + 1).sum::<usize>() as f64 / EFFECTIVE_ROWS as f64;
        let got = Forgetting::new(&gates, None).effective_context(0, 0);
        assert!((got - want).abs() < 1e-9, "{got}, not {want}");
    }

    #[test]
    fn a_page_dies_when_its_last_key_has_faded_by_tau_and_all_keys_to_there() {
        let n = 400;
        let (u, ln_epsilon) = (2.0f32, -10.0);
        // f = 1/2: G is 2 at the end of a page, so a page is dead Λ = 4 + 10 + ln 2 = 14.7 behind its end: after 22 tokens.
        let log_f = [vec![half(); n], vec![0.0; n]].concat();
        let gates = Gates::new([1, 2, n], log_f, Some(vec![u, u])).unwrap();
        let forgetting = Forgetting::new(&gates, None);
        let live = forgetting.live_pages(0, 0, 1, Some(ln_epsilon));
        for (t, live) in live.iter().enumerate() {
            let dead = (0..n / PAGE).filter(|page| t >= (page + 1) * PAGE - 1 + 22).count();
            assert_eq!(*live, (t + 1).div_ceil(PAGE) - dead, "token {t}");
        }
        let all: Vec<usize> = (1..=n).map(|n| n.div_ceil(PAGE)).collect();
        assert_eq!(forgetting.live_pages(0, 1, 1, Some(ln_epsilon)), all, "it forgets nothing");
        assert_eq!(
            forgetting.live_pages(0, 0, 2, Some(ln_epsilon)),
            all,
            "a page that two heads share lives as long as one needs it"
        );
        assert_eq!(forgetting.live_pages(0, 0, 1, None), all, "nothing is pruned");
        let unbound = Gates::new([1, 2, n], gates.log_f().to_vec(), None).unwrap();
        assert_eq!(Forgetting::new(&unbound, None).live_pages(0, 0, 1, Some(ln_epsilon)), all, "nothing bounds the scores");
        // The next of 130 tokens sees the last 99 of them.
        assert_eq!(Forgetting::new(&gates, Some(100)).live_pages(0, 1, 1, None)[128..131], [3, 3, 3]);
        assert_eq!(Forgetting::new(&gates, Some(100)).live_pages(0, 1, 1, None)[162..164], [2, 2]);
    }
}
