//! The GPU: an open device, with WebGPU's default limits and no feature or with all that it has, and an executor that replays a
//! program's graphs on it.
//!
//! The only room that names wgpu. It knows the graph, and of the kernels what a device needs before a model may use it: their list, shared text
//! and cases, by which each is judged against its twin and timed here, on the user's own device, and two that measure its floor. Never a model,
//! a file or a text. Everything that waits is async with no `Send` bound: natively a future is ready after one poll of the device, in the
//! browser it waits for the event loop.

mod adapter;
mod executor;
mod fault;
mod features;
pub mod floor;
pub mod harness;
mod host;
pub mod inject;
mod memory;
mod nudge;
mod oneshot;
mod pipeline;
mod preprocess;
pub mod race;
pub mod tune;
mod unchecked;

pub use adapter::{AdapterInfo, AdapterPick, adapters};
pub use executor::{Counters, Executor, MAX_REPLAYS, PendingRead};
pub use host::{Asking, Host, Moment, set_host};
pub use preprocess::{Compiler, expand, preprocess};

use crate::error::{Error, Result};
use crate::graph::Features;
use fault::Faults;
use inject::{Fault, Point};
use pipeline::Pipelines;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use web_time::Duration;

/// An open device. Clones share it, with its compiled pipelines.
#[derive(Clone)]
pub struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    info: AdapterInfo,
    faults: Faults,
    pipelines: Rc<Pipelines>,
    features: Rc<Features>,
    /// Whether the crate's shaders are compiled without checks against hostile ones.
    trusted: bool,
    notes: Rc<RefCell<Vec<String>>>,
    start_up: Rc<Cell<tune::StartUp>>,
}

