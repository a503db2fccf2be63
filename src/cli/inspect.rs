//! `kitfox inspect`: what is in a model file, from its headers alone; `kitfox inspect gates`: what it does with a text.

mod gates;
mod large;
mod matrix;
mod palette;
mod picture;
mod shaded;
mod table;

use super::output::{Done, print_json, print_line};
use super::source;
use clap::{Args, Subcommand};
use kitfox::format::names::is_matrix;
use kitfox::format::{Checkpoint, Kind, Tensor, TensorType};
use kitfox::session::load::check;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    /// A .gguf file or a Hugging Face directory; without it the embedded demo model
    #[arg(short, long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum What {
    /// Write how much each head forgets at each token of a text: as numbers, a table or a picture
    Gates(gates::Arguments),
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
    if let Some(What::Gates(arguments)) = &arguments.what {
        return gates::run(arguments);
    }
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
    if let (Some(main), others) = main_type(&checkpoint) {
        for tensor in others {
            print_line(&format!("note: {} is {}, not {main} as most matrices are", tensor.name, tensor.ty))?;
        }
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
        Kind::Random => "random",
    }
}

/// What would keep the model from loading, or from reading text.
fn warnings(checkpoint: &Checkpoint) -> Vec<String> {
    let mut warnings = Vec::from_iter(check(checkpoint).err().map(|error| error.to_string()));
    if checkpoint.tokenizer.is_none() {
        warnings.push("no tokenizer: generate and perplexity need one".to_owned());
    }
    warnings
}

/// The type of most of the matrices' weights, and the matrices of another: fallbacks, and what a mixed recipe chose.
fn main_type(checkpoint: &Checkpoint) -> (Option<TensorType>, Vec<&Tensor>) {
    let matrices = || checkpoint.tensors.iter().filter(|tensor| is_matrix(&tensor.name));
    let weight = |ty: TensorType| matrices().filter(|tensor| tensor.ty == ty).map(Tensor::n_values).sum::<u64>();
    let main = TensorType::ALL.into_iter().max_by_key(|ty| weight(*ty)).filter(|ty| weight(*ty) > 0);
    (main, matrices().filter(|tensor| Some(tensor.ty) != main).collect())
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
    let (main, others) = main_type(checkpoint);
    json!({
        "main_type": main.map(TensorType::name),
        "other_types": others.iter().map(|other| (other.name.clone(), other.ty.name().into())).collect::<serde_json::Map<_, _>>(),
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
