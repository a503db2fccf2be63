//! What a device can do at best, measured on it: the rate at which it copies memory, and the time of a dispatch that depends on
//! the one before. From both comes the floor of a token's time (performance is quoted as a part of it).

use super::{Executor, Gpu};
use crate::error::Result;
use crate::graph::{GraphId, Program, Role, Step};
use crate::kernel::rms_norm::{RmsNorm, Rows};
use web_time::Instant;

/// Bytes of the buffers copied: WebGPU's default largest buffer, well beyond any cache.
const COPY_BYTES: u64 = 256 << 20;
/// Copies in a submit.
const COPIES: u32 = 8;
/// Runs, of which the quickest counts.
const RUNS: usize = 20;

/// Bytes read and written a second by copies from buffer to buffer of 256 MiB, the best of 20 runs.
///
/// # Errors
/// [`crate::Error::OutOfMemory`] when the device has no room for the two buffers, and what it reports.
pub async fn copy_rate(gpu: &Gpu) -> Result<f64> {
    let mut memory = super::memory::Memory::new(gpu);
    let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let [from, to] = ["copy from", "copy to"].map(|name| memory.buffer(name, COPY_BYTES, usage));
    memory.settle().await?;
    let mut best = f64::MAX;
    for run in 0..=RUNS {
        let start = Instant::now();
        let mut encoder = gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None });
        for _ in 0..COPIES {
            encoder.copy_buffer_to_buffer(&from, 0, &to, 0, COPY_BYTES);
        }
        gpu.queue.submit([encoder.finish()]);
        gpu.settle().await?;
        // The first run touches the pages.
        if run > 0 {
            best = best.min(start.elapsed().as_secs_f64());
        }
    }
    Ok(2.0 * COPY_BYTES as f64 * f64::from(COPIES) / best)
}

/// Seconds that a dispatch adds which does next to nothing but needs the result of the one before: `n_dispatches` in a pass,
/// `in_flight` passes submitted before one is awaited; the best of 20 runs.
///
/// # Errors
/// What the device reports.
pub async fn dispatch_time(gpu: &Gpu, n_dispatches: usize, in_flight: usize) -> Result<f64> {
    let mut program = Program::default();
    let weight = program.buffer("weight", 64, Role::Weight);
    let y = program.buffer("y", 64, Role::State);
    let mut r = program.record("empty");
    for _ in 0..n_dispatches {
        let weight = r.whole(weight);
        let y = Rows { buffer: y, stride: 16, offset: 0 };
        RmsNorm { x: None, y, weight, weight_offset: 0, rows_per_token: 1, width: 16, eps: 1e-6 }.record(&mut r);
    }
    let graph: GraphId = r.finish();
    let executor = Executor::new(gpu.clone(), &program).await?;
    let step = Step { n_tokens: 1, ..Step::default() };
    let mut best = f64::MAX;
    for run in 0..=RUNS {
        let start = Instant::now();
        for _ in 0..in_flight {
            executor.replay(graph, &step, true)?;
        }
        gpu.settle().await?;
        if run > 0 {
            best = best.min(start.elapsed().as_secs_f64());
        }
    }
    Ok(best / (n_dispatches * in_flight) as f64)
}
