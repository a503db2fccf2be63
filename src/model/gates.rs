//! The forget gates of a text as plain numbers: what `Model::gates` reads, and what measurements replay.

use super::Config;
use crate::error::{Error, Result};
use crate::graph::MAX_BINDING_WORDS;
use crate::kernel::attention::{GateTable, lambda};

/// log f of every layer, head and token of a text, and the bounds of the scores that go with them.
#[derive(Clone, Debug, PartialEq)]
pub struct Gates {
    shape: [usize; 3],
    log_f: Vec<f32>,
    bounds: Option<Vec<f32>>,
}

impl Gates {
    /// `log_f`: `[n_layers, n_heads, n_tokens]`, the shape given, each from -16384 to 0. `bounds`: U ≥ |q·k|/√h `[n_layers, n_heads]`, where
    /// something bounds them.
    ///
    /// # Errors
    /// [`Error::Argument`] naming `log_f` or `u` and the place in it.
    pub fn new(shape: [usize; 3], log_f: Vec<f32>, bounds: Option<Vec<f32>>) -> Result<Self> {
        let [n_layers, n_heads, n_tokens] = shape;
        let lengths = [("log_f", Some(log_f.len()), &shape[..]), ("u", bounds.as_ref().map(Vec::len), &shape[..2])];
        for (name, len, shape) in lengths {
            let product = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
            if let Some(len) = len.filter(|len| product != Some(*len) || *len == 0) {
                return Err(Error::argument(
                    name,
                    format!("numbers of shape {shape:?}, none of them 0"),
                    format!("{len} numbers"),
                ));
            }
        }
        let place = |ix: usize| format!("log_f[{}, {}, {}]", ix / (n_heads * n_tokens), ix / n_tokens % n_heads, ix % n_tokens);
        let lowest = -lambda::MAX as f32;
        if let Some(ix) = log_f.iter().position(|log_f| !(lowest..=0.0).contains(log_f)) {
            return Err(Error::argument(place(ix), format!("a number from {lowest} to 0"), log_f[ix]));
        }
        let wrong = |u: &f32| !(u.is_finite() && *u >= 0.0);
        if let Some((ix, u)) = bounds.iter().flatten().enumerate().find(|(_, u)| wrong(u)) {
            return Err(Error::argument(format!("u[{}, {}]", ix / n_heads, ix % n_heads), "a number from 0", u));
        }
        debug_assert_eq!(log_f.len(), n_layers * n_heads * n_tokens);
        Ok(Self { shape, log_f, bounds })
    }

    /// Layers, heads, tokens.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// log f, `[layers, heads, tokens]`.
    pub fn log_f(&self) -> &[f32] {
        &self.log_f
    }

    /// U ≥ |q·k|/√h, `[layers, heads]`; `None` where nothing bounds the scores.
    pub fn bounds(&self) -> Option<&[f32]> {
        self.bounds.as_deref()
    }

    /// U of a head, the heads and layers of these gates over and over.
    pub(super) fn bound(&self, layer: usize, head: usize) -> Option<f64> {
        let [n_layers, n_heads, _] = self.shape;
        let bounds = self.bounds.as_ref()?;
        Some(f64::from(bounds[layer % n_layers * n_heads + head % n_heads]))
    }

    /// Where the tables of a model's layers lie, from word `at` on: layer l has table l mod their number.
    pub(super) fn tables(&self, config: &Config, at: usize) -> Vec<GateTable> {
        let [n_layers, _, period] = self.shape;
        let words = period.saturating_mul(config.n_heads);
        (0..n_layers.min(config.n_layers))
            .map(|ix| GateTable { at: at.saturating_add(ix.saturating_mul(words)), period })
            .collect()
    }

    /// The tables of layers of `n_heads` heads, `[tokens, n_heads]` each: −log f, these gates' heads over and over.
    pub(super) fn rows(&self, n_heads: usize) -> impl Iterator<Item = Vec<f32>> + use<'_> {
        let [n_layers, own_heads, n_tokens] = self.shape;
        (0..n_layers).map(move |layer| {
            let row = |t: usize| (0..n_heads).map(move |head| 0.0 - self.head(layer, head % own_heads)[t]);
            (0..n_tokens).flat_map(row).collect()
        })
    }

    /// Whether a model of this configuration can replay these gates: their tables have a binding to themselves, nearly.
    ///
    /// # Errors
    /// [`Error::Argument`] with the tokens that fit.
    pub fn check_size(&self, config: &Config) -> Result<()> {
        const MOST: usize = MAX_BINDING_WORDS / 4 * 3;
        let [n_layers, _, n_tokens] = self.shape;
        let row = n_layers.min(config.n_layers) * config.n_heads;
        if row.checked_mul(n_tokens).is_some_and(|words| words <= MOST) {
            return Ok(());
        }
        Err(Error::argument("gates", format!("gates of at most {} tokens for a model of this shape", MOST / row), n_tokens))
    }

    /// log f of one head, by token.
    pub fn head(&self, layer: usize, head: usize) -> &[f32] {
        let [_, n_heads, n_tokens] = self.shape;
        &self.log_f[(layer * n_heads + head) * n_tokens..][..n_tokens]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_gate_is_refused_by_its_place() {
        let gates = Gates::new([2, 2, 3], (0..12).map(|ix| -(ix as f32)).collect(), Some(vec![0.0, 1.0, 2.0, 3.0])).unwrap();
        assert_eq!(gates.head(1, 0), [-6.0, -7.0, -8.0]);
        let log_f = |ix: usize, wrong: f32| {
            let mut log_f = vec![-1.0; 12];
            log_f[ix] = wrong;
            Gates::new([2, 2, 3], log_f, None)
        };
        let cases = [
            (log_f(7, f32::NAN), "log_f[1, 0, 1]"),
            (log_f(11, 0.5), "log_f[1, 1, 2]"),
            (log_f(0, f32::NEG_INFINITY), "log_f[0, 0, 0]"),
            (Gates::new([2, 2, 3], vec![0.0; 11], None), "log_f"),
            (Gates::new([0, 2, 3], Vec::new(), None), "log_f"),
            (Gates::new([usize::MAX, 2, 3], vec![0.0; 12], None), "log_f"),
            (Gates::new([2, 2, 3], vec![0.0; 12], Some(vec![1.0; 3])), "u"),
            (Gates::new([2, 2, 3], vec![0.0; 12], Some(vec![1.0, 1.0, -1.0, 1.0])), "u[1, 0]"),
        ];
        for (gates, place) in cases {
            let Err(Error::Argument { option, .. }) = gates else { panic!("{place} is wrong") };
            assert_eq!(option, place);
        }
    }
}
