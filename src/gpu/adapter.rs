//! Which GPUs there are and which one is taken.
//!
//! A software adapter (lavapipe, SwiftShader, WARP) is right but slower than kitfox's own CPU code, so it is only taken when
//! asked for. Browsers say little about an adapter: there `isFallbackAdapter` and the architecture's name are all there is.

use super::inject::{self, Fault, Point};
use crate::error::{Error, Result};

/// What an adapter says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterInfo {
    /// Its name; `unnamed` where a browser hides it.
    pub name: String,
    /// `vulkan`, `metal`, `dx12`, `webgpu`.
    pub backend: String,
    /// Driver name and version; empty in browsers.
    pub driver: String,
    /// Runs on the CPU.
    pub software: bool,
    /// `discrete`, `integrated`, `virtual`, `cpu` or `other`.
    pub kind: &'static str,
}

/// Which adapter to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdapterPick {
    /// The best GPU that is hardware.
    HardwareOnly,
    /// The best GPU, hardware before software.
    Any,
    /// The first whose name contains this, letter case aside.
    Named(String),
}

/// Every adapter that wgpu can use here, best first. In a browser: the one that it offers, if any.
pub async fn adapters() -> Vec<AdapterInfo> {
    list().await.iter().map(|adapter| describe(&adapter.get_info())).collect()
}

/// The adapter to open and what it says of itself.
///
/// # Errors
/// [`Error::NoGpu`] with what was found.
pub(super) async fn choose(pick: &AdapterPick) -> Result<(wgpu::Adapter, AdapterInfo)> {
    let fault = inject::due(Point::Open);
    let adapters = if fault == Some(Fault::Lost) { Vec::new() } else { list().await };
    let mut found = Vec::new();
    for adapter in adapters {
        let mut info = describe(&adapter.get_info());
        if fault == Some(Fault::Wrong) {
            info.name.push_str(" (another)");
        }
        let fits = match pick {
            AdapterPick::Any => true,
            AdapterPick::HardwareOnly => !info.software,
            AdapterPick::Named(name) => info.name.to_lowercase().contains(&name.to_lowercase()),
        };
        if fits {
            return Ok((adapter, info));
        }
        found.push(info.name);
    }
    Err(refusal(pick, &found))
}

/// The error that says why none of the adapters `found` will do.
pub(super) fn refusal(pick: &AdapterPick, found: &[String]) -> Error {
    let found = if found.is_empty() { "no adapter at all".to_owned() } else { found.join(", ") };
    Error::NoGpu(match pick {
        AdapterPick::Any => format!("WebGPU (through Vulkan, Metal, DX12 or the browser) offers {found}"),
        AdapterPick::HardwareOnly => format!("no hardware adapter; found {found}"),
        AdapterPick::Named(name) => format!("no adapter named {name}; found {found}"),
    })
}

async fn list() -> Vec<wgpu::Adapter> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    // Not GL: its compute shaders lack what WebGPU's baseline promises.
    descriptor.backends = wgpu::Backends::PRIMARY;
    let instance = wgpu::Instance::new(descriptor);
    if cfg!(target_arch = "wasm32") {
        // A browser enumerates nothing; of a laptop's two GPUs it gives the fast one only when asked.
        let options =
            wgpu::RequestAdapterOptions { power_preference: wgpu::PowerPreference::HighPerformance, ..Default::default() };
        return instance.request_adapter(&options).await.into_iter().collect();
    }
    let mut adapters = instance.enumerate_adapters(wgpu::Backends::PRIMARY).await;
    adapters.sort_by_key(|adapter| rank(&adapter.get_info()));
    adapters
}

fn rank(info: &wgpu::AdapterInfo) -> u8 {
    match info.device_type {
        _ if is_software(info) => 4,
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other | wgpu::DeviceType::Cpu => 3,
    }
}

fn describe(info: &wgpu::AdapterInfo) -> AdapterInfo {
    AdapterInfo {
        name: if info.name.is_empty() { "unnamed".to_owned() } else { info.name.clone() },
        backend: match info.backend {
            wgpu::Backend::BrowserWebGpu => "webgpu".to_owned(),
            other => other.to_str().to_owned(),
        },
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        software: is_software(info) && !inject::software_passes(),
        kind: match info.device_type {
            wgpu::DeviceType::DiscreteGpu => "discrete",
            wgpu::DeviceType::IntegratedGpu => "integrated",
            wgpu::DeviceType::VirtualGpu => "virtual",
            wgpu::DeviceType::Cpu => "cpu",
            wgpu::DeviceType::Other => "other",
        },
    }
}

fn is_software(info: &wgpu::AdapterInfo) -> bool {
    info.device_type == wgpu::DeviceType::Cpu || names_software(&info.name) || names_software(&info.driver)
}

/// Whether a name is that of a rasterizer on the CPU: some call themselves a virtual or other GPU.
pub(super) fn names_software(name: &str) -> bool {
    let name = name.to_lowercase();
    ["llvmpipe", "lavapipe", "swiftshader", "warp", "basic render"].iter().any(|known| name.contains(known))
}
