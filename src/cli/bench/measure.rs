//! Timed runs: a prompt is read, then tokens are written behind it.

use cpu_time::ThreadTime;
use kitfox::Result;
use kitfox::session::Model;
use kitfox::session::bench::{Measured, time_decode, time_prefill};
use pollster::block_on;

/// One run: the prompt, then tokens. The first run of a model warms it up and is not to count.
pub fn run(measured: &mut Measured, model: &mut Model, ids: &[u32], in_flight: Option<usize>, counts: bool) -> Result<()> {
    let read = block_on(time_prefill(model, ids))?;
    measured.live_kv = block_on(model.live_kv_fraction())?;
    let cpu = ThreadTime::now();
    let written = block_on(time_decode(model, ids, measured.n, in_flight))?;
    let cpu = cpu.elapsed().as_secs_f64();
    measured.in_flight = model.in_flight();
    if counts {
        measured.prefill.0.push(read);
        measured.decode.0.push(written);
        measured.cpu.0.push(cpu);
    }
    Ok(())
}
