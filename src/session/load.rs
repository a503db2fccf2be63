//! From a checkpoint to a model on a device: configuration, then every tensor compared with what the network wants, all
//! differences at once, then the weights in file order in pieces of at most 4 MiB. The file never sits whole in memory.

mod eviction;
pub mod plan;
pub(super) mod weights;

use super::chunk::Chunks;
use super::device::{Device, DeviceChoice, Opened, instead};
use super::memory::{DEFAULT_CHUNK, MAX_CHUNK, advised, fits_in_bindings, largest_chunk, scores_chunk};
use super::model::{Graphs, Model};
use super::pages::{Pruning, Sightings, pool_bytes};
use super::recover::Log;
use crate::error::{Error, Result};
use crate::format::{Checkpoint, Kind, Quant, TensorType};
use crate::graph::{Program, Step};
use crate::kernel::attention::PAGE;
use crate::kernel::layout::WeightType;
use crate::kernel::sample::MAX_VOCAB;
use crate::model::evict::{Eviction, Overflow};
use crate::model::state::MAX_REWIND;
use crate::model::{Config, Fox, Gates, Pages, Wanted, fox};
use crate::text::Tokenizer;
use eviction::{eviction, positions, pruning};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;
use web_time::Duration;
use weights::{Filled, Origin};

/// Element type of the KV cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvType {
    /// Half the memory; rounding of 2⁻¹¹ on keys and values.
    #[default]
    F16,
    /// Exact.
    F32,
}

/// How to load a model.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Where it runs.
    pub device: DeviceChoice,
    /// Whether a GPU is opened with no more than WebGPU's default limits and no feature, its shaders checked, as in a plain browser.
    pub baseline: bool,
    /// Tokens that a session can hold; `None`: what the model states, as far as its keys and values take no more than 4 GiB or eight times
    /// the file's weights ([`Model::context_note`]), else [`DEFAULT_CONTEXT`].
    pub context: Option<usize>,
    /// Element type of the KV cache.
    pub kv: KvType,
    /// Whether [`Model::score`] can be called (costs a [chunk, V] buffer).
    pub scores: bool,
    /// Tokens of every prefill replay but a prompt's last; `None`: on a GPU by measured time ([`Model::chunk`]), on the CPU 128.
    pub chunk: Option<usize>,
    /// When keys that are forgotten for good are passed over and their pages used again.
    pub prune: Pruning,
    /// What happens when live keys fill the context's pages.
    pub overflow: Overflow,
    /// Gates that every layer replays in the place of its own, over and over in layers, heads and tokens, and norms of q and k that have
    /// their U: for measurements with made-up models ([`random`]).
    pub gates: Option<Arc<Gates>>,
}

/// Context of a model that states none.
pub const DEFAULT_CONTEXT: usize = 4096;
/// Longest context: λ as 32.32 fixed point holds the sum of this many gates of the largest kind (2¹⁴ each).
pub const MAX_CONTEXT: usize = 1 << 18;
/// Tokens of a replay by which kernels are chosen, where their number follows the clock.
const TYPICAL_CHUNK: usize = 256;

/// How far a load has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of weights on the device.
    pub done_bytes: u64,
    /// Bytes of weights in all.
    pub total_bytes: u64,
}

