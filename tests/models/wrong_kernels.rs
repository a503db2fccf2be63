//! Promises of a GPU that computes wrongly: which kernel it is is found out at load, whatever variant the model has, before a word is
//! written.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{self, golden};
use kitfox::Error;
use kitfox::format::layer::{Layer, LayerConfig, LayerFloats, Mode};
use kitfox::gpu::inject::{Fault, Point, arm, let_software_pass, passed};
use kitfox::graph::Program;
use kitfox::kernel::inputs;
use kitfox::session::{Device, DeviceChoice, ForgettingAttentionLayer, KvType, LayerOptions, LoadOptions, Model, Pruning};
use pollster::block_on;

const PIPELINES: &[Point] = &[Point::Pipeline];

fn load(case: &str, options: LoadOptions) -> kitfox::Result<Model> {
    block_on(async {
        let checkpoint = kitfox::format::open(&golden::directory(case)).await?;
        Model::load(checkpoint, options, &mut |_| Ok(())).await
    })
}

fn options(device: DeviceChoice) -> LoadOptions {
    LoadOptions { device, baseline: true, scores: true, context: Some(256), chunk: Some(16), ..LoadOptions::default() }
}

fn logits(model: &mut Model) -> Vec<f32> {
    model.reset();
    [1, 2, 3].into_iter().flat_map(|id| block_on(model.step(id)).unwrap()).collect()
}

fn layer() -> Layer {
    layer_of(Mode::Decoder, false)
}

fn layer_of(mode: Mode, bitnet: bool) -> Layer {
    let config = LayerConfig { hidden_size: 64, num_heads: 4, mode, bitnet };
    let [q_proj, k_proj, v_proj, out_proj] = [1, 2, 3, 4].map(|seed| inputs::floats(seed, 64 * 64, 0.2));
    let f_proj = inputs::floats(5, 4 * 64, 0.2);
    let weights =
        LayerFloats { q_proj: &q_proj, k_proj: &k_proj, v_proj: &v_proj, f_proj: &f_proj, f_bias: None, out_proj: &out_proj };
    Layer::new(config, &weights).unwrap()
}

/// Without a GPU. An input of another variant would be another shader.
#[test]
fn every_variant_that_a_model_or_a_layer_records_has_an_input_of_its_own() {
    let (mut seen, mut wrong) = (Vec::new(), Vec::new());
    let mut look = |case: &str, program: &Program| {
        for dispatch in program.graphs.iter().flat_map(|graph| &graph.dispatches) {
            let label = dispatch.recorded().label();
            if seen.contains(&label) {
                continue;
            }
            let probe = dispatch.probe().unwrap();
            let first = probe.first_of(dispatch.kernel).unwrap();
            if first.variant != dispatch.variant || probe.expect.is_empty() {
                wrong.push(format!("{label} of {case} would be judged by \"{}\"", probe.name));
            }
            seen.push(label);
        }
    };
    for case in golden::CASES {
        for kv in [KvType::F16, KvType::F32] {
            let prune = if case == "fox_pro_pruned" { Pruning::Epsilon(0.3) } else { Pruning::default() };
            let model = load(case, LoadOptions { kv, prune, ..options(DeviceChoice::Cpu) }).unwrap();
            look(case, model.program());
        }
    }
    for (mode, bitnet) in [(Mode::Decoder, false), (Mode::Decoder, true), (Mode::Encoder, false), (Mode::Encoder, true)] {
        let options = LayerOptions { device: DeviceChoice::Cpu, max_tokens: Some(8) };
        let layer = block_on(ForgettingAttentionLayer::load(&layer_of(mode, bitnet), options)).unwrap();
        look(&format!("a layer, {mode:?} bitnet={bitnet}"), layer.program());
    }
    println!("{} variants of {} models", seen.len(), golden::CASES.len());
    assert!(seen.len() > 50 && wrong.is_empty(), "{} variants, wrong: {wrong:#?}", seen.len());
}

#[test]
fn a_recorded_kernel_that_computes_wrongly_is_named_at_load_whichever_it_is() {
    if !common::gpu_expected() {
        return;
    }
    arm(Fault::Wrong, PIPELINES, 0..0);
    let mut model = load("fox_pro", options(DeviceChoice::Gpu)).unwrap();
    let (n_pipelines, right) = (passed(), logits(&mut model));
    let Device::Gpu(executor) = model.device() else { unreachable!("a GPU was asked for") };
    let adapter = executor.gpu().info().name.clone();
    println!("{n_pipelines} kernels of a model: {:?}", executor.gpu().start_up());
    let mut named = Vec::new();
    for n in 0..n_pipelines {
        arm(Fault::Wrong, PIPELINES, n..n + 1);
        let loaded = load("fox_pro", options(DeviceChoice::Gpu));
        passed();
        let error = loaded.err().unwrap_or_else(|| unreachable!("pipeline {n} of {n_pipelines} is not compared with its twin"));
        assert!(error.code() == "gpu" && error.to_string().contains("--device cpu"), "{error}");
        let Error::Kernel { kernel, adapter: on, reason } = error else { unreachable!("{error}") };
        assert!(on == adapter && (reason.contains("got ") || reason.contains("past its end")), "{kernel} on {on}: {reason}");
        named.push(kernel);
    }
    named.sort();
    named.dedup();
    assert_eq!(named.len(), n_pipelines, "each is named once: {named:?}");
    // Nothing is kept of it.
    assert_eq!(logits(&mut load("fox_pro", options(DeviceChoice::Gpu)).unwrap()), right);
}

/// What `auto` does with such a device shows where software passes for hardware.
#[test]
fn with_auto_a_gpu_that_computes_wrongly_is_passed_over_with_a_note() {
    if !common::gpu_expected() {
        return;
    }
    let want = logits(&mut load("fox_pro", options(DeviceChoice::Cpu)).unwrap());
    let layer = layer();
    let layer_on = |device| block_on(ForgettingAttentionLayer::load(&layer, LayerOptions { device, max_tokens: Some(8) }));
    let_software_pass(true);
    arm(Fault::Wrong, PIPELINES, 0..0);
    let right = load("fox_pro", options(DeviceChoice::Auto)).unwrap();
    assert!(right.device_note().is_none() && matches!(right.device(), Device::Gpu(_)));
    arm(Fault::Wrong, PIPELINES, 0..usize::MAX);
    let loaded = load("fox_pro", options(DeviceChoice::Auto));
    let of_layer = (layer_on(DeviceChoice::Auto), layer_on(DeviceChoice::Gpu));
    passed();
    let_software_pass(false);
    let mut model = loaded.unwrap();
    let note = model.device_note().unwrap().to_owned();
    assert!(matches!(model.device(), Device::Cpu(_)) && model.device_name() == "cpu");
    assert!(note.contains("cannot be used on") && note.contains("got "), "{note}");
    assert_eq!(logits(&mut model), want);
    let of_auto = of_layer.0.unwrap();
    assert!(matches!(of_auto.device(), Device::Cpu(_)) && of_auto.device_note().unwrap().contains("cannot be used on"));
    assert!(matches!(of_layer.1, Err(Error::Kernel { .. })));
}
