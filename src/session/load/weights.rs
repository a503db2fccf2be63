//! The weights' way onto a device: at load, and again when the device was lost.

use super::eviction::taus;
use super::{LoadOptions, Progress};
use crate::error::{Error, Result};
use crate::format::{Checkpoint, to_f32};
use crate::graph::{BufferId, GraphId, Program, Step};
use crate::kernel::layout::{Part, repack};
use crate::model::{Config, Fox, Place, Segment, Wanted};
use crate::session::device::{Device, Opened};
use crate::session::recover::{TRIES, opened_again};
use crate::session::snapshot;
use std::borrow::Cow;

const PIECE_BYTES: usize = 4 << 20;
/// Copies on their way to the device before the load waits for them.
const FLUSH_BYTES: u64 = 64 << 20;

/// What a model comes from, as far as its weights are concerned.
pub struct Origin {
    /// Its tensors are in their files.
    pub checkpoint: Checkpoint,
    /// Where each goes.
    pub moves: Vec<(usize, Wanted)>,
    /// How it was asked for.
    pub options: LoadOptions,
    /// ln ε, where pages die by it.
    pub pruning: Option<f64>,
}

/// What the weights on the device tell.
pub struct Filled {
    /// Of configuration and weights.
    pub fingerprint: u64,
    /// U of each layer and head, where something bounds the scores.
    pub score_bounds: Option<Vec<f64>>,
}

