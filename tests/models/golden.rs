//! Ring 4: the model equals the official code. Tiny checkpoints in the official layout with the logits that the official
//! network gives in float64 attention and norms (tests/fixtures/golden; f32 weights, f32 KV). The bar is 2e-4 absolute: honest
//! f32 noise is 3e-5, the wrong epsilon moves some cases by 1e-4 and `small_activations` by 0.7.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic, also in its helpers")]

use crate::common;
use crate::common::golden::{BAR, CASES, Golden, by_chunks, by_steps, golden, load, worst};
use kitfox::session::{DeviceChoice, Model};

fn argmax(row: &[f32]) -> u32 {
    (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]).then(b.cmp(a))).unwrap() as u32
}

/// Greedy continuation; a differing id is allowed only where the two best logits are closer than twice the bar.
fn greedy_equals(model: &mut Model, golden: &Golden) -> bool {
    model.reset();
    let (chunk, mut row) = (model.chunk(), None);
    for ids in golden.tokens[..golden.prompt_len].chunks(chunk) {
        row = pollster::block_on(model.prefill(ids, true)).unwrap();
    }
    let mut row = row.unwrap();
    for want in &golden.greedy {
        let got = argmax(&row);
        if got != *want {
            return row[got as usize] - row[*want as usize] < 2.0 * BAR;
        }
        row = pollster::block_on(model.step(got)).unwrap();
    }
    true
}

fn table(device: DeviceChoice) {
    let mut failed = Vec::new();
    println!("{:<26} {:>12} {:>12}  greedy   ({device:?})", "case", "chunks", "steps");
    for case in CASES {
        let golden = golden(case);
        let mut model = load(case, device, 64);
        let chunks = worst(&by_chunks(&mut model, &golden.tokens), &golden.logits);
        let steps = worst(&by_steps(&mut model, &golden.tokens), &golden.logits);
        let greedy = greedy_equals(&mut model, &golden);
        println!("{case:<26} {chunks:>12.2e} {steps:>12.2e}  {}", if greedy { "equal" } else { "DIFFERS" });
        if chunks > BAR || steps > BAR || !greedy {
            failed.push(case);
        }
    }
    assert!(failed.is_empty(), "{device:?}: {failed:?} over {BAR:e}");
}

#[test]
fn golden_logits_on_the_twins() {
    table(DeviceChoice::Twin);
}

#[test]
fn golden_logits_on_the_cpu() {
    table(DeviceChoice::Cpu);
}

#[test]
fn golden_logits_on_the_gpu() {
    if common::gpu_expected() {
        table(DeviceChoice::Gpu);
    }
}

/// Ring 3: where a chunk ends cannot matter, on any device.
#[test]
fn chunked_prefill_equals_one_shot() {
    let devices = [DeviceChoice::Cpu, DeviceChoice::Gpu];
    for device in devices.into_iter().filter(|device| *device != DeviceChoice::Gpu || common::gpu_expected()) {
        // A software adapter compiles for seconds at each load: there the two that have everything between them.
        let (cases, chunks): (&[&str], &[usize]) = match device {
            DeviceChoice::Gpu => (&["fox_pro", "fla_window_bias"], &[7, 64]),
            _ => (&["fox_llama", "fox_pro", "transformer_pro", "fla_gqa_norm_gate", "fla_window_bias"], &[1, 7, 64]),
        };
        for case in cases {
            let tokens = golden(case).tokens;
            let whole = by_chunks(&mut load(case, device, tokens.len()), &tokens);
            for chunk in chunks.iter().copied() {
                let worst = worst(&by_chunks(&mut load(case, device, chunk), &tokens), &whole);
                assert!(worst <= 1e-4, "{case} on {device:?}, chunks of {chunk}: {worst:e}");
            }
            let worst = worst(&by_steps(&mut load(case, device, 64), &tokens), &whole);
            assert!(worst <= 1e-4, "{case} on {device:?}, token by token: {worst:e}");
        }
    }
}

/// A session that is reset gives what a new one gives: nothing of the old sequence is read.
#[test]
fn reset_equals_a_fresh_model() {
    let tokens = golden("fox_pro").tokens;
    let mut model = load("fox_pro", DeviceChoice::Cpu, 64);
    let first = by_chunks(&mut model, &tokens);
    by_steps(&mut model, &tokens[20..90]);
    assert_eq!(by_chunks(&mut model, &tokens), first);
}
