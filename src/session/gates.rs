//! The forget gates of a text, read from where attention keeps their sums: Λ lies in the pages as fixed point, so that the difference
//! of two neighbours is −log f as it was rounded there, to 2^-32, whatever the kernel and the device.

use super::Model;
use crate::error::{Error, Result};
use crate::kernel::attention::{Heads, PAGE, lambda};
use crate::model::{Config, Gates};

impl Model {
    /// Reads ids behind the sequence, chunk by chunk, and gives the gates of each token, layer and head. Calls `progress` with the
    /// tokens read so far, after each chunk.
    ///
    /// # Errors
    /// As [`Model::prefill`], [`Error::Argument`] for no ids, and what `progress` returns. The chunks before an error are read.
    pub async fn gates(&mut self, ids: &[u32], progress: &mut dyn FnMut(usize) -> Result<()>) -> Result<Gates> {
        if ids.is_empty() {
            return Err(Error::argument("ids", "at least one token", "none"));
        }
        let Config { n_layers, n_heads, .. } = self.config;
        let mut by_head = vec![Vec::new(); n_layers * n_heads];
        let most = self.chunk();
        for (ix, chunk) in ids.chunks(most).enumerate() {
            self.prefill(chunk, false).await?;
            // At once: later tokens may take the place of dead pages, never of those of the chunk, nor of the page before it.
            let of_chunk = self.lasting(async |model| model.read_gates(chunk.len()).await).await?;
            by_head.iter_mut().zip(of_chunk).for_each(|(head, log_f)| head.extend(log_f));
            progress(ix * most + chunk.len())?;
        }
        let bounds = self.score_bounds.as_ref().map(|bounds| bounds.iter().map(|bound| above(*bound)).collect());
        Gates::new([n_layers, n_heads, ids.len()], by_head.concat(), bounds)
    }

    /// log f of the last `n` tokens, of each layer and head.
    async fn read_gates(&mut self, n: usize) -> Result<Vec<Vec<f32>>> {
        let Config { n_layers, n_heads, n_kv_heads, head_dim, .. } = self.config;
        let heads = Heads { n_heads, n_kv_heads, head_dim, n_layers, layer: 0 };
        let (group, page_words) = (heads.group(), heads.lam_words());
        let mut by_head = vec![Vec::new(); n_layers * n_heads];
        let end = self.pages.n_tokens();
        let first = end - n;
        let first_page = first.saturating_sub(1) / PAGE;
        let column = n_layers * n_kv_heads;
        let words = (end.div_ceil(PAGE) - first_page) * column;
        let table = self.device.read_words(self.network.page_table(), first_page * column, words).await?;
        for (layer, lam_pages) in self.network.lam_pages().enumerate() {
            let page = |position: usize, kv_head: usize| {
                table[(position / PAGE - first_page) * column + layer * n_kv_heads + kv_head] as usize
            };
            // One read from the first to the last of the pages in the pool: mostly they are neighbours.
            let ids = || table.chunks(column).flat_map(|ids| &ids[layer * n_kv_heads..][..n_kv_heads]).map(|id| *id as usize);
            let (lowest, highest) = (ids().min().unwrap_or(0), ids().max().unwrap_or(0));
            let words = (highest + 1 - lowest) * page_words;
            let lams = self.device.read_words(lam_pages, lowest * page_words, words).await?;
            for head in 0..n_heads {
                let lam = |position: usize| {
                    let page = page(position, head / group) - lowest;
                    lambda::read(&lams, (page * group + head % group) * PAGE + position % PAGE)
                };
                let mut before = if first == 0 { 0 } else { lam(first - 1) };
                by_head[layer * n_heads + head].extend((first..end).map(|position| {
                    let forgotten = lam(position).wrapping_sub(std::mem::replace(&mut before, lam(position)));
                    (0.0 - lambda::value(forgotten)) as f32
                }));
            }
        }
        Ok(by_head)
    }
}

/// The least f32 that is no smaller.
fn above(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) < x { near.next_up() } else { near }
}
