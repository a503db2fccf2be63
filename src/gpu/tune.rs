//! Which way each dispatch runs on this device. An alternative is taken only after a case of its kernel gave the twin's numbers here,
//! compiled by this driver; one that does not is passed over with a note, and the baseline stays. Among those that agree the kernel's
//! own order decides, unless another is quicker by more than a tenth on the model's own shapes.
//!
//! The same seed, device and build must give the same text, and two ways may differ in the last bit. So what was measured counts only
//! where the host keeps it, and is read from there ever after (by adapter, driver, and the shaders' text); elsewhere the order decides.

use super::host::host;
use super::{Executor, Gpu, harness};
use crate::error::{Error, Result};
use crate::graph::{Alternative, Binding, Dispatch, Graph, GraphId, Program, Role, Step};
use crate::kernel::{ALTERNATIVE_KERNELS, KERNELS, SHARED};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use web_time::{Duration, Instant};

/// An alternative further down in the kernel's order (or the baseline) must be this much quicker than the first.
const GAIN: f64 = 1.1;
/// Measuring ends after this long; the order decides the rest.
const BUDGET: Duration = Duration::from_millis(100);
/// Time of a measured replay: a dispatch is repeated to fill it, so that waiting for it weighs little.
const REPLAY: Duration = Duration::from_millis(1);
const MAX_REPEATS: usize = 32;
/// Replays of each way, of which the quickest counts.
const RUNS: usize = 3;

/// What is known of an adapter's kernels.
#[derive(Default, Serialize, Deserialize)]
struct Known {
    /// By `kernel [variant]`: why it is not used; empty when it agrees with the twin.
    verdicts: BTreeMap<String, String>,
    /// By [`Site::key`]: the kernel and variant that are taken.
    choices: BTreeMap<String, String>,
}

/// A dispatch that can run in several ways.
struct Site<'p> {
    dispatch: &'p Dispatch,
    step: Step,
    offered: Vec<Alternative>,
}

impl Site<'_> {
    /// What its time depends on, and what there was to choose from. Params are left out: how much there is to do shows in windows and
    /// workgroups, and offsets would make every layer another site.
    fn key(&self) -> String {
        let Dispatch { kernel, variant, bindings, grid, .. } = self.dispatch;
        let words: Vec<_> = bindings.iter().map(|binding| binding.words).collect();
        let mut hasher = DefaultHasher::new();
        self.offered.iter().for_each(|offer| (offer.label(), offer.grid).hash(&mut hasher));
        format!("{} [{variant}] {words:?} {:?} {:x}", kernel.name, grid.at(&self.step), hasher.finish())
    }
}