impl Model {
    /// Loads a checkpoint onto a device.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::Tensors`] (every difference at once), [`Error::Io`], [`Error::Format`], [`Error::Tokenizer`],
    /// [`Error::NoGpu`], [`Error::OutOfMemory`], [`Error::Kernel`] where a GPU that was asked for computes wrongly (with
    /// [`DeviceChoice::Auto`] it is the CPU then, and [`Model::device_note`] says why), and what the progress callback returns.
    pub async fn load(
        mut checkpoint: Checkpoint,
        options: LoadOptions,
        progress: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<Self> {
        let Prepared { config, pruning, pruning_note, shape } = prepare(&checkpoint, &options)?;
        let (context, evict) = (shape.context, shape.evict);
        let file = checkpoint.file_name().to_owned();
        let tokenizer = tokenizer(&checkpoint, &config)?;
        // Its text is of no more use; a vocabulary can be many MB.
        checkpoint.tokenizer = None;
        let context_note = context_note(&config, &options, context);
        fits_in_bindings(&declare(&checkpoint, &config, shape)?.program, context)?;
        let opened = Opened::open(options.device, options.baseline).await?;
        let matrix_types = matrix_types(&checkpoint);
        let gates = options.gates.clone();
        let shape = Shape { gates: gates.as_deref(), ..shape };
        let mut origin = Origin { checkpoint, moves: Vec::new(), options, pruning };
        let settled = match settle(opened, &mut origin, &config, shape, progress).await {
            Err(error) => match instead(origin.options.device, &error) {
                Some(cpu) => settle(cpu, &mut origin, &config, shape, progress).await?,
                None => return Err(error),
            },
            Ok(settled) => settled,
        };
        let Settled { chunk, program, pages, network, graphs, device_name, device_note, on: (device, filled, recoveries) } =
            settled;
        let positions = if evict.is_some() { positions(&config, context) } else { context };
        let mut model = Self {
            file,
            matrix_types,
            fingerprint: filled.fingerprint,
            config,
            tokenizer,
            device,
            device_name,
            device_note,
            program,
            network,
            graphs,
            pages,
            context,
            context_note,
            positions,
            pruning,
            pruning_note,
            score_bounds: filled.score_bounds,
            sightings: Sightings::default(),
            marks: Vec::new(),
            history: Vec::new(),
            chunks: Chunks::fixed(chunk),
            sequence: 0,
            draws: None,
            turn: 0,
            round_trip: Duration::ZERO,
            log: Log::default(),
            recoveries,
            watch: None,
            origin: None,
        };
        if origin.options.chunk.is_none() {
            model.measure_chunks(chunk);
        }
        // The CPU is never lost.
        model.origin = matches!(model.device, Device::Gpu(_)).then_some(origin);
        model.warm_up().await?;
        Ok(model)
    }

    /// On a GPU chunks follow measured time, from a kernel's tile to `most` tokens.
    fn measure_chunks(&mut self, most: usize) {
        if let Device::Gpu(gpu) = &self.device {
            let graphs = [Some(self.graphs.prefill), self.graphs.score].into_iter().flatten();
            self.chunks = Chunks::measured(most, graphs.map(|graph| gpu.token_tile(graph)).fold(PAGE, usize::max));
        }
    }
}

/// What file and options say together.
struct Prepared<'a> {
    config: Config,
    /// ln ε, if pages die.
    pruning: Option<f64>,
    /// Why they do not, although the model says when.
    pruning_note: Option<String>,
    /// With the smallest chunk.
    shape: Shape<'a>,
}

/// Finds what is wrong with file or options before a device is opened.
fn prepare<'a>(checkpoint: &Checkpoint, options: &'a LoadOptions) -> Result<Prepared<'a>> {
    let config = config(checkpoint)?;
    let context = context(checkpoint, &config, options)?;
    let (pruning, pruning_note) = pruning(&config, options.prune)?;
    let evict = eviction(&config, pruning, options.overflow, context)?;
    let gates = options.gates.as_deref();
    if let Some(gates) = gates {
        check_gates(checkpoint, &config, gates)?;
    }
    let chunk = options.chunk.unwrap_or(1).min(context);
    let shape = Shape { context, chunk, kv_f16: options.kv == KvType::F16, scores: options.scores, evict, gates };
    Ok(Prepared { config, pruning, pruning_note, shape })
}

/// Bytes that keys and values may take for a context that only the file names, or [`CLAIMED_TIMES`] as many as it has weights: a file of a
/// few MB may claim the longest context, for which a caller should ask.
const CLAIMED_BYTES: u64 = 4 << 30;
const CLAIMED_TIMES: u64 = 8;

/// The context that a file claims, or as much of it as [`CLAIMED_BYTES`] hold; [`DEFAULT_CONTEXT`] at least.
fn claimed(checkpoint: &Checkpoint, config: &Config, kv: KvType, context: usize) -> usize {
    let weights: u64 = checkpoint.tensors.iter().map(|tensor| tensor.bytes).fold(0, u64::saturating_add);
    let most = weights.saturating_mul(CLAIMED_TIMES).max(CLAIMED_BYTES);
    let bytes = |pages| pool_bytes(config, &Pages::new(config, pages, 1), kv == KvType::F16);
    // A window's keys are few, whatever the context.
    if bytes(context.div_ceil(PAGE)) <= most {
        return context;
    }
    let pages = most / bytes(1).max(1);
    let tokens = usize::try_from(pages).unwrap_or(usize::MAX).saturating_mul(PAGE);
    context.min(tokens.max(DEFAULT_CONTEXT))
}

/// Why the context is shorter than the file's, if it is.
fn context_note(config: &Config, options: &LoadOptions, context: usize) -> Option<String> {
    let stated = config.context.filter(|stated| options.context.is_none() && *stated > context)?;
    Some(format!(
        "a context of {context} tokens, not of {stated} as the model states: its keys and values would take more than 4 GiB and than eight times its \
         weights (-c / context asks for it)"
    ))
}

