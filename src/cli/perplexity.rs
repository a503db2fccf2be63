//! `kitfox perplexity`: the mean negative log-likelihood of a text's tokens, in nats, and its exponential.
//!
//! ids = BOS + the text's tokens. Window w feeds ids[wC .. wC + C] from an empty state and predicts ids[wC + 1 ..= wC + C]; the last
//! window is shorter. Log-softmax and sum are f64.

use super::output::{Done, print_json, print_line, tokens_bar};
use super::{KvArgument, ModelArguments, input, source};
use clap::Args;
use kitfox::session::generate::check_ids;
use kitfox::session::score::nll;
use kitfox::session::{LoadOptions, Model};
use kitfox::{Error, Result};
use std::path::PathBuf;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    /// The text, UTF-8
    #[arg(short, long, value_name = "TEXT")]
    file: PathBuf,
    /// Predictions of a window; default: what the model states, as far as 4 GiB of keys or eight times its weights hold it; else 4096
    #[arg(short, long, value_name = "TOKENS")]
    context: Option<usize>,
    /// Predictions at most
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    // As in the evaluations of `eval`: a help line is a literal, and each says what its own windows are.
    /// Element type of the KV cache
    #[arg(long, value_enum, default_value = "f16", value_name = "TYPE")]
    kv: KvArgument,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Done {
    if arguments.max_tokens == Some(0) {
        return Err(Error::argument("max-tokens", "at least 1", 0).into());
    }
    let text = input::text(&arguments.file, input::MAX_TEXT)?;
    let load = LoadOptions { context: arguments.context, kv: arguments.kv.into(), scores: true, ..LoadOptions::default() };
    let mut model = source::load(&arguments.model, Some("perplexity"), load)?;
    let mut ids = model.ids_of("perplexity", &text)?;
    if ids.len() < 2 {
        return Err(Error::argument("file", "a text of at least one prediction", format!("{} tokens", ids.len())).into());
    }
    ids.truncate(arguments.max_tokens.unwrap_or(usize::MAX).saturating_add(1));
    check_ids("file", &ids, model.vocab())?;
    source::say_note(&model);
    let n = ids.len() - 1;
    let nll = total_nll(&mut model, &ids)? / n as f64;
    if arguments.json {
        let device = model.device_name();
        return print_json(
            &serde_json::json!({ "nll": nll, "perplexity": nll.exp(), "tokens": n, "context": model.context(), "device": device }),
        );
    }
    print_line(&format!("nll {nll:.6} nats, perplexity {:.4}, {n} tokens, device {}", nll.exp(), model.device_name()))
}

/// Σ -log p(id | the ids before it in its window), in nats.
fn total_nll(model: &mut Model, ids: &[u32]) -> Result<f64> {
    let bar = tokens_bar("perplexity", ids.len() - 1);
    let (inputs, targets) = (&ids[..ids.len() - 1], &ids[1..]);
    let mut sum = 0.0;
    for (inputs, targets) in inputs.chunks(model.context()).zip(targets.chunks(model.context())) {
        model.reset();
        for (inputs, targets) in inputs.chunks(model.chunk()).zip(targets.chunks(model.chunk())) {
            let logits = pollster::block_on(model.score(inputs))?;
            for (row, &target) in logits.chunks_exact(model.vocab()).zip(targets) {
                sum += nll(row, target)?;
            }
            bar.inc(inputs.len() as u64);
        }
    }
    bar.finish_and_clear();
    Ok(sum)
}
