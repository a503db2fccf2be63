//! Promises of what happens when the device fails: at every allocation, and lost at any time, a call ends in what it would have given or in
//! one typed error, and the next call works.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;

use crate::common::tiny::Tiny;
use crate::common::tokenizers;
use kitfox::gpu::inject::{Fault, Point, arm, let_software_pass, passed};
use kitfox::gpu::set_host;
use kitfox::kernel::rms_norm::RMS_NORM;
use kitfox::session::check::check_kernel;
use kitfox::session::{
    AttentionRow, Device, DeviceChoice, GenerateOptions, Generation, LoadOptions, Model, SamplerOptions, Scoring, Sequences,
};
use kitfox::{Error, Result};
use pollster::block_on;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

mod layer;
mod slide;
mod sweep;

use sweep::{Sweep, Way};

const ALLOCATIONS: &[Point] = &[Point::Buffer, Point::Pipeline];
const ALL: &[Point] = &[Point::Buffer, Point::Pipeline, Point::Write, Point::Submit, Point::Read];
const TEXT: &str = "hello, this is longer than a chunk";

fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults").join(test);
    Tiny::new(Some(tokenizers::byte_level())).write(&folder)
}

fn load_options() -> LoadOptions {
    LoadOptions {
        device: DeviceChoice::Gpu,
        baseline: true,
        scores: true,
        context: Some(256),
        chunk: Some(16),
        ..LoadOptions::default()
    }
}

fn load_with(folder: &Path, options: LoadOptions) -> Result<Model> {
    block_on(async { Model::load(kitfox::format::open(folder).await?, options, &mut |_| Ok(())).await })
}

fn options(seed: u64, max_tokens: usize) -> GenerateOptions {
    let sampler = SamplerOptions { seed, temperature: 2.0, min_p: 0.0, top_k: 0, ..SamplerOptions::default() };
    GenerateOptions { max_tokens, sampler, ignore_eos: true, ..GenerateOptions::default() }
}

async fn finish(model: &mut Model, mut generation: Generation) -> Result<Vec<u32>> {
    while generation.next(model).await?.is_some() {}
    Ok(generation.generated_ids().to_vec())
}

async fn read(all: &mut Sequences, model: &mut Model, number: u32) -> Result<()> {
    loop {
        let (done, total) = all.read(model, number).await?;
        if done == total {
            return Ok(());
        }
    }
}

/// What a model is asked for from the first call to the last, as words.
async fn life(model: &mut Model) -> Result<Vec<u32>> {
    let ids: Vec<u32> = model.bos().into_iter().chain(model.tokenizer("test")?.encode(TEXT)?).collect();
    let mut all = Sequences::default();
    let first = all.open();
    all.append(model, first, &ids)?;
    read(&mut all, model, first).await?;
    let mark = all.mark(model, first).await?;
    let fork = all.fork(model, first).await?;
    let mut said = Vec::new();
    let answer = all.generate(model, first, options(3, 6)).await?;
    said.extend(finish(model, answer).await?);
    all.append(model, first, &said)?;
    let bytes = all.save(model, first).await?;
    let answer = all.generate(model, fork, options(3, 6)).await?;
    said.extend(finish(model, answer).await?);
    let third = all.open();
    all.restore(model, third, &bytes).await?;
    let answer = all.generate(model, third, options(4, 3)).await?;
    said.extend(finish(model, answer).await?);
    all.rewind(first, mark)?;
    let with_logits = GenerateOptions { logprobs: true, ..options(3, 3) };
    let answer = all.generate(model, first, with_logits).await?;
    said.extend(finish(model, answer).await?);
    let mut scoring = Scoring::new(model, &ids)?;
    while scoring.read(model).await?.0 < ids.len() {}
    said.extend(scoring.logprobs()[1..].iter().map(|logprob| logprob.to_bits()));
    model.reset();
    let mut seen = |row: AttentionRow| {
        said.extend(row.weights.iter().map(|weight| (*weight as f32).to_bits()));
        Ok(())
    };
    model.attention(&ids, 0..ids.len(), &mut seen, &mut |_| Ok(())).await?;
    said.extend([model.live_pages().await? as u32]);
    Ok(said)
}

