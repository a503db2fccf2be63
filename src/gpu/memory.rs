//! Allocation that answers with a typed error: limits are checked first, and each buffer is made in error scopes of its own.

use super::Gpu;
use super::fault::captured;
use crate::error::{Error, Result};
use crate::graph::{Buffer, Program};
use std::future::Future;
use std::pin::Pin;

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

/// Buffers under creation. The answers of their scopes are awaited at the end: each is a round trip in the browser.
pub(super) struct Memory<'a> {
    gpu: &'a Gpu,
    bytes: u64,
    pending: Vec<Pending>,
}

/// A buffer's name, its bytes and what its scopes will say.
type Pending = (String, u64, Pin<Box<dyn Future<Output = Option<wgpu::Error>>>>);

impl<'a> Memory<'a> {
    pub(super) fn new(gpu: &'a Gpu) -> Self {
        Self { gpu, bytes: 0, pending: Vec::new() }
    }

    /// Creates a buffer; whether it could be had is told by [`Memory::settle`].
    pub(super) fn buffer(&mut self, name: &str, bytes: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
        let device = &self.gpu.device;
        let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let descriptor = wgpu::BufferDescriptor { label: Some(name), size: bytes, usage, mapped_at_creation: false };
        let buffer = device.create_buffer(&descriptor);
        // Popped now, in reverse order, and awaited later.
        let (validation, memory) = (validation.pop(), memory.pop());
        let answer = Box::pin(async move { memory.await.or(validation.await) });
        self.pending.push((name.to_owned(), bytes, answer));
        self.bytes += bytes;
        buffer
    }

    /// Bytes and number of the buffers, when all could be had.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] or [`Error::Gpu`] for the first that could not.
    pub(super) async fn settle(self) -> Result<(u64, u64)> {
        let count = self.pending.len() as u64;
        for (name, bytes, answer) in self.pending {
            if let Some(error) = answer.await {
                return Err(captured(error, &name, bytes));
            }
        }
        self.gpu.faults.check("allocation")?;
        Ok((self.bytes, count))
    }
}
