//! `kitfox devices`: the GPU adapters that wgpu finds here, and what `auto` takes.

use super::output::{Done, one_line, print_json, print_line};
use clap::Args;
use kitfox::gpu::{AdapterInfo, AdapterPick, Gpu, adapters};
use serde_json::{Value, json};

#[derive(Args)]
pub struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Done {
    let adapters = pollster::block_on(adapters());
    let auto = adapters.iter().position(|adapter| !adapter.software);
    if arguments.json {
        let auto = auto.map_or("cpu", |ix| &adapters[ix].name);
        return print_json(&json!({ "adapters": adapters.iter().map(as_json).collect::<Vec<_>>(), "auto": auto }));
    }
    if adapters.is_empty() {
        print_line("no GPU adapter")?;
    }
    for (ix, adapter) in adapters.iter().enumerate() {
        let AdapterInfo { name, backend, driver, kind, software } = adapter;
        let software = if *software { ", software" } else { "" };
        let taken = if auto == Some(ix) { " <- auto" } else { "" };
        print_line(&format!("gpu: {name} ({backend}, {kind}{software}, {driver}){taken}"))?;
        print_line(&format!("     {}", features(name)))?;
    }
    print_line(&format!("cpu: this machine's cores{}", if auto.is_none() { " <- auto" } else { "" }))?;
    print_line("twin: the plain reference kernels on the CPU, slow")
}

/// What an adapter's device has beyond WebGPU's baseline, or why it does not open.
fn features(name: &str) -> String {
    let opened = pollster::block_on(Gpu::open_equipped(AdapterPick::Named(name.to_owned())));
    opened.map_or_else(|error| one_line(&error), |gpu| gpu.features().to_string())
}

fn as_json(adapter: &AdapterInfo) -> Value {
    let AdapterInfo { name, backend, driver, kind, software } = adapter;
    json!({ "name": name, "backend": backend, "driver": driver, "kind": kind, "software": software, "features": features(name) })
}
