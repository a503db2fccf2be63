//! Promises of watched runs: what is right passes, and the first number that is not finite is told with its layer.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::common::golden;
use kitfox::Error;
use kitfox::graph::BufferId;
use kitfox::session::{Device, DeviceChoice, LoadOptions, Model, SamplerOptions};
use pollster::block_on;

fn load(case: &str, device: DeviceChoice) -> Model {
    let options = LoadOptions { device, context: Some(128), chunk: Some(64), scores: true, ..LoadOptions::default() };
    let checkpoint = block_on(kitfox::format::open(&golden::directory(case))).unwrap();
    block_on(Model::load(checkpoint, options, &mut |_| Ok(()))).unwrap()
}

#[test]
fn every_dispatch_of_a_real_run_is_as_its_twin() {
    if !common::gpu_expected() {
        return;
    }
    for case in ["fox_pro_pruned", "fla_window_bias"] {
        let mut model = load(case, DeviceChoice::Gpu);
        let prompt: Vec<u32> = (0..100).map(|ix| ix * 5 % model.vocab() as u32).collect();
        let sampler = SamplerOptions { seed: 1, ..SamplerOptions::default() };
        let mut tell = |watched: bool| {
            model.reset();
            if watched {
                model.watch().unwrap();
            }
            block_on(model.read(&prompt[..64])).unwrap();
            let turn = block_on(model.draw(&prompt[64..], &sampler, 106, Some(2))).unwrap();
            let ids: Vec<u32> = (0..5).map(|_| block_on(model.drawn(turn)).unwrap().0).collect();
            let logits = block_on(model.score(&[1, 2, 3])).unwrap();
            (ids, logits)
        };
        let plain = tell(false);
        assert!(tell(true) == plain, "{case}: being watched changes nothing");
        let watch = model.watched().unwrap();
        let (place, worst) = watch.worst().unwrap();
        println!("{case}: {} dispatches, the worst: {place}: {worst}", watch.dispatches());
        assert!(watch.dispatches() > 60);
    }
    assert!(matches!(load("fox_llama", DeviceChoice::Cpu).watch(), Err(Error::Argument { .. })));
}

#[test]
fn a_number_that_is_not_finite_is_told_with_the_layer_where_it_came_up() {
    if !common::gpu_expected() {
        return;
    }
    let mut model = load("fox_llama", DeviceChoice::Gpu);
    let id = model.program().buffers.iter().position(|buffer| buffer.name == "blk.1.down").unwrap();
    let Device::Gpu(executor) = model.device() else { unreachable!("a GPU was asked for") };
    executor.write(BufferId(id as u32), 0, &[f32::INFINITY.to_bits()]);
    let told = |error: Error| {
        assert!(matches!(error, Error::NotFinite { .. }), "{error}");
        error.to_string()
    };
    for error in [
        block_on(model.prefill(&[1, 2, 3], true)).map(drop),
        block_on(model.step(4)).map(drop),
        block_on(model.score(&[4, 5])).map(drop),
    ] {
        assert!(told(error.unwrap_err()).contains("logit of token 0 behind "));
    }
    assert_eq!(model.pos(), 0, "a call that failed leaves the sequence as it was");
    model.watch().unwrap();
    for error in [block_on(model.prefill(&[1, 2, 3], true)).map(drop), block_on(model.step(4)).map(drop)] {
        let told = told(error.unwrap_err());
        assert!(told.contains("layer 1 (blk.1.down)"), "{told}");
    }
}
