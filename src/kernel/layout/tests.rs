//! Repacked rows against the definitions of their types in `num`, which equal those of Python's gguf package bit for bit.

use super::*;
use crate::num;

fn from_gguf(ty: WeightType, bytes: &[u8]) -> Vec<f32> {
    let dequantize_row = match ty {
        WeightType::F32 => num::f32::dequantize_row,
        WeightType::F16 => num::f16::dequantize_row,
        WeightType::BF16 => num::bf16::dequantize_row,
        WeightType::Q8_0 => num::q8_0::dequantize_row,
        WeightType::Q4_0 => num::q4_0::dequantize_row,
        WeightType::Q5_0 => num::q5_0::dequantize_row,
        WeightType::Q4_K => num::q4_k::dequantize_row,
        WeightType::Q6_K => num::q6_k::dequantize_row,
        WeightType::TQ2_0 => num::tq2_0::dequantize_row,
    };
    let mut out = Vec::new();
    dequantize_row(bytes, &mut out);
    out
}

#[test]
fn repacked_rows_are_those_of_gguf_bit_for_bit() {
    for ty in WeightType::ALL {
        for (rows, k) in [(1, 32), (5, 96), (3, 36), (1, 256), (4, 64), (5, 768), (3, 1280)] {
            if k % ty.block() != 0 {
                continue;
            }
            let bytes = sample_bytes(ty, rows, k, 3);
            assert_eq!(bytes.len(), rows * ty.gguf_row_bytes(k));
            let (data, scales) = sample(ty, rows, k, 3);
            assert_eq!((data.len(), scales.len()), (ty.data_words(rows, k), ty.scale_words(rows, k)), "{ty:?} {rows} {k}");
            let got = (0..rows).flat_map(|row| read_row(ty, k, &data, &scales, row)).map(f32::to_bits);
            let want = from_gguf(ty, &bytes).into_iter().map(f32::to_bits);
            assert!(got.eq(want), "{ty:?} {rows} {k}");
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
    // Millions of narrow rows fit in a binding, but not in the workgroups of one dispatch.
    assert_eq!(WeightType::F16.max_rows(16), 2_097_120);
    assert!(WeightType::F16.data_words(WeightType::F16.max_rows(1536), 1536) <= MAX_BINDING_WORDS);
}