/// First calls of a model that gives no scores: what they read back, and how much at once, is more than what was set aside for it.
async fn first_calls(model: &mut Model) -> Result<Vec<u32>> {
    let ids: Vec<u32> = model.bos().into_iter().chain(model.tokenizer("test")?.encode(TEXT)?).collect();
    let mut all = Sequences::default();
    let number = all.open();
    all.append(model, number, &ids)?;
    read(&mut all, model, number).await?;
    let mut said = vec![all.save(model, number).await?.len() as u32];
    let answer = all.generate(model, number, GenerateOptions { in_flight: Some(4), ..options(3, 6) }).await?;
    said.extend(finish(model, answer).await?);
    Ok(said)
}

/// The self-test of a kernel on the model's device: its errors are those of its cases.
async fn check(model: &Model) -> Result<()> {
    let Device::Gpu(executor) = model.device() else { return Ok(()) };
    let checked = check_kernel(executor.gpu(), &RMS_NORM, &mut |_| ()).await?;
    checked.into_iter().try_for_each(|case| case.outcome.map(drop))
}

fn refused(error: &Error) {
    assert!(matches!(error.code(), "out-of-memory" | "gpu"), "{}: {error}", error.code());
}

/// What SECURITY.md says of a sweep is what the sweep was.
fn told(words: &str) {
    println!("{words}");
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("SECURITY.md")).unwrap();
    assert!(text.contains(words), "SECURITY.md does not say: {words}");
}

fn lose(model: &Model) {
    let Device::Gpu(executor) = model.device() else { unreachable!("a GPU was asked for") };
    executor.gpu().destroy();
}

fn logits(model: &mut Model) -> Vec<f32> {
    model.reset();
    block_on(model.step(1)).unwrap()
}

/// A load that recalls what an earlier one found out of the kernels; `unknown` has the rest.
fn allocations(way: Way) {
    if !common::gpu_expected() {
        return;
    }
    let folder = folder(&format!("allocations {way:?}"));
    let load = || load_with(&folder, way.options());
    set_host(Rc::new(common::Keeping::default()));
    let first = logits(&mut load().unwrap());
    arm(Fault::OutOfMemory, ALLOCATIONS, 0..0);
    let mut model = load().unwrap();
    let of_load = passed();
    let want = block_on(life(&mut model)).unwrap();
    // What is invalid is a bug and no matter of luck: every eighth.
    for (fault, step) in [(Fault::OutOfMemory, way.choose(1, 5, 1)), (Fault::Validation, way.choose(8, 16, 1))] {
        let sweep = |what: &str| Sweep::new(way, what, fault, ALLOCATIONS);
        let counted = sweep("a load").at_each(step, &first, || {
            let loaded = load();
            passed(); // what comes after the load is no part of it
            // Every kernel in its baseline variant, or a buffer that could be done without.
            loaded.map(|mut model| logits(&mut model))
        });
        // The first calls of a model make what later ones use again.
        let without_scores = || load_with(&folder, LoadOptions { scores: false, ..way.options() }).unwrap();
        let want = block_on(first_calls(&mut without_scores())).unwrap();
        let (mut of_calls, mut reached) = (sweep("a model's first calls"), true);
        while reached {
            let (mut model, n) = (without_scores(), of_calls.there);
            reached = of_calls.at(n, &want, || block_on(first_calls(&mut model)));
            let again = block_on(first_calls(&mut model)).unwrap();
            assert_eq!(again, want, "after {fault:?} at allocation {n} of the first calls");
        }
        of_calls.tell();
        let of_check = sweep("a self-test").at_each(step, &(), || block_on(check(&model))).there;
        assert_eq!(counted.there, of_load.next_multiple_of(step));
        let of_calls = of_calls.there;
        assert!(of_calls > 0 && of_check > 20, "{of_calls} allocations of the first calls, {of_check} of a self-test");
        if (fault, way) == (Fault::OutOfMemory, Way::Baseline) {
            told(&format!(
                "at each of the {of_load} buffers and pipelines of a load, {of_calls} of a model's first calls, {of_check} of a self-test"
            ));
        }
    }
    assert_eq!(block_on(life(&mut model)).unwrap(), want);
}

#[test]
fn an_allocation_that_fails_is_a_typed_error_and_the_next_call_works() {
    allocations(Way::Baseline);
}

#[test]
fn an_allocation_that_fails_on_a_device_with_all_its_features_is_a_typed_error() {
    allocations(Way::Equipped);
}

