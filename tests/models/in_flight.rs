//! Several tokens in flight change nothing that can be seen: not the ids, not the text, not where the model stands afterwards.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic, also in its helpers")]

use crate::common;
use crate::common::tiny::Tiny;
use crate::common::tokenizers;
use kitfox::Error;
use kitfox::session::{
    Device, DeviceChoice, FinishReason, GenerateOptions, Generation, LoadOptions, Model, Sampler, SamplerOptions,
};
use pollster::block_on;
use std::path::{Path, PathBuf};

fn open(path: &Path, device: DeviceChoice) -> Model {
    let options = LoadOptions { device, context: Some(512), chunk: Some(32), ..LoadOptions::default() };
    block_on(async { Model::load(kitfox::format::open(path).await?, options, &mut |_| Ok(())).await }).unwrap()
}

fn golden(case: &str, device: DeviceChoice) -> Model {
    open(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden").join(case), device)
}

fn demo(device: DeviceChoice) -> Model {
    open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("www/models/demo.gguf"), device)
}

fn warm(seed: u64) -> SamplerOptions {
    SamplerOptions { seed, temperature: 1.5, min_p: 0.0, top_k: 0, ..SamplerOptions::default() }
}

/// `n` drawn ids behind a prompt.
fn drawn(model: &mut Model, prompt: &[u32], options: &SamplerOptions, n: usize, in_flight: Option<usize>) -> Vec<u32> {
    model.reset();
    let turn = block_on(model.draw(prompt, options, prompt.len() + n, in_flight)).unwrap();
    let ids = (0..n).map(|_| block_on(model.drawn(turn)).unwrap().0).collect();
    assert!(block_on(model.drawn(turn)).is_err(), "no more than was asked for");
    ids
}

/// The same by the host's sampler from the model's logits.
fn sampled(model: &mut Model, prompt: &[u32], options: &SamplerOptions, n: usize) -> Vec<u32> {
    model.reset();
    let (mut sampler, mut ids) = (Sampler::new(options.clone()).unwrap(), prompt.to_vec());
    let mut logits = block_on(model.prefill(prompt, true)).unwrap().unwrap();
    for _ in 0..n {
        ids.push(sampler.sample(&logits, &ids).unwrap());
        logits = block_on(model.step(ids[ids.len() - 1])).unwrap();
    }
    ids.split_off(prompt.len())
}

#[test]
fn any_number_in_flight_gives_the_ids_of_one_at_a_time_and_of_the_hosts_sampler() {
    if !common::gpu_expected() {
        return;
    }
    let greedy = SamplerOptions { temperature: 0.0, repeat_penalty: Some(1.2), ..SamplerOptions::default() };
    let logit_bias = (0..20).map(|ix| (3 * ix, ix as f32 / 4.0 - 3.0)).collect();
    let (one, all) = (&[Some(1), Some(7), None][..], &[Some(1), Some(2), Some(7), Some(16), None][..]);
    // 29 tokens of prompt and 105 more: over the ends of two pages.
    let prompt: Vec<u32> = (1..30).collect();
    for (case, options, numbers) in [
        ("fox_pro", warm(1), all),
        ("fox_llama", SamplerOptions::default(), one),
        ("head_dim_128", greedy, one),
        ("fla_window_bias", SamplerOptions { logit_bias, ..warm(2) }, one),
    ] {
        let mut model = golden(case, DeviceChoice::Gpu);
        assert_eq!(model.dispatches_per_token(), 6 * model.config().n_layers + 2, "the draw included");
        let want = sampled(&mut model, &prompt, &options, 105);
        for in_flight in numbers {
            assert_eq!(drawn(&mut model, &prompt, &options, 105, *in_flight), want, "{case} {options:?} {in_flight:?}");
        }
    }
}

