//! The command line: what each command takes, and how it ends. Results go to stdout, everything else to stderr.
//!
//! A program like any other over the library's public names, whatever the room: it parses, prints, and opens and writes files. It never names
//! wgpu or JavaScript, and what a model does is never decided here: what the package should do as well belongs into `session`.

mod axis;
mod bench;
mod check;
mod convert;
mod devices;
mod drawing;
mod eval;
mod gates_file;
mod generate;
mod host;
mod input;
mod inspect;
mod logits;
mod manifest;
mod new_file;
mod output;
mod perplexity;
mod session_file;
mod source;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use kitfox::gpu::{AdapterPick, Gpu};
use kitfox::session::{DeviceChoice, KvType, LoadOptions, Overflow, Pruning};
use output::Stop;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs Forgetting Transformers on the GPU or the CPU. Without a command it tells a story with the demo model.
#[derive(Parser)]
#[command(version)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

impl Cli {
    /// From the arguments of the process.
    ///
    /// # Errors
    /// Bad usage, and what help and version print.
    pub fn read() -> clap::error::Result<Self> {
        Self::from_arg_matches(&with_negatives(Self::command()).try_get_matches()?)
    }
}

/// `-5` is a number for the option in front of it, which may say why it wants none.
fn with_negatives(command: clap::Command) -> clap::Command {
    command.allow_negative_numbers(true).mut_subcommands(with_negatives)
}

#[derive(Subcommand)]
enum Command {
    /// Continue a text
    Generate(generate::Arguments),
    /// Turn a Hugging Face directory (or a GGUF file) into a GGUF file
    Convert(convert::Arguments),
    /// Write the SHA-256 of a model file's pieces beside it, by which the npm package checks what it downloads
    Manifest(manifest::Arguments),
    /// Write the logits after each of the given token ids as safetensors
    Logits(logits::Arguments),
    /// Measure how well a model predicts a text
    Perplexity(perplexity::Arguments),
    /// Evaluate a model over long contexts
    #[command(subcommand)]
    Eval(eval::Command),
    /// Show what is in a model file
    Inspect(inspect::Arguments),
    /// Compare every kernel with its CPU twin on this machine's adapter
    Check(check::Arguments),
    /// Measure how fast a model reads and writes here, and how near that is to the device's floor
    Bench(bench::Arguments),
    /// List the devices
    Devices(devices::Arguments),
}

/// Which model, and where it runs.
#[derive(Args, Clone, Default)]
struct ModelArguments {
    /// A .gguf file or a Hugging Face directory; without it the embedded demo model
    #[arg(short, long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// Where it runs; `auto` takes a hardware GPU, else the CPU
    #[arg(long, value_enum, default_value_t, value_name = "DEVICE")]
    device: DeviceArgument,
    /// Opens a GPU with no more than WebGPU's default limits and no optional feature (also by KITFOX_BASELINE=1)
    #[arg(long)]
    baseline: bool,
    /// Forget keys that together weigh less than this part of a row's attention for good; `off`: none. Default: what the model states
    #[arg(long, value_name = "EPS", value_parser = pruning)]
    prune: Option<Pruning>,
    /// What happens when keys that are not forgotten fill the context
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    overflow: OverflowArgument,
}

impl ModelArguments {
    /// Options with what is asked for here.
    fn apply(&self, options: LoadOptions) -> LoadOptions {
        let prune = self.prune.unwrap_or_default();
        LoadOptions {
            device: self.device.into(),
            baseline: baseline(self.baseline),
            prune,
            overflow: self.overflow.into(),
            ..options
        }
    }
}

/// `off` or ε.
fn pruning(text: &str) -> Result<Pruning, String> {
    match text.parse() {
        _ if text == "off" => Ok(Pruning::Off),
        Ok(epsilon) if epsilon > 0.0 && epsilon < 1.0 => Ok(Pruning::Epsilon(epsilon)),
        _ => Err("expected off, or a number between 0 and 1 (4.5e-5 is usual)".to_owned()),
    }
}

