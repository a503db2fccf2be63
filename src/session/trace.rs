//! Where the time of a token goes, by kernel: for `kitfox bench --trace`.

use super::device::Device;
use super::model::Model;
use crate::error::{Error, Result};
use crate::graph::{GraphId, Step};

/// The dispatches of one kernel in a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Traced {
    /// The kernel that ran.
    pub kernel: &'static str,
    /// Its dispatches.
    pub dispatches: usize,
    /// Seconds of all of them: the median of the replays.
    pub seconds: f64,
}

/// Replays, of which each dispatch's median counts.
const RUNS: usize = 9;

impl Model {
    /// Times the kernels that read these ids behind the sequence: one id as generation reads it, with the drawing of the next by the
    /// rules of the last [`Model::draw`]; several as a chunk of a prompt. The sequence stays as it is: what the replays write is
    /// overwritten by the next ids. Most time first.
    ///
    /// # Errors
    /// As [`Model::prefill`]; [`Error::Argument`] on the CPU and on a device without timestamps.
    pub async fn trace(&mut self, ids: &[u32]) -> Result<Vec<Traced>> {
        self.lasting(async |model| model.try_trace(ids).await).await
    }

    async fn try_trace(&mut self, ids: &[u32]) -> Result<Vec<Traced>> {
        let (graph, traced) = match ids {
            [_] => (self.graphs.decode, self.graphs.decode_and_draw),
            _ => (self.graphs.prefill, self.graphs.prefill),
        };
        // Once in earnest: ids and pages are in place.
        self.look(ids.len()).await?;
        self.replay(graph, ids, true)?;
        self.trace_graph(traced, &self.pages.step(ids.len())).await
    }

    async fn trace_graph(&self, graph: GraphId, step: &Step) -> Result<Vec<Traced>> {
        let Device::Gpu(gpu) = self.device() else {
            return Err(Error::argument("trace", "a GPU", self.device_name().to_owned()));
        };
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            runs.push(gpu.trace(graph, step).await?);
        }
        let mut by_kernel: Vec<Traced> = Vec::new();
        for (ix, (kernel, _)) in runs[0].iter().enumerate() {
            let mut times: Vec<f64> = runs.iter().map(|run| run[ix].1).collect();
            times.sort_by(f64::total_cmp);
            let seconds = times[RUNS / 2];
            match by_kernel.iter_mut().find(|traced| traced.kernel == *kernel) {
                Some(traced) => (traced.dispatches, traced.seconds) = (traced.dispatches + 1, traced.seconds + seconds),
                None => by_kernel.push(Traced { kernel, dispatches: 1, seconds }),
            }
        }
        by_kernel.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        Ok(by_kernel)
    }
}
