//! Storage for scratch buffers by liveness: two buffers that are never alive in the same dispatch share a slot.
//!
//! A scratch buffer lives from the first to the last dispatch that binds it, inside one graph: what two graphs share is state.
//! Graphs of a program never run at once, so slots are shared between them too. First fit, in order of first use: the graphs are short and regular.

use super::{Buffer, Program, Role};

/// Slots and who sits where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Size of each slot in words.
    pub slot_words: Vec<usize>,
    /// By buffer: the slot of a scratch buffer that some dispatch binds.
    pub slot_of: Vec<Option<usize>>,
}

impl Plan {
    /// By buffer of the program that the plan is of: its place among the slots and, behind these, the buffers that last; `None` for scratch that
    /// no dispatch binds.
    pub fn places(&self, program: &Program) -> Vec<Option<usize>> {
        let mut behind = self.slot_words.len()..;
        let place = |(buffer, slot): (&Buffer, &Option<usize>)| if buffer.role == Role::Scratch { *slot } else { behind.next() };
        program.buffers.iter().zip(&self.slot_of).map(place).collect()
    }
}

/// The buffers that share no slot, in order.
pub fn lasting(program: &Program) -> impl Iterator<Item = &Buffer> {
    program.buffers.iter().filter(|buffer| buffer.role != Role::Scratch)
}

/// Words of all buffers of a program: those that last, and the slots.
pub fn words(program: &Program) -> usize {
    plan(program).slot_words.into_iter().chain(lasting(program).map(|buffer| buffer.words)).fold(0, usize::saturating_add)
}

/// Gives every used scratch buffer a slot.
///
/// # Panics
/// When two graphs bind the same scratch buffer: what one leaves in it, another may have overwritten.
pub fn plan(program: &Program) -> Plan {
    let mut plan = Plan { slot_words: Vec::new(), slot_of: vec![None; program.buffers.len()] };
    for graph in &program.graphs {
        let earlier = plan.slot_of.clone();
        let mut last_use = vec![None; program.buffers.len()];
        for (at, dispatch) in graph.dispatches.iter().enumerate() {
            for binding in &dispatch.bindings {
                last_use[binding.buffer.0 as usize] = Some(at);
            }
        }
        // By slot: the last dispatch that needs what it holds now.
        let mut busy_until: Vec<Option<usize>> = vec![None; plan.slot_words.len()];
        for (at, dispatch) in graph.dispatches.iter().enumerate() {
            for binding in &dispatch.bindings {
                let ix = binding.buffer.0 as usize;
                if program.buffers[ix].role != Role::Scratch {
                    continue;
                }
                assert!(earlier[ix].is_none(), "the scratch buffer {} is bound by two graphs", program.buffers[ix].name);
                if plan.slot_of[ix].is_some() {
                    continue;
                }
                let free = busy_until.iter().position(|until| until.is_none_or(|until| until < at));
                let slot = free.unwrap_or_else(|| {
                    busy_until.push(None);
                    plan.slot_words.push(0);
                    busy_until.len() - 1
                });
                busy_until[slot] = last_use[ix];
                plan.slot_words[slot] = plan.slot_words[slot].max(program.buffers[ix].words);
                plan.slot_of[ix] = Some(slot);
            }
        }
    }
    plan
}