/// Between two calls the device is lost, and the new one has no memory left.
fn recoveries(way: Way) {
    if !common::gpu_expected() {
        return;
    }
    let mut model = load_with(&folder(&format!("recoveries {way:?}")), way.options()).unwrap();
    let want = logits(&mut model);
    let story = block_on(life(&mut model)).unwrap();
    for (fault, step) in [(Fault::OutOfMemory, way.choose(1, 7, 1)), (Fault::Validation, way.choose(8, 16, 1))] {
        let mut sweep = Sweep::new(way, "a model's recovery", fault, ALLOCATIONS);
        let (mut n, mut reached) = (0, true);
        while reached {
            lose(&model);
            reached = sweep.at(n, &want, || {
                model.reset();
                block_on(model.step(1))
            });
            let before = model.recoveries();
            assert_eq!(logits(&mut model), want, "after {fault:?} at allocation {n} of a recovery");
            assert!(reached || model.recoveries() == before);
            n += if reached { step } else { 0 };
        }
        sweep.tell();
        if (fault, way) == (Fault::OutOfMemory, Way::Baseline) {
            told(&format!("{n} of a model's recovery"));
        }
    }
    assert_eq!(block_on(life(&mut model)).unwrap(), story);
}

#[test]
fn an_allocation_of_a_recovery_that_fails_is_a_typed_error_and_the_next_call_works() {
    recoveries(Way::Baseline);
}

#[test]
fn an_allocation_of_a_recovery_that_fails_on_a_device_with_all_its_features_is_a_typed_error() {
    recoveries(Way::Equipped);
}

/// While kernels are compared with their twins, and nothing is kept of it.
fn unknown(way: Way) {
    if !common::gpu_expected() {
        return;
    }
    let folder = folder(&format!("unknown {way:?}"));
    let first = logits(&mut load_with(&folder, way.options()).unwrap());
    for fault in [Fault::OutOfMemory, Fault::Validation] {
        let sweep = Sweep::new(way, "a load that compares its kernels", fault, ALLOCATIONS);
        let sweep = sweep.at_each(way.choose(48, 96, 1), &first, || {
            let loaded = load_with(&folder, way.options());
            passed();
            loaded.map(|mut model| logits(&mut model))
        });
        assert!(sweep.there > 60, "{}", sweep.there);
    }
}

#[test]
fn an_allocation_of_a_load_whose_kernels_are_not_known_yet_that_fails_is_a_typed_error() {
    unknown(Way::Baseline);
}

#[test]
fn an_allocation_of_a_load_with_alternatives_that_are_not_known_yet_that_fails_is_a_typed_error() {
    unknown(Way::Equipped);
}

/// What work gives where the device is lost at these points of it, and how many points it passed.
fn lost_at<T>(points: Range<usize>, work: impl FnOnce() -> T) -> (T, usize) {
    arm(Fault::Lost, ALL, points);
    let done = work();
    (done, passed())
}

fn lost_at_any_time(way: Way) {
    if !common::gpu_expected() {
        return;
    }
    let mut model = load_with(&folder(&format!("lost {way:?}")), way.options()).unwrap();
    let (lived, n_points) = lost_at(0..0, || block_on(life(&mut model)));
    let want = lived.unwrap();
    let times = way.choose(20, 6, n_points);
    let mut sweep = Sweep::new(way, "a model's life", Fault::Lost, ALL);
    for time in 0..times {
        let n = time * n_points / times;
        // Now and then between two calls.
        if time % 6 == 5 {
            lose(&model);
        }
        let before = model.recoveries();
        let (lived, _) = lost_at(n..n + 1, || block_on(life(&mut model)));
        assert_eq!(lived.unwrap(), want, "lost at point {n} of {n_points}");
        assert!(model.recoveries() > before, "lost at point {n}");
        sweep.same += 1;
        if time % 5 == 0 {
            let (lived, _) = lost_at(n..usize::MAX, || block_on(life(&mut model)));
            assert!(matches!(lived, Err(Error::DeviceLost(_))), "{lived:?}");
            sweep.errors += 1;
            assert_eq!(block_on(life(&mut model)).unwrap(), want, "after a time in which it was always lost, from point {n} on");
        }
    }
    sweep.there = n_points;
    sweep.tell();
    let Device::Gpu(executor) = model.device() else { unreachable!("a GPU was asked for") };
    assert!(executor.gpu().notes().iter().any(|note| note.starts_with("the device was lost and opened again")));
}

#[test]
fn a_device_that_is_lost_at_any_time_is_back_with_the_same_continuation() {
    lost_at_any_time(Way::Baseline);
}

