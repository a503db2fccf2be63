//! A device that is lost under a sequence whose pages die, or slide away: which they were is the same afterwards, or it is one error.

use super::lose;
use super::sweep::Way;
use crate::common::{self, golden};
use kitfox::gpu::set_host;
use kitfox::kernel::attention::PAGE;
use kitfox::session::{DeviceChoice, LoadOptions, Model, Overflow, Pruning, SamplerOptions};
use pollster::block_on;
use std::rc::Rc;

fn model(context: usize, prune: Pruning, overflow: Overflow) -> Model {
    let checkpoint = block_on(kitfox::format::open(&golden::directory("fox_pro_pruned"))).unwrap();
    let options = LoadOptions {
        device: DeviceChoice::Gpu,
        context: Some(context),
        chunk: Some(64),
        prune,
        overflow,
        baseline: true,
        ..LoadOptions::default()
    };
    block_on(Model::load(checkpoint, options, &mut |_| Ok(()))).unwrap()
}

fn bits(logits: Vec<f32>) -> Vec<u32> {
    logits.into_iter().map(f32::to_bits).collect()
}

#[test]
fn a_sequence_with_dead_pages_comes_back_as_it_was() {
    if !common::gpu_expected() {
        return;
    }
    let mut model = model(512, Pruning::Epsilon(0.3), Overflow::Error);
    let vocab = model.vocab() as u32;
    let prompt: Vec<u32> = (0..300).map(|ix| ix * 7 % vocab).collect();
    let sampler = SamplerOptions { seed: 5, temperature: 1.5, ..SamplerOptions::default() };
    let mut tell = |lost_at: Option<usize>| {
        model.reset();
        block_on(model.read(&prompt[..256])).unwrap();
        block_on(model.mark()).unwrap();
        let turn = block_on(model.draw(&prompt[256..], &sampler, 440, Some(4))).unwrap();
        let mut ids = Vec::new();
        for n in 0..130 {
            if lost_at == Some(n) {
                lose(&model);
            }
            ids.push(block_on(model.drawn(turn)).unwrap().0);
        }
        let live = block_on(model.live_pages()).unwrap();
        block_on(model.rewind_to(256)).unwrap();
        (ids, live, bits(block_on(model.step(1)).unwrap()))
    };
    let want = tell(None);
    for lost_at in [0, 1, 7, 100] {
        assert!(tell(Some(lost_at)) == want, "lost at token {lost_at}");
    }
}

/// All that decides which pages slide away: chunks and single tokens, tokens drawn ahead and taken back just before and behind the end of a
/// page, a way back within the last tokens and to a mark, and bytes. The device is lost before each call.
#[test]
fn a_sequence_whose_pages_slide_away_comes_back_as_it_was() {
    if !common::gpu_expected() {
        return;
    }
    // What is found out of the kernels is found out once.
    set_host(Rc::new(common::Keeping::default()));
    for (prune, apart) in [(Pruning::Epsilon(0.3), 4), (Pruning::Off, 9)] {
        let mut model = model(4 * PAGE, prune, Overflow::Slide);
        let vocab = model.vocab() as u32;
        let ids: Vec<u32> = (0..900u32).map(|ix| (ix.wrapping_mul(2_654_435_761) >> 9) % vocab).collect();
        let (want, n_calls) = slid(&mut model, &ids, None);
        for lost_at in (0..n_calls).step_by(Way::Baseline.choose(apart, apart, 1)) {
            let before = model.recoveries();
            let (got, _) = slid(&mut model, &ids, Some(lost_at));
            assert!(model.recoveries() > before, "{prune:?}: not lost at call {lost_at}");
            assert!(got == want, "{prune:?}: lost before call {lost_at} of {n_calls}");
        }
    }
}

/// What calls on one sequence give, and how many they are.
fn slid(model: &mut Model, ids: &[u32], lost_at: Option<usize>) -> (Vec<Vec<u32>>, usize) {
    let (mut n_calls, mut said) = (0, Vec::new());
    let mut call = |model: &Model| {
        if lost_at == Some(n_calls) {
            lose(model);
        }
        n_calls += 1;
    };
    let sampler = SamplerOptions { seed: 9, temperature: 1.5, ..SamplerOptions::default() };
    model.reset();
    // A chunk at least is there before anything is lost.
    block_on(model.read(&ids[..64])).unwrap();
    call(model);
    block_on(model.read(&ids[64..330])).unwrap();
    // Up to 40 single tokens, so that the way back is as long as it gets, and back by 20 over the end of a page.
    for id in &ids[330..395] {
        block_on(model.step(*id)).unwrap();
    }
    call(model);
    block_on(model.rewind_to(375)).unwrap();
    said.push(bits(block_on(model.step(ids[7])).unwrap()));
    // Texts that end just before and behind the end of a page, with tokens drawn ahead of them.
    for (n_prompt, n_drawn) in [(5, 60), (3, 61), (30, 36)] {
        let at = model.pos();
        call(model);
        let turn = block_on(model.draw(&ids[at..at + n_prompt], &sampler, at + n_prompt + 90, Some(8))).unwrap();
        let mut drawn = Vec::new();
        for n in 0..n_drawn {
            if n == n_drawn / 2 || n + 1 == n_drawn {
                call(model);
            }
            drawn.push(block_on(model.drawn(turn)).unwrap().0);
        }
        said.push(drawn);
        call(model);
        said.push(bits(block_on(model.step(ids[11])).unwrap()));
        said.push(vec![block_on(model.live_pages()).unwrap() as u32]);
    }
    // To a mark, whose pages nothing takes, and on behind it when it is given up.
    let mark = block_on(model.mark()).unwrap();
    call(model);
    block_on(model.read(&ids[..9])).unwrap();
    call(model);
    block_on(model.rewind_to(mark)).unwrap();
    model.release(mark);
    call(model);
    block_on(model.read(&ids[100..300])).unwrap();
    said.push(bits(block_on(model.step(3)).unwrap()));
    let bytes = block_on(model.save(&[])).unwrap();
    block_on(model.restore(&bytes)).unwrap();
    call(model);
    block_on(model.read(&ids[300..500])).unwrap();
    said.push(bits(block_on(model.step(4)).unwrap()));
    call(model);
    said.push(bits(block_on(model.step(5)).unwrap()));
    (said, n_calls)
}
