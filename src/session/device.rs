//! The devices that run a program: a GPU, or the CPU through the kernels' fast code or their twins. One interface, so that
//! everything above is written once.

use crate::error::{Error, Result};
use crate::gpu::{self, AdapterPick, Gpu};
use crate::graph::{BufferId, GraphId, Program, Step, cpu};
use crate::kernel::parallel;
use std::ops::Range;

/// Words that one read of a pool asks for at most.
const READ_WORDS: usize = 1 << 20;

/// What the caller asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A hardware GPU if there is one; else the CPU. Software adapters (lavapipe, SwiftShader, WARP) are passed over.
    #[default]
    Auto,
    /// A GPU, a software adapter if there is no other.
    Gpu,
    /// The CPU, with the kernels' fast code.
    Cpu,
    /// The CPU, through the plain twins: slow, the reference.
    Twin,
}

/// A device before it holds a program.
pub enum Opened {
    /// A GPU.
    Gpu(Gpu),
    /// The CPU; `fast` chooses the kernels' fast code.
    Cpu {
        /// Whether kernels use their fast code.
        fast: bool,
        /// Why it is not a GPU, when the choice was left open.
        note: Option<String>,
    },
}

impl Opened {
    /// Opens the device of a choice; a GPU with all it has, or with no more than WebGPU's `baseline`.
    ///
    /// # Errors
    /// [`Error::NoGpu`] when a GPU was asked for and none can be had.
    pub async fn open(choice: DeviceChoice, baseline: bool) -> Result<Self> {
        let gpu = async |pick| if baseline { Gpu::open(pick).await } else { Gpu::open_equipped(pick).await };
        match choice {
            DeviceChoice::Cpu => Ok(Self::Cpu { fast: true, note: None }),
            DeviceChoice::Twin => Ok(Self::Cpu { fast: false, note: None }),
            DeviceChoice::Gpu => gpu(AdapterPick::Any).await.map(Self::Gpu),
            DeviceChoice::Auto => match gpu(AdapterPick::HardwareOnly).await {
                Ok(gpu) => Ok(Self::Gpu(gpu)),
                Err(Error::NoGpu(why)) => Ok(Self::Cpu { fast: true, note: Some(why) }),
                Err(error) => Err(error),
            },
        }
    }

    /// Gives a program its buffers (and, on a GPU, its pipelines). `step_of` gives a step that is typical of a graph: by it a GPU
    /// chooses among the ways to run a dispatch.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Gpu`], [`Error::DeviceLost`], [`Error::Kernel`] where a kernel gives other numbers than its twin.
    pub async fn hold(self, program: &Program, step_of: &dyn Fn(GraphId) -> Step) -> Result<Device> {
        match self {
            Self::Gpu(gpu) => {
                let chosen = gpu::tune::choose(&gpu, program, step_of).await?;
                let executor = match gpu::Executor::new(gpu.clone(), &chosen).await {
                    // A variant whose case ran may yet be refused with the model's constants.
                    Err(Error::Gpu { place, message }) => {
                        gpu.note(format!("every kernel runs in its baseline variant: {place}: {message}"));
                        gpu::tune::check_recorded(&gpu, program).await?;
                        gpu::Executor::new(gpu, program).await?
                    }
                    executor => executor?,
                };
                Ok(Device::Gpu(Box::new(executor)))
            }
            Self::Cpu { fast, .. } => {
                cpu::check_memory(program)?;
                Ok(Device::Cpu(cpu::Executor::new(program, fast)))
            }
        }
    }

    /// Whether it is a GPU that is no software.
    pub fn is_hardware(&self) -> bool {
        matches!(self, Self::Gpu(gpu) if !gpu.info().software)
    }

    /// For people: the adapter's name, or the CPU's way.
    pub fn name(&self) -> String {
        match self {
            Self::Gpu(gpu) => gpu.info().name.clone(),
            Self::Cpu { fast: true, .. } => "cpu".to_owned(),
            Self::Cpu { fast: false, .. } => "cpu (twins)".to_owned(),
        }
    }

    /// Why a choice left open did not fall on a GPU.
    pub fn note(&self) -> Option<&str> {
        match self {
            Self::Gpu(_) => None,
            Self::Cpu { note, .. } => note.as_deref(),
        }
    }
}

/// A device that holds a program.
pub enum Device {
    /// A GPU.
    Gpu(Box<gpu::Executor>),
    /// The CPU.
    Cpu(cpu::Executor),
}

impl Device {
    /// The same device with the same program, opened again after it was lost; nothing is in its buffers.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] where there is no such device any more (the CPU is never lost), and what the new one reports.
    pub(super) async fn again(&self, choice: DeviceChoice, baseline: bool, why: &str) -> Result<Self> {
        let Self::Gpu(old) = self else { return Err(Error::DeviceLost(why.to_owned())) };
        let (known, program) = (old.gpu(), old.program());
        let gpu = match Opened::open(choice, baseline).await {
            Ok(Opened::Gpu(gpu)) => gpu,
            Ok(Opened::Cpu { note, .. }) => return Err(gone(why, note.unwrap_or_default())),
            Err(Error::NoGpu(reason)) => return Err(gone(why, reason)),
            Err(error) => return Err(error),
        };
        if gpu.info() != known.info() || gpu.features() != known.features() {
            return Err(gone(why, format_args!("there is {} now", gpu.info().name)));
        }
        known.notes().into_iter().for_each(|note| gpu.note(note));
        Ok(Self::Gpu(Box::new(gpu::Executor::new(gpu, program).await?)))
    }

