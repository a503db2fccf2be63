//! Promises of what happens when the device fails: at every allocation, and lost at any time, a call ends in what it would have given or in
//! one typed error, and the next call works.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::common::golden;
use crate::common::tiny::Tiny;
use crate::common::tokenizers;
use kitfox::format::layer::{Layer, LayerConfig, LayerFloats, Mode};
use kitfox::format::{BoxFuture, BytesSource, Quant, Source, TensorType, convert};
use kitfox::gpu::inject::{Fault, Point, arm, passed};
use kitfox::kernel::inputs;
use kitfox::kernel::rms_norm::RMS_NORM;
use kitfox::session::check::check_kernel;
use kitfox::session::{
    AttentionRow, Device, DeviceChoice, ForgettingAttentionLayer, GenerateOptions, Generation, LayerOptions, LoadOptions, Model,
    Pruning, SamplerOptions, Scoring, Sequences,
};
use kitfox::{Error, Result};
use pollster::block_on;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

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

fn load(folder: &Path) -> Result<Model> {
    block_on(async { Model::load(kitfox::format::open(folder).await?, load_options(), &mut |_| Ok(())).await })
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

/// The self-test of a kernel on the model's device: its errors are those of its cases.
async fn check(model: &Model) -> Result<()> {
    let Device::Gpu(executor) = model.device() else { return Ok(()) };
    let checked = check_kernel(executor.gpu(), &RMS_NORM, &mut |_| ()).await?;
    checked.into_iter().try_for_each(|case| case.outcome.map(drop))
}

fn refused(error: &Error) {
    assert!(matches!(error.code(), "out-of-memory" | "gpu"), "{}: {error}", error.code());
}

#[test]
fn an_allocation_that_fails_is_a_typed_error_and_the_next_call_works() {
    if !common::gpu_expected() {
        return;
    }
    let folder = folder("allocations");
    arm(Fault::OutOfMemory, ALLOCATIONS, 0..0);
    let mut model = load(&folder).unwrap();
    let at_load = passed();
    let want = block_on(life(&mut model)).unwrap();
    let logits = |model: &mut Model| {
        model.reset();
        block_on(model.step(1)).unwrap()
    };
    let (mut recovered, first) = (0, logits(&mut model));
    // What is invalid is a bug and no matter of luck: of a load's points every eighth, as a load without the alternatives that it had takes long.
    for (fault, step) in [(Fault::OutOfMemory, 1), (Fault::Validation, 8)] {
        for n in (0..at_load).step_by(step) {
            arm(fault, ALLOCATIONS, n..n + 1);
            let loaded = load(&folder);
            passed();
            match loaded {
                Err(error) => refused(&error),
                // Every kernel in its baseline variant, or a buffer that could be done without.
                Ok(mut model) => {
                    assert_eq!(logits(&mut model), first, "{fault:?} {n}");
                    recovered += 1;
                }
            }
        }
        // A model that has lived once allocates nothing more, or goes on after a call that failed; so does its device after a self-test.
        let (mut of_life, mut of_check) = (0, 0);
        let fails = |n: usize, work: &mut dyn FnMut() -> Result<()>| {
            arm(fault, ALLOCATIONS, n..n + 1);
            let worked = work();
            let reached = passed() > n;
            match worked {
                Err(error) if reached => refused(&error),
                worked => worked.unwrap(),
            }
            reached
        };
        while fails(of_life, &mut || block_on(life(&mut model)).map(drop)) {
            of_life += step;
        }
        while fails(of_check, &mut || block_on(check(&model))) {
            of_check += step;
        }
        println!(
            "{fault:?}: {at_load} allocations of a load, {of_life} of the calls after it, {of_check} of a self-test; each {step}th"
        );
        assert!(at_load > 20 && of_check > 20);
        assert_eq!(block_on(life(&mut model)).unwrap(), want, "{fault:?}");
        assert_eq!(block_on(life(&mut load(&folder).unwrap())).unwrap(), want);
    }
    println!("{recovered} of them could be done without");
}

#[test]
fn a_device_that_is_lost_at_any_time_is_back_with_the_same_continuation() {
    if !common::gpu_expected() {
        return;
    }
    const TIMES: usize = 20;
    let folder = folder("lost");
    let mut model = load(&folder).unwrap();
    arm(Fault::Lost, ALL, 0..0);
    let want = block_on(life(&mut model)).unwrap();
    let n_points = passed();
    for time in 0..TIMES {
        let n = time * n_points / TIMES;
        // Now and then between two calls.
        if time % 6 == 5
            && let Device::Gpu(executor) = model.device()
        {
            executor.gpu().destroy();
        }
        let before = model.recoveries();
        arm(Fault::Lost, ALL, n..n + 1);
        let lived = block_on(life(&mut model));
        passed();
        assert_eq!(lived.unwrap(), want, "lost at point {n} of {n_points}");
        assert!(model.recoveries() > before, "lost at point {n}");
        if time % 5 == 0 {
            arm(Fault::Lost, ALL, n..usize::MAX);
            let lost = block_on(life(&mut model)).unwrap_err();
            passed();
            assert!(matches!(lost, Error::DeviceLost(_)), "{lost}");
            assert_eq!(block_on(life(&mut model)).unwrap(), want, "after a time in which it was always lost, from point {n} on");
        }
    }
    let Device::Gpu(executor) = model.device() else { unreachable!("a GPU was asked for") };
    assert!(executor.gpu().notes().iter().any(|note| note.starts_with("the device was lost and opened again")));
}

#[test]
fn an_answer_goes_on_where_the_device_was_lost_under_it() {
    if !common::gpu_expected() {
        return;
    }
    let mut model = load(&folder("answers")).unwrap();
    for in_flight in [None, Some(4)] {
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
            assert_eq!(text, want, "lost after {lost_after} calls, {in_flight:?} in flight");
            assert!(model.recoveries() > before || calls <= lost_after);
        }
    }
}

