//! The sampler against the definition of each filter, in f64 and by brute force.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kitfox::Error;
use kitfox::kernel::inputs;
use kitfox::session::sampler::{Sampler, SamplerOptions};
use std::collections::{BTreeMap, BTreeSet};

/// No filter, no penalty, temperature 1.
fn plain() -> SamplerOptions {
    SamplerOptions { temperature: 1.0, top_k: 0, min_p: 0.0, repeat_penalty: Some(1.0), ..SamplerOptions::default() }
}

/// For, against, of a recent id, and of one beyond the logits.
fn biases() -> Vec<(u32, f32)> {
    vec![(5, 3.0), (250, -2.5), (7, 1.5), (299, 40.0 / 9.0), (100_000, 50.0)]
}

/// How often each id comes in `n` draws from the same logits.
fn counts(options: &SamplerOptions, logits: &[f32], history: &[u32], n: usize) -> BTreeMap<u32, usize> {
    let mut sampler = Sampler::new(options.clone()).unwrap();
    let mut counts = BTreeMap::new();
    for _ in 0..n {
        *counts.entry(sampler.sample(logits, history).unwrap()).or_default() += 1;
    }
    counts
}

/// The `top_k` best tokens with their logits, biased and penalised.
pub fn ranked(options: &SamplerOptions, logits: &[f32], history: &[u32]) -> Vec<(u32, f64)> {
    let recent: BTreeSet<_> = history.iter().rev().take(options.repeat_last_n).copied().collect();
    let penalty = options.penalty();
    let biases: BTreeMap<u32, f32> = options.logit_bias.iter().copied().collect();
    let logit = |(ix, &logit): (usize, &f32)| {
        let id = ix as u32;
        let logit = logit + biases.get(&id).unwrap_or(&0.0);
        match recent.contains(&id) {
            true if logit > 0.0 => (id, f64::from(logit / penalty)),
            true => (id, f64::from(logit * penalty)),
            false => (id, f64::from(logit)),
        }
    };
    let mut ranked: Vec<_> = logits.iter().enumerate().map(logit).collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if options.top_k > 0 {
        ranked.truncate(options.top_k);
    }
    ranked
}

/// The distribution by its definition: everything sorted, everything in f64. `(id, probability)`, best first.
fn reference(options: &SamplerOptions, logits: &[f32], history: &[u32]) -> Vec<(u32, f64)> {
    let mut ranked = ranked(options, logits, history);
    let probabilities = softmax(&ranked, 1.0);
    let mut sum = 0.0;
    let n_top_p = 1 + probabilities
        .iter()
        .take_while(|p| {
            sum += **p;
            sum < f64::from(options.top_p)
        })
        .count();
    let n_min_p = probabilities.iter().filter(|p| **p >= f64::from(options.min_p) * probabilities[0]).count();
    if options.top_p < 1.0 {
        ranked.truncate(n_top_p);
    }
    ranked.truncate(n_min_p);
    let probabilities = softmax(&ranked, f64::from(options.temperature));
    ranked.iter().zip(probabilities).map(|((id, _), p)| (*id, p)).collect()
}

