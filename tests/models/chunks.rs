//! How a prompt is cut into replays follows the clock on a GPU, and must not show: not in the numbers, and not in what is refused or
//! forgotten when pages run out.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic, also in its helpers")]

use crate::common;
use kitfox::graph::{Extent, Features};
use kitfox::kernel::KERNELS;
use kitfox::session::load::random;
use kitfox::session::{DeviceChoice, LoadOptions, Model, Overflow, Pruning};
use pollster::block_on;
use serde_json::{Value, json};

/// Wide enough for every tile that a software adapter is given.
fn made_up(options: LoadOptions) -> Model {
    let config = json!({
        "model_type": "forgetting_transformer-project_fox", "vocab_size": 131, "hidden_size": 256, "hidden_ratio": 2.0,
        "num_hidden_layers": 2, "num_heads": 4, "use_output_gate": true, "use_output_norm": true, "qk_norm": true,
        "use_k_shift": true, "use_v_shift": true
    });
    let Value::Object(config) = config else { panic!("an object") };
    let checkpoint = random(config, "q4_0".parse().unwrap(), 3).unwrap();
    let options = LoadOptions { device: DeviceChoice::Gpu, baseline: true, ..options };
    block_on(Model::load(checkpoint, options, &mut |_| Ok(()))).unwrap()
}

fn ids(n: usize) -> Vec<u32> {
    (0..n as u32).map(|ix| ix * 37 % 131).collect()
}

fn bits(logits: Option<Vec<f32>>) -> Vec<u32> {
    logits.unwrap().into_iter().map(f32::to_bits).collect()
}

/// Reads all ids, at most so many tiles of 64 at a time in turns; gives the logits after the last and the sizes of the replays.
fn by(model: &mut Model, ids: &[u32], tiles: &[usize]) -> (kitfox::Result<Vec<u32>>, Vec<usize>) {
    model.reset();
    let (mut at, mut sizes) = (0, Vec::new());
    for tiles in tiles.iter().cycle() {
        let n = block_on(model.next_chunk(ids.len() - at)).unwrap().min(64 * tiles);
        sizes.push(n);
        match block_on(model.prefill(&ids[at..at + n], at + n == ids.len())) {
            Ok(Some(logits)) => return (Ok(bits(Some(logits))), sizes),
            Ok(None) => at += n,
            Err(error) => return (Err(error), sizes),
        }
    }
    unreachable!("every replay reads something")
}

#[test]
fn whole_tiles_of_any_number_give_the_same_bits() {
    if !common::gpu_expected() {
        return;
    }
    let ids = ids(4 * 64 + 37);
    for prune in [Pruning::Off, Pruning::Epsilon(0.05)] {
        let mut model = made_up(LoadOptions { context: Some(320), chunk: Some(320), prune, ..LoadOptions::default() });
        let (want, _) = by(&mut model, &ids, &[8]);
        let want = want.unwrap();
        for tiles in [&[1][..], &[2, 3], &[3, 1]] {
            let (got, sizes) = by(&mut model, &ids, tiles);
            assert!(got.unwrap() == want, "{prune:?}, replays of {sizes:?}");
        }
        assert_eq!((model.chunk(), model.max_chunk()), (320, 320), "what was given is kept");
    }
}

/// And a GPU reads by measured time unless told otherwise.
#[test]
fn what_slides_away_or_is_refused_does_not_depend_on_the_replays() {
    if !common::gpu_expected() {
        return;
    }
    let ids = ids(400);
    // Pages of 192 tokens. Nothing but sliding frees one; with pruning alone, live keys fill them.
    for (prune, overflow) in [(Pruning::Off, Overflow::Slide), (Pruning::Epsilon(1e-30), Overflow::Error)] {
        let mut model = made_up(LoadOptions { context: Some(192), prune, overflow, ..LoadOptions::default() });
        let mut seen = Vec::new();
        for tiles in [&[1][..], &[2, 1]] {
            let (got, sizes) = by(&mut model, &ids, tiles);
            let read: usize = sizes[..sizes.len() - 1].iter().sum();
            println!("{prune:?}, {overflow:?}: replays of {sizes:?}, then {:?}", got.as_ref().err());
            seen.push(got.map_err(|error| (read, error.to_string())));
            assert!(model.chunk().is_multiple_of(64) && (64..=model.max_chunk()).contains(&model.chunk()));
        }
        assert!(seen.iter().all(|one| *one == seen[0]), "{prune:?}, {overflow:?}");
        assert_eq!(seen[0].is_ok(), overflow == Overflow::Slide);
    }
}

/// Without a GPU: the tiles of a graph are those of its largest workgroup, because each smaller one divides it.
#[test]
fn every_workgroup_takes_a_power_of_two_of_tokens() {
    let everything = Features::everything();
    for dispatch in
        KERNELS.iter().flat_map(|kernel| (kernel.cases)()).flat_map(|case| case.program.graphs).flat_map(|graph| graph.dispatches)
    {
        let offered = dispatch.alternatives(&everything);
        for grid in offered.iter().map(|offer| offer.grid).chain([dispatch.grid]) {
            let per = grid.0.into_iter().filter_map(|extent| if let Extent::Tokens { per } = extent { Some(per) } else { None });
            assert!(per.into_iter().all(|per| per.is_power_of_two() && per <= 1024), "{}", dispatch.kernel.name);
        }
    }
}
