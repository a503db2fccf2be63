//! A program on the GPU: its buffers, pipelines and bind groups are made once, then its graphs are replayed.
//!
//! A replay writes the step's 32 bytes, encodes a flat list of tasks in one compute pass and submits it; replays whose steps are known
//! ahead share a pass and a submit, each with its own window of the step's buffer. Nothing is created per replay but the encoder itself: no
//! buffer, no bind group, no pipeline, no lookup. WebGPU orders dispatches of a pass that touch the same buffer, so each sees what
//! the earlier ones wrote.

use super::fault::captured;
use super::inject::Point;
use super::memory::{Answer, Memory, OwnBuffer, Scopes};
use super::pipeline::{Pipeline, params_bytes, pipelines};
use super::{Gpu, memory, nudge, oneshot};
use crate::error::{Error, Result};
use crate::graph::contract::{PARAMS_BINDING, STEP_BINDING};
use crate::graph::{Binding, Buffer, BufferId, Dispatch, Extent, GraphId, Grid, MAX_GROUPS, Program, Role, Step, liveness};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::num::NonZeroU64;
use std::ops::Range;
use std::rc::Rc;

mod trace;

/// Uniform windows start on multiples of this many bytes (WebGPU's default).
const UNIFORM_ALIGN_BYTES: u64 = 256;

/// Replays of one submit at most.
pub const MAX_REPLAYS: usize = 16;

/// Reads up to this length are read through buffers of this length.
const SHORT_READ_BYTES: u64 = 256;

/// What an executor has created and done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Buffers created, with those for reading back.
    pub buffers: u64,
    /// Bind groups created.
    pub bind_groups: u64,
    /// Pipelines compiled on the device, by this executor or another.
    pub pipelines: u64,
    /// Writes to buffers, with the step's.
    pub writes: u64,
    /// Dispatches encoded.
    pub dispatches: u64,
    /// Command buffers submitted.
    pub submits: u64,
    /// Reads started.
    pub reads: u64,
}

/// A dispatch with everything resolved.
struct Task {
    pipeline: usize,
    bind_group: wgpu::BindGroup,
    grid: Grid,
}

/// A read that is under way.
pub struct PendingRead {
    buffer: BufferId,
    n_words: usize,
    /// `None` when nothing is to be read.
    copy: Option<QueuedCopy>,
}

struct QueuedCopy {
    staging: Staging,
    submission: wgpu::SubmissionIndex,
    mapped: oneshot::Receiver<Result<(), wgpu::BufferAsyncError>>,
}

/// A buffer for reading back, and what its scopes will say as long as nobody has asked.
struct Staging {
    buffer: OwnBuffer,
    made: Option<Answer>,
}

/// One program on one device.
pub struct Executor {
    gpu: Gpu,
    program: Program,
    storage: Vec<OwnBuffer>,
    /// By buffer: its index in `storage`; `None` for scratch that no dispatch binds.
    place: Vec<Option<usize>>,
    step: OwnBuffer,
    /// Of all dispatches; the bind groups have windows of it.
    params: OwnBuffer,
    pipelines: Vec<Rc<Pipeline>>,
    graphs: Vec<Vec<Task>>,
    /// Buffers for reading back that are not in use now.
    staging: RefCell<Vec<Staging>>,
    bytes: u64,
    counters: Cell<Counters>,
}

