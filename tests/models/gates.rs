//! Promises of gates: those that are read are those of the model, whatever the device, the chunk and the pages; those that are replayed
//! are forgotten by, to the last bit, and their U bounds the scores.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic, also in its helpers")]

use crate::common;
use crate::common::golden;
use kitfox::format::{Checkpoint, to_f32};
use kitfox::model::Gates;
use kitfox::session::{DeviceChoice, KvType, LoadOptions, Model, Overflow, Pruning, load};
use kitfox::{Error, Result, format};
use pollster::block_on;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("www/models/demo.gguf")
}

fn open(path: &Path) -> Checkpoint {
    block_on(format::open(path)).unwrap()
}

fn load_model(path: &Path, options: LoadOptions) -> Model {
    block_on(Model::load(open(path), options, &mut |_| Ok(()))).unwrap()
}

fn devices() -> Vec<DeviceChoice> {
    let gpu = common::gpu_expected().then_some(DeviceChoice::Gpu);
    [DeviceChoice::Cpu].into_iter().chain(gpu).collect()
}

fn gates(model: &mut Model, ids: &[u32]) -> Gates {
    block_on(model.gates(ids, &mut |_| Ok(()))).unwrap()
}

fn numbers(checkpoint: &mut Checkpoint, name: &str) -> Option<Vec<f64>> {
    let ix = checkpoint.find(name)?;
    let (ty, n_rows) = (checkpoint.tensors[ix].ty, checkpoint.tensors[ix].n_rows());
    let bytes = block_on(checkpoint.read_rows(ix, 0, n_rows)).unwrap();
    let mut values = Vec::new();
    to_f32(ty, &bytes, &mut values);
    Some(values.into_iter().map(f64::from).collect())
}

/// log f of the first layer in f64, [H, T]: its input is the norm of the embedding, and nothing else.
fn first_layer(path: &Path, ids: &[u32], n_heads: usize) -> Vec<f64> {
    let mut checkpoint = open(path);
    let eps = checkpoint.config.get("norm_eps").and_then(serde_json::Value::as_f64).unwrap_or(1e-6);
    let embedding = numbers(&mut checkpoint, "token_embd.weight").unwrap();
    let norm = numbers(&mut checkpoint, "blk.0.attn_norm.weight").unwrap();
    let (weight, bias) = (numbers(&mut checkpoint, "blk.0.attn_fgate.weight"), numbers(&mut checkpoint, "blk.0.attn_fgate.bias"));
    let d = norm.len();
    let log_f = |head: usize, id: u32| {
        let x = &embedding[id as usize * d..][..d];
        let scale = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / d as f64 + eps).sqrt();
        let row = weight.as_ref().map(|weight| &weight[head * d..][..d]);
        let product: f64 = row.into_iter().flatten().zip(x.iter().zip(&norm)).map(|(w, (x, norm))| w * x * scale * norm).sum();
        let z = bias.as_ref().map(|bias| bias[head] + product);
        z.map_or(0.0, |z| z.min(0.0) - (-z.abs()).exp().ln_1p())
    };
    (0..n_heads).flat_map(|head| ids.iter().map(move |id| (head, *id))).map(|(head, id)| log_f(head, id)).collect()
}

fn assert_near<'a>(what: &str, got: impl IntoIterator<Item = &'a f32>, want: &[f64], bar: f64) {
    let got: Vec<f32> = got.into_iter().copied().collect();
    assert_eq!(got.len(), want.len(), "{what}");
    for (ix, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(*got) - want).abs() <= bar * (1.0 + want.abs()), "{what}: number {ix} is {got}, not {want}");
    }
}

