//! Allocation that answers with a typed error: limits are checked first, and each buffer is made in error scopes of its own.

use super::Gpu;
use super::fault::captured;
use super::inject::{Fault, Point};
use crate::error::{Error, Result};
use crate::graph::{Buffer, Program};
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Refuses what the device would refuse, with the name of the buffer.
pub(super) fn check_limits(gpu: &Gpu, program: &Program) -> Result<()> {
    let limits = gpu.device.limits();
    let refuse = |name: &str, bytes: u64, what: &str, limit: u64| {
        let reason = format!("over the device's limit of {limit} bytes for a {what}");
        Err(Error::OutOfMemory { what: name.to_owned(), bytes, reason })
    };
    for Buffer { name, words, .. } in &program.buffers {
        let bytes = *words as u64 * 4;
        if bytes > limits.max_buffer_size {
            return refuse(name, bytes, "buffer", limits.max_buffer_size);
        }
    }
    for binding in program.graphs.iter().flat_map(|graph| &graph.dispatches).flat_map(|dispatch| &dispatch.bindings) {
        let bytes = binding.words as u64 * 4;
        if bytes > limits.max_storage_buffer_binding_size {
            return refuse(&program.get(binding.buffer).name, bytes, "binding", limits.max_storage_buffer_binding_size);
        }
    }
    Ok(())
}

/// What error scopes will say.
pub(super) type Answer = Pin<Box<dyn Future<Output = Option<wgpu::Error>>>>;

/// Error scopes for refusals of memory and for invalid calls. They are popped before anything is awaited, so that those of others do not
/// get in between.
pub(super) struct Scopes {
    memory: wgpu::ErrorScopeGuard,
    validation: wgpu::ErrorScopeGuard,
}

impl Scopes {
    pub(super) fn open(device: &wgpu::Device) -> Self {
        let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        Self { memory, validation: device.push_error_scope(wgpu::ErrorFilter::Validation) }
    }

    /// The first error since they were opened. One of `made` takes its place.
    pub(super) fn close(self, made: Option<wgpu::Error>) -> Answer {
        let (validation, memory) = (self.validation.pop(), self.memory.pop());
        Box::pin(async move {
            let caught = memory.await.or(validation.await);
            made.or(caught)
        })
    }
}

/// Whether an answer is there already, and says that all is well; natively it always is there.
pub(super) fn settled(answer: &mut Answer) -> Option<bool> {
    match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(error) => Some(error.is_none()),
        Poll::Pending => None,
    }
}

/// A buffer that is freed when it is dropped. A browser frees one that is only dropped when its garbage is collected, which knows nothing of a
/// GPU's memory.
pub(super) struct OwnBuffer(wgpu::Buffer);

impl Deref for OwnBuffer {
    type Target = wgpu::Buffer;

    fn deref(&self) -> &wgpu::Buffer {
        &self.0
    }
}

impl Drop for OwnBuffer {
    fn drop(&mut self) {
        self.0.destroy();
    }
}

/// Makes a buffer; the caller has scopes open, to which the error belongs that may come beside it.
pub(super) fn create(gpu: &Gpu, name: &str, bytes: u64, usage: wgpu::BufferUsages) -> (OwnBuffer, Option<wgpu::Error>) {
    // No device takes these two together.
    const REFUSED: wgpu::BufferUsages = wgpu::BufferUsages::MAP_READ.union(wgpu::BufferUsages::STORAGE);
    let fault = gpu.pass(Point::Buffer);
    let usage = if fault.is_some() { REFUSED } else { usage };
    let descriptor = wgpu::BufferDescriptor { label: Some(name), size: bytes, usage, mapped_at_creation: false };
    let refusal = (fault == Some(Fault::OutOfMemory)).then(no_room);
    (OwnBuffer(gpu.device.create_buffer(&descriptor)), refusal)
}

/// A refusal of memory, as wgpu reports it.
pub(super) fn no_room() -> wgpu::Error {
    wgpu::Error::OutOfMemory { source: "the device has no room for it (injected)".into() }
}

/// Buffers under creation. The answers of their scopes are awaited at the end: each is a round trip in the browser.
pub(super) struct Memory<'a> {
    gpu: &'a Gpu,
    bytes: u64,
    pending: Vec<(String, u64, Answer)>,
}

impl<'a> Memory<'a> {
    pub(super) fn new(gpu: &'a Gpu) -> Self {
        Self { gpu, bytes: 0, pending: Vec::new() }
    }

    /// Creates a buffer; whether it could be had is told by [`Memory::settle`].
    pub(super) fn buffer(&mut self, name: &str, bytes: u64, usage: wgpu::BufferUsages) -> OwnBuffer {
        let scopes = Scopes::open(&self.gpu.device);
        let (buffer, refusal) = create(self.gpu, name, bytes, usage);
        self.pending.push((name.to_owned(), bytes, scopes.close(refusal)));
        self.bytes += bytes;
        buffer
    }

    /// Creates a set of timestamps, told of like a buffer.
    pub(super) fn timestamps(&mut self, name: &str, count: u32) -> wgpu::QuerySet {
        let scopes = Scopes::open(&self.gpu.device);
        let fault = self.gpu.pass(Point::Buffer);
        // No device takes one more than there may be.
        let count = if fault.is_some() { wgpu::QUERY_SET_MAX_QUERIES + 1 } else { count };
        let descriptor = wgpu::QuerySetDescriptor { label: Some(name), ty: wgpu::QueryType::Timestamp, count };
        let queries = self.gpu.device.create_query_set(&descriptor);
        let (bytes, refusal) = (u64::from(count) * 8, (fault == Some(Fault::OutOfMemory)).then(no_room));
        self.pending.push((name.to_owned(), bytes, scopes.close(refusal)));
        self.bytes += bytes;
        queries
    }

    /// Bytes and number of the buffers, when all could be had.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] or [`Error::Gpu`] for the first that could not, [`Error::DeviceLost`].
    pub(super) async fn settle(self) -> Result<(u64, u64)> {
        let count = self.pending.len() as u64;
        for (name, bytes, answer) in self.pending {
            if let Some(error) = answer.await {
                return Err(self.gpu.blame_in_time(captured(error, &name, bytes)).await);
            }
        }
        self.gpu.check("allocation")?;
        Ok((self.bytes, count))
    }
}
