//! Repacked rows against GGUF's own definitions, written out from the bytes.

use super::*;
use half::{bf16, f16};

fn half(at: &[u8]) -> f32 {
    f16::from_le_bytes([at[0], at[1]]).to_f32()
}

/// GGUF's own definition of a block (of a weight for the first three), in the order of operations of ggml's C.
fn block_from_gguf(ty: WeightType, b: &[u8]) -> Vec<f32> {
    let nibbles = |b: &[u8]| b.iter().map(|q| q & 15).chain(b.iter().map(|q| q >> 4)).map(i32::from).collect::<Vec<_>>();
    match ty {
        WeightType::F32 => vec![f32::from_le_bytes([b[0], b[1], b[2], b[3]])],
        WeightType::F16 => vec![half(b)],
        WeightType::BF16 => vec![bf16::from_le_bytes([b[0], b[1]]).to_f32()],
        WeightType::Q8_0 => b[2..].iter().map(|q| f32::from(*q as i8) * half(b)).collect(),
        WeightType::Q4_0 => nibbles(&b[2..]).iter().map(|q| (q - 8) as f32 * half(b)).collect(),
        WeightType::Q5_0 => {
            let fifth = u32::from_le_bytes([b[2], b[3], b[4], b[5]]);
            let q = nibbles(&b[6..]).into_iter().enumerate().map(|(at, q)| q | ((fifth >> at & 1) << 4) as i32);
            q.map(|q| (q - 16) as f32 * half(b)).collect()
        }
        WeightType::Q4_K => {
            let (d, min, q) = (half(b), half(&b[2..]), &b[4..16]);
            let mut out = Vec::new();
            for (pair, quants) in b[16..].chunks(32).enumerate() {
                for (j, shift) in [(2 * pair, 0), (2 * pair + 1, 4)] {
                    let (scale, offset) = match j {
                        0..4 => (q[j] & 63, q[j + 4] & 63),
                        _ => ((q[j + 4] & 0xf) | ((q[j - 4] >> 6) << 4), (q[j + 4] >> 4) | ((q[j] >> 6) << 4)),
                    };
                    let (d1, m1) = (d * f32::from(scale), min * f32::from(offset));
                    out.extend(quants.iter().map(|q| d1 * f32::from(q >> shift & 0xf) - m1));
                }
            }
            out
        }
        WeightType::Q6_K => {
            let d = half(&b[208..]);
            let mut out = vec![0.0; 256];
            for n in 0..2 {
                let (ql, qh, sc, y) = (&b[64 * n..], &b[128 + 32 * n..], &b[192 + 8 * n..], &mut out[128 * n..]);
                for l in 0..32 {
                    let q = [
                        (ql[l] & 0xf) | ((qh[l] & 3) << 4),
                        (ql[l + 32] & 0xf) | ((qh[l] >> 2 & 3) << 4),
                        (ql[l] >> 4) | ((qh[l] >> 4 & 3) << 4),
                        (ql[l + 32] >> 4) | ((qh[l] >> 6 & 3) << 4),
                    ];
                    for (i, q) in q.into_iter().enumerate() {
                        y[l + 32 * i] = d * f32::from(sc[l / 16 + 2 * i] as i8) * f32::from(q as i8 - 32);
                    }
                }
            }
            out
        }
        WeightType::TQ2_0 => {
            let q = b[..64].chunks(32).flat_map(|b| [0, 2, 4, 6].map(|shift| b.iter().map(move |q| q >> shift & 3))).flatten();
            q.map(|q| (i32::from(q) - 1) as f32 * half(&b[64..])).collect()
        }
    }
}

fn from_gguf(ty: WeightType, bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(ty.format().block_bytes).flat_map(|block| block_from_gguf(ty, block)).collect()
}

#[test]
fn repacked_rows_read_as_gguf_defines_them() {
    for ty in WeightType::ALL {
        for (rows, k) in [(1, 32), (5, 96), (3, 36), (1, 256), (4, 64), (5, 768), (3, 1280)] {
            if k % ty.block() != 0 {
                continue;
            }
            let bytes = sample_bytes(ty, rows, k, 3);
            assert_eq!(bytes.len(), rows * ty.gguf_row_bytes(k));
            let (data, scales) = sample(ty, rows, k, 3);
            assert_eq!((data.len(), scales.len()), (ty.data_words(rows, k), ty.scale_words(rows, k)), "{ty:?} {rows} {k}");
            let got: Vec<f32> = (0..rows).flat_map(|row| read_row(ty, k, &data, &scales, row)).collect();
            assert_eq!(got, from_gguf(ty, &bytes), "{ty:?} {rows} {k}");
        }
    }
}

#[test]
fn pieces_of_even_rows_give_what_the_whole_gives() {
    for ty in WeightType::ALL {
        let (rows, k) = (7, 96.max(3 * ty.block()));
        let bytes = sample_bytes(ty, rows, k, 9);
        let (mut data, mut scales) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(2 * ty.gguf_row_bytes(k)) {
            repack(ty, k, piece, &mut data, &mut scales);
        }
        data.resize(ty.data_words(rows, k), 0);
        assert_eq!((data, scales), sample(ty, rows, k, 9), "{ty:?}");
    }
}

#[test]
fn sizes_are_those_of_gguf_and_scales_fill_words() {
    // Bytes of GGUF, words of data and halves of scales of a row of 256.
    let sizes = [
        (WeightType::F32, 1024, 256, 0),
        (WeightType::F16, 512, 128, 0),
        (WeightType::BF16, 512, 128, 0),
        (WeightType::Q8_0, 272, 64, 8),
        (WeightType::Q4_0, 144, 32, 8),
        (WeightType::Q5_0, 176, 40, 8),
        (WeightType::Q4_K, 144, 32, 8),
        (WeightType::Q6_K, 210, 48, 9),
        (WeightType::TQ2_0, 66, 16, 1),
    ];
    assert_eq!(sizes.map(|(ty, ..)| ty), WeightType::ALL);
    for (ty, bytes, words, halves) in sizes {
        let got = (ty.gguf_row_bytes(256), ty.row_words(256), ty.scale_halves(1, 256), ty.scale_words(3, 256));
        assert_eq!(got, (bytes, words, halves, (3usize * halves).div_ceil(2)), "{ty:?}");
        assert_eq!(WeightType::of(|flag| ty.variant().has(flag)), ty);
        assert_eq!(format!("W_{}", ty.name()), ty.flag());
    }
}

#[test]
fn odd_f16_rows_fill_whole_vectors() {
    assert_eq!(WeightType::F16.data_words(3, 36), 56);
    assert_eq!(WeightType::F32.max_rows(1 << 25), 0);
    assert!(WeightType::F16.data_words(WeightType::F16.max_rows(1536), 1536) <= MAX_BINDING_WORDS);
}
