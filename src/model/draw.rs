//! Drawing tokens on the device: the graphs that end with a token id instead of logits.
//!
//! `draw` is the pick alone, after the last chunk of a prompt. `decode and draw` is one token to the next: it begins with the row
//! that the pick before it left in `x`, so with the pick it still is six dispatches a layer and two beside. An embedding of several
//! parts has its rows gathered at the start instead, a dispatch a part.

use super::fox::Fox;
use crate::graph::{BufferId, GraphId, Program, Recorder, Role};
use crate::kernel::sample::{Options, Sample};

/// Buffers of their own.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// How tokens are drawn: [`Options::words`].
    pub options: BufferId,
    marks: BufferId,
    /// [d]: the drawn token's embedding.
    x: BufferId,
}

impl Draw {
    pub(super) fn declare(program: &mut Program, vocab: usize, d: usize) -> Self {
        Self {
            options: program.buffer("draw options", Options::WORDS, Role::Input),
            marks: program.buffer("draw marks", vocab, Role::State),
            x: program.buffer("drawn x", d, Role::State),
        }
    }
}

impl Fox {
    /// The graph that draws the token behind the step's from the logits at hand.
    pub fn record_draw(&self, program: &mut Program) -> GraphId {
        let mut r = program.record("draw");
        self.record_pick(&mut r);
        r.finish()
    }

    /// The graph of one drawn token: its logits, and the next token drawn from them.
    pub fn record_decode_and_draw(&self, program: &mut Program) -> GraphId {
        let mut r = self.start_decode(program, "decode and draw", self.gather().map(|(_, x)| x));
        self.record_pick(&mut r);
        r.finish()
    }

    fn record_pick(&self, r: &mut Recorder<'_>) {
        let Draw { options, marks, .. } = self.draw;
        Sample { logits: self.logits, ids: self.ids, marks, options, gather: self.gather() }.record(r);
    }

    /// An embedding in one part, and where its row goes.
    fn gather(&self) -> Option<(crate::kernel::layout::Part, BufferId)> {
        let mut parts = self.embedding.with_first_rows();
        let (_, part) = parts.next()?;
        parts.next().is_none().then_some((*part, self.draw.x))
    }
}
