//! What slides away is masked, and nothing else: a tiny model's logits against f64 arithmetic that leaves the same keys out.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::common::tiny::Tiny;
use kitfox::kernel::attention::PAGE;
use kitfox::session::{DeviceChoice, KvType, LoadOptions, Model, Overflow, Pruning};
use pollster::block_on;
use std::path::Path;

const HEADS: usize = 2;

/// y = W x, W [rows, columns].
fn product(weights: &[f64], x: &[f64]) -> Vec<f64> {
    weights.chunks_exact(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

/// x / √(mean x² + ε); the tiny model's norm weights are 1.
fn norm(x: &[f64]) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    x.iter().map(|x| x / (mean + 1e-6).sqrt()).collect()
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// The tiny model of one layer, token by token, with all keys in f64.
pub struct Reference {
    tensors: Vec<(String, Vec<f64>)>,
    keys: Vec<Vec<f64>>,
    values: Vec<Vec<f64>>,
    /// log f by token and head.
    gates: Vec<Vec<f64>>,
}

impl Reference {
    pub fn new(tiny: &Tiny) -> Self {
        let wide = |values: &[f32]| values.iter().map(|value| f64::from(*value)).collect();
        let tensors = tiny.tensors.iter().map(|(name, _, values)| (name.clone(), wide(values))).collect();
        Self { tensors, keys: Vec::new(), values: Vec::new(), gates: Vec::new() }
    }

    fn tensor(&self, name: &str) -> &[f64] {
        &self.tensors.iter().find(|(known, _)| known.ends_with(name)).unwrap().1
    }

    /// Logits after one more token, whose attention sees keys from `first` on.
    pub fn step(&mut self, id: u32, first: usize) -> Vec<f64> {
        let embeddings = self.tensor("embeddings.weight");
        let d = self.tensor("model.norm.weight").len();
        let mut h = embeddings[id as usize * d..][..d].to_vec();
        let x = norm(&h);
        let [q, k, v] = ["q_proj.weight", "k_proj.weight", "v_proj.weight"].map(|name| product(self.tensor(name), &x));
        let gates = product(self.tensor("fgate_proj.weight"), &x);
        let gates = gates.iter().zip(self.tensor("fgate_proj.bias")).map(|(x, b)| -(-(x + b)).exp().ln_1p()).collect();
        self.keys.push(k);
        self.values.push(v);
        self.gates.push(gates);
        let mut o = vec![0.0; d];
        let (now, width) = (self.keys.len() - 1, d / HEADS);
        for head in 0..HEADS {
            let part = head * width..(head + 1) * width;
            let (mut fall, mut scores) = (0.0, vec![0.0; now + 1]);
            for j in (first..=now).rev() {
                let score: f64 = q[part.clone()].iter().zip(&self.keys[j][part.clone()]).map(|(q, k)| q * k).sum();
                scores[j] = score / (width as f64).sqrt() + fall;
                fall += self.gates[j][head];
            }
            let most = scores[first..].iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores[first..].iter().map(|score| (score - most).exp()).collect();
            let all: f64 = weights.iter().sum();
            for (weight, value) in weights.iter().zip(&self.values[first..]) {
                o[part.clone()].iter_mut().zip(&value[part.clone()]).for_each(|(o, v)| *o += weight / all * v);
            }
        }
        h.iter_mut().zip(product(self.tensor("o_proj.weight"), &o)).for_each(|(h, o)| *h += o);
        let both = product(self.tensor("mlp.gate_proj.weight"), &norm(&h));
        let (gate, up) = both.split_at(both.len() / 2);
        let inner: Vec<f64> = gate.iter().zip(up).map(|(gate, up)| silu(*gate) * up).collect();
        h.iter_mut().zip(product(self.tensor("down_proj.weight"), &inner)).for_each(|(h, x)| *h += x);
        product(self.tensor("lm_head.weight"), &norm(&h))
    }
}

#[test]
fn what_slides_away_is_masked_and_nothing_else() {
    let gpu = common::gpu_expected().then_some(DeviceChoice::Gpu);
    // Gates that forget little: what slid away would be missed.
    let mut tiny = Tiny::new(None);
    let bias = tiny.tensors.iter_mut().find(|(name, ..)| name.ends_with("fgate_proj.bias")).unwrap();
    bias.2.fill(6.0);
    let folder = tiny.write(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("slide"));
    // Token by token, and by the prefill graph in pieces that do not divide a page.
    for (device, at_once) in [DeviceChoice::Cpu].into_iter().chain(gpu).flat_map(|device| [(device, 1), (device, 24)]) {
        let options = LoadOptions {
            device,
            prune: Pruning::Off,
            overflow: Overflow::Slide,
            kv: KvType::F32,
            context: Some(3 * PAGE),
            chunk: Some(64),
            ..LoadOptions::default()
        };
        let checkpoint = block_on(kitfox::format::open(&folder)).unwrap();
        let mut model = block_on(Model::load(checkpoint, options, &mut |_| Ok(()))).unwrap();
        let (mut masked, mut whole) = (Reference::new(&tiny), Reference::new(&tiny));
        let (mut worst, mut missed, mut slid) = (0.0f64, 0.0f64, 0);
        let ids: Vec<u32> = (0..6 * PAGE as u32).map(|n| n * 37 % 256).collect();
        for (ids, read) in ids.chunks(at_once).zip((at_once..).step_by(at_once)) {
            let got = match ids {
                [id] => block_on(model.step(*id)).unwrap(),
                _ => block_on(model.prefill(ids, true)).unwrap().unwrap(),
            };
            // What is live as of these tokens, alike in every head: the device tells it, and never less than the context's room.
            let live = block_on(model.live_pages()).unwrap() / HEADS;
            let first = PAGE * (read.div_ceil(PAGE) - live);
            assert!(read - first >= (2 * PAGE).min(read), "{device:?}: {first} of {read} slid away");
            slid = slid.max(first);
            let last = |reference: &mut Reference, first| ids.iter().map(|id| reference.step(*id, first)).last().unwrap();
            let (want, all) = (last(&mut masked, first), last(&mut whole, 0));
            let off = |want: &[f64]| got.iter().zip(want).map(|(got, want)| (f64::from(*got) - want).abs()).fold(0.0, f64::max);
            worst = worst.max(off(&want));
            missed = missed.max(off(&all));
        }
        println!("{device:?}, {at_once} at once: off by {worst:.1e}; without a mask {missed:.1e}; {slid} keys slid away");
        assert!(worst < 2e-4, "{device:?}, {at_once} at once: off by {worst:.1e}");
        assert!(missed > 10.0 * worst.max(1e-4) && slid >= 3 * PAGE, "{device:?}, {at_once} at once: {missed:.1e}");
    }
}