impl Executor {
    /// Allocates the program's buffers (all zero), compiles its pipelines and resolves its graphs.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] names a buffer that passes a limit or that the device refuses; [`Error::Gpu`] names a pipeline or
    /// graph that it refuses.
    pub async fn new(gpu: Gpu, program: &Program) -> Result<Self> {
        gpu.check("setup")?;
        memory::check_limits(&gpu, program)?;
        let plan = liveness::plan(program);
        let mut wanted: Vec<(String, usize)> =
            plan.slot_words.iter().enumerate().map(|(ix, words)| (format!("scratch slot {ix}"), *words)).collect();
        wanted.extend(liveness::lasting(program).map(|buffer| (buffer.name.clone(), buffer.words)));
        let place = plan.places(program);

        let mut memory = Memory::new(&gpu);
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let storage: Vec<_> = wanted.iter().map(|(name, words)| memory.buffer(name, *words as u64 * 4, usage)).collect();
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let step = memory.buffer("step", MAX_REPLAYS as u64 * UNIFORM_ALIGN_BYTES, usage);
        let (params_words, params_at) = lay_out_params(program);
        let params = memory.buffer("params", (params_words.len() as u64 * 4).max(UNIFORM_ALIGN_BYTES), usage);
        let outputs = program.buffers.iter().filter(|buffer| buffer.role == Role::Output);
        let largest = outputs.map(|buffer| buffer.words as u64 * 4).max();
        let staging = largest.map(|bytes| Staging { buffer: memory.buffer("read-back", bytes, STAGING), made: None });
        let staging = staging.into_iter().collect();
        let (bytes, buffers) = memory.settle().await?;
        gpu.queue.write_buffer(&params, 0, bytemuck::cast_slice(&params_words));

        let counters = Counters { buffers, writes: 1, ..Counters::default() };
        let mut executor = Self {
            program: program.clone(),
            storage,
            place,
            step,
            params,
            pipelines: Vec::new(),
            graphs: Vec::new(),
            staging: RefCell::new(staging),
            bytes,
            counters: Cell::new(counters),
            gpu,
        };
        executor.resolve(program, &params_at).await?;
        Ok(executor)
    }

    /// Makes the pipelines and bind groups of all graphs.
    async fn resolve(&mut self, program: &Program, params_at: &HashMap<&[u32], u64>) -> Result<()> {
        let (mut known, mut wanted) = (HashMap::new(), Vec::new());
        for dispatch in program.graphs.iter().flat_map(|graph| &graph.dispatches) {
            known.entry((dispatch.kernel.name, &dispatch.variant)).or_insert_with(|| {
                wanted.push((dispatch.kernel, &dispatch.variant));
                wanted.len() - 1
            });
        }
        self.pipelines = pipelines(&self.gpu, &wanted).await.into_iter().collect::<Result<_>>()?;
        for graph in &program.graphs {
            let scopes = Scopes::open(&self.gpu.device);
            let tasks = graph.dispatches.iter().map(|dispatch| {
                let pipeline = known[&(dispatch.kernel.name, &dispatch.variant)];
                let at = params_at.get(&dispatch.params[..]).copied();
                Task { pipeline, bind_group: self.bind_group(pipeline, dispatch, at), grid: dispatch.grid }
            });
            let tasks = tasks.collect();
            if let Some(error) = scopes.close(None).await {
                let error = captured(error, &format!("bind groups of {}", graph.name), 0);
                return Err(self.gpu.blame_in_time(error).await);
            }
            self.graphs.push(tasks);
        }
        self.gpu.check("setup")
    }

