//! The one place with `unsafe`: shader modules without the bounds checks that the compiler would add.
//!
//! On an H200 they are worth a factor of 1.8 in decoding. In a browser there is no such choice.

#![allow(
    unsafe_code,
    reason = "wgpu has no safe way to leave the checks out; this file is held under 80 lines by tests/layers.rs"
)]

/// Compiles a kernel's shader without index and loop checks.
pub(super) fn shader_module(device: &wgpu::Device, descriptor: wgpu::ShaderModuleDescriptor<'_>) -> wgpu::ShaderModule {
    // SAFETY: an index of a kernel comes from its workgroup's number, from its params (fixed when the dispatch was recorded over
    // windows whose lengths were checked there), from the step, from page tables and from token ids. The host writes these and
    // checks each against the buffers' sizes first (`session::Model::replay`), and an id drawn on the device is below the
    // vocabulary. Nothing read from a model file is an index. Loops end by the same numbers. Each kernel runs on all its cases
    // between guard words, with the checks and without, on every adapter of the tests; with `Gpu::open_baseline` it runs with them.
    unsafe { device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked()) }
}
