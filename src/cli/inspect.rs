//! `kitfox inspect`: what is in a model file, from its headers alone.

use super::output::{Done, print_json, print_line};
use super::source;
use clap::Args;
use kitfox::format::{Checkpoint, Kind, Tensor};
use kitfox::model::Config;
use kitfox::text::Tokenizer;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Args)]
pub struct Arguments {
    /// A .gguf file or a Hugging Face directory; without it the embedded demo model
    #[arg(short, long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Sums over the tensors of one type.
#[derive(Default)]
struct Sum {
    n_tensors: usize,
    n_values: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, tensor: &Tensor) {
        self.n_tensors += 1;
        self.n_values += tensor.n_values();
        self.bytes += tensor.bytes;
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Done {
    let checkpoint = source::open(arguments.model.as_deref())?;
    let mut total = Sum::default();
    let mut types: BTreeMap<&str, Sum> = BTreeMap::new();
    for tensor in &checkpoint.tensors {
        total.add(tensor);
        types.entry(tensor.ty.name()).or_default().add(tensor);
    }
    let warnings = warnings(&checkpoint);
    if arguments.json {
        return print_json(&as_json(&checkpoint, &total, &types, &warnings));
    }
    print_line(&format!("{} ({}, {})", checkpoint.name, kind(&checkpoint), checkpoint.file_name()))?;
    print_line(&format!("{} parameters in {} tensors, {} bytes", total.n_values, total.n_tensors, total.bytes))?;
    for (name, sum) in &types {
        print_line(&format!("  {name}: {} parameters in {} tensors, {} bytes", sum.n_values, sum.n_tensors, sum.bytes))?;
    }
    print_line(&format!("tokenizer: {}", if checkpoint.tokenizer.is_some() { "yes" } else { "no" }))?;
    for (key, value) in checkpoint.config.iter().filter(|(_, value)| !value.is_null()) {
        print_line(&format!("{key}: {value}"))?;
    }
    for tensor in &checkpoint.tensors {
        print_line(&format!("{:32} {:5} {:?}", tensor.name, tensor.ty, tensor.shape))?;
    }
    for warning in &warnings {
        print_line(&format!("warning: {warning}"))?;
    }
    Ok(())
}

fn kind(checkpoint: &Checkpoint) -> &'static str {
    match checkpoint.kind {
        Kind::Gguf => "gguf",
        Kind::HuggingFace => "hugging face",
    }
}

/// What would keep the model, or its tokenizer, from loading.
fn warnings(checkpoint: &Checkpoint) -> Vec<String> {
    let config = Config::from_json(&checkpoint.config);
    let tokenizer = checkpoint.tokenizer.as_ref().map(|json| Tokenizer::from_json(checkpoint.file_name(), json));
    let mut warnings: Vec<String> = Vec::new();
    warnings.extend(config.err().map(|error| error.to_string()));
    match tokenizer {
        None => warnings.push("no tokenizer: generate and perplexity need one".to_owned()),
        Some(tokenizer) => warnings.extend(tokenizer.err().map(|error| error.to_string())),
    }
    warnings
}

fn as_json(checkpoint: &Checkpoint, total: &Sum, types: &BTreeMap<&str, Sum>, warnings: &[String]) -> Value {
    let tensor = |tensor: &Tensor| {
        let (name, origin, ty) = (&tensor.name, &tensor.origin, tensor.ty.name());
        json!({ "name": name, "origin": origin, "type": ty, "shape": tensor.shape, "bytes": tensor.bytes })
    };
    let sum = |(name, sum): (&&str, &Sum)| {
        let value = json!({ "tensors": sum.n_tensors, "parameters": sum.n_values, "bytes": sum.bytes });
        ((*name).to_owned(), value)
    };
    json!({
        "name": checkpoint.name,
        "kind": kind(checkpoint),
        "file": checkpoint.file_name(),
        "config": checkpoint.config,
        "tokenizer": checkpoint.tokenizer.is_some(),
        "parameters": total.n_values,
        "bytes": total.bytes,
        "quantization": types.iter().map(sum).collect::<serde_json::Map<_, _>>(),
        "tensors": checkpoint.tensors.iter().map(tensor).collect::<Vec<_>>(),
        "warnings": warnings,
    })
}
