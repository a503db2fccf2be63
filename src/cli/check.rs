//! `kitfox check`: every kernel on this machine's adapter, or the CPU's fast code, against the plain twins.

use super::output::{Done, Stop, one_line, print_line, say, tokens_bar};
use super::{baseline, open_gpu};
use clap::{Args, ValueEnum};
use kitfox::graph::Kernel;
use kitfox::kernel::{ALTERNATIVE_KERNELS, KERNELS};
use kitfox::session::check::{Checked, check, check_kernel_on_cpu};
use kitfox::{Error, Result};

#[derive(Args)]
pub struct Arguments {
    /// Only these kernels, by name, each with its alternatives, or these alternatives alone; default: all
    #[arg(value_name = "KERNEL")]
    kernels: Vec<String>,
    /// What is compared with the twins
    #[arg(long, value_enum, default_value_t, value_name = "DEVICE")]
    device: Checkable,
    /// Only what runs with WebGPU's default limits and no optional feature (also by KITFOX_BASELINE=1)
    #[arg(long)]
    baseline: bool,
}

/// What has a twin to be compared with.
#[derive(ValueEnum, Clone, Copy, Default)]
enum Checkable {
    /// A GPU, hardware before software, if there is one; else the CPU
    #[default]
    Auto,
    /// A GPU, hardware before software
    Gpu,
    /// The CPU's fast code
    Cpu,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Done {
    let baseline = baseline(arguments.baseline);
    let kernels = named(&arguments.kernels)?;
    let (device, checked) = match arguments.device {
        Checkable::Cpu => check_cpu(&kernels),
        Checkable::Gpu => check_gpu(baseline, &kernels)?,
        Checkable::Auto => match check_gpu(baseline, &kernels) {
            Err(Error::NoGpu(why)) => {
                say(&format!("note: {why}: checking the CPU's code instead"));
                check_cpu(&kernels)
            }
            checked => checked?,
        },
    };
    if checked.is_empty() {
        return Err(Error::argument("KERNEL", "one that can be compared on this device", arguments.kernels.join(", ")).into());
    }
    report(&device, &checked)
}

/// The kernels of these names; without one all, whose alternatives go with them.
fn named(names: &[String]) -> Result<Vec<&'static Kernel>> {
    if names.is_empty() {
        return Ok(KERNELS.to_vec());
    }
    let find = |name: &String| {
        let mut known = KERNELS.iter().chain(ALTERNATIVE_KERNELS).copied();
        let names = || KERNELS.iter().chain(ALTERNATIVE_KERNELS).map(|kernel| kernel.name).collect::<Vec<_>>().join(", ");
        known.find(|kernel| kernel.name == name).ok_or_else(|| Error::argument("KERNEL", names(), name))
    };
    names.iter().map(find).collect()
}

fn check_gpu(baseline: bool, kernels: &[&'static Kernel]) -> Result<(String, Vec<Checked>)> {
    let gpu = open_gpu(baseline)?;
    gpu.notes().iter().for_each(|note| say(&format!("note: {}", one_line(note))));
    let bar = tokens_bar("checking", 0);
    let mut seen = |checked: &Checked| bar.set_message(checked.kernel);
    let checked = pollster::block_on(check(&gpu, kernels, &mut seen));
    bar.finish_and_clear();
    Ok((format!("{} ({})", gpu.info().name, gpu.features()), checked?))
}

fn check_cpu(kernels: &[&'static Kernel]) -> (String, Vec<Checked>) {
    let plain: Vec<_> = kernels.iter().filter(|kernel| kernel.fast.is_none()).map(|kernel| kernel.name).collect();
    if !plain.is_empty() {
        say(&format!("note: the CPU runs the twins of {}: they have no fast code to compare", plain.join(", ")));
    }
    ("cpu".to_owned(), kernels.iter().flat_map(|kernel| check_kernel_on_cpu(kernel)).collect())
}

/// One line a kernel and one for its alternatives, with the worst deviations, and every failure under it.
fn report(device: &str, checked: &[Checked]) -> Done {
    print_line(&format!("device: {device}"))?;
    let mut n_failed = 0;
    for cases in checked.chunk_by(|a, b| a.kernel == b.kernel && a.variant.is_some() == b.variant.is_some()) {
        let deviations = || cases.iter().flat_map(|case| case.outcome.iter().flatten());
        let nmse = deviations().map(|deviation| deviation.nmse).fold(0.0, f64::max);
        let max_abs = deviations().map(|deviation| deviation.max_abs).fold(0.0, f64::max);
        let failed: Vec<_> = cases.iter().filter(|case| !case.passed()).collect();
        n_failed += failed.len();
        let verdict = if failed.is_empty() { "ok" } else { "MISMATCH" };
        let kernel = format!("{}{}", cases[0].kernel, if cases[0].variant.is_some() { " (others)" } else { "" });
        print_line(&format!("{kernel:24} {:3} cases  nmse {nmse:8.1e}  max {max_abs:8.1e}  {verdict}", cases.len()))?;
        for case in failed {
            if let Some(variant) = &case.variant {
                print_line(&format!("  [{variant}]"))?;
            }
            match &case.outcome {
                Err(error) => print_line(&format!("  {}: {}", case.case, one_line(error)))?,
                Ok(deviations) => {
                    for deviation in deviations.iter().filter(|deviation| deviation.failed()) {
                        print_line(&format!("  {deviation}"))?;
                    }
                }
            }
        }
    }
    if n_failed == 0 {
        return print_line(&format!("{} cases agree with their twins", checked.len()));
    }
    say(&format!("error: {n_failed} of {} cases differ from their twins", checked.len()));
    Err(Stop::Failed)
}
