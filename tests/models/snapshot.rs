//! Promises of saved sessions: what goes on after a restore is what would have gone on without one; damaged bytes are refused and change
//! nothing; devices and pool sizes do not matter.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic, also in its helpers")]

use crate::common;
use crate::common::golden;
use kitfox::Error;
use kitfox::session::{DeviceChoice, KvType, LoadOptions, Model, Overflow, Pruning};
use pollster::block_on;

fn load(case: &str, options: LoadOptions) -> Model {
    block_on(async {
        Model::load(kitfox::format::open(&golden::directory(case)).await.unwrap(), options, &mut |_| Ok(())).await.unwrap()
    })
}

fn devices() -> Vec<DeviceChoice> {
    let gpu = common::gpu_expected().then_some(DeviceChoice::Gpu);
    [DeviceChoice::Cpu].into_iter().chain(gpu).collect()
}

fn read(model: &mut Model, ids: &[u32]) {
    block_on(model.read(ids)).unwrap();
}

/// Reads ids in a chunk, then one by one; gives all logits as bits.
fn go_on(model: &mut Model, ids: &[u32]) -> Vec<u32> {
    let (chunk, rest) = ids.split_at(model.max_chunk().min(ids.len() / 2));
    let mut logits = block_on(model.prefill(chunk, true)).unwrap().unwrap();
    for id in rest {
        logits.extend(block_on(model.step(*id)).unwrap());
    }
    logits.into_iter().map(f32::to_bits).collect()
}

/// What each feature of a sequence's state asks for: pruning, no norms, grouped keys, windows, either shift, rotation, no forget gate.
const CASES: [(&str, Option<f64>); 8] = [
    ("fox_pro", Some(4.5e-5)),
    ("fox_pro_pruned", None),
    ("fox_llama", None),
    ("fla_gqa_norm_gate", None),
    ("fla_window_bias", None),
    ("k_shift_only", None),
    ("fox_rope", None),
    ("transformer_pro", None),
];

#[test]
fn a_restored_session_goes_on_as_if_it_had_never_been_saved() {
    for (device, kv) in devices().into_iter().flat_map(|device| [(device, KvType::F16), (device, KvType::F32)]) {
        for (case, epsilon) in CASES {
            let prune = epsilon.map_or(Pruning::Model, Pruning::Epsilon);
            let options = LoadOptions { device, kv, prune, chunk: Some(48), context: Some(1024), ..Default::default() };
            let (mut model, mut other) = (load(case, options.clone()), load(case, options));
            let lengths: &[usize] = if device == DeviceChoice::Cpu { &[1, 63, 64, 65, 257, 600] } else { &[64, 201] };
            for &n in lengths {
                let ids = common::ids(n + 20, 199);
                model.reset();
                read(&mut model, &ids[..n]);
                let bytes = block_on(model.save(&ids[n..n + 2])).unwrap();
                assert_eq!(model.history(), &ids[..n]);
                let want = go_on(&mut model, &ids[n..]);
                // In a model of another past, and in the one that has gone on.
                read(&mut other, &common::ids(77, 199)[7..]);
                for model in [&mut other, &mut model] {
                    assert_eq!(block_on(model.restore(&bytes)).unwrap(), ids[n..n + 2], "{case} {device:?} {n}");
                    assert_eq!((model.pos(), model.history()), (n, &ids[..n]));
                    assert!(block_on(model.save(&ids[n..n + 2])).unwrap() == bytes, "{case} {device:?} {kv:?} {n}: saved again");
                    assert!(go_on(model, &ids[n..]) == want, "{case} {device:?} {kv:?} {n}");
                }
                // Back to a place before the restore, by the ids.
                block_on(other.restore(&bytes)).unwrap();
                let back = block_on(other.rewind_to(n / 2));
                assert!(back.is_ok() && other.pos() == n / 2, "{case} {back:?}");
            }
        }
    }
}

/// Dead pages are left behind: a long text of a model that forgets is saved in few bytes, and what is restored forgets on.
#[test]
fn what_is_forgotten_is_not_saved() {
    for device in devices() {
        let (n, after) = if device == DeviceChoice::Cpu { (3000, 1000) } else { (1300, 200) };
        let options =
            LoadOptions { device, prune: Pruning::Epsilon(4.5e-5), context: Some(1024), chunk: Some(64), ..Default::default() };
        let ids = common::ids(n + after + 10, 199);
        let (mut model, mut small) =
            (load("fox_pro", options.clone()), load("fox_pro", LoadOptions { context: Some(640), ..options }));
        read(&mut model, &ids[..n]);
        let bytes = block_on(model.save(&[])).unwrap();
        assert!((bytes.len() as u64) < model.kv_bytes_pool() / 2, "{} of {}", bytes.len(), model.kv_bytes_pool());
        block_on(small.restore(&bytes)).unwrap();
        assert_eq!(block_on(small.live_pages()).unwrap(), block_on(model.live_pages()).unwrap());
        read(&mut model, &ids[n..n + after]);
        read(&mut small, &ids[n..n + after]);
        assert!(go_on(&mut small, &ids[n + after..]) == go_on(&mut model, &ids[n + after..]), "{device:?}");
    }
}

