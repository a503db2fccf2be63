//! What is asked of an adapter beyond WebGPU's baseline, and what the open device has of it.
//!
//! Only what some kernel variant can use is asked for. WebGPU's name `subgroups` has no counterpart in wgpu's backend for browsers:
//! there the [`super::Host`] asks for it while the device is opened, and the device itself says whether it came.

use super::host::host;
use super::unchecked;
use crate::graph::{CoopScalar, CoopShape, Features};
use std::future::Future;

/// The feature's name in WebGPU.
const SUBGROUPS: &str = "subgroups";

/// Opens the adapter's device with everything that a variant could use.
pub(super) async fn open_equipped(adapter: &wgpu::Adapter) -> Result<(wgpu::Device, wgpu::Queue), wgpu::RequestDeviceError> {
    let features = wanted() & adapter.features();
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("kitfox"),
        required_features: features,
        required_limits: limits(&adapter.limits()),
        experimental_features: if features.intersects(wgpu::Features::all_experimental_mask()) {
            unchecked::experimental()
        } else {
            wgpu::ExperimentalFeatures::disabled()
        },
        ..Default::default()
    };
    // wgpu calls the browser before its future is awaited for the first time: what the host changes lasts for that call only.
    asking_for_subgroups(|| adapter.request_device(&descriptor)).await
}

fn asking_for_subgroups<F: Future>(request: impl FnOnce() -> F) -> F {
    let asking = host().and_then(|host| host.ask_for(SUBGROUPS));
    let request = request();
    drop(asking);
    request
}

/// wgpu's names for what variants can use. Features that go with subgroups or timestamps come only together with them.
fn wanted() -> wgpu::Features {
    wgpu::Features::SUBGROUP
        | wgpu::Features::SUBGROUP_BARRIER
        | wgpu::Features::SHADER_F16
        | wgpu::Features::TIMESTAMP_QUERY
        | wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS
        | wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES
        | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
}

/// The default limits, raised where a variant gains by it.
fn limits(has: &wgpu::Limits) -> wgpu::Limits {
    wgpu::Limits {
        max_compute_invocations_per_workgroup: has.max_compute_invocations_per_workgroup,
        max_compute_workgroup_size_x: has.max_compute_workgroup_size_x,
        max_compute_workgroup_size_y: has.max_compute_workgroup_size_y,
        max_compute_workgroup_storage_size: has.max_compute_workgroup_storage_size,
        max_storage_buffer_binding_size: has.max_storage_buffer_binding_size,
        max_buffer_size: has.max_buffer_size,
        ..wgpu::Limits::default()
    }
}

/// What an equipped device has.
pub(super) fn features(adapter: &wgpu::Adapter, device: &wgpu::Device) -> Features {
    let (has, limits, info) = (device.features(), device.limits(), adapter.get_info());
    let invocations = limits.max_compute_invocations_per_workgroup;
    Features {
        subgroups: has_subgroups(device).then_some((info.subgroup_min_size, info.subgroup_max_size)),
        f16: has.contains(wgpu::Features::SHADER_F16),
        coop: if has.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX) { coop_shapes(adapter) } else { Vec::new() },
        timestamps: has.contains(wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES),
        max_invocations: invocations.min(limits.max_compute_workgroup_size_x).min(limits.max_compute_workgroup_size_y),
        max_workgroup_bytes: limits.max_compute_workgroup_storage_size,
        software: false, // the device knows better than its adapter, see `Gpu::opened`
    }
}

fn coop_shapes(adapter: &wgpu::Adapter) -> Vec<CoopShape> {
    let scalar = |ty| match ty {
        wgpu::CooperativeScalarType::F16 => Some(CoopScalar::F16),
        wgpu::CooperativeScalarType::F32 => Some(CoopScalar::F32),
        _ => None,
    };
    let shape = |has: &wgpu::CooperativeMatrixProperties| {
        let (ab, c) = (scalar(has.ab_type)?, scalar(has.cr_type)?);
        Some(CoopShape { m: has.m_size, n: has.n_size, k: has.k_size, ab, c })
    };
    adapter.cooperative_matrix_properties().iter().filter_map(shape).collect()
}

#[cfg(target_arch = "wasm32")]
fn has_subgroups(device: &wgpu::Device) -> bool {
    device.as_webgpu().is_some_and(|device| device.features().has(SUBGROUPS))
}

#[cfg(not(target_arch = "wasm32"))]
fn has_subgroups(device: &wgpu::Device) -> bool {
    device.features().contains(wgpu::Features::SUBGROUP | wgpu::Features::SUBGROUP_BARRIER)
}
