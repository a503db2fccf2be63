//! How likely a text is: the log-probability of each token given those before it.

use super::Model;
use super::generate::check_ids;
use crate::error::{Error, Result};

/// `-log softmax(row)[target]` in nats, summed in f64. `row`: `[V]`, the logits after a token; `target` < V.
///
/// # Errors
/// [`Error::NotFinite`] for a logit that is no finite number.
pub fn nll(row: &[f32], target: u32) -> Result<f64> {
    if let Some(logit) = row.iter().find(|logit| !logit.is_finite()) {
        return Err(Error::NotFinite { place: "a logit".into(), got: logit.to_string() });
    }
    let best = f64::from(row.iter().copied().fold(f32::MIN, f32::max));
    let total: f64 = row.iter().map(|&logit| (f64::from(logit) - best).exp()).sum();
    Ok(total.ln() + best - f64::from(row[target as usize]))
}

/// A text that is scored, chunk by chunk. Each [`Scoring::read`] is one call of the model; between two the scoring can be dropped.
pub struct Scoring {
    /// Begin token, if the model has one, then the ids.
    fed: Vec<u32>,
    n_front: usize,
    n_read: usize,
    logprobs: Vec<f32>,
}

impl Scoring {
    /// For ids behind the model's begin token, which is put in front unless they begin with it.
    ///
    /// # Errors
    /// [`Error::Argument`] for no ids and for one outside the vocabulary, [`Error::ContextFull`].
    pub fn new(model: &Model, ids: &[u32]) -> Result<Self> {
        check_ids("ids", ids, model.vocab())?;
        let Some(first) = ids.first() else { return Err(Error::argument("ids", "at least one token", "none")) };
        let front = model.bos().filter(|bos| bos != first);
        let (n_front, fed): (_, Vec<u32>) =
            (usize::from(front.is_some()), front.into_iter().chain(ids.iter().copied()).collect());
        // The last is predicted, never read.
        if fed.len() - 1 > model.positions() {
            return Err(Error::ContextFull { needed: fed.len() - 1, available: model.positions() });
        }
        let logprobs = if n_front == 0 { vec![f32::NAN] } else { Vec::new() };
        Ok(Self { fed, n_front, n_read: 0, logprobs })
    }

    /// Reads the next chunk (the next token, of a model loaded without scores). Returns how many tokens are scored, and how many there are.
    ///
    /// # Errors
    /// Those of the model, and [`Error::NotFinite`].
    pub async fn read(&mut self, model: &mut Model) -> Result<(usize, usize)> {
        let inputs = self.fed.len() - 1;
        if self.n_read == 0 {
            model.reset();
        }
        if self.n_read < inputs {
            let by_chunk = model.has_scores();
            let n = if by_chunk { model.next_chunk(inputs - self.n_read).await? } else { 1 };
            let end = self.n_read + n;
            let part = &self.fed[self.n_read..end];
            let rows = if by_chunk { model.score(part).await? } else { model.step(part[0]).await? };
            for (row, target) in rows.chunks_exact(model.vocab()).zip(&self.fed[self.n_read + 1..=end]) {
                self.logprobs.push(-nll(row, *target)? as f32);
            }
            self.n_read = end;
        }
        Ok((self.logprobs.len(), self.fed.len() - self.n_front))
    }

    /// The ids that are scored.
    pub fn ids(&self) -> &[u32] {
        &self.fed[self.n_front..]
    }

    /// ln p of each id given those before it, those scored so far. The first of a text with nothing in front has none: NaN.
    pub fn logprobs(&self) -> &[f32] {
        &self.logprobs
    }
}
