//! Products of weight rows and vectors on the CPU, for the `fast` code of matvec and matmul: plain loops that compile to SIMD on
//! every target.
//!
//! Neighbouring words of a row, shifted and masked alike, give several weights at once, but not neighbouring ones. So the
//! vector is put into the order of the weights, once for all rows ([`arrange`]); a dot product does not mind.

use super::layout::block::{Affine, Block, Halves};
use super::layout::planes::{self, RUN};
use super::layout::{self, WeightType};

/// Independent sums of a dot product: two SSE or simd128 registers, one AVX register.
const LANES: usize = 8;

/// Rows of a matrix in kernel layout.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    pub ty: WeightType,
    pub k: usize,
    pub data: &'a [u32],
    pub scales: &'a [u32],
}

impl Matrix<'_> {
    /// The product of a row and an arranged `x`.
    pub fn dot_row(&self, row: usize, x: &[f32]) -> f32 {
        let (words, halves) = self.row(row);
        (self.ty.format().dot_row)(words, halves, x)
    }

    /// A row's weights in arranged order.
    pub fn unpack_row(&self, row: usize, out: &mut [f32]) {
        let (words, halves) = self.row(row);
        (self.ty.format().unpack_row)(words, halves, out);
    }

    fn row(&self, row: usize) -> (&[u32], Halves<'_>) {
        layout::row_of(self.ty, self.k, self.data, self.scales, row)
    }
}

/// `x` in the order in which a row's weights are unpacked.
pub fn arrange(ty: WeightType, x: &[f32]) -> Vec<f32> {
    let format = ty.format();
    let mut out = Vec::with_capacity(x.len());
    for x in x.chunks(format.group) {
        // The last half group of a row of 16 bits a weight keeps its order.
        out.extend((0..x.len()).map(|at| x[if x.len() == format.group { (format.source)(at) } else { at }]));
    }
    out
}

/// The sum of products, in eight independent sums.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let tail: f32 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a.zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + tail
}

/// `x: [tokens, k]` times the rows of `w: [rows, k]`: `[tokens, rows]`.
///
/// Two rows and four tokens at a time: eight sums of four lanes are the registers that SSE has, and each number read is used
/// two or four times.
pub fn products(x: &[f32], w: &[f32], k: usize) -> Vec<f32> {
    let rows = w.len() / k;
    let mut out = vec![0.0; x.len() / k * rows];
    for (x, out) in x.chunks(4 * k).zip(out.chunks_mut(4 * rows)) {
        for (pair, w) in w.chunks(2 * k).enumerate() {
            if x.len() == 4 * k && w.len() == 2 * k {
                for (t, products) in tile(x, w, k).into_iter().enumerate() {
                    out[t * rows + 2 * pair..][..2].copy_from_slice(&products);
                }
                continue;
            }
            for (t, x) in x.chunks_exact(k).enumerate() {
                for (row, w) in w.chunks_exact(k).enumerate() {
                    out[t * rows + 2 * pair + row] = dot(x, w);
                }
            }
        }
    }
    out
}

/// Four tokens by two rows.
fn tile(x: &[f32], w: &[f32], k: usize) -> [[f32; 2]; 4] {
    // Rows are whole groups of 4 in every type.
    let n = k / 4;
    let (x, w) = (x.as_chunks::<4>().0, w.as_chunks::<4>().0);
    let (x0, x1, x2, x3) = (&x[..n], &x[n..2 * n], &x[2 * n..3 * n], &x[3 * n..4 * n]);
    let (w0, w1) = (&w[..n], &w[n..2 * n]);
    let mut sums = [[[0.0f32; 4]; 2]; 4];
    for i in 0..n {
        for (sums, x) in sums.iter_mut().zip([&x0[i], &x1[i], &x2[i], &x3[i]]) {
            for (sums, w) in sums.iter_mut().zip([&w0[i], &w1[i]]) {
                for lane in 0..4 {
                    sums[lane] += x[lane] * w[lane];
                }
            }
        }
    }
    sums.map(|rows| rows.map(|lanes| lanes.iter().sum()))
}

