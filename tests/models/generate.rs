//! Generation as a library: pieces, turns, and a model that is left in the middle.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::tiny::Tiny;
use crate::common::tokenizers;
use kitfox::Error;
use kitfox::session::{DeviceChoice, FinishReason, GenerateOptions, Generation, LoadOptions, Model, SamplerOptions, Scoring};
use pollster::block_on;
use std::path::Path;

fn model(test: &str, chunk: usize) -> Model {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("generate").join(test);
    let folder = Tiny::new(Some(tokenizers::byte_level())).write(&folder);
    let options = LoadOptions { device: DeviceChoice::Cpu, chunk: Some(chunk), ..LoadOptions::default() };
    let checkpoint = block_on(kitfox::format::open(&folder)).unwrap();
    block_on(Model::load(checkpoint, options, &mut |_| Ok(()))).unwrap()
}

fn options(seed: u64) -> GenerateOptions {
    let sampler = SamplerOptions { seed, temperature: 2.0, min_p: 0.0, top_k: 0, ..SamplerOptions::default() };
    GenerateOptions { max_tokens: 30, sampler, ignore_eos: true, ..GenerateOptions::default() }
}

/// Text and ids of a whole generation.
pub(crate) fn run(model: &mut Model, prompt: &str, options: GenerateOptions) -> (String, Vec<u32>, FinishReason) {
    let mut generation = Generation::new(model, prompt, options).unwrap();
    let (mut text, mut ids) = (String::new(), Vec::new());
    while let Some(piece) = block_on(generation.next(model)).unwrap() {
        text += &piece.text;
        ids.extend(piece.ids);
    }
    assert_eq!(ids, generation.generated_ids());
    assert_eq!(block_on(generation.next(model)).unwrap(), None, "after the end comes nothing");
    (text, ids, generation.finish().unwrap().clone())
}

#[test]
fn pieces_joined_are_the_decoded_ids_and_no_token_is_computed_after_the_last() {
    let mut model = model("pieces", 16);
    for seed in 0..20 {
        let (text, ids, finish) = run(&mut model, "hello a", options(seed));
        assert_eq!((ids.len(), finish), (30, FinishReason::Length));
        assert_eq!(text, model.tokenizer("test").unwrap().decode(&ids).unwrap());
        assert_eq!(model.pos(), 4 + 30 - 1);
    }
}

#[test]
fn a_stop_string_ends_the_text_before_its_first_occurrence() {
    let mut model = model("stops", 16);
    for seed in 0..20 {
        let (whole, _, _) = run(&mut model, "hello a", options(seed));
        let stop = whole.chars().skip(6).take(2).collect::<String>();
        // A replacement character stands for bytes that no string spells.
        if stop.contains(char::REPLACEMENT_CHARACTER) || whole.chars().take(6).any(|c| c == char::REPLACEMENT_CHARACTER) {
            continue;
        }
        let with_stop = GenerateOptions { stop: vec![stop.clone()], ..options(seed) };
        let (text, _, finish) = run(&mut model, "hello a", with_stop);
        assert_eq!((Some(text.as_str()), finish), (whole.split(&stop).next(), FinishReason::Stop(stop)));
    }
}

#[test]
fn the_prompt_goes_in_by_chunks_and_the_chunk_does_not_change_the_text() {
    let prompt = "a prompt that is longer than a chunk";
    let expected = run(&mut model("whole", 64), prompt, options(3));
    let mut model = model("chunks", 5);
    let mut generation = Generation::new(&model, prompt, options(3)).unwrap();
    let total = generation.prompt_ids().len();
    let mut done = Vec::new();
    while done.last() != Some(&total) {
        let (now, all) = block_on(generation.prefill(&mut model)).unwrap();
        assert_eq!(all, total);
        done.push(now);
    }
    assert_eq!(done[..2], [5, 10]);
    assert_eq!(block_on(generation.prefill(&mut model)).unwrap(), (total, total), "again changes nothing");
    assert_eq!(run(&mut model, prompt, options(3)), expected);
}

#[test]
fn a_generation_left_anywhere_does_not_change_the_next() {
    let prompt = "a prompt of three chunks";
    let mut model = model("left", 8);
    let expected = run(&mut model, prompt, options(5));
    for n_calls in 0..8 {
        let mut left = Generation::new(&model, "another prompt, and a longer one", options(1)).unwrap();
        for call in 0..n_calls {
            if call < 3 {
                block_on(left.prefill(&mut model)).unwrap();
            } else {
                block_on(left.next(&mut model)).unwrap();
            }
        }
        drop(left);
        assert_eq!(run(&mut model, prompt, options(5)), expected, "left after {n_calls} calls");
    }
}

