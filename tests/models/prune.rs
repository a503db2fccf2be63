//! Promises of pages that die: off is as if they did not; what is left out weighs next to nothing; freed pages are used again; a way back
//! leads to the same place; what slides away is gone and nothing else.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic, also in its helpers")]

use crate::common;
use kitfox::Error;
use kitfox::session::{DeviceChoice, KvBytes, KvType, LoadOptions, Model, Overflow, Pruning, Sequences};
use pollster::block_on;
use std::path::PathBuf;

const EPSILON: f64 = 4.5e-5;

fn load(case: &str, options: LoadOptions) -> kitfox::Result<Model> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden").join(case);
    block_on(async { Model::load(kitfox::format::open(&directory).await?, options, &mut |_| Ok(())).await })
}

fn devices() -> Vec<DeviceChoice> {
    let gpu = common::gpu_expected().then_some(DeviceChoice::Gpu);
    [DeviceChoice::Cpu].into_iter().chain(gpu).collect()
}

/// Feeds ids, some in chunks and some one by one; gives the logits after the last of each part.
fn feed(model: &mut Model, ids: &[u32]) -> kitfox::Result<Vec<Vec<f32>>> {
    let mut logits = Vec::new();
    for (turn, part) in ids.chunks(model.chunk()).enumerate() {
        if turn % 3 < 2 {
            logits.extend(block_on(model.prefill(part, true))?);
        } else {
            for id in part {
                logits.push(block_on(model.step(*id))?);
            }
        }
    }
    Ok(logits)
}

fn furthest(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    assert_eq!(a.len(), b.len());
    let off = |(a, b): (&Vec<f32>, &Vec<f32>)| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    a.iter().zip(b).map(off).fold(0.0, f32::max)
}

fn greedy(model: &mut Model, from: u32, n: usize) -> Vec<u32> {
    let mut ids = vec![from];
    for _ in 0..n {
        let logits = block_on(model.step(ids[ids.len() - 1])).unwrap();
        let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
        ids.push(best as u32);
    }
    ids
}

#[test]
fn off_and_an_epsilon_too_small_for_any_page_are_the_same_bits() {
    for device in devices() {
        let logits = [Pruning::Off, Pruning::Epsilon(1e-300)].map(|prune| {
            let options = LoadOptions { device, prune, context: Some(512), chunk: Some(64), ..Default::default() };
            let mut model = load("fox_pro", options).unwrap();
            let logits = feed(&mut model, &common::ids(400, 199)).unwrap();
            assert_eq!(block_on(model.live_kv_fraction()).unwrap(), 1.0);
            logits
        });
        assert!(logits[0] == logits[1], "{device:?}");
    }
}

#[test]
fn a_model_prunes_as_it_states_and_refuses_what_has_no_bound() {
    let tolerance = |case: &str, prune| {
        load(case, LoadOptions { device: DeviceChoice::Cpu, prune, ..Default::default() }).map(|m| m.log_pruning_tolerance())
    };
    assert_eq!(tolerance("fox_pro_pruned", Pruning::Model).unwrap(), Some(-10.0));
    assert_eq!(tolerance("fox_pro_pruned", Pruning::Off).unwrap(), None);
    assert_eq!(tolerance("fox_pro", Pruning::Model).unwrap(), None);
    assert_eq!(tolerance("fox_pro", Pruning::Epsilon(0.5)).unwrap(), Some(0.5f64.ln()));
    for (case, prune, word) in [
        ("fox_llama", Pruning::Epsilon(0.5), "norms of q and k"),
        ("transformer_pro", Pruning::Epsilon(0.5), "a forget gate"),
        ("fla_window_bias", Pruning::Epsilon(0.5), "norms"),
        ("fox_pro", Pruning::Epsilon(0.0), "between 0 and 1"),
        ("fox_pro", Pruning::Epsilon(f64::NAN), "between 0 and 1"),
    ] {
        let refused = tolerance(case, prune).unwrap_err();
        assert!(matches!(refused, Error::Argument { .. }) && refused.to_string().contains(word), "{case}: {refused}");
    }
}

