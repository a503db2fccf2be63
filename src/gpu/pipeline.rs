//! One compute pipeline per kernel and variant, compiled once per device. Layouts come from the kernel's declaration, never from
//! the shader: the two are compared without a GPU by `tests/shaders.rs`, and by the driver here.

use super::fault::captured;
use super::{Compiler, Gpu, preprocess, unchecked};
use crate::error::Result;
use crate::graph::contract::{PARAMS_BINDING, STEP_BINDING};
use crate::graph::{Access, Kernel, Step, Variant};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
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

/// The pipeline of a kernel's variant, compiled at its first use.
///
/// # Errors
/// [`crate::Error::Gpu`] when the device refuses the shader: a bug of ours or of its driver.
pub(super) async fn pipeline(gpu: &Gpu, kernel: &'static Kernel, variant: &Variant) -> Result<Rc<Pipeline>> {
    let key = (kernel.name, variant.clone());
    if let Some(found) = gpu.pipelines.known.borrow().get(&key) {
        return Ok(Rc::clone(found));
    }
    let compiled = Rc::new(compile(gpu, kernel, variant).await?);
    gpu.pipelines.compiled.set(gpu.pipelines.compiled.get() + 1);
    gpu.pipelines.known.borrow_mut().insert(key, Rc::clone(&compiled));
    Ok(compiled)
}

async fn compile(gpu: &Gpu, kernel: &'static Kernel, variant: &Variant) -> Result<Pipeline> {
    let text = preprocess(kernel, variant, Compiler::HERE)?;
    let device = &gpu.device;
    let label = format!("{} {variant}", kernel.name);
    let label = label.trim_end();
    let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
    let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let descriptor = wgpu::ShaderModuleDescriptor { label: Some(label), source: wgpu::ShaderSource::Wgsl(text.into()) };
    let module =
        if gpu.trusted { unchecked::trusted_module(device, descriptor) } else { device.create_shader_module(descriptor) };
    let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: Some(label),
        entries: &layout_entries(kernel, variant),
    });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(label),
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let compute = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(label),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some("main"),
        // No kernel reads workgroup memory that it has not written.
        compilation_options: wgpu::PipelineCompilationOptions {
            zero_initialize_workgroup_memory: !gpu.trusted,
            ..Default::default()
        },
        cache: None,
    });
    let (validation, internal) = (validation.pop(), internal.pop());
    if let Some(error) = validation.await.or(internal.await) {
        return Err(captured(error, &format!("pipeline {label}"), 0));
    }
    Ok(Pipeline { kernel: kernel.name, uses_step: kernel.uses_step, compute, layout })
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