/// A network on a device, with its weights.
struct Settled {
    chunk: usize,
    program: Program,
    pages: Pages,
    network: Fox,
    graphs: Graphs,
    device_name: String,
    device_note: Option<String>,
    /// What [`Origin::settle`] gives.
    on: (Device, Filled, u64),
}

/// Declares, records and loads the network for a device.
async fn settle(
    opened: Opened,
    origin: &mut Origin,
    config: &Config,
    shape: Shape<'_>,
    progress: &mut dyn FnMut(Progress) -> Result<()>,
) -> Result<Settled> {
    let (context, given) = (shape.context, origin.options.chunk);
    let chunk = chunk(opened.is_hardware(), &origin.checkpoint, config, shape, given)?;
    let Declared { mut program, pages, network, moves } = declare(&origin.checkpoint, config, Shape { chunk, ..shape })?;
    fits_in_bindings(&program, context)?;
    origin.moves = moves;
    let graphs = record(&network, &mut program, shape.scores);
    let (one, many) = typical_steps(config, context, if given.is_some() { chunk } else { chunk.min(TYPICAL_CHUNK) });
    let step_of = |graph| if graph == graphs.prefill || Some(graph) == graphs.score { many } else { one };
    let (device_name, device_note) = (opened.name(), opened.note().map(str::to_owned));
    let on = origin.settle(opened, (&network, &program, config), &step_of, progress).await;
    let on = on.map_err(|error| advised(error, &program, context))?;
    Ok(Settled { chunk, program, pages, network, graphs, device_name, device_note, on })
}

/// Tokens of the context; that and the chunk are checked.
fn context(checkpoint: &Checkpoint, config: &Config, options: &LoadOptions) -> Result<usize> {
    let context = options.context.or(config.context).unwrap_or(DEFAULT_CONTEXT);
    if options.context.is_none() && context > MAX_CONTEXT {
        let expected = format!("a context of at most {MAX_CONTEXT} tokens (a shorter one can be given with -c / context)");
        let states = |key: &&str| checkpoint.config.get(*key).is_some_and(|value| !value.is_null());
        let key = Some("max_position_embeddings").filter(states).unwrap_or("training_context");
        return Err(Error::config(key, expected, context).in_file(&checkpoint.config_file));
    }
    if !(1..=MAX_CONTEXT).contains(&context) {
        return Err(Error::argument("context", format!("1 to {MAX_CONTEXT} tokens"), context));
    }
    if let Some(chunk) = options.chunk.filter(|chunk| !(1..=MAX_CHUNK).contains(chunk)) {
        return Err(Error::argument("chunk", format!("1 to {MAX_CHUNK} tokens"), chunk));
    }
    Ok(if options.context.is_some() { context } else { claimed(checkpoint, config, options.kv, context) })
}

/// The graphs that a model has.
fn record(network: &Fox, program: &mut Program, scores: bool) -> Graphs {
    Graphs {
        decode: network.record_decode(program),
        prefill: network.record_prefill(program, false),
        score: scores.then(|| network.record_prefill(program, true)),
        draw: network.record_draw(program),
        decode_and_draw: network.record_decode_and_draw(program),
    }
}

/// The types of a checkpoint's matrices, that of most bytes first.
fn matrix_types(checkpoint: &Checkpoint) -> String {
    let mut bytes: Vec<(TensorType, u64)> = Vec::new();
    for tensor in checkpoint.tensors.iter().filter(|tensor| tensor.shape.len() > 1) {
        match bytes.iter_mut().find(|(ty, _)| *ty == tensor.ty) {
            Some((_, sum)) => *sum += tensor.bytes,
            None => bytes.push((tensor.ty, tensor.bytes)),
        }
    }
    bytes.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    bytes.iter().map(|(ty, _)| ty.to_string()).collect::<Vec<_>>().join(", ")
}

/// The steps of a token and of a chunk some way into a text.
fn typical_steps(config: &Config, context: usize, chunk: usize) -> (Step, Step) {
    let mut pages = Pages::new(config, context.div_ceil(PAGE), chunk);
    pages.advance((context - chunk).min(1024));
    (pages.step(1), pages.step(chunk))
}

/// Gates of another model take the place of made-up ones only.
fn check_gates(checkpoint: &Checkpoint, config: &Config, gates: &Gates) -> Result<()> {
    match checkpoint.kind {
        Kind::Random => gates.check_size(config),
        _ => Err(Error::argument("gates", "a made-up model to replay them in", checkpoint.file_name())),
    }
}