#[test]
fn two_generations_at_once_are_refused_not_mixed() {
    let mut model = model("turns", 8);
    let mut first = Generation::new(&model, "one", options(1)).unwrap();
    block_on(first.next(&mut model)).unwrap();
    run(&mut model, "a second one", options(2));
    let error = block_on(first.next(&mut model)).unwrap_err();
    assert!(matches!(&error, Error::Argument { got, .. } if got.contains("another generation")), "{error}");
}

/// Also when the other has come just as far, where the number of tokens tells nothing.
#[test]
fn a_generation_of_the_same_length_is_another_one_too() {
    let mut model = model("same length", 8);
    let begin = |model: &mut Model, prompt: &str, n_steps| {
        let mut generation = Generation::new(model, prompt, options(1)).unwrap();
        while block_on(generation.prefill(model)).map(|(done, total)| done < total).unwrap() {}
        for _ in 0..n_steps {
            block_on(generation.next(model)).unwrap();
        }
        generation
    };
    for (prompt, n_steps) in [("abcde", 0), ("abcde", 3), ("a prompt of two chunks", 0)] {
        let mut first = begin(&mut model, prompt, n_steps);
        // One step takes the token from the prompt's logits, without the model.
        if n_steps == 0 {
            block_on(first.next(&mut model)).unwrap();
        }
        begin(&mut model, &prompt.chars().rev().collect::<String>(), n_steps);
        let error = block_on(first.next(&mut model)).unwrap_err();
        assert!(matches!(&error, Error::Argument { got, .. } if got.contains("another generation")), "{error}");
    }
}

/// As a scoring of the whole gives them, whatever the sampler's options, and without a change of the text.
#[test]
fn pieces_carry_the_models_own_probabilities() {
    let mut model = model("logprobs", 16);
    let (_, ids, _) = run(&mut model, "hello a", options(4));
    let asked = GenerateOptions { logprobs: true, ..options(4) };
    let mut generation = Generation::new(&model, "hello a", asked).unwrap();
    let mut logprobs = Vec::new();
    while let Some(piece) = block_on(generation.next(&mut model)).unwrap() {
        assert_eq!(piece.logprobs.len(), piece.ids.len());
        logprobs.extend(piece.logprobs);
    }
    assert_eq!(generation.generated_ids(), ids);
    let mut scoring = Scoring::new(&model, &[&generation.prompt_ids()[1..], &ids].concat()).unwrap();
    while block_on(scoring.read(&mut model)).map(|(done, total)| done < total).unwrap() {}
    let scored = &scoring.logprobs()[generation.prompt_ids().len() - 1..];
    for (got, want) in logprobs.iter().zip(scored) {
        assert!((got - want).abs() < 1e-4, "{got} {want}");
    }
    assert_eq!(logprobs.len(), 30);
}

#[test]
fn a_bias_makes_and_unmakes_a_token() {
    let mut model = model("bias", 16);
    let greedy = |logit_bias: Vec<(u32, f32)>| {
        let sampler = SamplerOptions { temperature: 0.0, logit_bias, ..SamplerOptions::default() };
        GenerateOptions { max_tokens: 6, sampler, ignore_eos: true, ..GenerateOptions::default() }
    };
    assert_eq!(run(&mut model, "hello", greedy(vec![(9, 1e6)])).1, [9; 6]);
    let (_, plain, _) = run(&mut model, "hello", greedy(Vec::new()));
    assert!(!run(&mut model, "hello", greedy(vec![(plain[0], -1e6)])).1.contains(&plain[0]));
    let beyond = Generation::new(&model, "hello", greedy(vec![(1, 1.0), (model.vocab() as u32, 1.0)])).err();
    assert!(matches!(&beyond, Some(Error::Argument { option, .. }) if option == "logit-bias"), "{beyond:?}");
}

#[test]
fn prompts_that_cannot_be_run_are_typed_errors() {
    let model = model("prompts", 8);
    let new = |prompt: &str, options| Generation::new(&model, prompt, options).err();
    assert!(matches!(new("", options(1)), Some(Error::Argument { .. })));
    assert!(new(&"a".repeat(62), options(1)).is_none(), "BOS, 62 tokens and one more are 64");
    let full = new(&"a".repeat(63), options(1));
    assert!(matches!(full, Some(Error::ContextFull { needed: 65, available: 64 })), "{full:?}");
    let stops = GenerateOptions { stop: vec![String::new()], ..options(1) };
    assert!(matches!(new("a", stops), Some(Error::Argument { .. })));
}
