//! What the device says behind our back: uncaptured errors and the loss of the device arrive in callbacks, at any time and,
//! natively, on any thread. They are kept here and become the error of the next call that can return one.

use crate::error::{Error, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone, Debug)]
enum Fault {
    Lost(String),
    OutOfMemory(String),
    Other(String),
}

/// The first fault that nobody was told of, shared with the device's callbacks.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults(Arc<Mutex<Option<Fault>>>);

impl Faults {
    /// Listens to a device.
    pub(super) fn watch(device: &wgpu::Device) -> Self {
        let faults = Self::default();
        let cell = faults.clone();
        device.on_uncaptured_error(Arc::new(move |error| cell.put(Fault::from(error))));
        let cell = faults.clone();
        device.set_device_lost_callback(move |reason, message| cell.put(Fault::Lost(describe_loss(reason, &message))));
        faults
    }

    /// The fault, if there is one. The loss of the device is told for ever, any other fault once.
    pub(super) fn check(&self, place: &str) -> Result<()> {
        let mut cell = self.cell();
        let Some(fault) = cell.take() else { return Ok(()) };
        if matches!(fault, Fault::Lost(_)) {
            *cell = Some(fault.clone());
        }
        Err(fault.into_error(place, 0))
    }

    /// Why the device is gone, if it is.
    pub(super) fn lost(&self) -> Option<String> {
        match &*self.cell() {
            Some(Fault::Lost(why)) => Some(why.clone()),
            _ => None,
        }
    }

    /// Takes the device for lost from now on. (Natively its own callback waits for the next poll.)
    pub(super) fn destroyed(&self) {
        self.put(Fault::Lost(describe_loss(wgpu::DeviceLostReason::Destroyed, "")));
    }

    fn put(&self, fault: Fault) {
        let mut cell = self.cell();
        // The first fault is the cause and later ones its echo, but a lost device explains all of them.
        if cell.is_none() || matches!(fault, Fault::Lost(_)) {
            *cell = Some(fault);
        }
    }

    fn cell(&self) -> MutexGuard<'_, Option<Fault>> {
        // A thread that panicked while it held the lock left a whole value: both sections only move one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<wgpu::Error> for Fault {
    fn from(error: wgpu::Error) -> Self {
        match error {
            wgpu::Error::OutOfMemory { source } => Self::OutOfMemory(source.to_string()),
            wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => Self::Other(description),
        }
    }
}

impl Fault {
    fn into_error(self, place: &str, bytes: u64) -> Error {
        match self {
            Self::Lost(message) => Error::DeviceLost(message),
            Self::OutOfMemory(reason) => Error::OutOfMemory { what: place.to_owned(), bytes, reason },
            Self::Other(message) => Error::Gpu { place: place.to_owned(), message },
        }
    }
}

/// What an error scope caught, as our error. `bytes` is what the scope was allocating.
pub(super) fn captured(error: wgpu::Error, place: &str, bytes: u64) -> Error {
    Fault::from(error).into_error(place, bytes)
}

fn describe_loss(reason: wgpu::DeviceLostReason, message: &str) -> String {
    let reason = match reason {
        wgpu::DeviceLostReason::Destroyed => "it was destroyed",
        wgpu::DeviceLostReason::Unknown => "the system took it",
    };
    if message.is_empty() { reason.to_owned() } else { format!("{reason}: {message}") }
}

#[cfg(test)]
mod tests {
    use crate::error::Error;
    use crate::gpu::Gpu;

    #[test]
    fn an_uncaptured_error_is_told_once_and_a_loss_for_ever() {
        let Some(gpu) = Gpu::for_tests() else { return };
        gpu.faults.check("before").unwrap();
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::STORAGE;
        let refused = wgpu::BufferDescriptor { label: Some("refused"), size: 4, usage, mapped_at_creation: false };
        let _ = gpu.device.create_buffer(&refused);
        let error = gpu.faults.check("after").unwrap_err();
        assert!(matches!(&error, Error::Gpu { place, .. } if place == "after"), "{error}");
        gpu.faults.check("later").unwrap();
        gpu.destroy();
        let _ = gpu.device.create_buffer(&refused);
        for _ in 0..2 {
            assert!(matches!(gpu.faults.check("lost"), Err(Error::DeviceLost(_))));
        }
    }
}
