//! The test of the golden tests, and what no golden case has: each switch turned wrong is noticed by a case or refused; odd sizes
//! give the same on every device; a sliding window uses its pages again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic, also in its helpers")]

use crate::common;
use crate::common::golden::{BAR, CASES, by_chunks, by_steps, directory, golden, worst};
use kitfox::format::{self, Checkpoint, Quant, TensorType};
use kitfox::session::load::random;
use kitfox::session::{DeviceChoice, KvType, LoadOptions, Model};
use pollster::block_on;
use serde_json::{Map, Value, json};

fn load(checkpoint: Checkpoint, device: DeviceChoice, chunk: usize, kv: KvType) -> kitfox::Result<Model> {
    let options = LoadOptions { device, kv, scores: true, chunk: Some(chunk), context: Some(320), ..LoadOptions::default() };
    block_on(Model::load(checkpoint, options, &mut |_| Ok(())))
}

/// Keys and wrong values. Left out are `log_pruning_tolerance`, which may only leave out what weighs less than it says, and
/// `fixed` for `bias_only`, which is another word for the same.
fn wrong_switches() -> Vec<(&'static str, Value)> {
    vec![
        ("model_type", json!("forgetting_transformer")),
        ("model_type", json!("forgetting_transformer-project_fox")),
        ("model_type", json!("llama")),
        ("num_heads", json!(2)),
        ("num_kv_heads", json!(2)),
        ("num_kv_heads", json!(4)),
        ("num_hidden_layers", json!(1)),
        ("hidden_ratio", json!(8)),
        ("intermediate_size", json!(255)),
        ("hidden_act", json!("swish")),
        ("hidden_act", json!("sigmoid")),
        ("norm_eps", json!(1e-5)),
        ("qkv_bias", json!(true)),
        ("qkv_bias", json!(false)),
        ("qk_norm", json!(true)),
        ("qk_norm", json!(false)),
        ("qk_norm_share_param_across_head", json!(true)),
        ("qk_norm_share_param_across_head", json!(false)),
        ("use_rope", json!(true)),
        ("use_rope", json!(false)),
        ("rope_base", json!(10_000.0)),
        ("use_k_shift", json!(true)),
        ("use_k_shift", json!(false)),
        ("use_v_shift", json!(true)),
        ("use_v_shift", json!(false)),
        ("fgate_type", json!("full")),
        ("fgate_type", json!("bias_only")),
        ("fgate_type", json!("none")),
        ("window_size", json!(49)),
        ("window_size", Value::Null),
        ("use_output_norm", json!(true)),
        ("use_output_norm", json!(false)),
        ("use_output_gate", json!(true)),
        ("use_output_gate", json!(false)),
        ("ogate_act", json!("silu")),
        ("ogate_act", json!("sigmoid")),
        ("tie_word_embeddings", json!(true)),
        ("tie_word_embeddings", json!(false)),
        ("attnres_block_size", json!(4)),
    ]
}

#[test]
fn each_switch_turned_wrong_is_noticed_by_a_golden_case() {
    let mut unnoticed = Vec::new();
    for (key, value) in wrong_switches() {
        // Refused by some, noticed by its numbers in others: the second says more.
        let (mut refused, mut noticed) = (0, 0.0f32);
        for case in CASES {
            let mut checkpoint = block_on(format::open(&directory(case))).unwrap();
            if checkpoint.config.get(key) == Some(&value) || (value.is_null() && !checkpoint.config.contains_key(key)) {
                continue;
            }
            checkpoint.config.insert(key.to_owned(), value.clone());
            let Ok(mut model) = load(checkpoint, DeviceChoice::Cpu, 64, KvType::F32) else {
                refused += 1;
                continue;
            };
            let golden = golden(case);
            noticed = noticed.max(worst(&by_chunks(&mut model, &golden.tokens), &golden.logits));
            if noticed > BAR {
                break;
            }
        }
        println!("{key:<34} {value:<40} refused {refused:>2}, noticed {noticed:.1e}", value = value.to_string());
        if refused == 0 && noticed <= BAR {
            unnoticed.push(format!("{key} = {value}"));
        }
    }
    assert!(unnoticed.is_empty(), "{unnoticed:?}");
}

fn config(changes: Value) -> Map<String, Value> {
    let mut config = json!({
        "model_type": "forgetting_transformer-project_fox", "vocab_size": 61, "hidden_size": 64, "num_hidden_layers": 2,
        "num_heads": 4, "intermediate_size": 96
    });
    let map = config.as_object_mut().unwrap();
    map.extend(changes.as_object().unwrap().clone());
    map.clone()
}

fn made_up(config: &Map<String, Value>, ty: TensorType, device: DeviceChoice, chunk: usize, kv: KvType) -> Model {
    load(random(config.clone(), Quant::plain(ty), 5).unwrap(), device, chunk, kv).unwrap()
}

fn text(n: usize) -> Vec<u32> {
    (0..n as u32).map(|ix| (ix * ix + 7 * ix) % 61).collect()
}