/// [`layout::format::Format::dot_row`] of a block type.
pub fn dot_blocks<B: Block>(words: &[u32], halves: Halves<'_>, x: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let runs = words.chunks_exact(B::BITS).zip(x.as_chunks::<RUN>().0);
    for (run, (words, x)) in runs.enumerate() {
        let integers = planes::arranged(B::BITS, words);
        let (mut parts, mut totals) = ([0.0; LANES], [0.0; LANES]);
        for (w, x) in integers.as_chunks::<LANES>().0.iter().zip(x.as_chunks::<LANES>().0) {
            for lane in 0..LANES {
                parts[lane] += (w[lane] - B::ZERO) * x[lane];
                if B::OFFSETS {
                    totals[lane] += x[lane];
                }
            }
        }
        let Affine { scales, offset } = affine::<B>(halves, run);
        for lane in 0..LANES {
            sums[lane] += parts[lane] * scales[lane / 4];
            if B::OFFSETS {
                sums[lane] -= totals[lane] * offset;
            }
        }
    }
    sums.iter().sum()
}

/// [`layout::format::Format::unpack_row`] of a block type.
pub fn unpack_blocks<B: Block>(words: &[u32], halves: Halves<'_>, out: &mut [f32]) {
    let runs = words.chunks_exact(B::BITS).zip(out.as_chunks_mut::<RUN>().0);
    for (run, (words, out)) in runs.enumerate() {
        let integers = planes::arranged(B::BITS, words);
        let Affine { scales, offset } = affine::<B>(halves, run);
        for (at, (out, integer)) in out.iter_mut().zip(integers).enumerate() {
            *out = (integer - B::ZERO) * scales[at % LANES / 4];
            if B::OFFSETS {
                *out -= offset;
            }
        }
    }
}

#[inline(always)]
fn affine<B: Block>(halves: Halves<'_>, run: usize) -> Affine {
    let runs = B::WEIGHTS / RUN;
    B::affine(halves.skip(run / runs * B::HALVES), run % runs)
}

/// [`layout::format::Format::dot_row`] of two weights a word; `low` reads the low half.
#[inline(always)] // so that `low` is inlined into the loop
pub fn dot_pairs(words: &[u32], x: &[f32], low: impl Fn(u32) -> f32) -> f32 {
    let mut sums = [0.0; LANES];
    let (groups, rest) = words.as_chunks();
    let (xs, x_rest) = x.as_chunks::<LANES>();
    for (words, x) in groups.iter().zip(xs) {
        let weights = pairs(words, &low);
        for lane in 0..LANES {
            sums[lane] += weights[lane] * x[lane];
        }
    }
    let tail: f32 = rest_of_pairs(rest, &low).zip(x_rest).map(|(w, x)| w * x).sum();
    sums.iter().sum::<f32>() + tail
}

/// [`layout::format::Format::unpack_row`] of two weights a word.
#[inline(always)] // as above
pub fn unpack_pairs(words: &[u32], out: &mut [f32], low: impl Fn(u32) -> f32) {
    let (groups, rest) = words.as_chunks();
    let (outs, out_rest) = out.as_chunks_mut::<LANES>();
    for (words, out) in groups.iter().zip(outs) {
        *out = pairs(words, &low);
    }
    for (weight, out) in rest_of_pairs(rest, &low).zip(out_rest) {
        *out = weight;
    }
}

#[inline(always)]
fn pairs(words: &[u32; 4], low: &impl Fn(u32) -> f32) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    for i in 0..4 {
        out[i] = low(words[i]);
        out[4 + i] = low(words[i] >> 16);
    }
    out
}

/// A row whose length is an odd multiple of 4 ends in half a group, in natural order.
fn rest_of_pairs(words: &[u32], low: &impl Fn(u32) -> f32) -> impl Iterator<Item = f32> {
    words.iter().flat_map(|word| [low(*word), low(*word >> 16)])
}

#[cfg(test)]
mod tests {
    use super::super::{inputs, layout};
    use super::*;

    #[test]
    fn unpacked_rows_are_the_rows_arranged() {
        for ty in WeightType::ALL {
            for k in [32, 36, 44, 96, 512, 768].into_iter().filter(|k| k % ty.block() == 0) {
                let (data, scales) = layout::sample(ty, 3, k, 5);
                let matrix = Matrix { ty, k, data: &data, scales: &scales };
                let x = inputs::floats(6, k, 1.0);
                for row in 0..3 {
                    let natural = layout::read_row(ty, k, &data, &scales, row);
                    let mut unpacked = vec![f32::NAN; k];
                    matrix.unpack_row(row, &mut unpacked);
                    assert_eq!(unpacked, arrange(ty, &natural), "{ty:?} {k} {row}");
                    let want: f64 = natural.iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                    for got in [matrix.dot_row(row, &arrange(ty, &x)), dot(&unpacked, &arrange(ty, &x))] {
                        assert!((f64::from(got) - want).abs() < 2e-6, "{ty:?} {k} {row}: {got} {want}");
                    }
                }
            }
        }
    }
}