/// Tokens of a prefill replay that buffers are sized for: what the caller says, else what pays on the device.
fn chunk(hardware: bool, checkpoint: &Checkpoint, config: &Config, shape: Shape, given: Option<usize>) -> Result<usize> {
    let most = match given {
        Some(chunk) => chunk,
        None if shape.scores => scores_chunk(hardware, config.vocab),
        None if !hardware => DEFAULT_CHUNK,
        None => largest_chunk(&|chunk| {
            let Declared { mut program, network, .. } = declare(checkpoint, config, Shape { chunk, ..shape })?;
            network.record_prefill(&mut program, false);
            Ok(program)
        })?,
    };
    Ok(most.min(shape.context))
}

/// Whether a checkpoint is a model that can be run: its configuration, its tokenizer if it has one, and every tensor's name and
/// shape. Reads no weight and needs no device.
///
/// # Errors
/// [`Error::Config`], [`Error::Tokenizer`], [`Error::Format`], [`Error::Tensors`] (every difference at once).
pub fn check(checkpoint: &Checkpoint) -> Result<()> {
    let config = config(checkpoint)?;
    tokenizer(checkpoint, &config)?;
    declare(checkpoint, &config, Shape { context: PAGE, chunk: 1, kv_f16: true, scores: false, evict: None, gates: None })?;
    Ok(())
}

/// The checkpoint's tokenizer, if it has one: how many tokens a text has is known before a model is loaded for it.
///
/// # Errors
/// [`Error::Config`], [`Error::Tokenizer`], [`Error::Format`].
pub fn tokenizer_of(checkpoint: &Checkpoint) -> Result<Option<Tokenizer>> {
    tokenizer(checkpoint, &config(checkpoint)?)
}

/// A checkpoint of this configuration with made-up weights, the same for the same seed; its matrices have the types of `quant`. For
/// tests and measurements: it takes no memory ([`crate::format::random`]).
///
/// # Errors
/// [`Error::Config`].
pub fn random(config: Map<String, Value>, quant: Quant, seed: u64) -> Result<Checkpoint> {
    let model = Config::from_json(&config)?;
    let options = fox::Options { type_of: &|_| WeightType::F32, chunk: 1, kv_f16: true, scores: false, gates: None };
    let (_, wanted) = Fox::declare(&mut Program::default(), &model, &Pages::new(&model, 1, 1), &options);
    let tensors = wanted.into_iter().map(|wanted| (wanted.name, wanted.shape)).collect();
    Ok(crate::format::random::random(config, tensors, quant, seed))
}

/// The checkpoint's configuration, if it can be run.
fn config(checkpoint: &Checkpoint) -> Result<Config> {
    let read = Config::from_json(&checkpoint.config).and_then(|config| match config.vocab {
        vocab if vocab > MAX_VOCAB => Err(Error::config("vocab_size", format!("at most {MAX_VOCAB}"), vocab)),
        _ => Ok(config),
    });
    read.map_err(|error| error.in_file(&checkpoint.config_file))
}

/// The checkpoint's tokenizer; one whose ids go beyond the embedding is none of this model's.
fn tokenizer(checkpoint: &Checkpoint, config: &Config) -> Result<Option<Tokenizer>> {
    let Some(json) = &checkpoint.tokenizer else { return Ok(None) };
    let file = &checkpoint.tokenizer_file;
    let tokenizer = Tokenizer::from_json(file, json)?;
    if tokenizer.n_ids() > config.vocab {
        let expected = format!("ids below vocab_size ({})", config.vocab);
        return Err(Error::format(file, "vocabulary", expected, format_args!("an id {}", tokenizer.n_ids() - 1)));
    }
    Ok(Some(tokenizer.with_json_escape(checkpoint.json_escaped_text()?)))
}

/// What a network's buffers are sized for.
#[derive(Clone, Copy)]
struct Shape<'a> {
    context: usize,
    chunk: usize,
    kv_f16: bool,
    scores: bool,
    evict: Option<Eviction>,
    gates: Option<&'a Gates>,
}

/// A network whose buffers are declared, and where each tensor of the checkpoint goes.
struct Declared {
    program: Program,
    pages: Pages,
    network: Fox,
    moves: Vec<(usize, Wanted)>,
}

/// A file of `n` numbers is compared tensor by tensor with a configuration of up to this many times as many parameters (and of as
/// many as a small model has). Beyond, the list of what is missing would itself fill the memory.
const COMPARABLE: u128 = 64;
const SMALL: u128 = 1 << 24;