    /// Notes on a device that is back how often that was so.
    pub(super) fn note_recovery(&self, recoveries: u64, why: &str) {
        if let Self::Gpu(gpu) = self {
            gpu.gpu().note(format!("the device was lost and opened again, {recoveries} times so far ({why})"));
        }
    }

    /// Writes words into a buffer.
    pub fn write(&mut self, buffer: BufferId, first_word: usize, words: &[u32]) {
        match self {
            Self::Gpu(gpu) => gpu.write(buffer, first_word, words),
            Self::Cpu(cpu) => cpu.write(buffer, first_word, words),
        }
    }

    /// Waits until everything written has arrived, so that a long load does not pile up copies.
    ///
    /// # Errors
    /// [`Error::DeviceLost`], [`Error::OutOfMemory`], [`Error::Gpu`]: what the device reported since the last call.
    pub async fn flush(&mut self) -> Result<()> {
        match self {
            Self::Gpu(gpu) => gpu.gpu().settle().await,
            Self::Cpu(_) => Ok(()),
        }
    }

    /// Runs a graph; dispatches that only make logits are left out unless `logits` is set.
    ///
    /// # Errors
    /// As [`Device::flush`].
    pub fn replay(&mut self, program: &Program, graph: GraphId, step: &Step, logits: bool) -> Result<()> {
        match self {
            Self::Gpu(gpu) => gpu.replay(graph, step, logits),
            Self::Cpu(cpu) => {
                parallel::among_workers(|| cpu.replay(program.graph(graph), step, logits));
                Ok(())
            }
        }
    }

    /// Queues some dispatches of a graph, whether or not they are for logits only: for looking between two of them.
    ///
    /// # Errors
    /// As [`Device::flush`].
    pub fn replay_range(&mut self, program: &Program, graph: GraphId, range: Range<usize>, step: &Step) -> Result<()> {
        match self {
            Self::Gpu(gpu) => gpu.replay_range(graph, range, step),
            Self::Cpu(cpu) => {
                let dispatches = &program.graph(graph).dispatches[range];
                parallel::among_workers(|| dispatches.iter().for_each(|dispatch| cpu.run(dispatch, step)));
                Ok(())
            }
        }
    }

    /// The first `n` words of a buffer as floats, after everything replayed so far.
    ///
    /// # Errors
    /// As [`Device::flush`].
    pub async fn read_f32(&mut self, buffer: BufferId, n: usize) -> Result<Vec<f32>> {
        let floats = |words: &[u32]| words.iter().copied().map(f32::from_bits).collect();
        match self {
            Self::Gpu(gpu) => Ok(floats(&gpu.read(buffer, 0, n).await?)),
            Self::Cpu(cpu) => Ok(floats(&cpu.read(buffer)[..n])),
        }
    }

    /// Words of a buffer, after everything replayed so far.
    ///
    /// # Errors
    /// As [`Device::flush`].
    pub async fn read_words(&mut self, buffer: BufferId, first_word: usize, n: usize) -> Result<Vec<u32>> {
        match self {
            Self::Gpu(gpu) => gpu.read(buffer, first_word, n).await,
            Self::Cpu(cpu) => Ok(cpu.read(buffer)[first_word..first_word + n].to_vec()),
        }
    }

    /// Pages of a pool, of `stride` words each from word `at` on, in the order in which they are asked for: in as few reads as may be, what
    /// lies between them included.
    ///
    /// # Errors
    /// As [`Device::flush`].
    pub async fn gather(&mut self, pool: BufferId, at: usize, stride: usize, pages: &[usize]) -> Result<Vec<u32>> {
        let mut order: Vec<usize> = (0..pages.len()).collect();
        order.sort_unstable_by_key(|ix| pages[*ix]);
        let most = (READ_WORDS / stride).max(1);
        let (mut out, mut rest) = (vec![0; pages.len() * stride], &order[..]);
        while let Some(first) = rest.first().map(|ix| pages[*ix]) {
            let (now, later) = rest.split_at(rest.iter().take_while(|ix| pages[**ix] - first < most).count());
            let n = pages[now[now.len() - 1]] - first + 1;
            let words = self.read_words(pool, at + first * stride, n * stride).await?;
            for ix in now {
                out[ix * stride..][..stride].copy_from_slice(&words[(pages[*ix] - first) * stride..][..stride]);
            }
            rest = later;
        }
        Ok(out)
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Gpu(gpu) => gpu.bytes(),
            Self::Cpu(cpu) => cpu.bytes(),
        }
    }
}

/// The CPU in the place of a GPU that computes wrongly, where the choice was left open.
pub(super) fn instead(choice: DeviceChoice, error: &Error) -> Option<Opened> {
    let is_left_open = choice == DeviceChoice::Auto && matches!(error, Error::Kernel { .. });
    is_left_open.then(|| Opened::Cpu { fast: true, note: Some(error.to_string()) })
}

/// The error of a device that was lost and cannot be had again.
pub(super) fn gone(why: &str, reason: impl std::fmt::Display) -> Error {
    Error::DeviceLost(format!("{why}; it cannot be had again: {reason}"))
}