#[test]
fn gates_of_the_first_layer_are_the_projection_in_f64() {
    let cases = [
        "fox_pro",
        "fox_llama",
        "gate_bias_only",
        "gate_fixed_alibi",
        "transformer_llama",
        "fla_gqa_norm_gate",
        "fla_window_bias",
    ];
    for case in cases {
        let path = golden::directory(case);
        let ids = golden::golden(case).tokens;
        for (device, chunk) in [DeviceChoice::Twin].into_iter().chain(devices()).zip([7, 64, 100]) {
            let mut model = golden::load(case, device, chunk);
            let gates = gates(&mut model, &ids);
            let [n_layers, n_heads, n_tokens] = gates.shape();
            assert_eq!([n_layers, n_heads, n_tokens], [model.config().n_layers, model.config().n_heads, ids.len()]);
            let want = first_layer(&path, &ids, n_heads);
            assert_near(&format!("{case} {device:?}"), &gates.log_f()[..n_heads * n_tokens], &want, 2e-6);
            assert_eq!(gates.bounds().is_some(), model.config().qk_norm, "{case}");
            for (above, bound) in gates.bounds().into_iter().flatten().zip(model.score_bounds().into_iter().flatten()) {
                assert!(f64::from(*above) >= *bound && f64::from(*above) < bound * 1.000_001);
            }
        }
    }
}

#[test]
fn gates_of_the_demo_are_the_projection_in_f64() {
    let text =
        "The Time Traveller (for so it will be convenient to speak of him) was expounding a recondite matter to us. ".repeat(12);
    for device in devices() {
        let mut model =
            load_model(&demo(), LoadOptions { device, context: Some(256), chunk: Some(64), ..LoadOptions::default() });
        let mut ids = vec![model.bos().unwrap()];
        ids.extend(model.tokenizer("a test").unwrap().encode(&text).unwrap());
        ids.truncate(150);
        assert_eq!(ids.len(), 150);
        let gates = gates(&mut model, &ids);
        assert_near(&format!("{device:?}"), &gates.log_f()[..8 * 150], &first_layer(&demo(), &ids, 8), 5e-6);
    }
}

/// Layers behind the first see attention: twins are the judge.
#[test]
fn gates_do_not_depend_on_the_device_the_chunk_or_where_a_call_ends() {
    for case in ["fox_pro", "fla_gqa_norm_gate", "fla_window_bias"] {
        let ids = golden::golden(case).tokens;
        let twin: Vec<f64> = {
            let read = gates(&mut golden::load(case, DeviceChoice::Twin, 64), &ids);
            read.log_f().iter().map(|log_f| f64::from(*log_f)).collect()
        };
        for device in devices() {
            for chunk in [13, 256] {
                let mut model = golden::load(case, device, chunk);
                let whole = gates(&mut model, &ids);
                assert_near(&format!("{case} {device:?} {chunk}"), whole.log_f(), &twin, 2e-5);
                model.reset();
                let parts = [&ids[..65], &ids[65..66], &ids[66..]].map(|ids| gates(&mut model, ids));
                for ix in 0..whole.shape()[0] * whole.shape()[1] {
                    let (layer, head) = (ix / whole.shape()[1], ix % whole.shape()[1]);
                    let joined: Vec<f32> = parts.iter().flat_map(|part| part.head(layer, head)).copied().collect();
                    let whole: Vec<f64> = whole.head(layer, head).iter().map(|log_f| f64::from(*log_f)).collect();
                    assert_near(&format!("{case} {device:?} {chunk} in parts"), &joined, &whole, 2e-5);
                }
            }
        }
    }
}

#[test]
fn pages_that_are_used_again_give_the_gates_of_their_own_tokens() {
    let ids = common::ids(700, 199);
    for device in devices() {
        for (case, prune, overflow) in [
            ("fox_pro_pruned", Pruning::Epsilon(4.5e-5), Overflow::Slide),
            ("fox_llama", Pruning::Off, Overflow::Slide),
            ("fla_gqa_norm_gate", Pruning::Epsilon(0.01), Overflow::Slide),
        ] {
            let path = golden::directory(case);
            let options = LoadOptions { device, context: Some(320), chunk: Some(50), prune, overflow, ..LoadOptions::default() };
            let mut model = load_model(&path, options);
            let n_heads = model.config().n_heads;
            let gates = gates(&mut model, &ids);
            let first = &gates.log_f()[..n_heads * ids.len()];
            assert_near(&format!("{case} {device:?}"), first, &first_layer(&path, &ids, n_heads), 2e-6);
        }
    }
}

