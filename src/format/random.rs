//! A checkpoint of made-up numbers, for tests and measurements of shapes that nobody has trained: every byte follows from its
//! place and a seed, and is made when it is read. Nothing of it lies in memory or on a disk.
//!
//! A matrix of width k has numbers of variance 1/k, so that activations stay near 1; norms are near 1, and forget gates forget
//! softly, as trained ones do.

use super::source::{BoxFuture, Source};
use super::{Checkpoint, Kind, Quant, Tensor, TensorType, from_f32, names};
use crate::Result;
use serde_json::{Map, Value};

/// Values that are made at once: whole blocks of every type.
const GROUP: usize = 256;

/// A checkpoint of a configuration whose tensors (canonical name, shape) are given, its matrices in the types of `quant`.
pub fn random(config: Map<String, Value>, tensors: Vec<(String, Vec<usize>)>, quant: Quant, seed: u64) -> Checkpoint {
    let name = format!("random-{seed}");
    let mut offset = 0;
    let place = |(name, shape): (String, Vec<usize>)| {
        let is_matrix = shape.len() == 2 && names::is_matrix(&name);
        let width = shape.last().copied().unwrap_or(0);
        let ty = if is_matrix { quant.type_of(&name).for_width(width) } else { TensorType::F32 };
        let bytes = ty.tensor_bytes(&shape).unwrap_or_else(|| unreachable!("the type is chosen for the width"));
        offset += bytes;
        Tensor { origin: name.clone(), name, ty, shape, file: 0, offset: offset - bytes, bytes }
    };
    let tensors: Vec<Tensor> = tensors.into_iter().map(place).collect();
    let source = Random { name: name.clone(), tensors: tensors.clone(), seed, len: offset };
    Checkpoint {
        name,
        kind: Kind::Random,
        files: vec![Box::new(source)],
        config,
        source_config: None,
        tokenizer: None,
        config_file: "random model".into(),
        tokenizer_file: String::new(),
        tensors,
    }
}

struct Random {
    name: String,
    tensors: Vec<Tensor>,
    seed: u64,
    len: u64,
}

impl Random {
    fn bytes(&self, at: u64, n: usize) -> Vec<u8> {
        let end = at.saturating_add(n as u64).min(self.len);
        let mut bytes = Vec::new();
        for (ix, tensor) in self.tensors.iter().enumerate() {
            let (from, to) = (at.max(tensor.offset), end.min(tensor.offset + tensor.bytes));
            if from < to {
                self.tensor_bytes(ix, from - tensor.offset, to - tensor.offset, &mut bytes);
            }
        }
        bytes
    }

    /// Bytes `from..to` of a tensor.
    fn tensor_bytes(&self, ix: usize, from: u64, to: u64, out: &mut Vec<u8>) {
        let tensor = &self.tensors[ix];
        let group_bytes = (GROUP / tensor.ty.block() * tensor.ty.block_bytes()) as u64;
        let mut bytes = Vec::new();
        for group in from / group_bytes..to.div_ceil(group_bytes) {
            let n = (tensor.n_values() - group * GROUP as u64).min(GROUP as u64) as usize;
            bytes.clear();
            from_f32(tensor.ty, &self.values(ix, group, n), &mut bytes);
            let first = group * group_bytes;
            let here = from.max(first) - first..(to - first).min(bytes.len() as u64);
            out.extend_from_slice(&bytes[here.start as usize..here.end as usize]);
        }
    }

    fn values(&self, ix: usize, group: u64, n: usize) -> Vec<f32> {
        let tensor = &self.tensors[ix];
        let (mean, deviation) = match tensor.name.rsplit_once('.') {
            Some((stem, "weight")) if stem.ends_with("norm") => (1.0, 0.1),
            Some((stem, "bias")) if stem.ends_with("attn_fgate") => (3.0, 1.0),
            Some((_, "bias")) => (0.0, 0.1),
            _ => (0.0, 1.0 / (tensor.width() as f32).sqrt()),
        };
        let mut numbers = SplitMix64(mix(mix(self.seed ^ mix(ix as u64)) ^ group));
        // A uniform number in (-1, 1) has variance 1/3.
        (0..n).map(|_| mean + deviation * 3f32.sqrt() * numbers.float()).collect()
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number that splitmix64 (Steele, Lea, Flood 2014) gives in a state; the next state is one golden ratio on.
pub fn splitmix64(state: u64) -> u64 {
    mix(state.wrapping_add(GOLDEN))
}

/// Number after number of splitmix64, from a state on.
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// The next one.
    pub fn number(&mut self) -> u64 {
        let number = splitmix64(self.0);
        self.0 = self.0.wrapping_add(GOLDEN);
        number
    }

    /// The next one below `n`; n is small beside 2^64.
    pub fn below(&mut self, n: usize) -> usize {
        (self.number() % n as u64) as usize
    }

    /// The next one in [-1, 1).
    pub fn float(&mut self) -> f32 {
        (self.number() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// The finalizer of splitmix64: every bit of the result depends on every bit of x.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Source for Random {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Option<u64> {
        Some(self.len)
    }

    fn read<'a>(&'a mut self, at: u64, n: usize) -> BoxFuture<'a, Result<Vec<u8>>> {
        let bytes = self.bytes(at, n);
        Box::pin(async move { Ok(bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensors() -> Vec<(String, Vec<usize>)> {
        [("token_embd.weight", vec![9, 96]), ("blk.0.attn_norm.weight", vec![96]), ("blk.0.attn_fgate.bias", vec![3])]
            .map(|(name, shape)| (name.to_owned(), shape))
            .into()
    }

    #[test]
    fn any_piece_is_a_piece_of_the_whole() {
        for ty in [TensorType::F32, TensorType::F16, TensorType::Q4_0] {
            let checkpoint = random(Map::new(), tensors(), Quant::plain(ty), 7);
            let len = checkpoint.tensors.iter().map(|tensor| tensor.bytes).sum::<u64>() as usize;
            let source = Random { name: String::new(), tensors: checkpoint.tensors, seed: 7, len: len as u64 };
            let whole = source.bytes(0, usize::MAX);
            assert_eq!(whole.len(), len);
            for (at, n) in [(0, 1), (5, 300), (17, 1), (100, 2000), (len - 3, 9), (len + 5, 9)] {
                assert_eq!(source.bytes(at as u64, n), whole[at.min(len)..(at + n).min(len)], "{ty} {at} {n}");
            }
        }
    }

    #[test]
    fn numbers_are_of_the_size_that_their_tensor_has() {
        let checkpoint = random(Map::new(), tensors(), Quant::plain(TensorType::F32), 7);
        let source = Random { name: String::new(), tensors: checkpoint.tensors, seed: 7, len: 0 };
        let mean_and_deviation = |ix, n| {
            let values = source.values(ix, 0, n);
            let mean = values.iter().sum::<f32>() / n as f32;
            (mean, (values.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / n as f32).sqrt())
        };
        let (mean, deviation) = mean_and_deviation(0, 256);
        assert!(mean.abs() < 0.03 && (deviation * 96f32.sqrt() - 1.0).abs() < 0.15, "{mean} {deviation}");
        let (mean, deviation) = mean_and_deviation(1, 96);
        assert!((mean - 1.0).abs() < 0.05 && (deviation - 0.1).abs() < 0.03, "{mean} {deviation}");
    }
}
