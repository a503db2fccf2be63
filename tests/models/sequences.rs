//! Promises of several sequences over one model, and of scores: each is as if it were alone.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::common::tiny;
use crate::common::tiny::Tiny;
use crate::common::tokenizers;
use kitfox::Error;
use kitfox::gpu::inject::{Fault, Point, arm, passed};
use kitfox::session::score::nll;
use kitfox::session::{DeviceChoice, GenerateOptions, Generation, LoadOptions, Model, SamplerOptions, Scoring, Sequences};
use pollster::block_on;
use std::path::Path;

fn load(test: &str, device: DeviceChoice, scores: bool) -> Model {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sequences").join(format!("{test} {device:?} {scores}"));
    let folder = Tiny::new(Some(tokenizers::byte_level())).write(&folder);
    let options = LoadOptions { device, scores, context: Some(256), chunk: Some(16), ..LoadOptions::default() };
    let checkpoint = block_on(kitfox::format::open(&folder)).unwrap();
    block_on(Model::load(checkpoint, options, &mut |_| Ok(()))).unwrap()
}

fn devices() -> Vec<DeviceChoice> {
    let gpu = common::gpu_expected().then_some(DeviceChoice::Gpu);
    [DeviceChoice::Cpu].into_iter().chain(gpu).collect()
}

fn options(seed: u64, max_tokens: usize) -> GenerateOptions {
    let sampler = SamplerOptions { seed, temperature: 2.0, min_p: 0.0, top_k: 0, ..SamplerOptions::default() };
    GenerateOptions { max_tokens, sampler, ignore_eos: true, ..GenerateOptions::default() }
}

fn ids_of(model: &Model, text: &str) -> Vec<u32> {
    let ids = model.tokenizer("test").unwrap().encode(text).unwrap();
    model.bos().into_iter().chain(ids).collect()
}

fn finish(model: &mut Model, mut generation: Generation) -> Vec<u32> {
    while block_on(generation.next(model)).unwrap().is_some() {}
    generation.generated_ids().to_vec()
}

fn append(all: &mut Sequences, model: &mut Model, number: u32, ids: &[u32]) {
    all.append(model, number, ids).unwrap();
    loop {
        let (done, total) = block_on(all.read(model, number)).unwrap();
        if done == total {
            break;
        }
    }
}

/// An answer, kept as part of the sequence.
fn answer(all: &mut Sequences, model: &mut Model, number: u32, seed: u64, n: usize) -> Vec<u32> {
    let generation = block_on(all.generate(model, number, options(seed, n))).unwrap();
    let ids = finish(model, generation);
    all.append(model, number, &ids).unwrap();
    ids
}

#[test]
fn sequences_in_turns_say_what_each_says_alone() {
    for device in devices() {
        let mut model = load("turns", device, false);
        let prompts = ["hello a", "another prompt, which is longer than a chunk", "z"];
        let talk = |model: &mut Model, all: &mut Sequences, number: u32, turn: usize, prompt: &str| {
            let mut ids = ids_of(model, prompt);
            if turn > 0 {
                ids.remove(0);
            }
            append(all, model, number, &ids);
            answer(all, model, number, turn as u64, 9)
        };
        let alone = prompts.map(|prompt| {
            let mut all = Sequences::default();
            let number = all.open();
            let said = [0, 1, 2].map(|turn| talk(&mut model, &mut all, number, turn, prompt));
            assert_eq!(all.bytes_away(), 0);
            said
        });
        let mut all = Sequences::default();
        let numbers = prompts.map(|_| all.open());
        for turn in [0, 1, 2] {
            for (ix, prompt) in prompts.iter().enumerate() {
                assert_eq!(talk(&mut model, &mut all, numbers[ix], turn, prompt), alone[ix][turn], "{device:?} {prompt} {turn}");
            }
            // A text of nobody's in between.
            block_on(all.leave(&mut model)).unwrap();
            let other = Generation::new(&model, "in between", options(5, 4)).unwrap();
            finish(&mut model, other);
        }
        assert!(all.bytes_away() > 0);
        numbers.into_iter().for_each(|number| all.close(number));
        assert_eq!(all.bytes_away(), 0);
        assert!(all.ids(numbers[0]).is_err());
    }
}