/// Head widths, MLP widths, vocabularies and switches that no published model has.
#[test]
fn odd_sizes_and_combinations_give_the_same_on_every_device() {
    let pro =
        json!({"use_k_shift": true, "use_v_shift": true, "qk_norm": true, "use_output_norm": true, "use_output_gate": true});
    let with = |mut base: Value, changes: Value| {
        base.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        config(base)
    };
    let fla = json!({"model_type": "forgetting_transformer", "qkv_bias": true, "qk_norm": true, "use_output_gate": true});
    let all = [
        (with(pro.clone(), json!({"hidden_size": 72, "num_heads": 3, "intermediate_size": 30})), TensorType::F16, KvType::F32),
        (with(pro.clone(), json!({"hidden_size": 96, "num_heads": 2, "intermediate_size": 31})), TensorType::F32, KvType::F32),
        (with(pro.clone(), json!({"hidden_size": 160, "num_heads": 2, "use_rope": true})), TensorType::Q8_0, KvType::F16),
        (
            with(pro, json!({"hidden_size": 120, "num_heads": 1, "intermediate_size": 1, "vocab_size": 63})),
            TensorType::BF16,
            KvType::F16,
        ),
        (config(json!({"use_v_shift": true, "fgate_type": "none", "hidden_act": "sigmoid"})), TensorType::Q4_0, KvType::F32),
        (config(json!({"use_k_shift": true, "fgate_type": "bias_only", "use_rope": true})), TensorType::F32, KvType::F16),
        (with(fla.clone(), json!({"num_heads": 4, "num_kv_heads": 1, "window_size": 3})), TensorType::F32, KvType::F32),
        (
            with(fla, json!({"hidden_size": 240, "num_heads": 6, "num_kv_heads": 3, "window_size": 70})),
            TensorType::F16,
            KvType::F16,
        ),
    ];
    let tokens = text(150);
    for (config, ty, kv) in all {
        let run = |device| {
            let mut model = made_up(&config, ty, device, 64, kv);
            [by_chunks(&mut model, &tokens), by_steps(&mut model, &tokens)]
        };
        let [want, steps] = run(DeviceChoice::Twin);
        // Between the two ways of one device an f16 cache may round a key to its other neighbour.
        let bar = if kv == KvType::F16 { 1e-3 } else { 1e-4 };
        assert!(worst(&steps, &want) < bar, "{config:?}: {:e}", worst(&steps, &want));
        assert!(want.iter().any(|logit| logit.abs() > 0.5), "{config:?}: nothing to compare");
        let devices = [DeviceChoice::Cpu, DeviceChoice::Gpu];
        for device in devices.into_iter().filter(|device| *device != DeviceChoice::Gpu || common::gpu_expected()) {
            for (way, got) in run(device).into_iter().enumerate() {
                let worst = worst(&got, &want);
                println!(
                    "{worst:.1e} {device:?} {ty} kv {kv:?} {:<6} {}",
                    ["chunks", "steps"][way],
                    Value::Object(config.clone())
                );
                assert!(worst < bar, "{device:?}, {}, {config:?}: {worst:e}", ["chunks", "steps"][way]);
            }
        }
    }
}

/// A model with an MLP of 31 channels is the model with 36 channels of which the last five weigh nothing.
#[test]
fn padding_of_the_mlp_changes_nothing() {
    let of = |width: usize| config(json!({"model_type": "forgetting_transformer", "intermediate_size": width}));
    let mut narrow = random(of(31), Quant::plain(TensorType::F32), 9).unwrap();
    // A wide checkpoint in memory: the numbers of the narrow one, and zeros.
    let mut wide = random(of(36), Quant::plain(TensorType::F32), 9).unwrap();
    let mut bytes = Vec::new();
    for ix in 0..wide.tensors.len() {
        let from = narrow.tensors[ix].clone();
        let values = block_on(narrow.read_rows(ix, 0, from.n_rows())).unwrap();
        let mut rows = values.chunks_exact(4 * from.width());
        wide.tensors[ix].offset = bytes.len() as u64;
        for _ in 0..wide.tensors[ix].n_rows() {
            let row = rows.next().unwrap_or(&[]);
            bytes.extend_from_slice(row);
            bytes.extend(vec![0; 4 * wide.tensors[ix].width() - row.len()]);
        }
    }
    wide.files = vec![Box::new(format::BytesSource::new("wide", bytes))];
    let logits = |checkpoint| {
        let mut model = load(checkpoint, DeviceChoice::Cpu, 64, KvType::F32).unwrap();
        [by_chunks(&mut model, &text(70)), by_steps(&mut model, &text(20))].concat()
    };
    let (wide, narrow) = (logits(wide), logits(narrow));
    assert!(narrow.iter().any(|logit| logit.abs() > 0.5), "nothing to compare");
    assert!(worst(&wide, &narrow) < 1e-5, "{:e}", worst(&wide, &narrow));
}

/// Pages of the window and a chunk serve a sequence of any length, and nothing of an old page is seen.
#[test]
fn a_sliding_window_uses_its_pages_again() {
    let config = config(json!({"model_type": "forgetting_transformer", "num_kv_heads": 2, "window_size": 70}));
    let tokens = text(300);
    let devices = [DeviceChoice::Cpu, DeviceChoice::Gpu];
    for device in devices.into_iter().filter(|device| *device != DeviceChoice::Gpu || common::gpu_expected()) {
        let mut whole = made_up(&config, TensorType::F32, device, 300, KvType::F32);
        let want = by_chunks(&mut whole, &tokens);
        for chunk in [5, 64] {
            let mut model = made_up(&config, TensorType::F32, device, chunk, KvType::F32);
            assert!(model.bytes() < whole.bytes());
            for got in [by_chunks(&mut model, &tokens), by_steps(&mut model, &tokens)] {
                assert!(worst(&got, &want) < 1e-4, "{device:?}, chunk {chunk}: {:e}", worst(&got, &want));
            }
        }
    }
}
