//! What `attn_decode` does before its attention, on the CPU (its twin and its fast code): the shift of k and v, the norms and the
//! rotation of q and k, the forget gate and the append, in f64, rounded where the pages are written.

use super::pages::{Pages, write_row};
use super::prune::Live;
use super::{PAGE, lambda};
use crate::graph::Args;

/// The bindings that only this part needs.
pub(in crate::kernel) struct Prologue<'a> {
    proj: &'a [f32],
    vectors: Option<&'a [f32]>,
    shift_rows: Option<&'a mut [f32]>,
    pages: Pages<'a>,
    group: usize,
}

impl<'a> Prologue<'a> {
    pub fn new(args: &mut Args<'a>) -> Self {
        Self {
            proj: args.take_f32("proj"),
            vectors: args.has("VECTORS").then(|| &*args.take_f32("vectors")),
            shift_rows: args.has("SHIFT").then(|| args.take_f32("shift_rows")),
            pages: Pages::new(args),
            group: args.param("group"),
        }
    }

    pub fn pages(&self) -> &Pages<'a> {
        &self.pages
    }

    /// The first page that a query head looks at, and how many each of its splits takes.
    pub fn shares(&self, args: &Args<'_>, head: usize) -> (usize, usize) {
        let step = &args.step;
        if !args.has("PRUNE") {
            return (step.first_page as usize, step.pages_per_split as usize);
        }
        let first = Live::new(args).first(args, self.pages.table(), head / self.group).max(step.first_page as usize);
        (first, (step.pos as usize / PAGE + 1 - first).div_ceil(step.n_splits as usize))
    }

    /// Query heads.
    pub fn n_heads(&self, args: &Args<'_>) -> usize {
        args.param("n_kv_heads") * self.group
    }

    /// Stores the new key and value of a query head's key head, and its Λ; gives the query, normed, rotated and scaled, and Λ_t.
    /// (Heads that share a key store it each, the same one.)
    pub fn head(
        &mut self,
        args: &Args<'_>,
        head: usize,
        k_pages: &mut [u32],
        v_pages: &mut [u32],
        lam_pages: &mut [u32],
    ) -> (Vec<f64>, u64) {
        let (h, pos) = (args.constant("HEAD_DIM"), args.step.pos as usize);
        let kv_head = head / self.group;
        let projected = |name: &str, head: usize| -> Vec<f64> {
            self.proj[args.param(name) + head * h..][..h].iter().map(|x| f64::from(*x)).collect()
        };
        let (q, mut k, mut v) = (projected("q", head), projected("k", kv_head), projected("v", kv_head));
        for (flag, gate, which, y) in [("K_SHIFT", "k_shift", 0, &mut k), ("V_SHIFT", "v_shift", 1, &mut v)] {
            let Some(rows) = self.shift_rows.as_mut().filter(|_| args.has(flag)) else { continue };
            let alpha = 1.0 / (1.0 + (-f64::from(self.proj[args.param(gate) + kv_head])).exp());
            let row = |slot: u32| ((slot as usize * 2 + which) * args.param("n_kv_heads") + kv_head) * h;
            for (c, y) in y.iter_mut().enumerate() {
                let before = if pos == 0 { 0.0 } else { f64::from(rows[row(args.step.shift_in) + c]) };
                rows[row(args.step.shift_out) + c] = *y as f32;
                *y = alpha * before + (1.0 - alpha) * *y;
            }
        }
        let vector = |name: &str, ix: usize| self.vectors.map_or(0.0, |vectors| f64::from(vectors[args.param(name) + ix]));
        let norm = |x: Vec<f64>, weight: &str, head: usize| -> Vec<f64> {
            if !args.has("QK_NORM") {
                return x;
            }
            let mean = x.iter().map(|x| x * x).sum::<f64>() / h as f64;
            let scale = 1.0 / (mean + f64::from(args.param_f32("qk_eps"))).sqrt();
            x.iter().enumerate().map(|(c, x)| x * scale * vector(weight, head * h + c)).collect()
        };
        let rotated = |x: Vec<f64>| -> Vec<f64> {
            if !args.has("ROPE") {
                return x;
            }
            let turned = |c: usize| {
                let (pair, sign) = if c < h / 2 { (c + h / 2, -1.0) } else { (c - h / 2, 1.0) };
                let at = pos * h + c % (h / 2);
                x[c] * vector("rope", at) + sign * x[pair] * vector("rope", at + h / 2)
            };
            (0..h).map(turned).collect()
        };
        let mut lam = if pos == 0 { 0 } else { lambda::read(lam_pages, self.pages.lam_slot(pos - 1, head, self.group)) };
        if args.has("F_TABLE") {
            let row = pos % args.param("period") * self.n_heads(args);
            lam = lam.wrapping_add(lambda::known(vector("f_bias", row + head) as f32));
        } else if !args.has("F_NONE") {
            let z = if args.has("F_FULL") { f64::from(self.proj[args.param("f") + head]) } else { 0.0 };
            lam = lam.wrapping_add(lambda::forgotten(z + vector("f_bias", head)));
        }
        let slot = self.pages.slot(pos, kv_head);
        let rounded = |x: Vec<f64>| -> Vec<f32> { x.into_iter().map(|x| x as f32).collect() };
        write_row(k_pages, slot, &rounded(rotated(norm(k, "k_norm", kv_head))), args.has("KV_F16"));
        write_row(v_pages, slot, &rounded(v), args.has("KV_F16"));
        lambda::write(lam_pages, self.pages.lam_slot(pos, head, self.group), lam);
        let scale = f64::from(args.param_f32("scale"));
        (rotated(norm(q, "q_norm", head)).into_iter().map(|q| q * scale).collect(), lam)
    }
}