/// Each with a model of its own, as a program with threads has them; on a GPU eight devices are open at once.
#[test]
fn eight_threads_write_what_each_writes_alone() {
    for device in devices() {
        let write = |seed: u64| {
            let mut model = load(&format!("threads {seed}"), device, false);
            let answer = Generation::new(&model, &"hello ".repeat(1 + seed as usize), options(seed, 24)).unwrap();
            finish(&mut model, answer)
        };
        let alone: Vec<_> = (0..8).map(write).collect();
        let together: Vec<_> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..8).map(|seed| scope.spawn(move || write(seed))).collect();
            running.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(together, alone, "{device:?}");
        assert!(alone.iter().all(|ids| ids.len() == 24));
        assert!(alone[1..].iter().all(|ids| *ids != alone[0]), "the seeds matter");
    }
}

#[test]
fn forks_marks_and_saved_bytes_lead_to_the_same_place() {
    for device in devices() {
        let mut model = load("forks", device, false);
        let (mut all, mut other) = (Sequences::default(), Sequences::default());
        let first = all.open();
        let opening = ids_of(&model, "hello, this is how it begins");
        append(&mut all, &mut model, first, &opening);
        let mark = block_on(all.mark(&mut model, first)).unwrap();
        let fork = block_on(all.fork(&mut model, first)).unwrap();
        let bytes = block_on(all.save(&mut model, first)).unwrap();
        let want = answer(&mut all, &mut model, first, 3, 20);
        assert_eq!(answer(&mut all, &mut model, fork, 3, 20), want, "{device:?}: a fork");
        assert_eq!(all.ids(first).unwrap(), all.ids(fork).unwrap());
        all.rewind(first, mark).unwrap();
        assert_eq!(answer(&mut all, &mut model, first, 3, 20), want, "{device:?}: after a rewind");
        let elsewhere = other.open();
        block_on(all.leave(&mut model)).unwrap();
        block_on(other.restore(&mut model, elsewhere, &bytes)).unwrap();
        assert_eq!(answer(&mut other, &mut model, elsewhere, 3, 20), want, "{device:?}: from bytes");
        // An answer to a sequence that is read to its end: the last id is read again.
        all.rewind(fork, mark).unwrap();
        let more =
            block_on(other.leave(&mut model)).and_then(|()| block_on(all.generate(&mut model, fork, options(3, 20)))).unwrap();
        assert_eq!(finish(&mut model, more), want);
        // Left in the middle: what was said so far is kept, or not.
        all.rewind(first, mark).unwrap();
        let mut left = block_on(all.generate(&mut model, first, options(3, 20))).unwrap();
        while left.generated_ids().len() < 5 {
            block_on(left.next(&mut model)).unwrap();
        }
        let said = left.generated_ids().to_vec();
        all.append(&model, first, &said[..4]).unwrap();
        let again = answer(&mut all, &mut model, first, 8, 6);
        let alone = all.open();
        append(&mut all, &mut model, alone, &[&opening[..], &want[..4]].concat());
        assert_eq!(answer(&mut all, &mut model, alone, 8, 6), again, "{device:?}: left in the middle");
    }
}

#[test]
fn what_cannot_be_leaves_the_sequence_as_it_was() {
    let mut model = load("refused", DeviceChoice::Cpu, false);
    let mut all = Sequences::default();
    let number = all.open();
    let empty = block_on(all.generate(&mut model, number, options(1, 3)));
    assert!(matches!(empty, Err(Error::Argument { .. })));
    append(&mut all, &mut model, number, &[1, 2, 3]);
    assert!(matches!(all.append(&model, number, &[999]), Err(Error::Argument { .. })));
    assert!(matches!(all.append(&model, number, &[1; 254]), Err(Error::ContextFull { needed: 257, .. })));
    assert!(all.rewind(number, 4).is_err());
    assert!(block_on(all.restore(&mut model, number, b"no session")).is_err());
    assert!(block_on(all.enter(&mut model, number + 1)).is_err());
    assert_eq!(all.ids(number).unwrap(), [1, 2, 3]);
    assert_eq!(answer(&mut all, &mut model, number, 1, 3).len(), 3);
}