/// The program in the ways that this device takes. `step_of` gives a step that is typical of a graph.
///
/// # Errors
/// [`Error::DeviceLost`].
pub async fn choose(gpu: &Gpu, program: &Program, step_of: &dyn Fn(GraphId) -> Step) -> Result<Program> {
    let mut sites: Vec<(String, Site<'_>)> = Vec::new();
    for (graph, id) in program.graphs.iter().zip((0..).map(GraphId)) {
        for dispatch in &graph.dispatches {
            let site = Site { dispatch, step: step_of(id), offered: dispatch.alternatives(gpu.features()) };
            let key = site.key();
            if !site.offered.is_empty() && sites.iter().all(|(known, _)| *known != key) {
                sites.push((key, site));
            }
        }
    }
    let name = file_name(gpu);
    let kept = host().and_then(|host| host.recall(&name));
    // Words that cannot be read are as good as none.
    let mut known: Known = kept.and_then(|words| serde_json::from_str(&words).ok()).unwrap_or_default();
    let before = (known.verdicts.len(), known.choices.len());
    let decided = |(key, _): &(String, Site<'_>)| known.choices.contains_key(key);
    if !sites.iter().all(decided) {
        // Whether the host keeps anything shows when it is given what is known so far.
        let kept = keep(&name, &known);
        judge(gpu, &name, &sites, &mut known, kept).await?;
        pick(gpu, &sites, &mut known, kept).await?;
    }
    if before != (known.verdicts.len(), known.choices.len()) {
        keep(&name, &known);
    }
    for (variant, reason) in known.verdicts.iter().filter(|(_, reason)| !reason.is_empty()) {
        gpu.note(format!("{variant} is not used: {reason}"));
    }
    let mut chosen = program.clone();
    for (graph, id) in chosen.graphs.iter_mut().zip((0..).map(GraphId)) {
        for dispatch in &mut graph.dispatches {
            let site = Site { dispatch, step: step_of(id), offered: dispatch.alternatives(gpu.features()) };
            let choice = known.choices.get(&site.key());
            let taken = site.offered.iter().find(|offer| choice.is_some_and(|choice| offer.label() == *choice));
            if let Some(alternative) = taken {
                *dispatch = dispatch.taking(alternative);
            }
        }
    }
    Ok(chosen)
}

/// Compares what is offered and has no verdict yet with its twin, on one small input; unless `all` are to be compared, at every site
/// only until one agrees.
async fn judge(gpu: &Gpu, name: &str, sites: &[(String, Site<'_>)], known: &mut Known, all: bool) -> Result<()> {
    for (_, Site { dispatch, offered, .. }) in sites {
        for alternative in offered {
            let label = alternative.label();
            if !known.verdicts.contains_key(&label) {
                // Should the device be lost now, the next load finds this and does without.
                known.verdicts.insert(label.clone(), "the device was lost while it was checked".to_owned());
                keep(name, known);
                let verdict = verdict(gpu, dispatch, alternative).await?;
                known.verdicts.insert(label.clone(), verdict.unwrap_or_default());
            }
            if !all && known.verdicts[&label].is_empty() {
                break;
            }
        }
    }
    Ok(())
}

/// Why an alternative is not to be used here, if so.
async fn verdict(gpu: &Gpu, dispatch: &Dispatch, alternative: &Alternative) -> Result<Option<String>> {
    let Some(alternatives) = dispatch.kernel.alternatives else { return Ok(None) };
    let case = (alternatives.probe)(dispatch);
    // The very variant, or another with its flags: some constants follow the number of rows.
    let alike = harness::alternatives(gpu.features(), dispatch.kernel, &case)
        .into_iter()
        .filter(|(other, _)| other.kernel.name == alternative.kernel.name && other.variant.flags == alternative.variant.flags);
    let Some(way) = alike.min_by_key(|(other, _)| other.variant != alternative.variant) else {
        return Ok(Some("the kernel has no input to judge it by".to_owned()));
    };
    match harness::check_alternative(gpu, dispatch.kernel, &case, &way).await {
        Ok(deviations) => Ok(deviations.iter().find(|deviation| deviation.failed()).map(ToString::to_string)),
        Err(Error::DeviceLost(why)) => Err(Error::DeviceLost(format!("{}: {why}", alternative.label()))),
        Err(error) => Ok(Some(error.to_string())),
    }
}

/// Chooses for every site without a choice; by time only if the choice is kept.
async fn pick(gpu: &Gpu, sites: &[(String, Site<'_>)], known: &mut Known, kept: bool) -> Result<()> {
    let start = Instant::now();
    for (key, site) in sites {
        if known.choices.contains_key(key) {
            continue;
        }
        let agrees = |offer: &&Alternative| known.verdicts.get(&offer.label()).is_some_and(String::is_empty);
        let mut ways: Vec<Dispatch> = site.offered.iter().filter(agrees).map(|offer| site.dispatch.taking(offer)).collect();
        ways.push(site.dispatch.clone());
        let mut taken = 0;
        if ways.len() > 1 && kept {
            let left = BUDGET.saturating_sub(start.elapsed());
            let times = match time(gpu, &ways, &site.step, left).await {
                Err(Error::DeviceLost(why)) => return Err(Error::DeviceLost(why)),
                // Nothing was learned of how quick they are.
                Err(_) => Vec::new(),
                Ok(times) => times,
            };
            let best = (0..times.len()).min_by(|a, b| times[*a].cmp(&times[*b]));
            taken = best.filter(|best| times[*best].mul_f64(GAIN) < times[0]).unwrap_or(0);
        }
        known.choices.insert(key.clone(), format!("{} [{}]", ways[taken].kernel.name, ways[taken].variant));
    }
    Ok(())
}

/// Times of a replay of each way over buffers of zeros; none when they would take longer than what is `left`.
async fn time(gpu: &Gpu, ways: &[Dispatch], step: &Step, left: Duration) -> Result<Vec<Duration>> {
    if left.is_zero() {
        return Ok(Vec::new());
    }
    let mut program = Program::default();
    let mut bindings = Vec::new();
    for Binding { words, .. } in &ways[0].bindings {
        let buffer = program.buffer("window", *words, Role::State);
        bindings.push(program.whole(buffer));
    }
    for way in ways {
        let dispatch = Dispatch { bindings: bindings.clone(), ..way.clone() };
        program.graphs.push(Graph { name: "timed".to_owned(), dispatches: vec![dispatch; MAX_REPEATS] });
    }
    let executor = Executor::new(gpu.clone(), &program).await?;
    let replay = async |graph, repeats| {
        let start = Instant::now();
        executor.replay_range(graph, 0..repeats, step)?;
        gpu.settle().await?;
        Ok::<Duration, Error>(start.elapsed())
    };
    let graphs = || (0..ways.len() as u32).map(GraphId);
    let mut longest = Duration::ZERO;
    for graph in graphs() {
        // The first replay of a pipeline takes longer than it should.
        replay(graph, 1).await?;
        longest = longest.max(replay(graph, 1).await?);
    }
    let repeats = (REPLAY.as_secs_f64() / longest.as_secs_f64()) as usize;
    let repeats = repeats.clamp(1, MAX_REPEATS);
    if longest * (repeats * RUNS * ways.len()) as u32 > left {
        return Ok(Vec::new());
    }
    let mut times = vec![Duration::MAX; ways.len()];
    for _ in 0..RUNS {
        for (graph, time) in graphs().zip(&mut times) {
            *time = (*time).min(replay(graph, repeats).await?);
        }
    }
    Ok(times)
}

/// Hands what is known to the host: whether it is kept.
fn keep(name: &str, known: &Known) -> bool {
    let words = serde_json::to_string_pretty(known);
    words.is_ok_and(|words| host().is_some_and(|host| host.remember(name, &words)))
}

/// Changes with whatever a verdict or a time depends on.
fn file_name(gpu: &Gpu) -> String {
    let mut hasher = DefaultHasher::new();
    (&gpu.info().name, &gpu.info().backend, &gpu.info().driver, format!("{:?}", gpu.features())).hash(&mut hasher);
    KERNELS.iter().chain(ALTERNATIVE_KERNELS).for_each(|kernel| (kernel.name, kernel.wgsl).hash(&mut hasher));
    (SHARED, env!("CARGO_PKG_VERSION")).hash(&mut hasher);
    format!("kernels-{:016x}.json", hasher.finish())
}