/// And layer by layer with one of up to this many layers beside a quarter of the file's tensors: a layer has nine tensors or more.
const SMALL_LAYERS: usize = 256;

/// A configuration that the file cannot be of, by numbers alone, before anything is set aside for it. How many numbers a file says it
/// has is no measure of memory where nobody knows its length; how many tensors is.
fn check_size(checkpoint: &Checkpoint, config: &Config) -> Result<()> {
    let n_values: u128 = checkpoint.tensors.iter().map(|tensor| u128::from(tensor.n_values())).sum();
    let n_parameters = config.n_parameters();
    let refused = |expected: String, got: String| Err(Error::format(checkpoint.file_name(), "tensors", expected, got));
    if n_parameters > n_values * COMPARABLE + SMALL {
        return refused(format!("{n_parameters} parameters, as its configuration says"), n_values.to_string());
    }
    let n_tensors = checkpoint.tensors.len();
    if config.n_layers > n_tensors / 4 + SMALL_LAYERS {
        return refused(
            format!("those of {} layers, as its configuration says", config.n_layers),
            format!("{n_tensors} tensors"),
        );
    }
    match usize::try_from(n_parameters) {
        Ok(_) => Ok(()),
        Err(_) => refused(format!("at most {} parameters here", usize::MAX), format!("{n_parameters} in its configuration")),
    }
}

fn declare(checkpoint: &Checkpoint, config: &Config, shape: Shape<'_>) -> Result<Declared> {
    check_size(checkpoint, config)?;
    let types: HashMap<&str, TensorType> = checkpoint.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.ty)).collect();
    let type_of = |name: &str| types.get(name).map_or(WeightType::F32, |ty| in_memory(*ty));
    let max_pages = shape.context.div_ceil(PAGE);
    let pages = match shape.evict {
        Some(eviction) => Pages::evicting(config, positions(config, shape.context).div_ceil(PAGE), max_pages, eviction),
        None => Pages::new(config, max_pages, shape.chunk.max(MAX_REWIND)),
    };
    let mut program = Program::default();
    let Shape { chunk, kv_f16, scores, gates, .. } = shape;
    let options = fox::Options { type_of: &type_of, chunk, kv_f16, scores, gates };
    let (network, wanted) = Fox::declare(&mut program, config, &pages, &options);
    let moves = match_tensors(checkpoint.file_name(), wanted, checkpoint)?;
    Ok(Declared { program, pages, network, moves })
}

/// The element type that a tensor has on the device: its own.
fn in_memory(ty: TensorType) -> WeightType {
    let same = WeightType::ALL.into_iter().find(|weight| weight.name() == ty.name());
    same.unwrap_or_else(|| unreachable!("the kernels read every type that a file can have"))
}

/// Pairs each wanted tensor with the checkpoint's, in file order; reports everything missing, left over or of another shape.
fn match_tensors(file: &str, wanted: Vec<Wanted>, checkpoint: &Checkpoint) -> Result<Vec<(usize, Wanted)>> {
    let mut by_name: HashMap<&str, usize> =
        checkpoint.tensors.iter().enumerate().map(|(ix, tensor)| (tensor.name.as_str(), ix)).collect();
    let (mut moves, mut problems) = (Vec::new(), Vec::new());
    for want in wanted {
        match by_name.remove(want.name.as_str()) {
            None => problems.push(format!("{} {:?} is missing", want.name, want.shape)),
            Some(ix) if checkpoint.tensors[ix].shape != want.shape => {
                problems.push(format!("{}: expected shape {:?}, got {:?}", want.name, want.shape, checkpoint.tensors[ix].shape));
            }
            Some(ix) => moves.push((ix, want)),
        }
    }
    let mut left_over: Vec<usize> = by_name.into_values().collect();
    left_over.sort_unstable();
    problems.extend(left_over.into_iter().map(|ix| format!("{} is not part of this model", checkpoint.tensors[ix].origin)));
    if !problems.is_empty() {
        return Err(Error::Tensors { file: file.to_owned(), problems });
    }
    moves.sort_by_key(|(ix, _)| (checkpoint.tensors[*ix].file, checkpoint.tensors[*ix].offset));
    Ok(moves)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_read_every_type_of_a_file_in_its_own_blocks() {
        for ty in TensorType::ALL {
            let format = in_memory(ty).format();
            assert_eq!((format.block, format.block_bytes), (ty.block(), ty.block_bytes()), "{ty}");
        }
    }
}
