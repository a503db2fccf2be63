//! Which way each dispatch runs on this device. A way is taken only after a case of its kernel gave the twin's numbers here, compiled by this
//! driver: an alternative, and what was recorded, too. One that does not is passed over with a note. What was recorded is the last one: it is
//! refused for what no rounding explains, not that of an f16 either; what is off by less is told in a note. Where no way is left the device
//! cannot be used, and that is not kept. Among those that agree the kernel's own order decides, unless another is quicker by more than a tenth
//! on the model's own shapes.
//!
//! The same seed, device and build must give the same text, and two ways may differ in the last bit. So what was measured counts only
//! where the host keeps it, and is read from there ever after (by adapter, driver, and the shaders' text); elsewhere the order decides.

use super::harness::{self, Trial};
use super::host::host;
use super::pipeline::pipelines;
use super::{Executor, Gpu};
use crate::error::{Error, Result};
use crate::graph::compare::Deviation;
use crate::graph::{Alternative, Binding, Compare, Dispatch, Expect, Features, Graph, GraphId, Program, Role, Step, Tolerance};
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
    /// Whether the device was lost while several were checked together: since then each is checked alone.
    #[serde(default)]
    lost: bool,
}

/// What finding out took at the last load; nothing where all was known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartUp {
    /// Compiling kernels and comparing them with their twins.
    pub check: Duration,
    /// Measuring which way is quickest.
    pub tune: Duration,
}

/// A dispatch and the ways in which it can run.
struct Site<'p> {
    dispatch: &'p Dispatch,
    step: Step,
    /// In the kernel's order; the last is as it was recorded.
    ways: Vec<Alternative>,
}

impl<'p> Site<'p> {
    /// `features` offer alternatives, if any are asked for.
    fn new(dispatch: &'p Dispatch, step: Step, features: Option<&Features>) -> Self {
        let offered = features.map_or_else(Vec::new, |features| dispatch.alternatives(features));
        Self { dispatch, step, ways: offered.into_iter().chain([dispatch.recorded()]).collect() }
    }

    /// What its time depends on, and what there was to choose from; its label where there is no choice. Params are left out: how much there
    /// is to do shows in windows and workgroups, and offsets would make every layer another site.
    fn key(&self) -> String {
        let Dispatch { kernel, variant, bindings, grid, .. } = self.dispatch;
        if let [recorded] = &self.ways[..] {
            return recorded.label();
        }
        let words: Vec<_> = bindings.iter().map(|binding| binding.words).collect();
        let mut hasher = DefaultHasher::new();
        self.ways.iter().for_each(|way| (way.label(), way.grid).hash(&mut hasher));
        format!("{} [{variant}] {words:?} {:?} {:x}", kernel.name, grid.at(&self.step), hasher.finish())
    }
}

impl Known {
    /// Whether a way agrees with its twin, as far as is known.
    fn agrees(&self, label: &str) -> bool {
        self.verdicts.get(label).is_some_and(String::is_empty)
    }

    /// The way that a site takes. One that was never judged is none.
    fn choice(&self, key: &str) -> Option<&String> {
        self.choices.get(key).filter(|label| self.agrees(label))
    }
}

/// The program in the ways that this device takes. `step_of` gives a step that is typical of a graph.
///
/// # Errors
/// [`Error::Kernel`] for a dispatch that has no way which agrees with the twin; [`Error::DeviceLost`], [`Error::OutOfMemory`].
pub async fn choose(gpu: &Gpu, program: &Program, step_of: &dyn Fn(GraphId) -> Step) -> Result<Program> {
    choose_among(gpu, program, step_of, Some(gpu.features())).await
}

/// Whether the program can run as it was recorded, without any alternative.
///
/// # Errors
/// As [`choose`].
pub async fn check_recorded(gpu: &Gpu, program: &Program) -> Result<()> {
    choose_among(gpu, program, &|_| Step::default(), None).await.map(drop)
}

