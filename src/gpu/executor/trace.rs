//! Where the time of a replay goes: a timestamp after every dispatch of its pass. A dispatch begins when what it reads is there, so the
//! difference of two is the time of the one between, with the wait for the one before it.

use super::{Executor, STAGING, Task};
use crate::error::{Error, Result};
use crate::gpu::inject::Point;
use crate::gpu::memory::Memory;
use crate::gpu::{nudge, oneshot};
use crate::graph::{GraphId, Step};

/// WebGPU's largest number of queries in a set.
const MAX_QUERIES: usize = 4096;

impl Executor {
    /// Replays a graph once and gives each dispatch's kernel and seconds.
    ///
    /// # Errors
    /// [`Error::Argument`] on a device that has no timestamps inside a pass, or a graph of over 4,095 dispatches; what the device
    /// reports.
    pub async fn trace(&self, graph: GraphId, step: &Step) -> Result<Vec<(&'static str, f64)>> {
        let tasks = &self.graphs[graph.0 as usize];
        if !self.gpu.features().timestamps {
            return Err(Error::argument("trace", "a device with timestamps inside a pass", self.gpu.info().name.clone()));
        }
        if tasks.len() >= MAX_QUERIES {
            let expected = format!("a graph of at most {} dispatches", MAX_QUERIES - 1);
            return Err(Error::argument("trace", expected, tasks.len()));
        }
        let ticks = self.timed(tasks, step).await?;
        let tick = f64::from(self.gpu.queue.get_timestamp_period()) * 1e-9;
        let seconds = ticks.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64 * tick);
        Ok(tasks.iter().map(|task| self.pipelines[task.pipeline].kernel).zip(seconds).collect())
    }

    /// Timestamps before the first dispatch and after each.
    async fn timed(&self, tasks: &[Task], step: &Step) -> Result<Vec<u64>> {
        self.gpu.faults.check("trace")?;
        let count = tasks.len() as u32 + 1;
        let size = u64::from(count) * 8;
        let mut memory = Memory::new(&self.gpu);
        let queries = memory.timestamps("timestamps", count);
        let resolved =
            memory.buffer("timestamps, resolved", size, wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC);
        let staging = memory.buffer("timestamps, read", size, STAGING);
        memory.settle().await?;
        self.gpu.pass(Point::Submit);
        self.write_steps(std::slice::from_ref(step));
        let mut encoder = self.gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("trace") });
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.write_timestamp(&queries, 0);
        for (task, query) in tasks.iter().zip(1..) {
            pass.set_pipeline(&self.pipelines[task.pipeline].compute);
            self.bind(&mut pass, task, 0);
            let [x, y, z] = task.grid.at(step);
            pass.dispatch_workgroups(x, y, z);
            pass.write_timestamp(&queries, query);
        }
        drop(pass);
        encoder.resolve_query_set(&queries, 0..count, &resolved, 0);
        encoder.copy_buffer_to_buffer(&resolved, 0, &staging, 0, size);
        let submission = self.gpu.queue.submit([encoder.finish()]);
        let (sender, mapped) = oneshot::channel();
        staging.map_async(wgpu::MapMode::Read, ..size, move |result| sender.send(result));
        self.gpu.wait(submission, "trace")?;
        let mapped = nudge::receive(&self.gpu.queue, mapped).await;
        self.gpu.faults.check("trace")?;
        let failed = |message: String| Error::Gpu { place: "reading timestamps".to_owned(), message };
        match mapped {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(failed(error.to_string())),
            None => return Err(failed("the device forgot the read".to_owned())),
        }
        let view = staging.get_mapped_range(..size).map_err(|error| failed(error.to_string()))?;
        Ok(bytemuck::pod_collect_to_vec(&view))
    }
}
