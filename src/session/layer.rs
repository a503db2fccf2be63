//! A layer of the encoder family on a device: [T, d] → [T, d], without a cache. No tokens, no text, no sampler: a building block for
//! networks that are not language models, bidirectional (encoder) or causal (decoder).
//!
//! A GPU that is lost is opened again, as a model's is (`super::recover`): for that the weights of a layer on a GPU stay on the host, too, shared with
//! whoever has the [`Layer`].

use super::device::{Device, DeviceChoice, Opened, instead};
use super::recover::{Recover, TRIES, lasting, opened_again};
use crate::error::{Error, Result};
use crate::format::layer::{Layer, LayerConfig, Mode, Weights};
use crate::graph::{GraphId, MAX_BINDING_WORDS, MAX_GROUPS, Program, Step};
use crate::kernel::attn_full::{MAX_HEAD_DIM, takes_head_dim};
use crate::kernel::ternary::pack_row;
use crate::model::layer::{LayerMatrix, LayerNetwork, LayerShape};
use crate::num::ternary;

/// How to load a layer.
#[derive(Clone, Copy, Debug, Default)]
pub struct LayerOptions {
    /// Where it runs.
    pub device: DeviceChoice,
    /// Tokens of a sequence at most, for which memory is set aside; `None`: [`DEFAULT_MAX_TOKENS`].
    pub max_tokens: Option<usize>,
}

/// Tokens of a sequence when the caller names none.
pub const DEFAULT_MAX_TOKENS: usize = 1024;

/// A layer on a device.
///
/// ```no_run
/// use kitfox::format::layer::{Layer, LayerConfig, LayerFloats, Mode};
/// use kitfox::session::{ForgettingAttentionLayer, LayerOptions};
///
/// async fn attend(weights: &LayerFloats<'_>, x: &[f32]) -> kitfox::Result<Vec<f32>> {
///     let config = LayerConfig { hidden_size: 64, num_heads: 4, mode: Mode::Encoder, bitnet: false };
///     let layer = Layer::new(config, weights)?; // kitfox::format::layer_gguf writes it to GGUF and reads it
///     ForgettingAttentionLayer::load(&layer, LayerOptions::default()).await?.run(x).await
/// }
/// ```
pub struct ForgettingAttentionLayer {
    config: LayerConfig,
    shape: LayerShape,
    network: LayerNetwork,
    program: Program,
    graph: GraphId,
    device: Device,
    device_name: String,
    device_note: Option<String>,
    choice: DeviceChoice,
    /// The weights, of a layer whose device may be lost.
    kept: Option<Layer>,
    recoveries: u64,
}

impl ForgettingAttentionLayer {
    /// Loads a layer onto a device. On a GPU its weights are kept, too, and shared with `layer`.
    ///
    /// # Errors
    /// [`Error::Argument`] for heads or a `max_tokens` that cannot be run, [`Error::OutOfMemory`], [`Error::NoGpu`] and what else the
    /// device reports; [`Error::Kernel`] where a GPU that was asked for computes wrongly (with [`DeviceChoice::Auto`] it is the CPU then).
    pub async fn load(layer: &Layer, options: LayerOptions) -> Result<Self> {
        match Self::load_on(None, layer, options).await {
            Err(error) => match instead(options.device, &error) {
                Some(cpu) => Self::load_on(Some(cpu), layer, options).await,
                None => Err(error),
            },
            loaded => loaded,
        }
    }

    /// On the device that is given, else on that of the options.
    async fn load_on(given: Option<Opened>, layer: &Layer, options: LayerOptions) -> Result<Self> {
        let config = layer.config();
        let (d, n_heads) = (config.hidden_size, config.num_heads);
        if !takes_head_dim(d / n_heads) {
            let expected = format!("heads of 4, 8, 12 … {MAX_HEAD_DIM} channels");
            return Err(Error::argument("num_heads", expected, format_args!("{n_heads}: heads of {}", d / n_heads)));
        }
        let max_tokens = options.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
        if !(1..=MAX_GROUPS as usize).contains(&max_tokens) {
            return Err(Error::argument("max_tokens", format_args!("1 to {MAX_GROUPS}"), max_tokens));
        }
        let scale = |weights: &Weights| match weights {
            Weights::Ternary { scale, .. } => *scale,
            Weights::Floats(_) => unreachable!("the matrices of a BitNet layer are ternary"),
        };
        let scales = config.bitnet.then(|| layer.matrices().each_ref().map(scale));
        let shape = LayerShape { d, n_heads, causal: config.mode == Mode::Decoder, max_tokens };
        let mut program = Program::default();
        let network = LayerNetwork::declare(&mut program, shape, scales);
        if let Some(buffer) = program.buffers.iter().find(|buffer| buffer.words > MAX_BINDING_WORDS) {
            return Err(Error::OutOfMemory {
                what: buffer.name.clone(),
                bytes: buffer.words as u64 * 4,
                reason: format!("WebGPU binds at most {} bytes; a smaller max_tokens or hidden size fits", MAX_BINDING_WORDS * 4),
            });
        }
        let graph = network.record(&mut program);
        let step = Step { n_tokens: shape.max_tokens as u32, ..Step::default() };
        let mut opened = match given {
            Some(opened) => opened,
            None => Opened::open(options.device, false).await?,
        };
        let (device_name, device_note) = (opened.name(), opened.note().map(str::to_owned));
        let (hardware, mut recoveries) = (opened.is_hardware(), 0);
        let device = loop {
            let held = async {
                let mut device = opened.hold(&program, &|_| step).await?;
                fill(&mut device, &network, layer).await?;
                Ok(device)
            };
            match held.await {
                Err(Error::DeviceLost(why)) if recoveries < TRIES as u64 => {
                    opened = opened_again(options.device, false, hardware, &why).await?;
                    recoveries += 1;
                }
                held => break held?,
            }
        };
        let (choice, kept) = (options.device, matches!(device, Device::Gpu(_)).then(|| layer.clone()));
        Ok(Self { config: *config, shape, network, program, graph, device, device_name, device_note, choice, kept, recoveries })
    }