async fn choose_among(
    gpu: &Gpu,
    program: &Program,
    step_of: &dyn Fn(GraphId) -> Step,
    features: Option<&Features>,
) -> Result<Program> {
    let mut sites: Vec<(String, Site<'_>)> = Vec::new();
    for (graph, id) in program.graphs.iter().zip((0..).map(GraphId)) {
        for dispatch in &graph.dispatches {
            let site = Site::new(dispatch, step_of(id), features);
            let key = site.key();
            if sites.iter().all(|(known, _)| *known != key) {
                sites.push((key, site));
            }
        }
    }
    let name = file_name(gpu);
    let kept = host().and_then(|host| host.recall(&name));
    // Words that cannot be read are as good as none.
    let mut known: Known = kept.and_then(|words| serde_json::from_str(&words).ok()).unwrap_or_default();
    if !sites.iter().all(|(key, _)| known.choice(key).is_some()) {
        // Whether the host keeps anything shows when it is given what is known so far.
        let kept = keep(&name, &known);
        let found = find_out(gpu, &name, &sites, &mut known, kept).await;
        if matches!(found, Err(Error::Kernel { .. })) {
            // The driver may be another tomorrow, and only its alternatives are better than an error.
            let stuck = sites.iter().filter(|(_, site)| !site.ways.iter().any(|way| known.agrees(&way.label())));
            let recorded: Vec<_> = stuck.map(|(_, site)| site.dispatch.recorded().label()).collect();
            known.verdicts.retain(|label, _| !recorded.contains(label));
        }
        keep(&name, &known);
        found?;
    }
    for (variant, reason) in known.verdicts.iter().filter(|(_, reason)| !reason.is_empty()) {
        gpu.note(format!("{variant} is not used: {reason}"));
    }
    let mut chosen = program.clone();
    for (graph, id) in chosen.graphs.iter_mut().zip((0..).map(GraphId)) {
        for dispatch in &mut graph.dispatches {
            let site = Site::new(dispatch, step_of(id), features);
            let choice = known.choice(&site.key());
            let taken = site.ways.iter().find(|way| choice.is_some_and(|choice| way.label() == *choice));
            if let Some(way) = taken {
                *dispatch = dispatch.taking(way);
            }
        }
    }
    Ok(chosen)
}

/// Judges and picks, and says how long that took.
async fn find_out(gpu: &Gpu, name: &str, sites: &[(String, Site<'_>)], known: &mut Known, kept: bool) -> Result<()> {
    let start = Instant::now();
    judge(gpu, name, sites, known, kept).await?;
    let checked = Instant::now();
    pick(gpu, sites, known, kept).await?;
    gpu.start_up.set(StartUp { check: checked - start, tune: checked.elapsed() });
    Ok(())
}

/// Compares every way that has no verdict yet with its twin, on one small input; unless `all` are to be compared, at every site only
/// until one agrees.
async fn judge(gpu: &Gpu, name: &str, sites: &[(String, Site<'_>)], known: &mut Known, all: bool) -> Result<()> {
    loop {
        let mut next: Vec<(String, &Dispatch, &Alternative)> = Vec::new();
        for (_, Site { dispatch, ways, .. }) in sites {
            if !all && ways.iter().any(|way| known.agrees(&way.label())) {
                continue;
            }
            let unjudged = ways.iter().filter(|way| !known.verdicts.contains_key(&way.label()));
            for way in unjudged.take(if all { usize::MAX } else { 1 }) {
                let label = way.label();
                if next.iter().all(|(other, ..)| *other != label) {
                    next.push((label, dispatch, way));
                }
            }
        }
        if next.is_empty() {
            return Ok(());
        }
        if known.lost || !judge_together(gpu, name, &next, known).await? {
            judge_in_turn(gpu, name, &next, known).await?;
        }
    }
}

/// Judges all in one go: whether that could be done.
async fn judge_together(gpu: &Gpu, name: &str, next: &[(String, &Dispatch, &Alternative)], known: &mut Known) -> Result<bool> {
    let (mut tried, mut trials) = (Vec::new(), Vec::new());
    for (label, dispatch, alternative) in next {
        match trial(gpu, dispatch, alternative) {
            Ok(trial) => {
                tried.push((label, dispatch));
                trials.push(trial);
            }
            Err(verdict) => {
                known.verdicts.insert(label.clone(), verdict);
            }
        }
    }
    // Should the device be lost now, the next load finds this and takes one at a time.
    known.lost = true;
    keep(name, known);
    let outcomes = match harness::check_together(gpu, &trials).await {
        Err(Error::DeviceLost(why)) => return Err(Error::DeviceLost(format!("while kernels were checked: {why}"))),
        outcomes => outcomes,
    };
    known.lost = false;
    // What the device says of all of them it may mean of one.
    let Ok(outcomes) = outcomes else { return Ok(false) };
    for (((label, dispatch), trial), outcome) in tried.into_iter().zip(&trials).zip(outcomes) {
        known.verdicts.insert(label.clone(), verdict(gpu, label, dispatch, trial, outcome)?);
    }
    Ok(true)
}

/// Judges one at a time.
async fn judge_in_turn(gpu: &Gpu, name: &str, next: &[(String, &Dispatch, &Alternative)], known: &mut Known) -> Result<()> {
    for (label, dispatch, alternative) in next {
        // Should the device be lost now, the next load finds this and does without.
        known.verdicts.insert(label.clone(), "the device was lost while it was checked".to_owned());
        keep(name, known);
        let verdict = match trial(gpu, dispatch, alternative) {
            Ok(trial) => {
                let outcome = harness::check_alternative(gpu, trial.kernel, &trial.case, &trial.way).await;
                verdict(gpu, label, dispatch, &trial, outcome)
            }
            Err(verdict) => Ok(verdict),
        };
        if let Err(Error::OutOfMemory { .. }) = verdict {
            known.verdicts.remove(label);
            keep(name, known);
        }
        known.verdicts.insert(label.clone(), verdict?);
    }
    Ok(())
}

/// What a way is judged by, or the verdict where it cannot be.
fn trial(gpu: &Gpu, dispatch: &Dispatch, alternative: &Alternative) -> Result<Trial, String> {
    let kernel = dispatch.kernel;
    let is_recorded = alternative.label() == dispatch.recorded().label();
    let Some(case) = dispatch.probe() else {
        if is_recorded {
            gpu.note(format!("{} is not compared with its twin: there is no input for it", alternative.label()));
            return Err(String::new());
        }
        return Err("the kernel has no input to judge it by".to_owned());
    };
    if is_recorded {
        let way = (alternative.clone(), case.program.clone());
        return Ok(Trial { kernel, case, way });
    }
    // The very variant, or another with its flags: some constants follow the number of rows.
    let alike = harness::alternatives(gpu.features(), kernel, &case)
        .into_iter()
        .filter(|(other, _)| other.kernel.name == alternative.kernel.name && other.variant.flags == alternative.variant.flags);
    match alike.min_by_key(|(other, _)| other.variant != alternative.variant) {
        Some(way) => Ok(Trial { kernel, case, way }),
        None => Err("the kernel has no input to judge it by".to_owned()),
    }
}

/// Why a way is not to be used here; empty if it is.
fn verdict(gpu: &Gpu, label: &str, dispatch: &Dispatch, trial: &Trial, outcome: Result<Vec<Deviation>>) -> Result<String> {
    match outcome {
        Ok(deviations) => {
            let is_recorded = label == dispatch.recorded().label();
            let failed = deviations.iter().enumerate().filter(|(_, deviation)| deviation.failed());
            let (rounded, wrong): (Vec<_>, Vec<_>) =
                failed.partition(|(ix, deviation)| is_recorded && is_rounding(trial.case.expect.get(*ix), deviation));
            for (_, deviation) in rounded {
                gpu.note(format!("{label} rounds otherwise than its twin: {deviation}"));
            }
            Ok(wrong.first().map(|(_, deviation)| deviation.to_string()).unwrap_or_default())
        }
        Err(Error::DeviceLost(why)) => Err(Error::DeviceLost(format!("{label}: {why}"))),
        // That says nothing of the way, and would be kept.
        Err(Error::OutOfMemory { what, bytes, reason }) => Err(Error::OutOfMemory { what, bytes, reason }),
        Err(error) => Ok(error.to_string()),
    }
}

/// Whether a buffer that a recorded way wrote is off by no more than rounding to f16 would make it.
fn is_rounding(expect: Option<&Expect>, deviation: &Deviation) -> bool {
    let Some(Compare::F32(tolerance) | Compare::F16x2(tolerance)) = expect.map(|expect| expect.compare) else { return false };
    let Tolerance { nmse, max_abs } = tolerance.at_least(Tolerance::F16_STEP);
    deviation.nmse <= nmse && deviation.max_abs <= max_abs
}

/// Chooses for every site without a choice; by time only if the choice is kept.
async fn pick(gpu: &Gpu, sites: &[(String, Site<'_>)], known: &mut Known, kept: bool) -> Result<()> {
    let mut open: Vec<(&String, &Site<'_>, Vec<Dispatch>)> = Vec::new();
    for (key, site) in sites.iter().filter(|(key, _)| known.choice(key).is_none()) {
        let agreeing = site.ways.iter().filter(|way| known.agrees(&way.label()));
        let ways: Vec<Dispatch> = agreeing.map(|way| site.dispatch.taking(way)).collect();
        if ways.is_empty() {
            let kernel = site.dispatch.recorded().label();
            let reason = known.verdicts.get(&kernel).cloned().unwrap_or_default();
            return Err(Error::Kernel { kernel, adapter: gpu.info().name.clone(), reason });
        }
        open.push((key, site, ways));
    }
    if kept {
        // At once; one that is refused shows where it is measured.
        let ways = open.iter().filter(|(_, _, ways)| ways.len() > 1).flat_map(|(_, _, ways)| ways);
        pipelines(gpu, &ways.map(|way| (way.kernel, &way.variant)).collect::<Vec<_>>()).await;
    }
    let start = Instant::now();
    for (key, site, ways) in open {
        let mut taken = 0;
        if ways.len() > 1 && kept {
            taken = quickest(gpu, &ways, &site.step, start).await?;
            // A choice against the order is for good, and a device may be slow for a while: it must come out twice.
            if taken > 0 && quickest(gpu, &ways, &site.step, start).await? != taken {
                taken = 0;
            }
        }
        known.choices.insert(key.clone(), ways[taken].recorded().label());
    }
    Ok(())
}

/// The way that is quicker than the first by [`GAIN`], the quickest of them; 0 without one, or where the budget since `start` is spent.
async fn quickest(gpu: &Gpu, ways: &[Dispatch], step: &Step, start: Instant) -> Result<usize> {
    let times = match time(gpu, ways, step, BUDGET.saturating_sub(start.elapsed())).await {
        Err(Error::DeviceLost(why)) => return Err(Error::DeviceLost(why)),
        // Nothing was learned of how quick they are.
        Err(_) => Vec::new(),
        Ok(times) => times,
    };
    let best = (0..times.len()).min_by(|a, b| times[*a].cmp(&times[*b]));
    Ok(best.filter(|best| times[*best].mul_f64(GAIN) < times[0]).unwrap_or(0))
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
