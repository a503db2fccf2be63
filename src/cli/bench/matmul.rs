//! `kitfox bench --matmul`: how quick each way to multiply is here, without a model.

use super::Arguments;
use crate::cli::output::{Done, print_json, print_line};
use crate::cli::{DeviceArgument, baseline, open_gpu};
use kitfox::gpu::race::race;
use kitfox::kernel::layout::WeightType;
use kitfox::kernel::matmul;
use kitfox::{Error, Result};
use pollster::block_on;
use serde_json::json;

/// Times `[rows, k] · [k, tokens]` in every way that this GPU has for it.
pub fn run(arguments: &Arguments, shape: &[usize]) -> Done {
    let quant = arguments.quant();
    let ty = WeightType::ALL.into_iter().find(|ty| ty.name().eq_ignore_ascii_case(quant));
    let ty = ty.ok_or_else(|| Error::argument("quant", WeightType::ALL.map(WeightType::name).join(", "), quant))?;
    let shape = sizes(ty, shape)?;
    if matches!(arguments.model.device, DeviceArgument::Cpu | DeviceArgument::Twin) {
        return Err(Error::argument("device", "auto or gpu: the ways to multiply are a GPU's", "the CPU").into());
    }
    let gpu = open_gpu(baseline(arguments.model.baseline))?;
    let times = block_on(race(&gpu, &matmul::MATMUL, &matmul::cases::sample(ty, shape)))?;
    let operations = 2.0 * shape.map(|size| size as f64).iter().product::<f64>();
    let rates: Vec<_> = times.into_iter().map(|(way, seconds)| (way, seconds * 1e6, operations / seconds / 1e12)).collect();
    if arguments.json {
        let ways: Vec<_> = rates.iter().map(|(way, us, tflops)| json!({ "way": way, "us": us, "tflop_s": tflops })).collect();
        return print_json(&json!({ "adapter": gpu.info().name, "shape": shape, "quant": ty.name(), "ways": ways }));
    }
    print_line(&format!("{}: {} rows, k {}, {} tokens, {}", gpu.info().name, shape[0], shape[1], shape[2], ty.name()))?;
    for (way, us, tflops) in rates {
        print_line(&format!("{us:>10.1} us {tflops:>8.2} TFLOP/s  {way}"))?;
    }
    Ok(())
}

/// Rows, k and tokens, all of sizes that a binding holds.
fn sizes(ty: WeightType, shape: &[usize]) -> Result<[usize; 3]> {
    const MOST: usize = 8192;
    let refused = |got: String| Error::argument("matmul", format!("rows, k, tokens: three numbers from 1 to {MOST}"), got);
    let shape: [usize; 3] = shape.try_into().map_err(|_| refused(format!("{} numbers", shape.len())))?;
    if let Some(size) = shape.iter().find(|size| !(1..=MOST).contains(*size)) {
        return Err(refused(size.to_string()));
    }
    if !shape[1].is_multiple_of(ty.padded(1)) {
        return Err(Error::argument("matmul", format!("a k in whole {}", ty.padded(1)), shape[1]));
    }
    if shape[0] * shape[2].max(shape[1]) > kitfox::graph::MAX_BINDING_WORDS
        || shape[1] * (shape[2] + 1) > kitfox::graph::MAX_BINDING_WORDS
    {
        return Err(Error::argument("matmul", "matrices of at most 128 MiB each", format!("{shape:?}")));
    }
    Ok(shape)
}