impl Origin {
    /// A device with the program and its weights, of the one that was opened; how often that one was lost on the way.
    pub async fn settle(
        &mut self,
        mut opened: Opened,
        (network, program, config): (&Fox, &Program, &Config),
        step_of: &dyn Fn(GraphId) -> Step,
        progress: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<(Device, Filled, u64)> {
        let hardware = opened.is_hardware();
        for lost in 0.. {
            let settled = async {
                let mut device = opened.hold(program, step_of).await?;
                let filled = self.fill(network, program, config, &mut device, progress).await?;
                Ok((device, filled, lost as u64))
            };
            match settled.await {
                Err(Error::DeviceLost(why)) if lost < TRIES => {
                    if let Err(error) = self.reopen().await {
                        return Err(Error::DeviceLost(format!("{why}; {error}")));
                    }
                    opened = opened_again(self.options.device, self.options.baseline, hardware, &why).await?;
                }
                settled => return settled,
            }
        }
        unreachable!("the last try is returned")
    }

    /// Makes the files ready for a second reading.
    pub async fn reopen(&mut self) -> Result<()> {
        for file in &mut self.checkpoint.files {
            file.reopen().await?;
        }
        Ok(())
    }

    /// Writes the weights, and what goes with them.
    pub async fn fill(
        &mut self,
        network: &Fox,
        program: &Program,
        config: &Config,
        device: &mut Device,
        progress: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<Filled> {
        let mut vectors = vec![0.0; program.get(network.vectors()).words];
        stream(&mut self.checkpoint, &self.moves, device, (network.vectors(), &mut vectors), progress).await?;
        for (buffer, at, numbers) in network.constants() {
            device.write(buffer, at, bytemuck::cast_slice(&numbers));
        }
        for (at, numbers) in self.options.gates.iter().flat_map(|gates| network.replayed(gates)) {
            vectors[at..at + numbers.len()].copy_from_slice(&numbers);
            device.write(network.vectors(), at, bytemuck::cast_slice(&numbers));
        }
        let score_bounds = network.score_bounds(&|at, n| vectors[at..at + n].to_vec());
        for (layer, at) in network.taus_at().enumerate() {
            let taus = taus(config, layer, score_bounds.as_deref().zip(self.pruning));
            device.write(network.vectors(), at, bytemuck::cast_slice(&taus));
        }
        Ok(Filled { fingerprint: snapshot::fingerprint(config, &self.checkpoint, &vectors), score_bounds })
    }
}

/// Moves the weights; a copy of what goes into one buffer, word by word, is kept.
async fn stream(
    checkpoint: &mut Checkpoint,
    moves: &[(usize, Wanted)],
    device: &mut Device,
    (kept_buffer, kept): (BufferId, &mut [f32]),
    progress: &mut dyn FnMut(Progress) -> Result<()>,
) -> Result<()> {
    let total_bytes = moves.iter().map(|(ix, _)| checkpoint.tensors[*ix].bytes).sum();
    let (mut done_bytes, mut in_flight) = (0, 0);
    progress(Progress { done_bytes, total_bytes })?;
    for (ix, want) in moves {
        match &want.place {
            Place::Words { buffer, at_word, repeat } => {
                let bytes = checkpoint.read_rows(*ix, 0, rows(&want.shape)).await?;
                checkpoint.check_finite(*ix, 0, &bytes)?;
                let mut values = Vec::new();
                to_f32(checkpoint.tensors[*ix].ty, &bytes, &mut values);
                let words: Vec<u32> = values.iter().copied().map(f32::to_bits).collect();
                for copy in 0..*repeat {
                    if *buffer == kept_buffer {
                        kept[at_word + copy * values.len()..][..values.len()].copy_from_slice(&values);
                    }
                    device.write(*buffer, at_word + copy * words.len(), &words);
                }
                done_bytes += bytes.len() as u64;
            }
            Place::Rows(segments) => {
                let row_bytes = (checkpoint.tensors[*ix].bytes as usize / want.shape[0]).max(1);
                // An even number of rows: packed scales of two pieces never share a word.
                let rows_per_piece = (PIECE_BYTES / row_bytes).max(2) & !1;
                for (segment, piece) in segments.iter().flat_map(|segment| pieces(segment, rows_per_piece)) {
                    let first_row = segment.first_row + piece.start;
                    let bytes = checkpoint.read_rows(*ix, first_row, piece.len()).await?;
                    checkpoint.check_finite(*ix, first_row as u64 * want.shape[1] as u64, &bytes)?;
                    write_rows(&padded(&segment.part, want.shape[1], &bytes), segment, piece.start, device);
                    done_bytes += bytes.len() as u64;
                    in_flight += bytes.len() as u64;
                    if in_flight > FLUSH_BYTES {
                        device.flush().await?;
                        in_flight = 0;
                    }
                    progress(Progress { done_bytes, total_bytes })?;
                }
            }
        }
    }
    device.flush().await?;
    progress(Progress { done_bytes, total_bytes })
}

fn rows(shape: &[usize]) -> usize {
    if shape.len() > 1 { shape[0] } else { 1 }
}

fn pieces(segment: &Segment, rows_per_piece: usize) -> impl Iterator<Item = (&Segment, std::ops::Range<usize>)> {
    (0..segment.n_rows).step_by(rows_per_piece).map(move |first| (segment, first..segment.n_rows.min(first + rows_per_piece)))
}

/// Repacks whole rows for the kernels and writes them behind `first` rows of the segment.
fn write_rows(bytes: &[u8], segment: &Segment, first: usize, device: &mut Device) {
    let Segment { part, at_row, .. } = segment;
    let (mut data, mut scales) = (Vec::new(), Vec::new());
    repack(part.ty, part.k, bytes, &mut data, &mut scales);
    let row = at_row + first;
    device.write(part.data, row * part.ty.row_words(part.k), &data);
    if let Some(buffer) = part.scales {
        let halves = part.ty.scale_halves(row, part.k);
        assert!(halves.is_multiple_of(2), "pieces and parts start at even rows");
        device.write(buffer, halves / 2, &scales);
    }
}

/// Rows of `width` weights filled up with zeros to the part's width: only types without blocks have rows that need it, and zero
/// bytes are a zero weight in each of them.
fn padded<'a>(part: &Part, width: usize, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    if width == part.k {
        return Cow::Borrowed(bytes);
    }
    let row_bytes = part.ty.gguf_row_bytes(part.k);
    let (held, rest) = (row_bytes / part.k * width, row_bytes / part.k * (part.k - width));
    Cow::Owned(bytes.chunks_exact(held).flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(0, rest))).collect())
}