    fn bind_group(&self, pipeline: usize, dispatch: &Dispatch, params_at: Option<u64>) -> wgpu::BindGroup {
        let window = |buffer, offset, bytes| {
            wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size: NonZeroU64::new(bytes) })
        };
        let indices = dispatch.kernel.active_indices(&dispatch.variant).map(|(ix, _)| ix);
        let storage = indices.zip(&dispatch.bindings).map(|(binding, Binding { buffer, first_word, words })| {
            let resource = window(self.buffer(*buffer), *first_word as u64 * 4, *words as u64 * 4);
            wgpu::BindGroupEntry { binding, resource }
        });
        let mut entries: Vec<_> = storage.collect();
        if let Some(at) = params_at {
            let resource = window(&self.params, at, params_bytes(dispatch.params.len()));
            entries.push(wgpu::BindGroupEntry { binding: PARAMS_BINDING, resource });
        }
        if dispatch.kernel.uses_step {
            entries
                .push(wgpu::BindGroupEntry { binding: STEP_BINDING, resource: window(&self.step, 0, size_of::<Step>() as u64) });
        }
        self.count(|counters| counters.bind_groups += 1);
        let layout = &self.pipelines[pipeline].layout;
        let descriptor = wgpu::BindGroupDescriptor { label: Some(dispatch.kernel.name), layout, entries: &entries };
        self.gpu.device.create_bind_group(&descriptor)
    }

    /// The device it runs on.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The program as it runs here.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Tokens of a graph's largest workgroup. All are powers of two: each divides it.
    pub fn token_tile(&self, graph: GraphId) -> usize {
        let extents = self.graphs[graph.0 as usize].iter().flat_map(|task| task.grid.0);
        extents.map(|extent| if let Extent::Tokens { per } = extent { per as usize } else { 1 }).fold(1, usize::max)
    }

    /// Bytes of all buffers, those for reading back at the start included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What was created and done so far.
    pub fn counters(&self) -> Counters {
        Counters { pipelines: self.gpu.pipelines.compiled(), ..self.counters.get() }
    }

    /// Queues a write of words into a buffer, before the next replay.
    ///
    /// # Panics
    /// When the words pass the end of the buffer.
    pub fn write(&self, buffer: BufferId, first_word: usize, words: &[u32]) {
        let Buffer { name, words: len, .. } = self.program.get(buffer);
        assert!(first_word <= *len && words.len() <= *len - first_word, "a write passes the end of {name}");
        self.gpu.pass(Point::Write);
        self.gpu.queue.write_buffer(self.buffer(buffer), first_word as u64 * 4, bytemuck::cast_slice(words));
        self.count(|counters| counters.writes += 1);
    }

    /// Queues a graph's dispatches; those marked `only_for_logits` only when `logits` is set.
    ///
    /// # Errors
    /// What the device reported since the last call, and [`Error::Argument`] for a step whose grid passes WebGPU's limit.
    pub fn replay(&self, graph: GraphId, step: &Step, logits: bool) -> Result<()> {
        self.replay_range(graph, self.program.graph(graph).range(logits), step)
    }

    /// Queues all of a graph's dispatches for each of the steps, in one submit.
    ///
    /// # Errors
    /// Like [`Executor::replay`].
    ///
    /// # Panics
    /// When there are no steps, or more than [`MAX_REPLAYS`].
    pub fn replay_each(&self, graph: GraphId, steps: &[Step]) -> Result<()> {
        self.submit(&self.graphs[graph.0 as usize], steps)
    }

    /// Queues some of a graph's dispatches, whether or not they are for logits only: for looking between two of them.
    ///
    /// # Errors
    /// Like [`Executor::replay`].
    pub fn replay_range(&self, graph: GraphId, range: Range<usize>, step: &Step) -> Result<()> {
        self.submit(&self.graphs[graph.0 as usize][range], std::slice::from_ref(step))
    }

    fn submit(&self, tasks: &[Task], steps: &[Step]) -> Result<()> {
        self.gpu.faults.check("replay")?;
        for (step, task) in steps.iter().flat_map(|step| tasks.iter().map(move |task| (step, task))) {
            if task.grid.at(step).iter().any(|groups| *groups > MAX_GROUPS) {
                return Err(Error::argument("step", format!("at most {MAX_GROUPS} workgroups on an axis"), format!("{step:?}")));
            }
        }
        self.gpu.pass(Point::Submit);
        self.write_steps(steps);
        let mut encoder = self.gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None });
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        let (mut current, mut dispatches) = (None, 0);
        for (offset, step) in (0..).step_by(UNIFORM_ALIGN_BYTES as usize).zip(steps) {
            for task in tasks {
                if current != Some(task.pipeline) {
                    pass.set_pipeline(&self.pipelines[task.pipeline].compute);
                    current = Some(task.pipeline);
                }
                self.bind(&mut pass, task, offset);
                let [x, y, z] = task.grid.at(step);
                pass.dispatch_workgroups(x, y, z);
                dispatches += 1;
            }
        }
        drop(pass);
        self.gpu.queue.submit([encoder.finish()]);
        self.count(|counters| {
            counters.writes += 1;
            counters.dispatches += dispatches;
            counters.submits += 1;
        });
        self.gpu.faults.check("replay")
    }

    /// Writes each step into its window.
    fn write_steps(&self, steps: &[Step]) {
        const WORDS: usize = UNIFORM_ALIGN_BYTES as usize / 4;
        let mut words = [0u32; MAX_REPLAYS * WORDS];
        for (window, step) in words.chunks_exact_mut(WORDS).zip(steps) {
            window[..size_of::<Step>() / 4].copy_from_slice(bytemuck::cast_slice(std::slice::from_ref(step)));
        }
        let end = (steps.len() - 1) * WORDS + size_of::<Step>() / 4;
        self.gpu.queue.write_buffer(&self.step, 0, bytemuck::cast_slice(&words[..end]));
    }

    fn bind(&self, pass: &mut wgpu::ComputePass<'_>, task: &Task, step_at: u32) {
        let offsets: &[u32] = if self.pipelines[task.pipeline].uses_step { &[step_at] } else { &[] };
        pass.set_bind_group(0, &task.bind_group, offsets);
    }

    /// Reads words of a buffer as they are after everything queued before this call. The copy is queued now; only the future
    /// waits, so that several reads may be under way.
    ///
    /// # Errors
    /// What the device reported since the last call.
    ///
    /// # Panics
    /// When the window passes the end of the buffer.
    pub fn read(&self, buffer: BufferId, first_word: usize, n_words: usize) -> impl Future<Output = Result<Vec<u32>>> + use<'_> {
        let started = self.start_read(buffer, first_word, n_words);
        async move { self.finish_read(started?).await }
    }

    /// The first half of [`Executor::read`]: queues the copy.
    ///
    /// # Errors
    /// What the device reported since the last call.
    ///
    /// # Panics
    /// When the window passes the end of the buffer.
    pub fn start_read(&self, buffer: BufferId, first_word: usize, n_words: usize) -> Result<PendingRead> {
        self.gpu.faults.check("read")?;
        Ok(self.begin_read(buffer, first_word, n_words))
    }

    /// The same, where nothing is to fail: what the device reported is told to whoever waits for the words.
    ///
    /// # Panics
    /// When the window passes the end of the buffer.
    pub fn begin_read(&self, buffer: BufferId, first_word: usize, n_words: usize) -> PendingRead {
        let Buffer { name, words: len, .. } = self.program.get(buffer);
        assert!(first_word <= *len && n_words <= *len - first_word, "a read passes the end of {name}");
        let copy = (n_words > 0).then(|| self.queue_read(buffer, first_word, n_words));
        PendingRead { buffer, n_words, copy }
    }

    /// The second half of [`Executor::read`]: waits for the words.
    ///
    /// # Errors
    /// What the device reported since the last call.
    pub async fn finish_read(&self, read: PendingRead) -> Result<Vec<u32>> {
        let name = &self.program.get(read.buffer).name;
        let Some(QueuedCopy { mut staging, submission, mapped }) = read.copy else { return Ok(Vec::new()) };
        self.gpu.pass(Point::Read);
        let failed = |message: String| self.gpu.blame_in_time(Error::Gpu { place: format!("reading {name}"), message });
        if let Some(made) = staging.made.take()
            && let Some(error) = made.await
        {
            let error = captured(error, &format!("reading {name}"), staging.buffer.size());
            return Err(self.gpu.blame_in_time(error).await);
        }
        self.gpu.wait(submission, "read")?;
        let mapped = nudge::receive(&self.gpu.queue, mapped).await;
        self.gpu.faults.check("read")?;
        match mapped {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(failed(error.to_string()).await),
            None => return Err(failed("the device forgot the read".to_owned()).await),
        }
        let view = match staging.buffer.get_mapped_range(..read.n_words as u64 * 4) {
            Ok(view) => view,
            Err(error) => return Err(failed(error.to_string()).await),
        };
        let words = bytemuck::pod_collect_to_vec(&view);
        drop(view);
        staging.buffer.unmap();
        self.staging.borrow_mut().push(staging);
        Ok(words)
    }

    /// Gives up a read whose words are of no use any more.
    pub fn abandon_read(&self, read: PendingRead) {
        let Some(QueuedCopy { mut staging, .. }) = read.copy else { return };
        match staging.made.as_mut().and_then(memory::settled) {
            Some(false) => return,
            Some(true) => staging.made = None,
            None => {}
        }
        // One that could not be had, as far as is known, complains of this.
        let scopes = staging.made.is_some().then(|| Scopes::open(&self.gpu.device));
        staging.buffer.unmap();
        drop(scopes.map(|scopes| scopes.close(None)));
        self.staging.borrow_mut().push(staging);
    }

    fn queue_read(&self, buffer: BufferId, first_word: usize, n_words: usize) -> QueuedCopy {
        let bytes = n_words as u64 * 4;
        self.gpu.pass(Point::Submit);
        let free = self.take_staging(bytes);
        // What is done with a buffer that could not be had fails, too: its scopes take that in.
        let scopes = free.is_none().then(|| Scopes::open(&self.gpu.device));
        let (mut staging, refusal) = free.map_or_else(|| self.new_staging(bytes), |staging| (staging, None));
        let mut encoder = self.gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None });
        encoder.copy_buffer_to_buffer(self.buffer(buffer), first_word as u64 * 4, &staging.buffer, 0, bytes);
        let submission = self.gpu.queue.submit([encoder.finish()]);
        let (sender, mapped) = oneshot::channel();
        staging.buffer.map_async(wgpu::MapMode::Read, ..bytes, move |result| sender.send(result));
        staging.made = scopes.map(|scopes| scopes.close(refusal)).or(staging.made);
        self.count(|counters| {
            counters.submits += 1;
            counters.reads += 1;
        });
        QueuedCopy { staging, submission, mapped }
    }

    /// A buffer for reading back that is large enough and not in use.
    fn take_staging(&self, bytes: u64) -> Option<Staging> {
        let mut free = self.staging.borrow_mut();
        let fitting = free.iter().enumerate().filter(|(_, staging)| staging.buffer.size() >= bytes);
        if let Some((ix, _)) = fitting.min_by_key(|(_, staging)| staging.buffer.size()) {
            return Some(free.swap_remove(ix));
        }
        // One that is too small makes room: the pool never holds more buffers than reads were under way at once.
        free.pop();
        None
    }

    /// A new one, in the caller's scopes.
    fn new_staging(&self, bytes: u64) -> (Staging, Option<wgpu::Error>) {
        self.count(|counters| counters.buffers += 1);
        // Short reads share their buffers, however long each is.
        let (buffer, refusal) = memory::create(&self.gpu, "read-back", bytes.max(SHORT_READ_BYTES), STAGING);
        (Staging { buffer, made: None }, refusal)
    }

    fn buffer(&self, id: BufferId) -> &wgpu::Buffer {
        let place = self.place[id.0 as usize];
        &self.storage[place.unwrap_or_else(|| unreachable!("scratch buffer {id:?} is bound by no dispatch"))]
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }
}

const STAGING: wgpu::BufferUsages = wgpu::BufferUsages::MAP_READ.union(wgpu::BufferUsages::COPY_DST);

/// The params of all dispatches, each distinct list once, and where it starts in bytes.
fn lay_out_params(program: &Program) -> (Vec<u32>, HashMap<&[u32], u64>) {
    let (mut words, mut at) = (Vec::new(), HashMap::new());
    for dispatch in program.graphs.iter().flat_map(|graph| &graph.dispatches).filter(|dispatch| !dispatch.params.is_empty()) {
        at.entry(&dispatch.params[..]).or_insert_with(|| {
            let start = words.len();
            words.extend_from_slice(&dispatch.params);
            words.resize(words.len().next_multiple_of(UNIFORM_ALIGN_BYTES as usize / 4), 0);
            start as u64 * 4
        });
    }
    (words, at)
}
