//! The attention matrix of a text, row by row: on the CPU device, where q and the keys of a dispatch can be looked at between two.

use super::recover::By;
use super::{Device, Model};
use crate::error::{Error, Result};
use crate::graph::{Dispatch, Step, cpu};
use crate::kernel::attn_prefill::{ATTN_PREFILL, AttentionRows};
use crate::kernel::parallel::map_ranges;
use std::ops::Range;

/// Row i of A of one head: what `softmax_j(q_i·k_j/√h + D_ij)` gave the keys that the model looked at; all others have 0.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionRow {
    /// The layer.
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

impl Model {
    /// Reads ids behind the sequence, chunk by chunk, and gives `seen` a row of the attention matrix for each position in `rows`, layer and head:
    /// chunk after chunk, in each layer after layer, in each row after row. Calls `progress` with the tokens read so far, after each chunk. The
    /// weights are f64, from q and k as the model has them.
    ///
    /// # Errors
    /// As [`Model::prefill`], [`Error::Argument`] for no ids and on a GPU, and what `seen` and `progress` return. The chunks before an error
    /// are read.
    pub async fn attention(
        &mut self,
        ids: &[u32],
        rows: Range<usize>,
        seen: &mut dyn FnMut(AttentionRow) -> Result<()>,
        progress: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        if ids.is_empty() {
            return Err(Error::argument("ids", "at least one token", "none"));
        }
        let most = self.chunk();
        for (ix, chunk) in ids.chunks(most).enumerate() {
            self.look(chunk.len()).await?;
            let step = self.prepare(chunk)?;
            let name = self.device_name.clone();
            let Device::Cpu(cpu) = &mut self.device else {
                return Err(Error::argument("device", "cpu or twin, for attention weights", name));
            };
            for dispatch in &self.program.graph(self.graphs.prefill).dispatches {
                if dispatch.only_for_logits {
                    continue;
                }
                if dispatch.kernel.name == ATTN_PREFILL.name {
                    attention_rows(cpu, dispatch, &step, &rows).into_iter().try_for_each(&mut *seen)?;
                }
                cpu.run(dispatch, &step);
            }
            self.hold(chunk, By::Prefill)?;
            progress(ix * most + chunk.len())?;
        }
        Ok(())
    }
}

/// The rows that are wanted of one dispatch, in order.
fn attention_rows(cpu: &mut cpu::Executor, dispatch: &Dispatch, step: &Step, wanted: &Range<usize>) -> Vec<AttentionRow> {
    cpu.with_args(dispatch, step, |args| {
        let rows = AttentionRows::new(args);
        let (layer, n_heads, pos) = (args.param("layer"), rows.n_heads(), step.pos as usize);
        let of_chunk = wanted.start.max(pos)..wanted.end.min(pos + step.n_tokens as usize);
        let n_rows = of_chunk.len();
        let args = &*args;
        let row = |ix: usize| {
            let (i, head) = (of_chunk.start + ix / n_heads, ix % n_heads);
            let (first, weights) = rows.weights(args, i - pos, head);
            AttentionRow { layer, head, i, first, weights }
        };
        map_ranges(n_rows * n_heads, 1, |range| row(range.start))
    })
}
