//! The number formats: bit for bit with Python's `gguf` package where that has both directions, else by their error.

use kitfox::format::TensorType::{self, BF16, F16, F32, Q4_0, Q4_K, Q5_0, Q6_K, Q8_0, TQ2_0};
use kitfox::format::random::SplitMix64;
use kitfox::format::{from_f32, to_f32};
use safetensors::SafeTensors;

const BLOCKS: &[u8] = include_bytes!("../fixtures/gguf/blocks.safetensors");

fn stored(ty: TensorType, values: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    from_f32(ty, values, &mut bytes);
    bytes
}

fn floats(ty: TensorType, bytes: &[u8]) -> Vec<f32> {
    let mut values = Vec::new();
    to_f32(ty, bytes, &mut values);
    values
}

#[test]
fn block_formats_match_python_bit_for_bit() {
    let fixture = SafeTensors::deserialize(BLOCKS).unwrap();
    let bytes = |name: &str| fixture.tensor(name).unwrap().data().to_vec();
    let check = |ty: TensorType, name: &str| {
        let want = bytes(&format!("{name}_f32"));
        for (ix, (got, want)) in floats(ty, &bytes(name)).iter().zip(want.chunks(4)).enumerate() {
            assert_eq!(got.to_le_bytes(), want, "{name} to floats, value {ix}: {got}");
        }
    };
    for (ty, x) in [(Q8_0, "x"), (Q5_0, "x"), (Q4_0, "x"), (BF16, "x"), (F16, "x"), (TQ2_0, "x_256")] {
        let name = ty.name().to_ascii_lowercase();
        let x = floats(F32, &bytes(x));
        let width = ty.block().max(32);
        let row = ty.tensor_bytes(&[width]).unwrap() as usize;
        for (ix, (got, want)) in stored(ty, &x).chunks(row).zip(bytes(&name).chunks(row)).enumerate() {
            assert_eq!(got, want, "{name}, row {ix}: {:?}", &x[ix * width..][..width]);
        }
        check(ty, &name);
    }
    for ty in [Q8_0, Q5_0, Q4_0, Q4_K, Q6_K, TQ2_0, BF16] {
        check(ty, &format!("{}_any", ty.name().to_ascii_lowercase()));
    }
}

/// √(Σ(x − x̂)² / Σx²).
fn relative_error(ty: TensorType, x: &[f32]) -> f64 {
    let back = floats(ty, &stored(ty, x));
    let square = |v: f32| f64::from(v) * f64::from(v);
    let (error, total) =
        x.iter().zip(back).fold((0.0, 0.0), |(error, total), (x, y)| (error + square(x - y), total + square(*x)));
    f64::sqrt(error / total)
}

#[test]
fn normal_weights_are_stored_as_exactly_as_can_be_asked() {
    let mut random = SplitMix64(1);
    let mut uniform = || (random.number() >> 11) as f64 / (1u64 << 53) as f64;
    let mut normal = || ((1.0 - uniform()).ln() * -2.0).sqrt() * (uniform() * std::f64::consts::TAU).cos();
    let x: Vec<f32> = (0..1 << 20).map(|_| normal() as f32).collect();
    // Plain rounding gives 0.078 (Q4_K) and 0.0205 (Q6_K).
    for (ty, bar) in [(Q8_0, 0.006), (Q6_K, 0.0175), (Q5_0, 0.045), (Q4_K, 0.0715), (Q4_0, 0.09), (TQ2_0, 0.9)] {
        let error = relative_error(ty, &x);
        println!("{ty}: relative RMS error {error:.5} on N(0, 1)");
        assert!(error <= bar, "{ty}: {error}");
    }
}

#[test]
fn odd_blocks_are_met_within_a_step() {
    let fixture = SafeTensors::deserialize(BLOCKS).unwrap();
    let mut x = floats(F32, fixture.tensor("x_256").unwrap().data());
    let mut random = SplitMix64(3);
    let mut block = |value: &mut dyn FnMut(usize, f32) -> f32| x.extend((0..256).map(|ix| value(ix, random.float())));
    block(&mut |_, _| 0.0);
    block(&mut |_, _| -0.0);
    block(&mut |_, _| 3.0);
    block(&mut |_, _| -3.0);
    block(&mut |_, v| 10.0 + v);
    block(&mut |_, v| -10.0 - v);
    block(&mut |ix, v| if ix == 77 { 1000.0 } else { v });
    block(&mut |ix, v| if ix < 32 { v * 1e-3 } else { v });
    block(&mut |_, v| v * 1e-30);
    // A step of a block whose groups share one f16 scale, and what is lost where that scale is too small for f16.
    for (ty, levels, lost) in [(Q4_K, 15.0, 63.0 * 15.0), (Q6_K, 32.0, 128.0 * 32.0)] {
        let back = floats(ty, &stored(ty, &x));
        for (ix, (x, back)) in x.chunks(256).zip(back.chunks(256)).enumerate() {
            let (low, high) = x.iter().fold((0f32, 0f32), |(low, high), v| (low.min(*v), high.max(*v)));
            let range = if ty == Q4_K { high - low } else { high.max(-low) };
            let worst = x.iter().zip(back).map(|(x, y)| (x - y).abs()).fold(0f32, f32::max);
            assert!(worst <= range / levels + lost * 2f32.powi(-25), "{ty}, block {ix}: {worst} of {range}");
        }
    }
}