/// What happens when the context is full, by name.
#[derive(ValueEnum, Clone, Copy, Default)]
enum OverflowArgument {
    /// The text ends, or is refused
    #[default]
    Error,
    /// The oldest keys are dropped
    Slide,
}

impl From<OverflowArgument> for Overflow {
    fn from(overflow: OverflowArgument) -> Self {
        match overflow {
            OverflowArgument::Error => Self::Error,
            OverflowArgument::Slide => Self::Slide,
        }
    }
}

/// Whether a GPU is opened with WebGPU's baseline only.
fn baseline(flag: bool) -> bool {
    flag || std::env::var("KITFOX_BASELINE").is_ok_and(|value| value == "1")
}

/// A GPU without a model, hardware before software, with everything that it has or with the baseline.
fn open_gpu(baseline: bool) -> kitfox::Result<Gpu> {
    let open = async { if baseline { Gpu::open(AdapterPick::Any).await } else { Gpu::open_equipped(AdapterPick::Any).await } };
    pollster::block_on(open)
}

/// The devices by name.
#[derive(ValueEnum, Clone, Copy, Default)]
enum DeviceArgument {
    /// A hardware GPU if there is one, else the CPU
    #[default]
    Auto,
    /// Any GPU adapter, a software one too
    Gpu,
    /// The CPU
    Cpu,
    /// The CPU with the plain reference kernels (slow)
    Twin,
}

impl From<DeviceArgument> for DeviceChoice {
    fn from(device: DeviceArgument) -> Self {
        match device {
            DeviceArgument::Auto => Self::Auto,
            DeviceArgument::Gpu => Self::Gpu,
            DeviceArgument::Cpu => Self::Cpu,
            DeviceArgument::Twin => Self::Twin,
        }
    }
}

/// Element types of the KV cache by name.
#[derive(ValueEnum, Clone, Copy)]
enum KvArgument {
    /// Half precision
    F16,
    /// Single precision
    F32,
}

impl From<KvArgument> for KvType {
    fn from(kv: KvArgument) -> Self {
        match kv {
            KvArgument::F16 => Self::F16,
            KvArgument::F32 => Self::F32,
        }
    }
}

/// What the argument parser has to say: help and version, or an error, whose first paragraph becomes one line.
pub fn usage(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    if !error.use_stderr() {
        return match output::print(&text) {
            Ok(()) | Err(Stop::BrokenPipe) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let (first, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
    output::say(&output::one_line(first));
    if !rest.is_empty() {
        output::say(rest.trim_end());
    }
    ExitCode::from(2)
}

/// Runs the command; errors become one line on stderr and an exit code.
pub fn run(cli: Cli) -> ExitCode {
    host::set_up();
    let done = match cli.command {
        None => generate::story(),
        Some(Command::Generate(arguments)) => generate::run(arguments),
        Some(Command::Convert(arguments)) => convert::run(&arguments),
        Some(Command::Manifest(arguments)) => manifest::run(&arguments),
        Some(Command::Logits(arguments)) => logits::run(&arguments),
        Some(Command::Perplexity(arguments)) => perplexity::run(&arguments),
        Some(Command::Eval(command)) => eval::run(&command),
        Some(Command::Inspect(arguments)) => inspect::run(&arguments),
        Some(Command::Check(arguments)) => check::run(&arguments),
        Some(Command::Bench(arguments)) => bench::run(&arguments),
        Some(Command::Devices(arguments)) => devices::run(&arguments),
    };
    match done {
        // The reader of a pipe has had enough: no error of ours.
        Ok(()) | Err(Stop::BrokenPipe) => ExitCode::SUCCESS,
        Err(Stop::Failed) => ExitCode::FAILURE,
        Err(Stop::Error(error)) => {
            output::say(&format!("error: {}", output::one_line(&error)));
            ExitCode::from(if matches!(error, kitfox::Error::Argument { .. }) { 2 } else { 1 })
        }
    }
}