/// Ten times the context goes through its pages, and says what a model with room for all says.
#[test]
fn a_sequence_outgrows_its_context_as_long_as_live_pages_fit() {
    for device in devices() {
        let options = LoadOptions { device, kv: KvType::F32, chunk: Some(64), ..Default::default() };
        let whole = LoadOptions { context: Some(4096), prune: Pruning::Off, ..options.clone() };
        let small = LoadOptions { context: Some(640), prune: Pruning::Epsilon(EPSILON), ..options };
        let ids = common::ids(if device == DeviceChoice::Cpu { 3840 } else { 1200 }, 199);
        let (mut whole, mut small) = (load("fox_pro", whole).unwrap(), load("fox_pro", small).unwrap());
        let (want, got) = (feed(&mut whole, &ids).unwrap(), feed(&mut small, &ids).unwrap());
        let off = furthest(&got, &want);
        let live = block_on(small.live_kv_fraction()).unwrap();
        // ‖o − o′‖ ≤ 2ε·max‖v‖ through two layers; far less in fact.
        assert!(off < 1e-3, "{device:?}: off by {off:.1e}");
        assert!(live < 0.3, "{device:?}: {live} of the pages are live");
        assert!(block_on(small.kv_bytes_live()).unwrap() <= small.kv_bytes_pool());
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_counts_and_leaves_the_sequence_as_it_was() {
    for device in devices() {
        // No page ever dies at this ε.
        let prune = Pruning::Epsilon(1e-300);
        let options = LoadOptions { device, prune, context: Some(120), chunk: Some(32), ..Default::default() };
        let mut model = load("fox_pro", options).unwrap();
        feed(&mut model, &common::ids(128, 199)).unwrap();
        let full = block_on(model.step(1)).unwrap_err();
        assert!(matches!(full, Error::PagesFull { tokens: 129, free: 0, context: 120, .. }), "{full}");
        assert_eq!((full.code(), model.pos()), ("context-full", 128));
        block_on(model.rewind_to(100)).unwrap();
        assert!(block_on(model.step(1)).is_ok());
    }
}

/// The way back is by the mark where there is one, else by the ids from the nearest mark or the start; freed pages were used by
/// others meanwhile.
#[test]
fn going_back_by_mark_or_by_ids_is_as_if_it_had_never_gone_on() {
    for device in devices() {
        let (context, end) = if device == DeviceChoice::Cpu { (1024, 4096) } else { (1024, 1400) };
        let prune = Pruning::Epsilon(EPSILON);
        let options = LoadOptions { device, prune, context: Some(context), chunk: Some(64), ..Default::default() };
        let mut model = load("fox_pro", options).unwrap();
        let opening = common::ids(30, 199);
        block_on(model.prefill(&opening[..29], false)).unwrap();
        let ids = greedy(&mut model, opening[29], end / 2 - 30);
        assert_eq!(model.pos(), end / 2 - 1);
        let last = ids[ids.len() - 1];
        let mark = block_on(model.mark()).unwrap();
        let want = greedy(&mut model, last, end / 2);
        block_on(model.rewind_to(mark)).unwrap();
        assert_eq!(greedy(&mut model, last, end / 2), want, "{device:?}: by the mark");
        model.release(mark);
        block_on(model.rewind_to(mark)).unwrap();
        assert_eq!(greedy(&mut model, last, 100), want[..101], "{device:?}: by the ids");
        // Within the last tokens without either.
        block_on(model.rewind_to(model.pos() - 31)).unwrap();
        assert_eq!(greedy(&mut model, want[69], 20), want[69..90], "{device:?}: a few tokens");
        // From a mark in front of the place.
        let mark = block_on(model.mark()).unwrap();
        let further = greedy(&mut model, want[89], 130);
        block_on(model.rewind_to(mark + 40)).unwrap();
        assert_eq!(greedy(&mut model, further[40], 90), further[40..131], "{device:?}: from a mark before");
        assert!(block_on(model.rewind_to(model.pos() + 1)).is_err());
    }
}

/// A mark's pages are not given away, so marks enough to hold all of them end in a refusal, not in a wrong answer.
#[test]
fn marks_pin_their_pages_until_they_are_released() {
    let prune = Pruning::Epsilon(EPSILON);
    let options = LoadOptions { device: DeviceChoice::Cpu, prune, context: Some(768), chunk: Some(64), ..Default::default() };
    let mut model = load("fox_pro", options).unwrap();
    let ids = common::ids(4000, 199);
    let mut marks = Vec::new();
    let full = loop {
        let at = model.pos();
        if let Err(full) = block_on(model.prefill(&ids[at..at + 64], false)) {
            break full;
        }
        marks.push(block_on(model.mark()).unwrap());
    };
    assert!(matches!(full, Error::PagesFull { .. }), "{full}");
    marks.into_iter().for_each(|mark| model.release(mark));
    let at = model.pos();
    feed(&mut model, &ids[at..]).unwrap();
}

/// What a page or a status line shows while a text is written costs no wait for the device, and errs on one side only.
#[test]
fn what_is_known_without_asking_the_device_is_never_less_than_what_is_live() {
    for device in devices() {
        let options = LoadOptions { device, chunk: Some(64), context: Some(1024), ..Default::default() };
        for prune in [Pruning::Epsilon(EPSILON), Pruning::Off] {
            let mut model = load("fox_pro", LoadOptions { prune, ..options.clone() }).unwrap();
            assert_eq!(model.kv_bytes_known(), KvBytes::default());
            let ids = common::ids(if device == DeviceChoice::Cpu { 960 } else { 640 }, 199);
            let of_page = model.kv_bytes_pool() / (1024 / 64) / (model.config().n_layers * model.config().n_kv_heads) as u64;
            for (turn, part) in ids.chunks(64).enumerate() {
                feed(&mut model, part).unwrap();
                let (known, live) = (model.kv_bytes_known(), block_on(model.kv_bytes_live()).unwrap());
                let filled = ((turn + 1) * model.config().n_layers * model.config().n_kv_heads) as u64 * of_page;
                assert!((live..=filled).contains(&known.live), "{device:?} {turn}: {known:?}, {live} are live of {filled}");
                assert!(known.freed <= filled - live, "{device:?} {turn}: {known:?}, {live} are live of {filled}");
                if device == DeviceChoice::Cpu {
                    assert_eq!(known.live, live, "at the end of a page it is exact");
                }
            }
            let KvBytes { live, freed } = model.kv_bytes_known();
            if prune == Pruning::Off {
                assert_eq!(
                    (live, freed),
                    (of_page * (ids.len() / 64 * model.config().n_layers * model.config().n_kv_heads) as u64, 0)
                );
            } else {
                assert!(freed > 0, "{device:?}: something was forgotten");
            }
            model.reset();
            assert_eq!(model.kv_bytes_known(), KvBytes::default());
        }
    }
    let windowed = LoadOptions { device: DeviceChoice::Cpu, chunk: Some(32), context: Some(512), ..Default::default() };
    let mut model = load("fla_window_bias", windowed).unwrap();
    feed(&mut model, &common::ids(300, 199)).unwrap();
    let known = model.kv_bytes_known();
    assert_eq!(known.live, block_on(model.kv_bytes_live()).unwrap());
    assert!(known.freed > known.live, "{known:?}: the window is short");
}

#[test]
fn a_mark_of_a_sequence_that_is_given_up_frees_what_it_alone_held() {
    for device in devices() {
        let prune = Pruning::Epsilon(EPSILON);
        let options = LoadOptions { device, prune, context: Some(1024), chunk: Some(64), ..Default::default() };
        let mut model = load("fox_pro", options).unwrap();
        let mut all = Sequences::default();
        let number = all.open();
        let ids = common::ids(900, 199);
        let append = |all: &mut Sequences, model: &mut Model, ids: &[u32]| {
            all.append(model, number, ids).unwrap();
            loop {
                let (done, total) = block_on(all.read(model, number)).unwrap();
                if done == total {
                    break;
                }
            }
        };
        append(&mut all, &mut model, &ids[..200]);
        let late = block_on(all.mark(&mut model, number)).unwrap();
        // All but the last id are read: the mark of one less is at the same place.
        all.rewind(number, 199).unwrap();
        let early = block_on(all.mark(&mut model, number)).unwrap();
        assert_eq!((early, late, model.pos()), (199, 200, 199));
        append(&mut all, &mut model, &ids[199..]);
        let held = model.kv_bytes_known().freed;
        all.unmark(&mut model, number, late).unwrap();
        all.unmark(&mut model, number, 5).unwrap();
        assert_eq!(model.kv_bytes_known().freed, held, "{device:?}: the other mark holds them");
        all.unmark(&mut model, number, early).unwrap();
        let freed = model.kv_bytes_known().freed;
        assert!(freed > held, "{device:?}: {freed} bytes are free, {held} were");
        all.unmark(&mut model, number, early).unwrap();
        assert_eq!(model.kv_bytes_known().freed, freed);
        // The way back is by the ids then, and leads to the same place.
        all.rewind(number, 300).unwrap();
        append(&mut all, &mut model, &ids[300..400]);
        assert_eq!(model.history(), &ids[..400]);
        assert!(all.unmark(&mut model, number + 1, early).is_err());
    }
}

/// Behind a mark pages die that it holds; what comes next can only be read anew from the mark, or from the start.
#[test]
fn marks_outlive_the_turns_of_others() {
    for device in devices() {
        let options =
            LoadOptions { device, prune: Pruning::Epsilon(EPSILON), context: Some(1024), chunk: Some(64), ..Default::default() };
        let mut model = load("fox_pro", options).unwrap();
        let mut all = Sequences::default();
        let (number, other) = (all.open(), all.open());
        let ids = common::ids(900, 199);
        let append = |all: &mut Sequences, model: &mut Model, number: u32, ids: &[u32]| {
            all.append(model, number, ids).unwrap();
            let mut steps = 0;
            while block_on(all.read(model, number)).map(|(done, total)| done < total).unwrap() {
                steps += 1;
            }
            steps
        };
        let logits = |model: &mut Model, id: u32| block_on(model.step(id)).unwrap();
        append(&mut all, &mut model, number, &ids[..201]);
        let first = block_on(all.mark(&mut model, number)).unwrap();
        let want = logits(&mut model, ids[200]);
        append(&mut all, &mut model, number, &ids[201..401]);
        let second = block_on(all.mark(&mut model, number)).unwrap();
        let late = logits(&mut model, ids[400]);
        append(&mut all, &mut model, number, &ids[401..]);
        // Something that has nothing to do with it, twice, and what another sequence says.
        for _ in 0..2 {
            block_on(all.leave(&mut model)).unwrap();
            model.reset();
            block_on(model.prefill(&ids[300..350], false)).unwrap();
            append(&mut all, &mut model, other, &ids[..70]);
        }
        let both = all.bytes_away();
        for (mark, want) in [(second, &late), (first, &want)] {
            all.rewind(number, mark).unwrap();
            block_on(all.enter(&mut model, number)).unwrap();
            assert_eq!((model.pos(), model.history()), (mark - 1, &ids[..mark - 1]), "{device:?}");
            assert_eq!(logits(&mut model, ids[mark - 1]), *want, "{device:?}: bit for bit as it was at {mark}");
        }
        // Behind a mark what is new is read, and not what is before.
        assert_eq!(append(&mut all, &mut model, number, &ids[201..265]), 0, "{device:?}: in one step");
        // Those that were gone back beyond are gone, as is what is given up, whoever has the turn.
        block_on(all.enter(&mut model, other)).unwrap();
        let one = all.bytes_away();
        assert!(one < both, "{one} bytes wait, {both} did");
        all.unmark(&mut model, number, second).unwrap();
        assert_eq!(all.bytes_away(), one);
        all.unmark(&mut model, number, first).unwrap();
        assert!(all.bytes_away() < one);
        all.rewind(number, 100).unwrap();
        append(&mut all, &mut model, number, &ids[..101]);
        assert_eq!(model.history(), [&ids[..100], &ids[..100]].concat());
        all.close(number);
        all.close(other);
        assert_eq!(all.bytes_away(), 0);
    }
}

#[test]
fn the_oldest_pages_slide_away_on_every_device_alike() {
    let mut all = Vec::new();
    for device in devices().into_iter().chain([DeviceChoice::Twin]) {
        for case in ["fox_pro", "fox_llama"] {
            let options = LoadOptions {
                device,
                prune: Pruning::Off,
                overflow: Overflow::Slide,
                kv: KvType::F32,
                context: Some(192),
                chunk: Some(32),
                ..Default::default()
            };
            let mut model = load(case, options).unwrap();
            all.push((case, device, feed(&mut model, &common::ids(500, 199)).unwrap()));
            assert!(block_on(model.live_kv_fraction()).unwrap() < 0.5, "{case} {device:?}");
        }
    }
    for (case, device, logits) in &all {
        let (_, _, twin) = all.iter().find(|(other, by, _)| other == case && *by == DeviceChoice::Twin).unwrap();
        let off = furthest(logits, twin);
        assert!(off < 2e-4, "{case} {device:?}: off by {off:.1e}");
    }
}
