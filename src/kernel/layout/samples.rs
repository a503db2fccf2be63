//! Seeded matrices for test cases.

use super::format::Sample;
use super::{Part, WeightType, repack};
use crate::graph::{BufferId, Program, Role};
use crate::kernel::inputs;
use half::f16;

/// A seeded `[rows, k]` matrix in GGUF's bytes: weights about in (-0.1, 0.1), any integers; among the scales are negative ones,
/// subnormal ones and 0.
pub fn sample_bytes(ty: WeightType, rows: usize, k: usize, seed: u32) -> Vec<u8> {
    let format = ty.format();
    let floats = inputs::floats(seed, rows * k, 0.1);
    let scales = match format.sample {
        Sample::Scales(scales) => scales,
        Sample::Weights(bits) => {
            let bytes = |weight: f32| bits(weight).to_le_bytes().into_iter().take(format.block_bytes);
            return floats.into_iter().flat_map(bytes).collect();
        }
    };
    let block = |(ix, block): (usize, &[f32])| {
        // Any byte is valid: the bits of the floats below the leading ones are as good as random.
        let mut bytes: Vec<u8> = block.iter().map(|x| (x.to_bits() >> 7) as u8).cycle().take(format.block_bytes).collect();
        for ((at, divisor), x) in scales.iter().zip(block.iter().rev()) {
            let scale = match ix % 13 {
                5 => f16::from_bits(0x0003),
                11 => f16::ZERO,
                _ => f16::from_f32(x / divisor),
            };
            bytes[*at..at + 2].copy_from_slice(&scale.to_le_bytes());
        }
        bytes
    };
    floats.chunks_exact(format.block).enumerate().flat_map(block).collect()
}

/// [`sample_bytes`] repacked: data and scales.
pub fn sample(ty: WeightType, rows: usize, k: usize, seed: u32) -> (Vec<u32>, Vec<u32>) {
    let (mut data, mut scales) = (Vec::new(), Vec::new());
    repack(ty, k, &sample_bytes(ty, rows, k, seed), &mut data, &mut scales);
    data.resize(ty.data_words(rows, k), 0);
    (data, scales)
}

/// Declares a `[rows, k]` matrix in a case's program and adds a [`sample`] to its contents.
pub fn sample_part(
    program: &mut Program,
    contents: &mut Vec<(BufferId, Vec<u32>)>,
    ty: WeightType,
    rows: usize,
    k: usize,
) -> Part {
    let (data_words, scale_words) = sample(ty, rows, k, 11);
    let data = program.buffer("data", data_words.len(), Role::Weight);
    contents.push((data, data_words));
    let scales = ty.has_scales().then(|| program.buffer("scales", scale_words.len(), Role::Weight));
    contents.extend(scales.map(|scales| (scales, scale_words)));
    Part { ty, n_rows: rows, k, data, scales }
}