#[test]
fn no_ids_and_a_stop_are_errors_and_the_model_goes_on() {
    let mut model = golden::load("fox_pro", DeviceChoice::Cpu, 16);
    let ids = common::ids(40, 199);
    let none = block_on(model.gates(&[], &mut |_| Ok(())));
    assert!(matches!(none, Err(Error::Argument { option, .. }) if option == "ids"));
    let mut seen = Vec::new();
    let stopped = block_on(model.gates(&ids, &mut |n| {
        seen.push(n);
        if n >= 32 { Err(Error::Aborted) } else { Ok(()) }
    }));
    assert!(matches!(stopped, Err(Error::Aborted)));
    assert_eq!((seen, model.pos()), (vec![16, 32], 32));
    model.reset();
    assert_eq!(gates(&mut model, &ids).shape()[2], 40);
}

/// A made-up FoX (Pro) that replays gates.
fn made_up(gates: Gates, options: LoadOptions) -> Result<Model> {
    let config = json!({
        "model_type": "forgetting_transformer-project_fox", "vocab_size": 199, "hidden_size": 96, "hidden_ratio": 3.5,
        "num_hidden_layers": 3, "num_heads": 3, "use_output_gate": true, "use_output_norm": true, "qk_norm": true,
        "use_k_shift": true, "use_v_shift": true
    });
    let checkpoint = load::random(config.as_object().unwrap().clone(), "f32".parse()?, 1)?;
    block_on(Model::load(checkpoint, LoadOptions { gates: Some(Arc::new(gates)), ..options }, &mut |_| Ok(())))
}

/// Gates of 2 layers, 2 heads and 70 tokens: soft, hard and saturated ones.
fn some_gates() -> Gates {
    let units = kitfox::kernel::inputs::floats(3, 2 * 2 * 70, 1.0);
    let log_f = units.iter().enumerate().map(|(ix, unit)| match ix % 7 {
        0 => 0.0,
        1 => -16384.0,
        2 => -20.0 - 10.0 * unit,
        _ => -0.002 * (1.0 + unit),
    });
    Gates::new([2, 2, 70], log_f.collect(), Some(vec![14.0, 3.5, 0.25, 40.0])).unwrap()
}

#[test]
fn replayed_gates_are_forgotten_by_to_the_last_bit_in_prefill_and_in_decode() {
    let (replayed, ids) = (some_gates(), common::ids(200, 199));
    for device in [DeviceChoice::Twin].into_iter().chain(devices()) {
        for prune in [Pruning::Off, Pruning::Epsilon(1e-3)] {
            let options = LoadOptions { device, context: Some(256), chunk: Some(48), prune, ..LoadOptions::default() };
            let mut model = made_up(replayed.clone(), options).unwrap();
            // Tokens 100 to 129 come one by one: the second half of what is read then starts from the Λ that decoding left.
            gates(&mut model, &ids[..100]);
            for id in &ids[100..130] {
                block_on(model.step(*id)).unwrap();
            }
            let behind = gates(&mut model, &ids[130..]);
            model.reset();
            let all = gates(&mut model, &ids);
            for (layer, head) in (0..3).flat_map(|layer| (0..3).map(move |head| (layer, head))) {
                let own = replayed.head(layer % 2, head % 2);
                let on_grid = |log_f: f32| ((f64::from(log_f) * 2f64.powi(32)).round_ties_even() * 2f64.powi(-32)) as f32;
                for (t, got) in all.head(layer, head).iter().enumerate() {
                    assert_eq!(*got, on_grid(own[t % 70]), "{device:?} {prune:?}: layer {layer}, head {head}, token {t}");
                }
                for (t, got) in behind.head(layer, head).iter().enumerate() {
                    assert_eq!(*got, on_grid(own[(t + 130) % 70]), "{device:?}: layer {layer}, head {head}, token {t} behind");
                }
            }
        }
    }
}

