//! The crate's only `unsafe`: two promises to wgpu, each with why it holds.
#![allow(unsafe_code, reason = "wgpu takes these two promises by unsafe functions")]

/// Consent to wgpu's experimental features, of which only cooperative matrices are asked for.
pub(super) fn experimental() -> wgpu::ExperimentalFeatures {
    // SAFETY: wgpu asks for no invariant, but for the acknowledgement that the feature may have bugs in wgpu. The only experimental
    // feature that `features.rs` requests is the cooperative matrix; a variant that uses it runs for a model only after its result
    // equalled the twin's on the same adapter.
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}

/// A module of one of the crate's own shaders, without the checks that wgpu adds against hostile ones: clamped indices in workgroup
/// memory and in arrays, and a counter in every loop.
pub(super) fn trusted_module(device: &wgpu::Device, descriptor: wgpu::ShaderModuleDescriptor<'_>) -> wgpu::ShaderModule {
    // SAFETY: called with the text of `kernel::KERNELS` only, never with a user's. Their indices follow from workgroup and invocation
    // ids, from params and step that this crate computes, and from page tables and token ids that are checked before they are
    // written; every loop counts up to such a number. `tests/kernels/kernels.rs` runs every variant also with wgpu's checks in place and
    // with guard words behind each buffer, and the results are the same.
    unsafe { device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked()) }
}