#[test]
fn scores_are_the_log_probabilities_of_the_logits_by_chunks_and_by_steps() {
    for (device, scores) in devices().into_iter().flat_map(|device| [(device, false), (device, true)]) {
        let mut model = load("scores", device, scores);
        let ids = ids_of(&model, "hello, this is a text of more than one chunk");
        let mut want = Vec::new();
        for pair in ids.windows(2) {
            let row = block_on(model.step(pair[0])).unwrap();
            want.push(-nll(&row, pair[1]).unwrap() as f32);
        }
        // With the begin token in front or put there.
        for ids in [&ids[1..], &ids[..]] {
            let mut scoring = Scoring::new(&model, ids).unwrap();
            loop {
                let (done, total) = block_on(scoring.read(&mut model)).unwrap();
                if done == total {
                    break;
                }
            }
            assert_eq!(scoring.ids(), ids);
            let got = &scoring.logprobs()[ids.len() - want.len()..];
            assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-3), "{device:?} {scores}: {got:?} {want:?}");
            assert_eq!(scoring.logprobs()[0].is_nan(), ids.len() > want.len(), "nothing is in front of the begin token");
        }
        assert!(Scoring::new(&model, &[]).is_err() && Scoring::new(&model, &[VOCAB]).is_err());
        assert!(matches!(Scoring::new(&model, &[1; 257]), Err(Error::ContextFull { .. })));
    }
}

const VOCAB: u32 = tiny::VOCAB as u32;

/// A mark is of the ids there were: behind a way back there is none, and nothing is kept for it.
#[test]
fn what_is_taken_back_takes_its_marks_along() {
    for device in devices() {
        let mut model = load("taken back", device, false);
        let mut all = Sequences::default();
        let (first, second) = (all.open(), all.open());
        let ids = ids_of(&model, "once there was a fox in a wood");
        append(&mut all, &mut model, first, &ids[..12]);
        append(&mut all, &mut model, second, &ids[..5]);
        let away = |all: &mut Sequences, model: &mut Model| {
            block_on(all.enter(model, second)).unwrap();
            all.bytes_away()
        };
        let plain = away(&mut all, &mut model);
        // Of the twelfth id, read or not: two lengths at one position.
        let mark = block_on(all.mark(&mut model, first)).unwrap();
        assert!(away(&mut all, &mut model) > plain, "{device:?}: a mark is kept");
        append(&mut all, &mut model, first, &ids[12..]);
        all.rewind(first, mark - 1).unwrap();
        all.append(&model, first, &ids[20..21]).unwrap();
        assert_eq!(away(&mut all, &mut model), plain, "{device:?}: nothing is kept for a mark that is gone");
        // The same while it has its turn.
        block_on(all.mark(&mut model, first)).unwrap();
        all.rewind(first, mark - 1).unwrap();
        all.append(&model, first, &ids[20..21]).unwrap();
        assert_eq!(away(&mut all, &mut model), plain, "{device:?}: no page is pinned for it");
        let alone = all.open();
        append(&mut all, &mut model, alone, &[&ids[..11], &ids[20..21]].concat());
        let want = answer(&mut all, &mut model, alone, 4, 12);
        assert_eq!(answer(&mut all, &mut model, first, 4, 12), want, "{device:?}");
    }
}

/// Copies take memory: a turn that there is none for leaves both sequences as they were.
#[test]
fn a_turn_that_there_is_no_memory_for_leaves_both_as_they_were() {
    if !common::gpu_expected() {
        return;
    }
    for n in 0.. {
        let mut model = load("no memory", DeviceChoice::Gpu, false);
        let ids = ids_of(&model, "once there was a fox in a wood");
        let mut all = Sequences::default();
        let (first, second) = (all.open(), all.open());
        append(&mut all, &mut model, first, &ids[..6]);
        let mark = block_on(all.mark(&mut model, first)).unwrap();
        append(&mut all, &mut model, first, &ids[6..]);
        arm(Fault::OutOfMemory, &[Point::Buffer], n..usize::MAX);
        let turn = block_on(all.enter(&mut model, second));
        let n_points = passed();
        assert_eq!(turn.is_ok(), n >= n_points, "{n} of {n_points}: {turn:?}");
        assert!(matches!(turn, Ok(()) | Err(Error::OutOfMemory { .. })), "{turn:?}");
        assert_eq!((all.ids(first).unwrap(), all.ids(second).unwrap()), (&ids[..], &[][..]));
        all.rewind(first, mark).unwrap();
        let got = answer(&mut all, &mut model, first, 4, 12);
        append(&mut all, &mut model, second, &ids[..6]);
        assert_eq!(got, answer(&mut all, &mut model, second, 4, 12), "{n} of {n_points}");
        if turn.is_ok() {
            break;
        }
    }
}