/// Λ behind tokens that came one by one is the sum of the table, so decoding forgets by it.
#[test]
fn decoding_sums_what_prefill_sums() {
    let (replayed, ids) = (some_gates(), common::ids(150, 199));
    for device in [DeviceChoice::Twin].into_iter().chain(devices()) {
        let options = LoadOptions {
            device,
            kv: KvType::F32,
            context: Some(256),
            chunk: Some(150),
            prune: Pruning::Off,
            ..LoadOptions::default()
        };
        let mut model = made_up(replayed.clone(), options).unwrap();
        let chunked = block_on(model.prefill(&ids, true)).unwrap().unwrap();
        model.reset();
        let mut stepped = Vec::new();
        for id in &ids {
            stepped = block_on(model.step(*id)).unwrap();
        }
        assert!(golden::worst(&chunked, &stepped) < 2e-4, "{device:?}: {}", golden::worst(&chunked, &stepped));
    }
}

#[test]
fn a_replaying_model_has_the_bounds_of_its_gates_and_prunes_by_them() {
    let replayed = some_gates();
    let options = || LoadOptions { device: DeviceChoice::Cpu, context: Some(512), ..LoadOptions::default() };
    let model = made_up(replayed.clone(), options()).unwrap();
    let bounds = model.score_bounds().unwrap();
    for (ix, bound) in bounds.iter().enumerate() {
        let want = f64::from(replayed.bounds().unwrap()[ix / 3 % 2 * 2 + ix % 3 % 2]);
        assert!((bound / want - 1.0).abs() < 1e-6, "{ix}: {bound}, not {want}");
    }
    // Without U the norms are the made-up ones, near 1: U is near √h · 1.
    let without = Gates::new(replayed.shape(), replayed.log_f().to_vec(), None).unwrap();
    let model = made_up(without, options()).unwrap();
    assert!(model.score_bounds().unwrap().iter().all(|bound| (5.6..8.5).contains(bound)));
    // A head that forgets nothing keeps every page; one that forgets by 1 a token, with U = 0.25, only the newest.
    let log_f = [vec![0.0; 64], vec![-1.0; 64]].concat();
    let gates = Gates::new([1, 2, 64], log_f, Some(vec![0.25, 0.25])).unwrap();
    for device in devices() {
        let options = LoadOptions { device, context: Some(512), prune: Pruning::Epsilon(4.5e-5), ..LoadOptions::default() };
        let mut model = made_up(gates.clone(), options).unwrap();
        for ids in common::ids(500, 199).chunks(model.chunk()) {
            block_on(model.prefill(ids, false)).unwrap();
        }
        // Of 3 heads in 3 layers the second forgets: 8 pages are filled, and it needs the last (of 52 keys) alone.
        assert_eq!(block_on(model.live_pages()).unwrap(), 3 * (8 + 1 + 8), "{device:?}");
    }
}

#[test]
fn gates_are_replayed_in_made_up_models_only_and_must_fit() {
    let options = LoadOptions { gates: Some(Arc::new(some_gates())), device: DeviceChoice::Cpu, ..LoadOptions::default() };
    let refused = block_on(Model::load(open(&golden::directory("fox_pro")), options, &mut |_| Ok(())));
    assert!(matches!(refused.err().unwrap(), Error::Argument { option, .. } if option == "gates"));
    let n_tokens = (32 << 20) / 3;
    let huge = Gates::new([1, 1, n_tokens], vec![-1.0; n_tokens], None).unwrap();
    let options = LoadOptions { device: DeviceChoice::Cpu, ..LoadOptions::default() };
    match made_up(huge, options).err().unwrap() {
        Error::Argument { option, expected, .. } => assert!(option == "gates" && expected.contains("8388608"), "{expected}"),
        other => panic!("{other}"),
    }
}