fn softmax(ranked: &[(u32, f64)], temperature: f64) -> Vec<f64> {
    let weights: Vec<_> = ranked.iter().map(|(_, logit)| ((logit - ranked[0].1) / temperature).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

/// Only ids of the reference come, each within five standard deviations of its count, and the sum of squares fits chi-square.
fn assert_distribution(name: &str, options: &SamplerOptions, logits: &[f32], history: &[u32]) {
    let n = 20_000;
    let expected = reference(options, logits, history);
    let got = counts(options, logits, history, n);
    let allowed: BTreeSet<_> = expected.iter().map(|(id, _)| *id).collect();
    for id in got.keys() {
        assert!(allowed.contains(id), "{name}: id {id} is filtered out");
    }
    let (mut chi_square, mut freedom) = (0.0, -1.0);
    for &(id, p) in &expected {
        let (mean, count) = (p * n as f64, got.get(&id).copied().unwrap_or(0) as f64);
        let deviation = (mean * (1.0 - p)).sqrt();
        assert!((count - mean).abs() <= 5.0 * deviation + 2.0, "{name}: id {id} came {count} times, expected {mean:.1}");
        if mean >= 5.0 {
            chi_square += (count - mean).powi(2) / mean;
            freedom += 1.0;
        }
    }
    let bound = freedom + 5.0 * (2.0 * f64::max(freedom, 1.0)).sqrt();
    assert!(chi_square <= bound, "{name}: chi-square {chi_square:.1} of {freedom} degrees of freedom");
}

#[test]
fn each_filter_alone_and_all_together_draw_their_distribution() {
    let logits = inputs::floats(3, 300, 4.0);
    let history = [7, 7, 250, 12, 299, 100_000];
    let base = plain();
    let cases = [
        ("plain", base.clone()),
        ("temperature 0.5", SamplerOptions { temperature: 0.5, ..base.clone() }),
        ("temperature 3", SamplerOptions { temperature: 3.0, ..base.clone() }),
        ("top-k 5", SamplerOptions { top_k: 5, ..base.clone() }),
        ("top-k of all", SamplerOptions { top_k: 300, ..base.clone() }),
        ("top-p 0.3", SamplerOptions { top_p: 0.3, ..base.clone() }),
        ("top-p 0.95", SamplerOptions { top_p: 0.95, ..base.clone() }),
        ("top-p tiny", SamplerOptions { top_p: 1e-6, ..base.clone() }),
        ("min-p 0.2", SamplerOptions { min_p: 0.2, ..base.clone() }),
        ("min-p 1", SamplerOptions { min_p: 1.0, ..base.clone() }),
        ("penalty 2", SamplerOptions { repeat_penalty: Some(2.0), ..base.clone() }),
        ("penalty 0.5", SamplerOptions { repeat_penalty: Some(0.5), ..base.clone() }),
        ("penalty of the last two", SamplerOptions { repeat_penalty: Some(3.0), repeat_last_n: 2, ..base.clone() }),
        ("defaults", SamplerOptions { seed: 5, ..SamplerOptions::default() }),
        ("biases", SamplerOptions { logit_bias: biases(), ..base.clone() }),
        (
            "biases, then the penalty",
            SamplerOptions { logit_bias: biases(), repeat_penalty: Some(2.0), top_k: 20, ..base.clone() },
        ),
        ("all", SamplerOptions { temperature: 1.5, top_k: 50, top_p: 0.9, min_p: 0.1, repeat_penalty: Some(1.3), ..base }),
    ];
    for (name, options) in cases {
        assert_distribution(name, &options, &logits, &history);
    }
}

#[test]
fn equal_logits_rank_by_id() {
    // 0 and -0 are equal too.
    let logits = [0.0, 1.0, -0.0, 1.0, 0.0, 1.0];
    let of = |options: SamplerOptions| counts(&options, &logits, &[], 500).into_keys().collect::<Vec<_>>();
    assert_eq!(of(SamplerOptions { temperature: 0.0, ..plain() }), [1]);
    assert_eq!(of(SamplerOptions { top_k: 1, ..plain() }), [1]);
    assert_eq!(of(SamplerOptions { top_k: 2, ..plain() }), [1, 3]);
    assert_eq!(of(SamplerOptions { top_k: 4, ..plain() }), [0, 1, 3, 5]);
    assert_eq!(of(SamplerOptions { top_k: 5, ..plain() }), [0, 1, 2, 3, 5]);
    assert_eq!(of(SamplerOptions { min_p: 1.0, ..plain() }), [1, 3, 5]);
    assert_eq!(of(SamplerOptions { top_p: 0.3, ..plain() }), [1, 3]);
    assert_eq!(counts(&SamplerOptions { temperature: 0.0, ..plain() }, &[0.0, -0.0], &[], 1).into_keys().next(), Some(0));
    assert_eq!(counts(&SamplerOptions { temperature: 0.0, ..plain() }, &[-0.0, 0.0], &[], 1).into_keys().next(), Some(0));
}

#[test]
fn the_same_seed_and_index_draw_the_same_token_and_other_seeds_others() {
    let logits = inputs::floats(9, 1000, 2.0);
    let run = |seed| {
        let mut sampler = Sampler::new(SamplerOptions { seed, ..plain() }).unwrap();
        (0..50).map(|_| sampler.sample(&logits, &[]).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert_ne!(run(1), run(1 | 1 << 40), "both halves of the seed count");
}

#[test]
fn greedy_is_without_penalty_unless_it_is_asked_for() {
    let greedy = SamplerOptions { temperature: 0.0, ..SamplerOptions::default() };
    let logits = [1.0, 1.05, -1.0];
    assert_eq!(Sampler::new(greedy.clone()).unwrap().sample(&logits, &[1]).unwrap(), 1);
    let asked = SamplerOptions { repeat_penalty: Some(1.1), ..greedy };
    assert_eq!(Sampler::new(asked).unwrap().sample(&logits, &[1]).unwrap(), 0);
}

#[test]
fn extreme_numbers_give_a_token() {
    let wide = [f32::MAX, f32::MIN, 0.0, f32::MIN_POSITIVE];
    let even = vec![-1e30; 500];
    for temperature in [1e-45, 1e-6, 1.0, 1e30, f32::MAX] {
        for penalty in [f32::MIN_POSITIVE, 1.0, f32::MAX] {
            let options = SamplerOptions { temperature, repeat_penalty: Some(penalty), top_p: 0.99, ..plain() };
            for logits in [&wide[..], &even, &[3.0]] {
                let id = Sampler::new(options.clone()).unwrap().sample(logits, &[0, 1]).unwrap();
                assert!((id as usize) < logits.len());
            }
        }
    }
}

#[test]
fn a_large_vocabulary_without_filters_is_drawn_without_sorting_it_all() {
    let logits = inputs::floats(11, 300_000, 8.0);
    for options in [plain(), SamplerOptions { top_p: 0.9, ..plain() }, SamplerOptions { top_k: 1000, ..plain() }] {
        let allowed: BTreeSet<_> = reference(&options, &logits, &[]).into_iter().map(|(id, _)| id).collect();
        assert!(counts(&options, &logits, &[], 20).keys().all(|id| allowed.contains(id)));
    }
}

#[test]
fn a_bias_stays_within_the_numbers() {
    let biased = |logit_bias: &[(u32, f32)], logits: &[f32]| {
        let options = SamplerOptions { temperature: 0.0, logit_bias: logit_bias.to_vec(), ..plain() };
        Sampler::new(options).unwrap().sample(logits, &[]).unwrap()
    };
    assert_eq!(biased(&[(2, 0.5)], &[1.0, 0.9, 0.8]), 2);
    assert_eq!(biased(&[(0, f32::MIN)], &[1.0, 0.9, 0.8]), 1);
    assert_eq!(biased(&[(0, f32::MIN), (1, f32::MIN)], &[f32::MIN, f32::MIN, f32::MIN]), 0, "no infinity, and equal ones by id");
    assert_eq!(biased(&[(1, f32::MAX)], &[f32::MAX, f32::MAX]), 0);
}

#[test]
fn logits_that_are_no_numbers_are_an_error() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let error = Sampler::new(plain()).unwrap().sample(&[0.0, bad, 1.0], &[]).unwrap_err();
        assert!(matches!(&error, Error::NotFinite { place, .. } if place.contains('1')), "{error}");
    }
    assert!(matches!(Sampler::new(plain()).unwrap().sample(&[], &[]), Err(Error::Argument { .. })));
}

#[test]
fn options_out_of_range_are_argument_errors_that_name_them() {
    let nan = f32::NAN;
    let cases = [
        ("temperature", SamplerOptions { temperature: -1.0, ..plain() }),
        ("temperature", SamplerOptions { temperature: nan, ..plain() }),
        ("temperature", SamplerOptions { temperature: f32::INFINITY, ..plain() }),
        ("top-p", SamplerOptions { top_p: 0.0, ..plain() }),
        ("top-p", SamplerOptions { top_p: 1.5, ..plain() }),
        ("top-p", SamplerOptions { top_p: nan, ..plain() }),
        ("min-p", SamplerOptions { min_p: -0.1, ..plain() }),
        ("min-p", SamplerOptions { min_p: nan, ..plain() }),
        ("repeat-penalty", SamplerOptions { repeat_penalty: Some(0.0), ..plain() }),
        ("repeat-penalty", SamplerOptions { repeat_penalty: Some(f32::INFINITY), ..plain() }),
        ("repeat-penalty", SamplerOptions { repeat_penalty: Some(nan), ..plain() }),
        ("logit-bias", SamplerOptions { logit_bias: vec![(1, nan)], ..plain() }),
        ("logit-bias", SamplerOptions { logit_bias: vec![(1, 2.0), (2, f32::NEG_INFINITY)], ..plain() }),
        ("logit-bias", SamplerOptions { logit_bias: vec![(1, 2.0), (2, 1.0), (1, 2.0)], ..plain() }),
        ("logit-bias", SamplerOptions { logit_bias: (0..513).map(|id| (id, 1.0)).collect(), ..plain() }),
    ];
    for (name, options) in cases {
        match Sampler::new(options.clone()) {
            Err(Error::Argument { option, .. }) => assert_eq!(option, name),
            other => panic!("{options:?}: {other:?}"),
        }
    }
}
