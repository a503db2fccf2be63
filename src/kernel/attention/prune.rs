//! Dead pages, on the CPU: the end E of each page, and the first live page of each key head (docs/model.md, section 4).
//!
//! E_b = Λ_b + τ + ln G_b, with Λ_b of the page's last key, τ = 2U − ln ε and G_b = Σ_{j ≤ b} exp(−(Λ_b − Λ_j)). Once Λ_t > E_b, all keys up
//! to there have together less than ε of the attention of row t, and of every later row: Λ never falls.

use super::{Heads, PAGE, Pages, SHIFT_SLOTS, lambda};
use crate::graph::Args;

/// Where dead pages are kept track of.
#[derive(Clone, Copy, Debug)]
pub struct Prune {
    /// Word of the page table, behind its ids: `[1 + SHIFT_SLOTS, n_layers, n_kv_heads]`: pages that the host has taken away, then
    /// by slot of the shift rows the first live page as of that token.
    pub live: usize,
    /// Entry of `lam_pages`, behind all Λ: `[n_pages, group]`.
    pub ends: usize,
    /// Word of the vectors: τ, `[n_heads]`.
    pub tau: usize,
}

impl Prune {
    /// For pools of `n_pages` pages and a table of `max_pages` columns, with τ at a word of the vectors.
    pub fn new(heads: &Heads, n_pages: usize, max_pages: usize, tau: usize) -> Self {
        let ids = max_pages.saturating_mul(heads.n_layers * heads.n_kv_heads);
        Self { live: ids, ends: n_pages.saturating_mul(heads.group() * PAGE), tau }
    }

    /// Words behind the ids of a page table.
    pub fn live_words(n_layers: usize, n_kv_heads: usize) -> usize {
        (1 + SHIFT_SLOTS) * n_layers * n_kv_heads
    }
}

/// The params of a kernel that asks for the first live page.
pub(in crate::kernel) struct Live {
    live: usize,
    n_layers: usize,
    n_kv_heads: usize,
    layer: usize,
}

impl Live {
    pub fn new(args: &Args<'_>) -> Self {
        let [live, n_layers, n_kv_heads, layer] = ["live", "n_layers", "n_kv_heads", "layer"].map(|name| args.param(name));
        Self { live, n_layers, n_kv_heads, layer }
    }

    fn at(&self, row: usize, kv_head: usize) -> usize {
        self.live + (row * self.n_layers + self.layer) * self.n_kv_heads + kv_head
    }

    /// The first live page as of the token before this replay.
    pub fn first(&self, args: &Args<'_>, table: &[u32], kv_head: usize) -> usize {
        let row = |row| table[self.at(row, kv_head)] as usize;
        if args.step.pos == 0 { 0 } else { row(0).max(row(1 + args.step.shift_in as usize)) }
    }
}

/// The end of a page for a query head.
pub(in crate::kernel) fn end_of(args: &Args<'_>, lam_pages: &[u32], pages: &Pages<'_>, page: usize, head: usize) -> u64 {
    lambda::read(lam_pages, end_at(args, pages, page, head))
}

fn end_at(args: &Args<'_>, pages: &Pages<'_>, page: usize, head: usize) -> usize {
    let group = args.param("group");
    args.param("ends") + pages.lam_slot(page * PAGE, head, group) / PAGE
}

/// What a replay leaves: the ends of the pages that it completed, and the first live pages as of its last token. Twin of
/// `shaders/shared/prune.wgsl`.
pub(in crate::kernel) fn twin(args: &Args<'_>, vectors: &[f32], lam_pages: &mut [u32], page_table: &mut [u32]) {
    let (group, n_kv_heads) = (args.param("group"), args.param("n_kv_heads"));
    let n_tokens = (args.step.pos + args.step.n_tokens) as usize;
    let pages = Pages::over(page_table, args);
    for page in args.step.pos as usize / PAGE..n_tokens / PAGE {
        for head in 0..n_kv_heads * group {
            let lam = |key: usize| lambda::read(lam_pages, pages.lam_slot(page * PAGE + key, head, group));
            let last = lam(PAGE - 1);
            let mut g: f64 = (0..PAGE).map(|key| (-lambda::value(last - lam(key))).exp()).sum();
            let base = last + lambda::fixed(f64::from(vectors[args.param("prune") + head]));
            if page > 0 {
                let before = end_of(args, lam_pages, &pages, page - 1, head);
                g += (lambda::value(before.saturating_sub(base)) - lambda::value(base.saturating_sub(before))).exp();
            }
            let end = base + lambda::fixed(g.ln());
            lambda::write(lam_pages, end_at(args, &pages, page, head), end);
        }
    }
    let live = Live::new(args);
    let first_live = |kv_head: usize| {
        let dead = |page: &usize| {
            let mut heads = kv_head * group..(kv_head + 1) * group;
            let lam = |head| lambda::read(lam_pages, pages.lam_slot(n_tokens - 1, head, group));
            heads.all(|head| end_of(args, lam_pages, &pages, *page, head) < lam(head))
        };
        let first = live.first(args, page_table, kv_head);
        first + (first..n_tokens / PAGE).take_while(dead).count()
    };
    let first_live: Vec<usize> = (0..n_kv_heads).map(first_live).collect();
    for (kv_head, first) in first_live.into_iter().enumerate() {
        page_table[live.at(1 + args.step.shift_out as usize, kv_head)] = first as u32;
    }
}
