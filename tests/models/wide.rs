//! A wide model under WebGPU's default limits: 1536 channels, 24 heads, GPT-2's vocabulary of 50,257 (an odd number), two layers. Its
//! embedding and head have 147 MiB each in F16, more than a binding holds, and 294 MiB in F32, more than a buffer holds.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic, also in its helpers")]

use crate::common;
use kitfox::format::{Quant, TensorType};
use kitfox::session::load::random;
use kitfox::session::{DeviceChoice, LoadOptions, Model};
use pollster::block_on;
use serde_json::{Map, Value, json};

const N_PREFILLED: u32 = 32;
const N_DECODED: u32 = 4;
const BAR: f32 = 1e-3;

/// FoX (Pro), 760M, but for its layers.
fn config() -> Map<String, Value> {
    let config = json!({
        "model_type": "forgetting_transformer-project_fox", "vocab_size": 50257, "hidden_size": 1536, "num_hidden_layers": 2,
        "num_heads": 24, "hidden_ratio": 3.5, "qk_norm": true, "qk_norm_share_param_across_head": true, "use_k_shift": true,
        "use_v_shift": true, "use_output_norm": true, "use_output_gate": true
    });
    config.as_object().unwrap().clone()
}

/// Logits after the prompt and after each decoded token.
fn run(ty: TensorType, device: DeviceChoice) -> Vec<Vec<f32>> {
    let options = LoadOptions { device, context: Some(64), chunk: Some(32), ..Default::default() };
    let checkpoint = random(config(), Quant::plain(ty), 1).unwrap();
    let mut model = block_on(Model::load(checkpoint, options, &mut |_| Ok(()))).unwrap();
    let ids: Vec<u32> = (0..N_PREFILLED).map(|ix| ix * 1571 % 50257).collect();
    let mut all = vec![block_on(model.prefill(&ids, true)).unwrap().unwrap()];
    all.extend((0..N_DECODED).map(|ix| block_on(model.step(50256 - ix)).unwrap()));
    println!("{ty} {device:?}: {} MiB, {} dispatches a token", model.bytes() >> 20, model.dispatches_per_token());
    all
}

fn gpu_equals_cpu(ty: TensorType) {
    if !common::gpu_expected() {
        return;
    }
    let (got, want) = (run(ty, DeviceChoice::Gpu), run(ty, DeviceChoice::Cpu));
    assert_eq!(want.len(), 1 + N_DECODED as usize);
    for (ix, (got, want)) in got.iter().zip(&want).enumerate() {
        let off = |(got, want): (&f32, &f32)| if got.is_finite() { (got - want).abs() } else { f32::INFINITY };
        let worst = got.iter().zip(want).map(off).fold(0.0, f32::max);
        let largest = want.iter().fold(0f32, |largest, logit| largest.max(logit.abs()));
        println!("{ty}: after {} tokens off by {worst:.1e}, logits up to {largest:.1}", N_PREFILLED as usize + ix);
        assert!(worst < BAR && largest > 1.0, "{ty}");
    }
}

#[test]
fn a_wide_model_in_f16_is_the_same_on_gpu_and_cpu() {
    gpu_equals_cpu(TensorType::F16);
}

#[test]
fn a_wide_model_in_f32_is_the_same_on_gpu_and_cpu() {
    gpu_equals_cpu(TensorType::F32);
}