#[test]
fn a_device_with_all_its_features_that_is_lost_at_any_time_is_back_with_the_same_continuation() {
    lost_at_any_time(Way::Equipped);
}

/// No adapter is left, or only another one.
#[test]
fn a_lost_device_that_cannot_be_had_again_is_one_error_until_it_can() {
    if !common::gpu_expected() {
        return;
    }
    for device in [DeviceChoice::Gpu, DeviceChoice::Auto] {
        let_software_pass(true);
        let mut model = load_with(&folder("gone"), LoadOptions { device, ..load_options() }).unwrap();
        let want = block_on(life(&mut model)).unwrap();
        for (fault, named) in [(Fault::Lost, "no"), (Fault::Wrong, "(another) now")] {
            lose(&model);
            for _ in 0..2 {
                arm(fault, &[Point::Open], 0..usize::MAX);
                let error = block_on(life(&mut model)).unwrap_err();
                assert!(passed() > 0 && matches!(&error, Error::DeviceLost(why) if why.contains(named)), "{fault:?}: {error}");
            }
            let before = model.recoveries();
            assert_eq!((block_on(life(&mut model)).unwrap(), model.recoveries()), (want.clone(), before + 1), "{fault:?}");
        }
        let_software_pass(false);
    }
}

#[test]
fn an_answer_goes_on_where_the_device_was_lost_under_it() {
    if !common::gpu_expected() {
        return;
    }
    for (way, in_flight) in [(Way::Baseline, None), (Way::Baseline, Some(4)), (Way::Equipped, Some(4))] {
        let mut model = load_with(&folder("answers"), way.options()).unwrap();
        let options = || GenerateOptions { in_flight, ..options(7, 24) };
        let mut alone = Generation::new(&model, TEXT, options()).unwrap();
        let mut want = String::new();
        while let Some(piece) = block_on(alone.next(&mut model)).unwrap() {
            want += &piece.text;
        }
        // Before the prompt, within it, and after each of the first pieces.
        for lost_after in [0, 2, 4, 7] {
            let before = model.recoveries();
            let mut generation = Generation::new(&model, TEXT, options()).unwrap();
            let (mut text, mut calls, mut more) = (String::new(), 0, true);
            while more {
                if calls == lost_after
                    && let Device::Gpu(executor) = model.device()
                {
                    executor.gpu().destroy();
                }
                calls += 1;
                if calls <= 3 {
                    block_on(generation.prefill(&mut model)).unwrap();
                    continue;
                }
                match block_on(generation.next(&mut model)).unwrap() {
                    Some(piece) => text += &piece.text,
                    None => more = false,
                }
            }
            assert_eq!(text, want, "{way:?}: lost after {lost_after} calls, {in_flight:?} in flight");
            assert!(model.recoveries() > before || calls <= lost_after);
        }
    }
}

fn lost_loads(way: Way) {
    if !common::gpu_expected() {
        return;
    }
    let folder = folder(&format!("loads {way:?}"));
    let load = || load_with(&folder, way.options());
    let (loaded, n_points) = lost_at(0..0, load);
    let mut model = loaded.unwrap();
    let want = block_on(life(&mut model)).unwrap();
    let times = way.choose(4, 2, n_points);
    let mut sweep = Sweep::new(way, "a load", Fault::Lost, ALL);
    for n in (0..times).map(|time| time * n_points / times) {
        let (loaded, _) = lost_at(n..n + 1, load);
        let mut model = loaded.unwrap();
        assert_eq!(
            (block_on(life(&mut model)).unwrap(), model.recoveries()),
            (want.clone(), 1),
            "lost at point {n} of {n_points}"
        );
        let (loaded, _) = lost_at(n..usize::MAX, load);
        sweep.same += 1;
        match loaded {
            Err(Error::DeviceLost(_)) => sweep.errors += 1,
            // Lost behind the last thing that the load waits for: the next call finds it.
            Ok(mut model) => {
                assert_eq!(block_on(life(&mut model)).unwrap(), want, "lost at point {n} of {n_points}");
                sweep.same += 1;
            }
            Err(error) => unreachable!("lost for good at point {n} of {n_points}: {error}"),
        }
    }
    sweep.there = n_points;
    sweep.tell();
}

#[test]
fn a_load_under_which_the_device_is_lost_begins_anew() {
    lost_loads(Way::Baseline);
}

#[test]
fn a_load_under_which_a_device_with_all_its_features_is_lost_begins_anew() {
    lost_loads(Way::Equipped);
}