#[test]
fn a_load_under_which_the_device_is_lost_begins_anew() {
    if !common::gpu_expected() {
        return;
    }
    const TIMES: usize = 4;
    let folder = folder("loads");
    arm(Fault::Lost, ALL, 0..0);
    let mut model = load(&folder).unwrap();
    let n_points = passed();
    let want = block_on(life(&mut model)).unwrap();
    for n in (0..TIMES).map(|time| time * n_points / TIMES) {
        arm(Fault::Lost, ALL, n..n + 1);
        let loaded = load(&folder);
        passed();
        let mut model = loaded.unwrap();
        assert_eq!(
            (block_on(life(&mut model)).unwrap(), model.recoveries()),
            (want.clone(), 1),
            "lost at point {n} of {n_points}"
        );
        arm(Fault::Lost, ALL, n..usize::MAX);
        let loaded = load(&folder);
        passed();
        assert!(matches!(loaded, Err(Error::DeviceLost(_))));
    }
}

#[test]
fn a_sequence_with_dead_pages_comes_back_as_it_was() {
    if !common::gpu_expected() {
        return;
    }
    let checkpoint = || block_on(kitfox::format::open(&golden::directory("fox_pro_pruned"))).unwrap();
    let prune = Pruning::Epsilon(0.3);
    let options = LoadOptions { device: DeviceChoice::Gpu, context: Some(512), chunk: Some(64), prune, ..LoadOptions::default() };
    let mut model = block_on(Model::load(checkpoint(), options, &mut |_| Ok(()))).unwrap();
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
            if lost_at == Some(n)
                && let Device::Gpu(executor) = model.device()
            {
                executor.gpu().destroy();
            }
            ids.push(block_on(model.drawn(turn)).unwrap().0);
        }
        let live = block_on(model.live_pages()).unwrap();
        block_on(model.rewind_to(256)).unwrap();
        let logits = block_on(model.step(1)).unwrap();
        (ids, live, logits.into_iter().map(f32::to_bits).collect::<Vec<_>>())
    };
    let want = tell(None);
    for lost_at in [0, 1, 7, 100] {
        assert!(tell(Some(lost_at)) == want, "lost at token {lost_at}");
    }
}

fn layer_of(d: usize, bitnet: bool) -> Layer {
    let config = LayerConfig { hidden_size: d, num_heads: 4, mode: Mode::Decoder, bitnet };
    let [q_proj, k_proj, v_proj, out_proj] = [1, 2, 3, 4].map(|seed| inputs::floats(seed, d * d, 0.2));
    let (f_proj, f_bias) = (inputs::floats(5, 4 * d, 0.2), inputs::floats(6, 4, 1.0));
    let weights = LayerFloats {
        q_proj: &q_proj,
        k_proj: &k_proj,
        v_proj: &v_proj,
        f_proj: &f_proj,
        f_bias: Some(&f_bias),
        out_proj: &out_proj,
    };
    Layer::new(config, &weights).unwrap()
}