#[test]
fn devices_chunks_and_pool_sizes_do_not_matter() {
    for (case, _) in CASES {
        let options = |device, chunk, context| LoadOptions {
            device,
            chunk: Some(chunk),
            context: Some(context),
            kv: KvType::F32,
            ..Default::default()
        };
        let others = devices().into_iter().chain([DeviceChoice::Twin]);
        let mut model = load(case, options(DeviceChoice::Cpu, 64, 512));
        let ids = common::ids(310, 199);
        read(&mut model, &ids[..300]);
        let bytes = block_on(model.save(&[])).unwrap();
        let want = go_on(&mut model, &ids[300..]);
        for device in others {
            let mut other = load(case, options(device, 33, 400));
            block_on(other.restore(&bytes)).unwrap();
            // Saved there it is the same text, bit for bit.
            assert!(block_on(other.save(&[])).unwrap() == bytes, "{case} {device:?}");
            let got: Vec<f32> = [block_on(other.step(ids[300])).unwrap()].concat();
            let after = block_on(model.restore(&bytes)).and_then(|_| block_on(model.step(ids[300]))).unwrap();
            let off = golden::worst(&got, &after);
            assert!(off < golden::BAR, "{case} {device:?}: off by {off:.1e}");
        }
        block_on(model.restore(&bytes)).unwrap();
        assert!(go_on(&mut model, &ids[300..]) == want, "{case}");
    }
}

#[test]
fn a_session_that_slides_is_saved_and_goes_on_sliding() {
    for device in devices() {
        let options = LoadOptions {
            device,
            prune: Pruning::Off,
            overflow: Overflow::Slide,
            context: Some(192),
            chunk: Some(32),
            ..Default::default()
        };
        let refusing = LoadOptions { overflow: Overflow::Error, context: Some(1024), ..options.clone() };
        let (mut model, mut other) = (load("fox_pro", options.clone()), load("fox_pro", options));
        let ids = common::ids(610, 199);
        read(&mut model, &ids[..400]);
        let bytes = block_on(model.save(&[])).unwrap();
        block_on(other.restore(&bytes)).unwrap();
        read(&mut model, &ids[400..600]);
        read(&mut other, &ids[400..600]);
        assert!(go_on(&mut other, &ids[600..]) == go_on(&mut model, &ids[600..]), "{device:?}");
        // Without dead pages it goes where nothing dies, and back.
        let mut refusing = load("fox_pro", refusing);
        let dead = block_on(refusing.restore(&bytes)).unwrap_err();
        assert!(matches!(dead, Error::Format { .. }) && dead.to_string().contains("dead pages"), "{dead}");
        model.reset();
        read(&mut model, &ids[..150]);
        let bytes = block_on(model.save(&[])).unwrap();
        let want = go_on(&mut model, &ids[150..180]);
        block_on(refusing.restore(&bytes)).unwrap();
        assert!(go_on(&mut refusing, &ids[150..180]) == want, "{device:?}");
        block_on(refusing.restore(&bytes)).unwrap();
        let bytes = block_on(refusing.save(&[])).unwrap();
        block_on(model.restore(&bytes)).unwrap();
        assert!(go_on(&mut model, &ids[150..180]) == want, "{device:?}: from a model where nothing dies");
        read(&mut model, &ids[180..500]);
    }
}

fn refused(model: &mut Model, bytes: &[u8], what: &str) -> Error {
    match block_on(model.restore(bytes)) {
        Err(error @ (Error::Format { .. } | Error::ContextFull { .. } | Error::PagesFull { .. })) => error,
        other => panic!("{what}: {other:?}"),
    }
}

/// Bytes with a right checksum, whatever they say.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let body = &bytes[..bytes.len() - 8];
    let sum = body.chunks_exact(4).fold(0xcbf2_9ce4_8422_2325u64, |hash, word| {
        let mixed = (hash ^ u64::from(u32::from_le_bytes(word.try_into().unwrap()))).wrapping_mul(0x100_0000_01b3);
        mixed ^ mixed >> 32
    });
    [body, &sum.to_le_bytes()].concat()
}