/// After a stop anywhere in a batch, the model goes on as one that never looked ahead: the shift rows, λ, keys and values are its.
#[test]
fn after_a_late_stop_the_model_stands_where_it_would_have_stood() {
    if !common::gpu_expected() {
        return;
    }
    for case in ["fox_pro", "fla_window_bias"] {
        let (mut ahead, mut alone) = (golden(case, DeviceChoice::Gpu), golden(case, DeviceChoice::Gpu));
        // 33 tokens of prompt, less one of the page's 64: batches cross a page.
        let prompt: Vec<u32> = (1..33).collect();
        for (in_flight, stop) in [(8, 1), (8, 8), (8, 9), (16, 1), (16, 17), (16, 100), (3, 31)] {
            ahead.reset();
            alone.reset();
            let turn = block_on(ahead.draw(&prompt, &warm(3), 512, Some(in_flight))).unwrap();
            let ids: Vec<u32> = (0..stop).map(|_| block_on(ahead.drawn(turn)).unwrap().0).collect();
            block_on(alone.prefill(&prompt, false)).unwrap();
            ids[..stop - 1].iter().for_each(|id| drop(block_on(alone.step(*id)).unwrap()));
            assert_eq!(ahead.pos(), alone.pos());
            for id in [5, 6, 7] {
                assert_eq!(block_on(ahead.step(id)).unwrap(), block_on(alone.step(id)).unwrap(), "{case} {in_flight} {stop}");
            }
            assert_eq!(block_on(ahead.prefill(&[8, 9], true)).unwrap(), block_on(alone.prefill(&[8, 9], true)).unwrap());
            let late = block_on(ahead.drawn(turn)).unwrap_err();
            assert!(matches!(&late, Error::Argument { option, .. } if option == "turn"), "{late}");
        }
    }
}

#[test]
fn between_two_tokens_nothing_is_created_and_reads_are_one_a_batch() {
    if !common::gpu_expected() {
        return;
    }
    let mut model = golden("fox_pro", DeviceChoice::Gpu);
    let per_token = model.dispatches_per_token() as u64;
    let counters = |model: &Model| match model.device() {
        Device::Gpu(gpu) => gpu.counters(),
        Device::Cpu(_) => unreachable!("a GPU was asked for"),
    };
    for in_flight in [1, 4, 8, 16] {
        model.reset();
        let before = counters(&model);
        let turn = block_on(model.draw(&[1, 2, 3], &warm(1), 3 + 160, Some(in_flight))).unwrap();
        let prefill = counters(&model);
        for _ in 0..160 {
            block_on(model.drawn(turn)).unwrap();
        }
        let after = counters(&model);
        assert_eq!((after.buffers, after.bind_groups, after.pipelines), (before.buffers, before.bind_groups, before.pipelines));
        assert_eq!(after.reads - prefill.reads, 160 / in_flight as u64);
        assert_eq!(after.dispatches - prefill.dispatches, 159 * per_token + 1, "none for a token that is not wanted");
        // A submit with its steps for each batch, one more for the first token (no token is fed before it), and where a batch goes
        // on in the next of two pages; beside the steps the page table is written twice.
        let batches = 160 / in_flight as u64;
        let submits = after.submits - prefill.submits - batches; // less those that read
        assert!((batches..=batches + 3).contains(&submits), "{submits} for {batches} batches");
        assert_eq!(after.writes - prefill.writes, submits + 2);
    }
}

