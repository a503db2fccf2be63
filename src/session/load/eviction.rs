//! Whether and how pages of a model's sequence die: from what the caller asks for and what the model states.

use super::MAX_CONTEXT;
use crate::error::{Error, Result};
use crate::kernel::attention::PAGE;
use crate::model::bound::tau;
use crate::model::evict::{Eviction, Overflow};
use crate::model::{Config, ForgetGate};
use crate::session::pages::Pruning;

/// Pages that a head needs to drop its oldest: beside that one the newest, and the one that a step back may end in.
const SLIDING_PAGES: usize = 3;

/// ln ε of a choice, and why there is none though the model states one.
pub fn pruning(config: &Config, choice: Pruning) -> Result<(Option<f64>, Option<String>)> {
    let missing = if !config.qk_norm {
        Some("norms of q and k, which bound its scores")
    } else if config.forget_gate == ForgetGate::None {
        Some("a forget gate")
    } else if config.window.is_some() {
        Some("no sliding window, which frees pages by itself")
    } else {
        None
    };
    let stated = config.log_pruning_tolerance.map(f64::from);
    match (choice, missing) {
        (Pruning::Off, _) => Ok((None, None)),
        (Pruning::Model, None) => Ok((stated, None)),
        (Pruning::Model, Some(missing)) => {
            Ok((None, stated.map(|ln| format!("nothing is pruned, although the model states ln ε = {ln}: that takes {missing}"))))
        }
        (Pruning::Epsilon(epsilon), _) if !(epsilon > 0.0 && epsilon < 1.0) => {
            Err(Error::argument("prune", "off, or a number between 0 and 1", epsilon))
        }
        (Pruning::Epsilon(epsilon), None) => Ok((Some(epsilon.ln()), None)),
        (Pruning::Epsilon(_), Some(missing)) => {
            Err(Error::argument("prune", format!("off, or a model with {missing}"), "a model without"))
        }
    }
}

/// How pages die, if they do.
pub fn eviction(config: &Config, pruning: Option<f64>, overflow: Overflow, context: usize) -> Result<Option<Eviction>> {
    if overflow == Overflow::Slide && config.window.is_some() {
        return Err(Error::argument("overflow", "error, for a model with a sliding window", "slide"));
    }
    if overflow == Overflow::Slide && context.div_ceil(PAGE) < SLIDING_PAGES {
        let least = (SLIDING_PAGES - 1) * PAGE + 1;
        return Err(Error::argument("context", format!("at least {least} tokens where the oldest are to slide away"), context));
    }
    let prune = pruning.is_some();
    Ok((prune || overflow == Overflow::Slide).then_some(Eviction { prune, overflow }))
}

/// Tokens that a sequence can have at most where pages die: rotations are there for the context only.
pub fn positions(config: &Config, context: usize) -> usize {
    if config.rope_base.is_some() { context } else { MAX_CONTEXT }
}

/// τ = 2U − ln ε of a layer's heads; where only sliding takes pages away, more than any Λ comes to.
pub fn taus(config: &Config, layer: usize, bounds: Option<(&[f64], f64)>) -> Vec<f32> {
    const NEVER: f32 = 1e9;
    let heads = layer * config.n_heads..(layer + 1) * config.n_heads;
    heads
        .map(|head| match bounds {
            Some((bounds, ln_epsilon)) => tau(bounds[head], ln_epsilon).min(NEVER),
            None => NEVER,
        })
        .collect()
}