#[test]
fn damaged_bytes_are_refused_and_change_nothing() {
    let options = LoadOptions {
        device: DeviceChoice::Cpu,
        prune: Pruning::Epsilon(4.5e-5),
        context: Some(256),
        chunk: Some(64),
        ..Default::default()
    };
    let mut model = load("fox_pro", options.clone());
    let ids = common::ids(200, 199);
    read(&mut model, &ids[..130]);
    let bytes = block_on(model.save(&[1, 2])).unwrap();
    model.reset();
    read(&mut model, &ids[50..150]);
    let own = block_on(model.save(&[])).unwrap();
    for end in (0..bytes.len()).step_by(4999).chain(0..100).chain(bytes.len() - 20..bytes.len()) {
        refused(&mut model, &bytes[..end], "cut");
        refused(&mut model, &sealed(&bytes[..end.max(8)]), "cut and sealed");
    }
    for at in (0..bytes.len()).step_by(5003).chain(0..100).chain(bytes.len() - 20..bytes.len()) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        refused(&mut model, &flipped, "flipped");
    }
    refused(&mut model, &[&bytes[..], &[0; 4]].concat(), "longer");
    // Lies under a right checksum: each word of the header and what follows it, one after the other.
    let header_and_ids = 11 + 132 + 8;
    for word in (0..header_and_ids).filter(|word| !(11..141).contains(word)) {
        for lie in [u32::MAX, 1 << 31, 0x7fff_ffc1, 199, 1 << 20] {
            let mut lying = bytes.clone();
            lying[4 * word..4 * word + 4].copy_from_slice(&lie.to_le_bytes());
            if lying != bytes {
                refused(&mut model, &sealed(&lying), &format!("word {word} = {lie}"));
            }
        }
    }
    assert!(block_on(model.save(&[])).unwrap() == own, "nothing has changed");
    // Λ that falls would be a difference below zero.
    let mut falling = bytes.clone();
    let n = falling.len();
    for word in falling[4 * header_and_ids..n - 8].chunks_exact_mut(4) {
        word.copy_from_slice(&u32::MAX.to_le_bytes());
    }
    assert!(refused(&mut model, &sealed(&falling), "Λ").to_string().contains('Λ'));
    // Anything else under a right checksum is numbers: whatever comes of them, the model is usable after.
    let mut noise = bytes.clone();
    for (ix, byte) in noise[4 * header_and_ids..][..1 << 14].iter_mut().enumerate() {
        *byte = (ix * 31) as u8;
    }
    let _ = block_on(model.restore(&sealed(&noise))).and_then(|_| block_on(model.step(1)));
    block_on(model.restore(&own)).unwrap();
    assert!(block_on(model.save(&[])).unwrap() == own);
}

#[test]
fn another_model_cache_or_pruning_and_too_small_a_context_are_refused_by_name() {
    let options = LoadOptions { device: DeviceChoice::Cpu, context: Some(512), chunk: Some(64), ..Default::default() };
    let mut model = load("fox_pro", options.clone());
    read(&mut model, &common::ids(300, 199));
    let bytes = block_on(model.save(&[])).unwrap();
    let other = |case: &str, options: LoadOptions| refused(&mut load(case, options), &bytes, case).to_string();
    assert!(other("fox_pro_pruned", options.clone()).contains("model"));
    assert!(other("fox_llama", options.clone()).contains("model"));
    assert!(other("fox_pro", LoadOptions { kv: KvType::F32, ..options.clone() }).contains("kv f32"));
    assert!(other("fox_pro", LoadOptions { prune: Pruning::Epsilon(0.1), ..options.clone() }).contains("pruning"));
    assert!(other("fox_pro", LoadOptions { context: Some(299), ..options }).contains("300 tokens asked for, 299 available"));
    // Pages that do not fit although positions do.
    let pruned = |context| LoadOptions {
        device: DeviceChoice::Cpu,
        prune: Pruning::Epsilon(1e-300),
        context: Some(context),
        chunk: Some(64),
        ..Default::default()
    };
    let mut model = load("fox_pro", pruned(512));
    read(&mut model, &common::ids(300, 199));
    let bytes = block_on(model.save(&[])).unwrap();
    let mut small = load("fox_pro", pruned(128));
    read(&mut small, &common::ids(20, 199));
    let own = block_on(small.save(&[])).unwrap();
    assert!(matches!(refused(&mut small, &bytes, "pages"), Error::PagesFull { tokens: 300, .. }));
    assert!(block_on(small.save(&[])).unwrap() == own);
    assert!(block_on(small.save(&[199])).is_err(), "an id outside the vocabulary");
}