impl Gpu {
    /// Opens a device with WebGPU's default limits and no optional feature: what runs on it runs wherever WebGPU does.
    ///
    /// # Errors
    /// [`Error::NoGpu`] when no adapter fits, with what was found, or when the one that does refuses.
    pub async fn open(pick: AdapterPick) -> Result<Self> {
        let (adapter, info) = adapter::choose(&pick).await?;
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("kitfox"),
            required_features: wgpu::Features::empty(),
            required_limits: wgpu::Limits::default(),
            ..Default::default()
        };
        let opened = adapter.request_device(&descriptor).await;
        let (device, queue) = opened.map_err(|error| Error::NoGpu(format!("{} refuses to open: {error}", info.name)))?;
        Self::opened(&pick, info, device, queue)
    }

    /// Opens a device with everything that the adapter has and some kernel variant can use: features and larger limits. An adapter
    /// that refuses is opened like in [`Gpu::open`], with a note.
    ///
    /// # Errors
    /// Like [`Gpu::open`].
    pub async fn open_equipped(pick: AdapterPick) -> Result<Self> {
        let (adapter, info) = adapter::choose(&pick).await?;
        match features::open_equipped(&adapter).await {
            Ok((device, queue)) => {
                let features = features::features(&adapter, &device);
                let gpu = Self::opened(&pick, info, device, queue)?;
                let features = Rc::new(Features { software: gpu.info.software, ..features });
                Ok(Self { features, trusted: true, ..gpu })
            }
            Err(error) => {
                // An adapter that was asked once may give no device any more.
                let gpu = Self::open(pick).await?;
                gpu.note(format!("opened with WebGPU's baseline only: {error}"));
                Ok(gpu)
            }
        }
    }

    fn opened(pick: &AdapterPick, info: AdapterInfo, device: wgpu::Device, queue: wgpu::Queue) -> Result<Self> {
        let faults = Faults::watch(&device);
        let info = named_by_browser(info, &device);
        if *pick == AdapterPick::HardwareOnly && info.software {
            return Err(adapter::refusal(pick, &[info.name]));
        }
        // A browser tells only at the device that it draws on the CPU.
        let features = Features { software: info.software, ..Features::default() };
        Ok(Self {
            device,
            queue,
            info,
            faults,
            pipelines: Rc::default(),
            features: Rc::new(features),
            trusted: false,
            notes: Rc::default(),
            start_up: Rc::default(),
        })
    }

    /// What the device has beyond WebGPU's baseline.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// What was passed over on this device, and why: for people.
    pub fn notes(&self) -> Vec<String> {
        self.notes.borrow().clone()
    }

    /// Adds a note, once.
    pub fn note(&self, note: String) {
        let mut notes = self.notes.borrow_mut();
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// What it took at load to find out which kernels to use.
    pub fn start_up(&self) -> tune::StartUp {
        self.start_up.get()
    }

    /// The adapter behind the device.
    pub fn info(&self) -> &AdapterInfo {
        &self.info
    }

    /// Gives the device and all its memory back now. Every later call on it returns [`Error::DeviceLost`].
    pub fn destroy(&self) {
        self.faults.destroyed();
        self.device.destroy();
    }

    /// Waits until the device has taken everything written and replayed so far. A loader calls it between pieces: `write` queues
    /// copies of its words, and without a pause a whole model would wait in main memory.
    ///
    /// # Errors
    /// What the device reported meanwhile.
    pub async fn settle(&self) -> Result<()> {
        self.faults.check("settle")?;
        self.finish(self.submitted()).await
    }

    /// Everything submitted so far, to be awaited later.
    pub fn submitted(&self) -> Submitted {
        self.pass(Point::Submit);
        let submission = self.queue.submit(None);
        let (sender, done) = oneshot::channel();
        self.queue.on_submitted_work_done(move || sender.send(()));
        Submitted { submission, done }
    }

    /// Waits until the device is done with what was submitted.
    ///
    /// # Errors
    /// What the device reported meanwhile.
    pub async fn finish(&self, submitted: Submitted) -> Result<()> {
        self.pass(Point::Read);
        self.wait(submitted.submission, "settle")?;
        nudge::receive(&self.queue, submitted.done).await;
        self.faults.check("settle")
    }

    /// Natively: blocks until a submission is done and its callbacks have run. In the browser the event loop does both.
    fn wait(&self, submission: wgpu::SubmissionIndex, place: &str) -> Result<()> {
        let wait = wgpu::PollType::Wait { submission_index: Some(submission), timeout: None };
        match self.device.poll(wait) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.faults.check(place)?;
                Err(self.blame(Error::Gpu { place: place.to_owned(), message: error.to_string() }))
            }
        }
    }

    /// What the device reported so far. (Natively it tells of its loss only when it is asked; that is too dear for every replay.)
    fn check(&self, place: &str) -> Result<()> {
        self.ask(wgpu::PollType::Poll);
        self.faults.check(place)
    }

    /// The same error, or the loss of the device where that is what is behind it: what a lost device makes is invalid, and wgpu says
    /// only so.
    fn blame(&self, error: Error) -> Error {
        // It tells when all that was submitted before is done.
        self.ask(wgpu::PollType::wait_indefinitely());
        self.faults.lost().map_or(error, Error::DeviceLost)
    }

    /// The same, of an error that came to whoever awaited it: a browser tells of the loss in a task of its own, which may come behind what
    /// failed by it.
    async fn blame_in_time(&self, error: Error) -> Error {
        const MOMENT: Duration = Duration::from_millis(10);
        const MOMENTS: usize = 10;
        for _ in 0..MOMENTS {
            let moment = if self.faults.lost().is_none() { host::host().and_then(|host| host.moment(MOMENT)) } else { None };
            let Some(moment) = moment else { break };
            moment.await;
        }
        self.blame(error)
    }

    fn ask(&self, poll: wgpu::PollType) {
        // Whether it can be waited for is not the question.
        let _ = self.device.poll(poll);
    }

    /// Passes a point where a test may have armed a fault: a loss happens here, any other is the caller's to make.
    fn pass(&self, point: Point) -> Option<Fault> {
        let fault = inject::due(point)?;
        if fault == Fault::Lost {
            self.device.destroy();
            return None;
        }
        Some(fault)
    }
}

/// Work that a device may not be done with.
pub struct Submitted {
    submission: wgpu::SubmissionIndex,
    done: oneshot::Receiver<()>,
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu").field("info", &self.info).finish_non_exhaustive()
    }
}

/// Browsers leave the adapter's name empty, and tell vendor and architecture only at the device.
#[cfg(target_arch = "wasm32")]
fn named_by_browser(info: AdapterInfo, device: &wgpu::Device) -> AdapterInfo {
    let Some(device) = device.as_webgpu() else { return info };
    let said = device.adapter_info();
    if said.is_undefined() {
        return info; // browsers of before 2025
    }
    let words = [said.vendor(), said.architecture(), said.device(), said.description()];
    let name = words.iter().filter(|word| !word.is_empty()).cloned().collect::<Vec<_>>().join(" ");
    let software = info.software || adapter::names_software(&name);
    AdapterInfo { name: if name.is_empty() { info.name } else { name }, software, ..info }
}

#[cfg(not(target_arch = "wasm32"))]
fn named_by_browser(info: AdapterInfo, _device: &wgpu::Device) -> AdapterInfo {
    info
}

#[cfg(test)]
impl Gpu {
    /// Any adapter's device, for this crate's own tests; none with `KITFOX_NO_GPU=1`, and the output says so.
    pub(crate) fn for_tests() -> Option<Self> {
        if std::env::var("KITFOX_NO_GPU").is_ok_and(|value| value == "1") {
            println!("KITFOX_NO_GPU=1: nothing is tested on a GPU");
            return None;
        }
        Some(pollster::block_on(Self::open(AdapterPick::Any)).unwrap())
    }
}