/// What the host asks of dead pages, some hundred tokens late, has its buffers from the start.
#[test]
fn a_long_text_of_a_model_whose_pages_die_creates_nothing() {
    if !common::gpu_expected() {
        return;
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden/fox_pro_pruned");
    for (chunk, in_flight) in [(32, 16), (256, 4)] {
        let options =
            LoadOptions { device: DeviceChoice::Gpu, context: Some(1024), chunk: Some(chunk), ..LoadOptions::default() };
        let mut model =
            block_on(async { Model::load(kitfox::format::open(&path).await?, options, &mut |_| Ok(())).await }).unwrap();
        assert!(model.log_pruning_tolerance().is_some());
        let created = |model: &Model| match model.device() {
            Device::Gpu(gpu) => (gpu.counters().buffers, gpu.counters().bind_groups, gpu.counters().pipelines),
            Device::Cpu(_) => unreachable!("a GPU was asked for"),
        };
        let before = created(&model);
        drawn(&mut model, &[1, 2, 3], &warm(1), 700, Some(in_flight));
        assert_eq!(created(&model), before, "chunk {chunk}, {in_flight} in flight");
    }
}

fn run(model: &mut Model, prompt: &str, options: GenerateOptions) -> (String, Vec<u32>, FinishReason, usize) {
    let (text, ids, finish) = crate::generate::run(model, prompt, options);
    (text, ids, finish, model.pos())
}

#[test]
fn the_demo_models_text_does_not_depend_on_the_number_in_flight() {
    if !common::gpu_expected() {
        return;
    }
    let mut model = demo(DeviceChoice::Gpu);
    let options = |in_flight, stop: &[&str]| GenerateOptions {
        max_tokens: 24,
        sampler: SamplerOptions { seed: 4, ..SamplerOptions::default() },
        stop: stop.iter().map(|stop| (*stop).to_owned()).collect(),
        in_flight,
        ..GenerateOptions::default()
    };
    let prompt = "Once upon a time, in a little village by the sea,";
    let whole = run(&mut model, prompt, options(Some(1), &[]));
    println!("{}", whole.0);
    let stop: String = whole.0.chars().skip(50).take(5).collect();
    let stopped = run(&mut model, prompt, options(Some(1), &[&stop]));
    assert_eq!(stopped.2, FinishReason::Stop(stop.clone()));
    assert_eq!(run(&mut model, prompt, GenerateOptions { logprobs: true, ..options(None, &[&stop]) }), stopped, "by the host");
    assert_eq!(run(&mut model, prompt, options(None, &[])), whole);
    assert_eq!(run(&mut model, prompt, options(Some(8), &[&stop])), stopped);
    // The host's sampler on the CPU's logits: as close as the logits are, so a text that is the same for a while.
    let cpu = run(&mut demo(DeviceChoice::Cpu), prompt, options(Some(8), &[]));
    let same = cpu.1.iter().zip(&whole.1).take_while(|(a, b)| a == b).count();
    println!("{same} of {} ids are the CPU's", whole.1.len());
    assert!(same >= 5, "{} / {}", cpu.0, whole.0);
}

/// End of text, the context's end, stops and lengths by the dozen, on a model whose text is noise.
#[test]
fn every_way_to_end_is_the_same_for_any_number_in_flight() {
    if !common::gpu_expected() {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("in_flight");
    let folder = Tiny::new(Some(tokenizers::byte_level())).write(&folder);
    let options = LoadOptions { device: DeviceChoice::Gpu, chunk: Some(16), ..LoadOptions::default() };
    let checkpoint = block_on(kitfox::format::open(&folder)).unwrap();
    let mut model = block_on(Model::load(checkpoint, options, &mut |_| Ok(()))).unwrap();
    let mut reasons = std::collections::BTreeSet::new();
    for seed in 0..24 {
        let options = |in_flight| GenerateOptions {
            max_tokens: if seed % 3 == 0 { 20 } else { 100 },
            sampler: warm(seed),
            stop: if seed % 2 == 0 { vec!["e".to_owned(), "<pl".to_owned()] } else { Vec::new() },
            ignore_eos: false,
            in_flight,
            logprobs: false,
        };
        let want = run(&mut model, "hello a", options(Some(1)));
        reasons.insert(want.2.word());
        for in_flight in [Some(8), Some(16)] {
            assert_eq!(run(&mut model, "hello a", options(in_flight)), want, "seed {seed} {in_flight:?}");
        }
    }
    println!("{reasons:?}");
    assert!(reasons.len() >= 3, "{reasons:?}");
    // A generation left anywhere does not change the next.
    let want = run(&mut model, "one", GenerateOptions { max_tokens: 30, sampler: warm(5), ..GenerateOptions::default() });
    for n_calls in 0..4 {
        let options = GenerateOptions { max_tokens: 40, sampler: warm(1), in_flight: Some(4), ..GenerateOptions::default() };
        let mut left = Generation::new(&model, "another", options).unwrap();
        (0..n_calls).for_each(|_| drop(block_on(left.next(&mut model)).unwrap()));
        drop(left);
        let options = GenerateOptions { max_tokens: 30, sampler: warm(5), in_flight: Some(8), ..GenerateOptions::default() };
        assert_eq!(run(&mut model, "one", options), want);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    for in_flight in [0, 17, usize::MAX] {
        let options = GenerateOptions { in_flight: Some(in_flight), ..GenerateOptions::default() };
        assert!(matches!(options.check(), Err(Error::Argument { option, .. }) if option == "in-flight"));
    }
    let mut model = golden("fox_pro", DeviceChoice::Cpu);
    let refused = block_on(model.draw(&[1], &SamplerOptions::default(), 10, Some(1))).unwrap_err();
    assert!(matches!(&refused, Error::Argument { option, .. } if option == "device"), "{refused}");
    assert_eq!(model.pos(), 0);
}