#[test]
fn a_layer_whose_device_is_lost_at_any_time_gives_the_same_rows() {
    if !common::gpu_expected() {
        return;
    }
    const LOADS: usize = 4;
    let lose = |layer: &ForgettingAttentionLayer| match layer.device() {
        Device::Gpu(executor) => executor.gpu().destroy(),
        Device::Cpu(_) => unreachable!("a GPU was asked for"),
    };
    for bitnet in [false, true] {
        let made = layer_of(64, bitnet);
        let options = LayerOptions { device: DeviceChoice::Gpu, max_tokens: Some(8) };
        let load = || block_on(ForgettingAttentionLayer::load(&made, options));
        let x = inputs::floats(9, 5 * 64, 1.0);
        let run = |layer: &mut ForgettingAttentionLayer| block_on(layer.run(&x));
        load().unwrap(); // finds out what the later ones recall
        arm(Fault::Lost, ALL, 0..0);
        let mut layer = load().unwrap();
        let of_load = passed();
        arm(Fault::Lost, ALL, 0..0);
        let want = run(&mut layer).unwrap();
        let of_run = passed();
        assert!(of_load > 20 && of_run >= 3, "{of_load}, {of_run}");
        for n in 0..of_run {
            let before = layer.recoveries();
            arm(Fault::Lost, ALL, n..n + 1);
            let ran = run(&mut layer);
            passed();
            assert_eq!((ran.unwrap(), layer.recoveries()), (want.clone(), before + 1), "lost at point {n} of {of_run}");
            arm(Fault::Lost, ALL, n..usize::MAX);
            let lost = run(&mut layer);
            passed();
            assert!(matches!(lost, Err(Error::DeviceLost(_))), "{lost:?}");
            assert_eq!(run(&mut layer).unwrap(), want, "after a time in which it was always lost, from point {n} on");
        }
        // Between two calls, with a new device that has no memory left: an error, and the next call works.
        let mut reached = true;
        let mut n = 0;
        while reached {
            lose(&layer);
            arm(Fault::OutOfMemory, ALLOCATIONS, n..n + 1);
            let ran = run(&mut layer);
            reached = passed() > n;
            match ran {
                Err(error) if reached => refused(&error),
                ran => assert_eq!(ran.unwrap(), want),
            }
            assert_eq!(run(&mut layer).unwrap(), want, "refused allocation {n}");
            n += 1;
        }
        assert!(n > 8, "{n} allocations of a recovery");
        for n in (0..LOADS).map(|time| time * of_load / LOADS) {
            arm(Fault::Lost, ALL, n..n + 1);
            let loaded = load();
            passed();
            let mut layer = loaded.unwrap();
            assert_eq!(
                (run(&mut layer).unwrap(), layer.recoveries()),
                (want.clone(), 1),
                "lost at point {n} of a load's {of_load}"
            );
            arm(Fault::Lost, ALL, n..usize::MAX);
            let lost = load();
            passed();
            assert!(matches!(lost, Err(Error::DeviceLost(_))));
        }
    }
}

/// What is the matter with a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    None,
    /// It cannot be opened again.
    Gone,
    /// It cannot be read from this byte on.
    Breaks(u64),
}

/// A file that is in trouble at times.
struct Troubled {
    file: BytesSource,
    trouble: Rc<Cell<Trouble>>,
}

impl Source for Troubled {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn len(&self) -> Option<u64> {
        self.file.len()
    }

    fn reopen(&mut self) -> BoxFuture<'_, Result<()>> {
        let gone = self.trouble.get() == Trouble::Gone;
        let io = || Error::Io { file: "model.gguf".into(), action: "open", reason: "a test".into() };
        Box::pin(async move { if gone { Err(io()) } else { Ok(()) } })
    }

    fn read<'a>(&'a mut self, at: u64, n: usize) -> BoxFuture<'a, Result<Vec<u8>>> {
        match self.trouble.get() {
            Trouble::Breaks(from) if at + n as u64 > from => {
                Box::pin(async { Err(Error::Io { file: "model.gguf".into(), action: "read", reason: "a test".into() }) })
            }
            _ => self.file.read(at, n),
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_when_the_device_is_lost_is_one_error_until_it_can() {
    if !common::gpu_expected() {
        return;
    }
    let folder = folder("unreadable");
    let mut file = Vec::new();
    let mut checkpoint = block_on(kitfox::format::open(&folder)).unwrap();
    block_on(convert(&mut checkpoint, Quant::plain(TensorType::F32), &mut file, "model.gguf", &mut |_, _| ())).unwrap();
    let (half, trouble) = (file.len() as u64 / 2, Rc::new(Cell::new(Trouble::None)));
    let source = Troubled { file: BytesSource::new("model.gguf", file), trouble: trouble.clone() };
    let load = async { Model::load(kitfox::format::read(Box::new(source)).await?, load_options(), &mut |_| Ok(())).await };
    let mut model = block_on(load).unwrap();
    let want = block_on(life(&mut model)).unwrap();
    for of in [Trouble::Gone, Trouble::Breaks(half)] {
        let Device::Gpu(executor) = model.device() else { unreachable!("a GPU was asked for") };
        executor.gpu().destroy();
        trouble.set(of);
        for _ in 0..2 {
            let error = block_on(life(&mut model)).unwrap_err();
            assert!(matches!(&error, Error::DeviceLost(why) if why.contains("model.gguf")), "{of:?}: {error}");
        }
        let before = model.recoveries();
        trouble.set(Trouble::None);
        assert_eq!((block_on(life(&mut model)).unwrap(), model.recoveries()), (want.clone(), before + 1), "{of:?}");
    }
}
