//! One compute pipeline per kernel and variant, compiled once per device: several at once, natively on every core, in a browser by
//! asking for all of them before the first answer is awaited. Layouts come from the kernel's declaration, never from
//! the shader: the two are compared without a GPU by `tests/kernels/shaders.rs`, and by the driver here.

use super::fault::captured;
use super::inject::{Fault, Point};
use super::memory::{Scopes, no_room};
use super::{Compiler, Gpu, preprocess, unchecked};
use crate::error::{Error, Result};
use crate::graph::contract::{PARAMS_BINDING, STEP_BINDING};
use crate::graph::{Access, Kernel, Step, Variant};
#[cfg(not(target_arch = "wasm32"))]
use crate::kernel::parallel;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::num::NonZeroU64;
use std::rc::Rc;

/// A pipeline and what its bind groups are made by.
pub(super) struct Pipeline {
    /// Its kernel's name.
    pub(super) kernel: &'static str,
    /// Whether its bind groups take the offset of a step.
    pub(super) uses_step: bool,
    pub(super) compute: wgpu::ComputePipeline,
    pub(super) layout: wgpu::BindGroupLayout,
}

/// The pipelines of one device.
#[derive(Default)]
pub(super) struct Pipelines {
    known: RefCell<HashMap<(&'static str, Variant), Rc<Pipeline>>>,
    compiled: Cell<u64>,
}

impl Pipelines {
    /// Pipelines compiled on this device.
    pub(super) fn compiled(&self) -> u64 {
        self.compiled.get()
    }
}

/// Bytes of the uniform `params`: whole 16-byte rows, as uniform buffers like it.
pub(super) fn params_bytes(n_params: usize) -> u64 {
    (n_params as u64 * 4).next_multiple_of(16)
}

/// The pipelines of kernels' variants, in order; those that are not there yet are compiled.
///
/// [`crate::Error::Gpu`] stands for one whose shader the device refuses: a bug of ours or of its driver.
pub(super) async fn pipelines(gpu: &Gpu, wanted: &[(&'static Kernel, &Variant)]) -> Vec<Result<Rc<Pipeline>>> {
    let key = |(kernel, variant): &(&'static Kernel, &Variant)| (kernel.name, (*variant).clone());
    let mut missing: Vec<(&'static Kernel, &Variant)> = Vec::new();
    for want in wanted {
        let known = gpu.pipelines.known.borrow().contains_key(&key(want));
        if !known && missing.iter().all(|other| key(other) != key(want)) {
            missing.push(*want);
        }
    }
    let faults: Vec<Option<Fault>> = missing.iter().map(|_| gpu.pass(Point::Pipeline)).collect();
    let compiled = compile(gpu, &missing, &faults).await;
    let mut refused = HashMap::new();
    for ((want, compiled), fault) in missing.iter().zip(compiled).zip(faults) {
        let place = || format!("pipeline {}", want.0.name);
        let compiled = match (fault, compiled) {
            (Some(Fault::OutOfMemory), _) => Err(captured(no_room(), &place(), 0)),
            (Some(Fault::Validation), _) => Err(Error::Gpu { place: place(), message: "it is invalid (injected)".to_owned() }),
            (_, Err(error)) => Err(gpu.blame_in_time(error).await),
            (_, compiled) => compiled,
        };
        match compiled {
            Ok(pipeline) => {
                gpu.pipelines.compiled.set(gpu.pipelines.compiled.get() + 1);
                gpu.pipelines.known.borrow_mut().insert(key(want), Rc::new(pipeline));
            }
            Err(error) => {
                refused.insert(key(want), error);
            }
        }
    }
    let known = gpu.pipelines.known.borrow();
    let found = |want| {
        let key = key(want);
        known.get(&key).map(Rc::clone).ok_or_else(|| match refused.get(&key) {
            Some(Error::DeviceLost(why)) => Error::DeviceLost(why.clone()),
            Some(Error::Gpu { place, message }) => Error::Gpu { place: place.clone(), message: message.clone() },
            Some(Error::OutOfMemory { what, bytes, reason }) => {
                Error::OutOfMemory { what: what.clone(), bytes: *bytes, reason: reason.clone() }
            }
            other => {
                Error::Gpu { place: format!("pipeline {}", key.0), message: other.map(ToString::to_string).unwrap_or_default() }
            }
        })
    };
    wanted.iter().map(found).collect()
}

/// On every core: error scopes belong to the thread that pushes them.
#[cfg(not(target_arch = "wasm32"))]
async fn compile(gpu: &Gpu, missing: &[(&'static Kernel, &Variant)], faults: &[Option<Fault>]) -> Vec<Result<Pipeline>> {
    let (device, trusted) = (&gpu.device, gpu.trusted);
    parallel::map_ranges(missing.len(), 1, |range| {
        // Natively the scopes' answers are there at once.
        pollster::block_on(begin(device, trusted, missing[range.start], faults[range.start])?)
    })
}

/// A browser compiles by itself what it was asked for; its devices belong to one thread.
#[cfg(target_arch = "wasm32")]
async fn compile(gpu: &Gpu, missing: &[(&'static Kernel, &Variant)], faults: &[Option<Fault>]) -> Vec<Result<Pipeline>> {
    let begun: Vec<_> =
        missing.iter().zip(faults).map(|(wanted, fault)| begin(&gpu.device, gpu.trusted, *wanted, *fault)).collect();
    let mut compiled = Vec::new();
    for pipeline in begun {
        compiled.push(match pipeline {
            Ok(pipeline) => pipeline.await,
            Err(error) => Err(error),
        });
    }
    compiled
}

/// Asks for a pipeline; whether it could be had is told by the future.
fn begin(
    device: &wgpu::Device,
    trusted: bool,
    (kernel, variant): (&'static Kernel, &Variant),
    fault: Option<Fault>,
) -> Result<impl Future<Output = Result<Pipeline>> + use<>> {
    let text = match fault {
        Some(Fault::Wrong) => "@compute @workgroup_size(1) fn main() {}".to_owned(),
        _ => preprocess(kernel, variant, Compiler::HERE)?,
    };
    let label = format!("{} {variant}", kernel.name).trim_end().to_owned();
    let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
    let scopes = Scopes::open(device);
    let descriptor = wgpu::ShaderModuleDescriptor { label: Some(&label), source: wgpu::ShaderSource::Wgsl(text.into()) };
    let module = if trusted { unchecked::trusted_module(device, descriptor) } else { device.create_shader_module(descriptor) };
    let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: Some(&label),
        entries: &layout_entries(kernel, variant),
    });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(&label),
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let compute = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(&label),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some("main"),
        // No kernel reads workgroup memory that it has not written.
        compilation_options: wgpu::PipelineCompilationOptions {
            zero_initialize_workgroup_memory: !trusted,
            ..Default::default()
        },
        cache: None,
    });
    let (others, internal) = (scopes.close(None), internal.pop());
    Ok(async move {
        match others.await.or(internal.await) {
            Some(error) => Err(captured(error, &format!("pipeline {label}"), 0)),
            None => Ok(Pipeline { kernel: kernel.name, uses_step: kernel.uses_step, compute, layout }),
        }
    })
}

fn layout_entries(kernel: &'static Kernel, variant: &Variant) -> Vec<wgpu::BindGroupLayoutEntry> {
    // Sizes are stated so that a window that is too small fails when its bind group is made, not at every dispatch.
    let entry = |binding, ty, bytes| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        // Each replay of a submit has a step of its own.
        ty: wgpu::BindingType::Buffer {
            ty,
            has_dynamic_offset: binding == STEP_BINDING,
            min_binding_size: NonZeroU64::new(bytes),
        },
        count: None,
    };
    let storage = kernel.active_indices(variant).map(|(ix, declaration)| {
        let read_only = declaration.access == Access::Read;
        entry(ix, wgpu::BufferBindingType::Storage { read_only }, declaration.elem.words() as u64 * 4)
    });
    let params = (!kernel.params.is_empty())
        .then(|| entry(PARAMS_BINDING, wgpu::BufferBindingType::Uniform, params_bytes(kernel.params.len())));
    let step = kernel.uses_step.then(|| entry(STEP_BINDING, wgpu::BufferBindingType::Uniform, size_of::<Step>() as u64));
    storage.chain(params).chain(step).collect()
}
