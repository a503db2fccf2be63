//! Products of weight rows and vectors on the CPU, for the `fast` code of matvec and matmul: plain loops that compile to SIMD on
//! every target.
//!
//! Four neighbouring words of a row, shifted and masked alike, give four weights at once, but not neighbouring ones. So the
//! vector is put into the order of the weights, once for all rows ([`arrange`]); a dot product does not mind.

use super::layout::WeightType;

/// Independent sums of a dot product: two SSE or simd128 registers, one AVX register.
const LANES: usize = 8;
/// Weights of a block.
const BLOCK: usize = 32;

/// Rows of a matrix in kernel layout.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    pub ty: WeightType,
    pub k: usize,
    pub data: &'a [u32],
    pub scales: &'a [u32],
}

/// `x` in the order in which a row's weights are unpacked.
pub fn arrange(ty: WeightType, x: &[f32]) -> Vec<f32> {
    let source: fn(usize) -> usize = match ty {
        WeightType::F32 => |at| at,
        // Of 8 weights in 4 words, the low halves, then the high halves.
        WeightType::F16 => |at| at % 4 * 2 + at / 4,
        // Of 8 words, all lowest bytes, then the next.
        WeightType::Q8_0 => |at| at % 8 * 4 + at / 8,
        // Of 4 words, all lowest nibbles (weights 0, 4, 8, 12), then the next: the high nibble of byte 0 is weight 16.
        WeightType::Q4_0 => |at| at % 4 * 4 + at / 8 + at / 4 % 2 * 16,
    };
    let group = if ty.has_scales() { BLOCK } else { LANES };
    let mut out = Vec::with_capacity(x.len());
    for x in x.chunks(group) {
        // The last half group of an F16 row keeps its order.
        out.extend((0..x.len()).map(|at| x[if x.len() == group { source(at) } else { at }]));
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

impl Matrix<'_> {
    /// The product of a row and an arranged `x`.
    pub fn dot_row(&self, row: usize, x: &[f32]) -> f32 {
        match self.ty {
            WeightType::F32 => dot(bytemuck::cast_slice(self.words(row)), x),
            WeightType::F16 => self.dot_groups::<4, 8>(row, x, halves),
            WeightType::Q8_0 => self.dot_groups::<8, 32>(row, x, bytes),
            WeightType::Q4_0 => self.dot_groups::<4, 32>(row, x, nibbles),
        }
    }

    /// A row's weights in arranged order.
    pub fn unpack_row(&self, row: usize, out: &mut [f32]) {
        match self.ty {
            WeightType::F32 => out.copy_from_slice(bytemuck::cast_slice(self.words(row))),
            WeightType::F16 => self.unpack_groups::<4, 8>(row, out, halves),
            WeightType::Q8_0 => self.unpack_groups::<8, 32>(row, out, bytes),
            WeightType::Q4_0 => self.unpack_groups::<4, 32>(row, out, nibbles),
        }
    }

    fn words(&self, row: usize) -> &[u32] {
        let words = self.ty.row_words(self.k);
        &self.data[row * words..(row + 1) * words]
    }

    fn scale(&self, row: usize, block: usize) -> f32 {
        if self.scales.is_empty() {
            return 1.0;
        }
        let at = row * (self.k / 32) + block;
        half_to_f32(self.scales[at / 2] >> (at % 2 * 16))
    }

    /// `WORDS` words hold `N` weights.
    #[inline(always)] // so that `group` is inlined into the loop and stays in registers
    fn dot_groups<const WORDS: usize, const N: usize>(
        &self,
        row: usize,
        x: &[f32],
        group: impl Fn(&[u32; WORDS]) -> [f32; N],
    ) -> f32 {
        let mut sums = [0.0; LANES];
        let (groups, rest) = self.words(row).as_chunks();
        let (xs, x_rest) = x.as_chunks::<N>();
        for (ix, (words, x)) in groups.iter().zip(xs).enumerate() {
            let weights = group(words);
            let mut parts = [0.0; LANES];
            for (w, x) in weights.as_chunks::<LANES>().0.iter().zip(x.as_chunks::<LANES>().0) {
                for lane in 0..LANES {
                    parts[lane] += w[lane] * x[lane];
                }
            }
            let scale = self.scale(row, ix);
            for lane in 0..LANES {
                sums[lane] += parts[lane] * scale;
            }
        }
        let tail: f32 = unpack_rest(rest).zip(x_rest).map(|(w, x)| w * x).sum();
        sums.iter().sum::<f32>() + tail
    }

    #[inline(always)] // as above
    fn unpack_groups<const WORDS: usize, const N: usize>(
        &self,
        row: usize,
        out: &mut [f32],
        group: impl Fn(&[u32; WORDS]) -> [f32; N],
    ) {
        let (groups, rest) = self.words(row).as_chunks();
        let (outs, out_rest) = out.as_chunks_mut::<N>();
        for (ix, (words, out)) in groups.iter().zip(outs).enumerate() {
            let scale = self.scale(row, ix);
            *out = group(words).map(|weight| weight * scale);
        }
        for (weight, out) in unpack_rest(rest).zip(out_rest) {
            *out = weight;
        }
    }
}

/// An F16 row whose length is an odd multiple of 4 ends in half a group, in natural order. Blocks leave no rest.
fn unpack_rest(words: &[u32]) -> impl Iterator<Item = f32> {
    words.iter().flat_map(|word| [half_to_f32(*word), half_to_f32(*word >> 16)])
}

#[inline(always)]
fn halves(words: &[u32; 4]) -> [f32; 8] {
    let mut out = [0.0; 8];
    for i in 0..4 {
        out[i] = half_to_f32(words[i]);
        out[4 + i] = half_to_f32(words[i] >> 16);
    }
    out
}

#[inline(always)]
fn bytes(words: &[u32; 8]) -> [f32; 32] {
    let mut out = [0.0; 32];
    for byte in 0..4 {
        for i in 0..8 {
            out[byte * 8 + i] = ((words[i] << (24 - 8 * byte)) as i32 >> 24) as f32;
        }
    }
    out
}

#[inline(always)]
fn nibbles(words: &[u32; 4]) -> [f32; 32] {
    let mut out = [0.0; 32];
    for nibble in 0..8 {
        for i in 0..4 {
            out[nibble * 4 + i] = ((words[i] >> (4 * nibble) & 15) as i32 - 8) as f32;
        }
    }
    out
}

/// The f16 in the low half of a word, without a branch: its exponent and mantissa moved to their place in an f32 are 2^-112 of
/// the number, subnormals too; infinities and NaN get their exponent back.
#[inline(always)]
fn half_to_f32(word: u32) -> f32 {
    const TWO_112: f32 = f32::from_bits((127 + 112) << 23);
    let finite = (f32::from_bits((word & 0x7fff) << 13) * TWO_112).to_bits();
    let special = if word & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(finite | special | (word & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use super::super::{inputs, layout};
    use super::*;

    #[test]
    fn every_half_is_converted_exactly() {
        for bits in 0..=u16::MAX {
            let (got, want) = (half_to_f32(u32::from(bits) | 0xabcd_0000), half::f16::from_bits(bits).to_f32());
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{bits:#06x}: {got} {want}");
        }
    }

    #[test]
    fn unpacked_rows_are_the_rows_arranged() {
        for ty in WeightType::ALL {
            for k in [32, 36, 44, 96, 512].into_iter().filter(|k| k % ty.block() == 0) {
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
