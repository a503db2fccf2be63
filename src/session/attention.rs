//! The attention matrix of a text, row by row. No kernel writes it: before each attention of a chunk its q, and the keys and Λ that it looks at,
//! are read from the device, and the host computes the rows from them as the kernel's twin does. So they are those of the device's own numbers.

use super::Model;
use super::recover::By;
use crate::error::{Error, Result};
use crate::graph::{Dispatch, Step, cpu};
use crate::kernel::attention::{Heads, Kv, PAGE, Prune};
use crate::kernel::attn_prefill::{ATTN_PREFILL, AttentionRows};
use crate::kernel::parallel::map_ranges;
use crate::model::Config;
use std::ops::Range;

/// Row i of A of one head: what `softmax_j(q_i·k_j/√h + D_ij)` gave the keys that the model looked at; all others have 0.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionRow {
    /// Counted from the input, 0 first.
    pub layer: usize,
    /// The query head.
    pub head: usize,
    /// Position of the query in the sequence.
    pub i: usize,
    /// Position of the first key.
    pub first: usize,
    /// Weights of the keys from there to `i`; their sum is 1.
    pub weights: Vec<f64>,
}

/// Hears of a row; an error ends the reading.
type Seen<'a> = dyn FnMut(AttentionRow) -> Result<()> + 'a;

impl Model {
    /// Reads ids behind the sequence, [`Model::tile`] by tile, and gives `seen` a row of the attention matrix for each position in `rows`, layer
    /// and head: tile after tile, in each layer after layer, in each row after row. Calls `progress` with the tokens read so far, after each
    /// tile. The weights are f64, from q, keys and Λ as the model has them on its device. Keys of pages that are dead for a row's workgroup are
    /// left out: together they weigh less than the ε of the pruning.
    ///
    /// # Errors
    /// As [`Model::prefill`], [`Error::Argument`] for no ids, and what `seen` and `progress` return. The tiles before an error are read. No row
    /// is given twice, also where the device is lost and brought back on the way.
    pub async fn attention(
        &mut self,
        ids: &[u32],
        rows: Range<usize>,
        seen: &mut Seen<'_>,
        progress: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        if ids.is_empty() {
            return Err(Error::argument("ids", "at least one token", "none"));
        }
        let most = self.tile();
        for (ix, tile) in ids.chunks(most).enumerate() {
            let pos = self.pos();
            let wanted = rows.start.max(pos)..rows.end.min(pos + tile.len());
            if wanted.is_empty() {
                self.prefill(tile, false).await?;
            } else {
                let mut n_seen = 0;
                self.lasting(async |model| model.attend(tile, &wanted, &mut n_seen, seen).await).await?;
            }
            progress(ix * most + tile.len())?;
        }
        Ok(())
    }

    /// Reads a tile and gives `seen` its rows, from layer `n_seen` on, which it counts.
    async fn attend(&mut self, tile: &[u32], rows: &Range<usize>, n_seen: &mut usize, seen: &mut Seen<'_>) -> Result<()> {
        self.look(tile.len()).await?;
        let (step, graph) = (self.prepare(tile)?, self.graphs.prefill);
        let live = self.first_live().await?;
        let range = self.program.graph(graph).range(false);
        let attends = |ix: &usize| self.program.graph(graph).dispatches[*ix].kernel.name == ATTN_PREFILL.name;
        let attentions: Vec<usize> = range.clone().filter(attends).collect();
        let mut at = range.start;
        for (layer, ix) in attentions.into_iter().enumerate() {
            self.run_range(graph, at..ix, &step).await?;
            at = ix;
            if layer < *n_seen {
                continue;
            }
            let dispatch = self.program.graph(graph).dispatches[ix].clone();
            let inputs = self.inputs(dispatch, layer, &step, rows.end, &live).await?;
            inputs.rows(layer, &step, rows).into_iter().try_for_each(&mut *seen)?;
            *n_seen += 1;
        }
        self.run_range(graph, at..range.end, &step).await?;
        self.hold(tile, By::Prefill)
    }

    /// What the attention of a layer looks at for the tokens of a replay before `end`; `live`: the first live pages before it, `[L, kv heads]`.
    async fn inputs(&mut self, dispatch: Dispatch, layer: usize, step: &Step, end: usize, live: &[u32]) -> Result<Inputs> {
        let Config { n_layers, n_heads, n_kv_heads, head_dim, .. } = self.config;
        let heads = Heads { n_heads, n_kv_heads, head_dim, n_layers, layer };
        let Some(kv) = self.network.pools().nth(layer) else { unreachable!("a layer that attends has pools") };
        let live = &live[layer * n_kv_heads..][..n_kv_heads];
        let n_columns = end.div_ceil(PAGE);
        // Its pages alone, numbered anew, as if there were no other layer.
        let (mut table, mut pages) = (vec![0; n_columns * n_kv_heads], Vec::new());
        for (kv_head, live) in live.iter().enumerate() {
            for column in (*live).max(step.first_page) as usize..n_columns {
                table[column * n_kv_heads + kv_head] = pages.len() as u32;
                pages.push(self.pages.page(column, layer * n_kv_heads + kv_head));
            }
        }
        let live_at = table.len();
        table.extend(live);
        table.resize(live_at + Prune::live_words(1, n_kv_heads), 0);

        // The kernel's first binding.
        let (q, words) = (dispatch.bindings[0], (end - step.pos as usize) * dispatch.param("q_stride") as usize);
        let q = self.device.read_words(q.buffer, q.first_word, words).await?;
        let page_words = PAGE * Kv::row_words(head_dim, kv.f16);
        let k = self.device.gather(kv.k_pages, 0, page_words, &pages).await?;
        let mut lam = self.device.gather(kv.lam_pages, 0, heads.lam_words(), &pages).await?;
        let ends = lam.len() / 2;
        if let Some(prune) = kv.prune {
            lam.extend(self.device.gather(kv.lam_pages, 2 * prune.ends, heads.end_words(), &pages).await?);
        }
        let dispatch = [("n_layers", 1), ("layer", 0), ("live", live_at), ("ends", ends)]
            .into_iter()
            .fold(dispatch, |dispatch, (name, value)| dispatch.with_param(name, value as u32));
        Ok(Inputs { dispatch, windows: [q, k, Vec::new(), lam, table, Vec::new()] })
    }
}

/// What scores are made of, as an attention dispatch finds it: neither the values nor a place for what it writes.
struct Inputs {
    dispatch: Dispatch,
    windows: [Vec<u32>; 6],
}

impl Inputs {
    /// The rows of positions of a replay, in order.
    fn rows(mut self, layer: usize, step: &Step, positions: &Range<usize>) -> Vec<AttentionRow> {
        cpu::over(&self.dispatch, step, &mut self.windows, |args| {
            let rows = AttentionRows::new(args);
            let (n_heads, pos, args) = (rows.n_heads(), step.pos as usize, &*args);
            let row = |ix: usize| {
                let (i, head) = (positions.start + ix / n_heads, ix % n_heads);
                let (first, weights) = rows.weights(args, i - pos, head);
                AttentionRow { layer, head, i, first, weights }
            };
            map_ranges(positions.len() * n_heads, 1, |range| row(range.start))
        })
    }
}