    /// Runs it on a sequence `[T, d]`, row by row; gives `[T, d]`. When the device is lost meanwhile it is opened again, twice at most; after
    /// [`Error::DeviceLost`] the next call tries again.
    ///
    /// # Errors
    /// [`Error::Argument`] when `x` is no `[T, d]` with T from 1 to [`Self::max_tokens`], [`Error::NotFinite`] when it holds a number that
    /// is not finite or so large that the result is not, and what the device reports.
    pub async fn run(&mut self, x: &[f32]) -> Result<Vec<f32>> {
        let LayerShape { d, max_tokens, .. } = self.shape;
        let n_tokens = x.len() / d;
        if !x.len().is_multiple_of(d) || !(1..=max_tokens).contains(&n_tokens) {
            let expected = format!("[T, {d}] with T from 1 to {max_tokens} (max_tokens)");
            let got = format!("{} numbers, {} rows of {d}", x.len(), x.len() as f64 / d as f64);
            return Err(Error::argument("x", expected, got));
        }
        check_finite("x", x, d)?;
        let y = lasting(self, async |layer| layer.try_run(x, n_tokens).await).await?;
        check_finite("y", &y, d)?;
        Ok(y)
    }

    async fn try_run(&mut self, x: &[f32], n_tokens: usize) -> Result<Vec<f32>> {
        self.device.write(self.network.x, 0, bytemuck::cast_slice(x));
        let step = Step { n_tokens: n_tokens as u32, ..Step::default() };
        self.device.replay(&self.program, self.graph, &step, true)?;
        self.device.read_f32(self.network.y, x.len()).await
    }

    /// How often the device was lost and everything brought back, the load included.
    pub fn recoveries(&self) -> u64 {
        self.recoveries
    }

    /// What it was loaded with.
    pub fn config(&self) -> &LayerConfig {
        &self.config
    }

    /// d: width of a token.
    pub fn hidden_size(&self) -> usize {
        self.shape.d
    }

    /// Tokens of a sequence at most.
    pub fn max_tokens(&self) -> usize {
        self.shape.max_tokens
    }

    /// The device itself, for counters and tests.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What is run, as it was recorded; for tests.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The adapter's name, or `cpu`.
    pub fn device_name(&self) -> &str {
        &self.device_name
    }

    /// Why `auto` did not choose a GPU.
    pub fn device_note(&self) -> Option<&str> {
        self.device_note.as_deref()
    }

    /// Bytes on the device: weights and what a sequence of [`Self::max_tokens`] needs.
    pub fn bytes(&self) -> u64 {
        self.device.bytes()
    }

    /// Bytes of the five matrices on the device.
    pub fn matrix_bytes(&self) -> u64 {
        let bytes = |matrix: &LayerMatrix| self.program.get(matrix.data()).words as u64 * 4;
        self.network.matrices.iter().map(bytes).sum()
    }
}

impl Recover for ForgettingAttentionLayer {
    async fn recover(&mut self, why: String) -> Result<()> {
        let Some(layer) = &self.kept else { return Err(Error::DeviceLost(why)) };
        let mut device = self.device.again(self.choice, false, &why).await?;
        fill(&mut device, &self.network, layer).await?;
        self.device = device;
        self.recoveries += 1;
        self.device.note_recovery(self.recoveries, &why);
        Ok(())
    }
}

/// Writes the weights, and waits for them.
async fn fill(device: &mut Device, network: &LayerNetwork, layer: &Layer) -> Result<()> {
    for (matrix, weights) in network.matrices.iter().zip(layer.matrices()) {
        device.write(matrix.data(), 0, &words_of(weights, layer.config().hidden_size));
    }
    device.write(network.f_bias, 0, bytemuck::cast_slice(layer.f_bias()));
    device.flush().await
}

/// A matrix as the kernels read it.
fn words_of(weights: &Weights, width: usize) -> Vec<u32> {
    match weights {
        Weights::Floats(values) => values.iter().map(|value| value.to_bits()).collect(),
        Weights::Ternary { blocks, .. } => {
            let mut words = Vec::new();
            for row in blocks.chunks_exact(ternary::row_bytes(width)) {
                let row = ternary::read_row(row, width)
                    .unwrap_or_else(|_| unreachable!("a layer's blocks are checked when it is made"));
                pack_row(&row, &mut words);
            }
            words
        }
    }
}

fn check_finite(name: &str, rows: &[f32], d: usize) -> Result<()> {
    match rows.iter().position(|value| !value.is_finite()) {
        Some(at) => {
            Err(Error::NotFinite { place: format!("{name}, token {}, channel {}", at / d, at % d), got: rows[at].to_string() })
        }
        None => Ok(()),
    }
}
