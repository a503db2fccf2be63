//! Attention on the CPU device: heads, tiles of queries and splits in parallel, in the widest vectors of the CPU (see
//! `crate::kernel::dot`).
//!
//! Same mathematics as the twins in f32, page by page with an online softmax. Weights stop at e^−60 = 9e-27: beside the weight 1
//! of the running maximum a whole context of them is far below the last bit of Σ p, and products of smaller ones would be
//! subnormal, which takes a CPU ten times as long. A page whose every weight is below that is not read.

use super::prologue::Prologue;
use super::prune::{self, Live};
use super::{LOWEST, MAX_SPLITS, PAGE, PARTIAL_HEAD, Pages, lambda};
use crate::graph::Args;
use crate::kernel::dot::dot_simd;
use crate::kernel::exp::{LEAST, exp};
use crate::kernel::parallel::map_ranges;

use std::ops::Range;

use fearless_simd::{Level, dispatch, f32x8, prelude::*, u16x8, u32x8};

/// Queries that share an unpacked page.
const TILE: usize = 48;
/// Queries and columns of one register block: 6 vectors, or 12 where a vector has 4 floats.
const ROWS: usize = 6;
const COLUMNS: usize = 8;
/// The keys, values and Λ of a layer, read only.
struct Cache<'a> {
    k: &'a [u32],
    v: &'a [u32],
    lam: &'a [u32],
    h: usize,
    is_f16: bool,
    /// Query heads that share a key head.
    group: usize,
    /// Keys that a query sees.
    window: usize,
}

/// A page as one query head sees it: row of its first key, entry of its first Λ.
#[derive(Clone, Copy)]
struct Page {
    slot: usize,
    lam_slot: usize,
}

/// Exact in integers; as f64 it keeps 53 bits, more than any sum of f32 needs.
fn difference(a: u64, b: u64) -> f64 {
    a.wrapping_sub(b) as i64 as f64 * 2f64.powi(-32)
}

impl Cache<'_> {
    fn page(&self, pages: &Pages<'_>, page: usize, head: usize) -> Page {
        let (slot, lam_slot) = (pages.slot(page * PAGE, head / self.group), pages.lam_slot(page * PAGE, head, self.group));
        Page { slot, lam_slot }
    }

    /// `base` less the Λ of some keys of a page, from the first key on.
    fn distances(&self, page: Page, keys: Range<usize>, base: u64) -> [f64; PAGE] {
        let mut out = [0.0; PAGE];
        for (out, key) in out.iter_mut().zip(keys) {
            *out = difference(base, lambda::read(self.lam, page.lam_slot + key));
        }
        out
    }

    /// The first key that the query at a position sees.
    fn oldest(&self, position: usize) -> usize {
        (position + 1).saturating_sub(self.window)
    }
}

/// `attn_prefill`.
pub fn prefill(args: &mut Args<'_>) {
    let [q_stride, q_column, group] = ["q_stride", "q_column", "group"].map(|name| args.param(name));
    let (n_heads, window) = (args.param("n_kv_heads") * group, args.param("window"));
    let (h, scale, is_f16) = (args.constant("HEAD_DIM"), args.param_f32("scale"), args.has("KV_F16"));
    let (pos, n_tokens) = (args.step.pos as usize, args.step.n_tokens as usize);
    let pages = Pages::new(args);
    let (q, o) = (&*args.take_f32("q"), args.take_f32("o"));
    let [k, v, lam] = ["k_pages", "v_pages", "lam_pages"].map(|name| &*args.take(name));
    let cache = Cache { k, v, lam, h, is_f16, group, window };
    let n_tiles = n_tokens.div_ceil(TILE);
    // The first page that any query of a tile sees: those before are dead for its first.
    let first_page = |head: usize, first: usize| {
        let oldest = cache.oldest(first) / PAGE;
        if !args.has("PRUNE") {
            return oldest;
        }
        let lam_first = lambda::read(lam, pages.lam_slot(first, head, group));
        let live = Live::new(args).first(args, pages.table(), head / group);
        let dead = |page: &usize| prune::end_of(args, lam, &pages, *page, head) < lam_first;
        oldest.max(live + (live..first / PAGE).take_while(dead).count())
    };
    // Read here: what is shared among threads holds no `Args`.
    let first_pages: Vec<usize> = (0..n_heads * n_tiles).map(|ix| first_page(ix / n_tiles, pos + ix % n_tiles * TILE)).collect();
    let tiles = map_ranges(n_heads * n_tiles, 1, |range| {
        let (head, first) = (range.start / n_tiles, range.start % n_tiles * TILE);
        let tokens = first..(first + TILE).min(n_tokens);
        let row = |t: usize| &q[t * q_stride + q_column + head * h..][..h];
        let rows: Vec<&[f32]> = tokens.clone().map(row).collect();
        dispatch!(Level::new(), simd => tile(simd, &cache, &pages, head, (pos + first, first_pages[range.start]), &rows, scale))
    });
    for (ix, tile) in tiles.iter().enumerate() {
        let (head, first) = (ix / n_tiles, ix % n_tiles * TILE);
        for (t, row) in (first..n_tokens).zip(tile.chunks_exact(h)) {
            o[(t * n_heads + head) * h..][..h].copy_from_slice(row);
        }
    }
}

/// The outputs `[rows, h]` of up to TILE neighbouring queries from position `first` on, which see no page before `first_page`.
#[inline(always)]
fn tile<S: Simd>(
    simd: S,
    cache: &Cache<'_>,
    pages: &Pages<'_>,
    head: usize,
    (first, first_page): (usize, usize),
    rows: &[&[f32]],
    scale: f32,
) -> Vec<f32> {
    let h = cache.h;
    let n_blocks = rows.len().div_ceil(ROWS);
    // Queries channel by channel, ROWS at a time; those past the end are zero and are not stored.
    let mut queries = vec![[0.0; ROWS]; n_blocks * h];
    for (ix, row) in rows.iter().enumerate() {
        for (c, q) in row.iter().enumerate() {
            queries[ix / ROWS * h + c][ix % ROWS] = q * scale;
        }
    }
    // Λ counts from the first query's: f64 then has bits to spare, and D is rounded once, to f32.
    let lam = |i: usize| lambda::read(cache.lam, pages.lam_slot(i, head, cache.group));
    let base = lam(first);
    let rises: Vec<f64> = (first..first + rows.len()).map(|i| difference(lam(i), base)).collect();
    let mut sums = vec![0.0; n_blocks * ROWS * h];
    let (mut tops, mut totals) = (vec![LOWEST as f32; n_blocks * ROWS], vec![0.0; n_blocks * ROWS]);
    let (mut keys, mut values) = (vec![0.0; h * PAGE], vec![0.0; PAGE * h]);
    let n_keys = first + rows.len();
    for page in first_page..n_keys.div_ceil(PAGE) {
        let here = cache.page(pages, page, head);
        let n_seen = (n_keys - page * PAGE).min(PAGE);
        unpack(simd, cache, here.slot, n_seen, &mut keys, &mut values);
        let distances = cache.distances(here, 0..n_seen, base);
        for (block, a) in queries.chunks_exact(h).enumerate() {
            let mut scores = [[0.0; PAGE]; ROWS];
            for column in (0..PAGE).step_by(COLUMNS) {
                for (row, part) in scores.iter_mut().zip(product(simd, a, &keys, PAGE, column)) {
                    part.store_slice(&mut row[column..column + COLUMNS]);
                }
            }
            let mut weights = [[0.0; ROWS]; PAGE];
            let (mut fades, mut any) = ([1.0f32; ROWS], false);
            for (r, scores) in scores.iter_mut().enumerate() {
                let ix = block * ROWS + r;
                let Some(rise) = rises.get(ix) else { continue };
                let seen = (first + ix + 1).saturating_sub(page * PAGE).min(n_seen);
                let unseen = cache.oldest(first + ix).saturating_sub(page * PAGE).min(seen);
                if unseen == seen {
                    continue;
                }
                let high = forget(simd, scores, unseen..seen, *rise, &distances);
                if high - tops[ix] < LEAST {
                    continue;
                }
                any = true;
                let top = tops[ix].max(high);
                fades[r] = exp(tops[ix] - top);
                totals[ix] = totals[ix] * fades[r] + weigh(simd, scores, unseen..seen, top);
                tops[ix] = top;
                for (weight, p) in weights.iter_mut().zip(scores) {
                    weight[r] = *p;
                }
            }
            if !any {
                continue;
            }
            let sums = &mut sums[block * ROWS * h..][..ROWS * h];
            for column in (0..h).step_by(COLUMNS) {
                let part = product(simd, &weights, &values, h, column);
                for (r, part) in part.into_iter().enumerate() {
                    let sum = &mut sums[r * h + column..][..COLUMNS];
                    f32x8::from_slice(simd, sum).mul_add(f32x8::splat(simd, fades[r]), part).store_slice(sum);
                }
            }
        }
    }
    sums.truncate(rows.len() * h);
    for (row, total) in sums.chunks_exact_mut(h).zip(&totals) {
        row.iter_mut().for_each(|sum| *sum /= total);
    }
    sums
}

/// Subtracts D from the scores of a page, whose keys outside `seen` become [`LOWEST`]; gives the maximum.
#[inline(always)]
fn forget<S: Simd>(simd: S, scores: &mut [f32; PAGE], seen: Range<usize>, rise: f64, distances: &[f64; PAGE]) -> f32 {
    for (score, distance) in scores.iter_mut().zip(distances) {
        *score -= (rise + distance) as f32;
    }
    for masked in [0..seen.start, seen.end..PAGE] {
        scores[masked].fill(LOWEST as f32);
    }
    let lanes = scores.as_chunks::<COLUMNS>().0.iter().map(|lanes| f32x8::from_slice(simd, lanes));
    lanes.fold(f32x8::splat(simd, LOWEST as f32), |high, lanes| high.max(lanes)).reduce_max()
}

/// Makes weights of the scores, with zeros outside `seen`; gives their sum.
#[inline(always)]
fn weigh<S: Simd>(simd: S, scores: &mut [f32; PAGE], seen: Range<usize>, top: f32) -> f32 {
    scores.iter_mut().for_each(|score| *score = exp(*score - top));
    for masked in [0..seen.start, seen.end..PAGE] {
        scores[masked].fill(0.0);
    }
    let lanes = scores.as_chunks::<COLUMNS>().0.iter().map(|lanes| f32x8::from_slice(simd, lanes));
    lanes.fold(f32x8::splat(simd, 0.0), |sum, lanes| sum + lanes).reduce_sum()
}

/// Aᵀ·B for ROWS columns of A and COLUMNS columns of B from `column` on: `out[r][j] = Σ_n a[n][r] · b[n · stride + column + j]`.
#[inline(always)]
fn product<S: Simd>(simd: S, a: &[[f32; ROWS]], b: &[f32], stride: usize, column: usize) -> [f32x8<S>; ROWS] {
    let mut out = [f32x8::splat(simd, 0.0); ROWS];
    for (a, b) in a.iter().zip(b.chunks_exact(stride)) {
        let b = f32x8::from_slice(simd, &b[column..column + COLUMNS]);
        for (out, a) in out.iter_mut().zip(a) {
            *out = f32x8::splat(simd, *a).mul_add(b, *out);
        }
    }
    out
}

/// The first keys of a page as `[h, PAGE]` and values as `[PAGE, h]`; zeros behind them, for what lies there may be anything.
#[inline(always)]
fn unpack<S: Simd>(simd: S, cache: &Cache<'_>, slot: usize, n_seen: usize, keys: &mut [f32], values: &mut [f32]) {
    let h = cache.h;
    keys.fill(0.0);
    values.fill(0.0);
    let mut row = vec![0.0; h];
    for key in 0..n_seen {
        unpack_row(simd, cache.k, slot + key, cache.is_f16, &mut row);
        for (column, k) in keys.chunks_exact_mut(PAGE).zip(&row) {
            column[key] = *k;
        }
        unpack_row(simd, cache.v, slot + key, cache.is_f16, &mut values[key * h..(key + 1) * h]);
    }
}

#[inline(always)]
fn unpack_row<S: Simd>(simd: S, pool: &[u32], slot: usize, is_f16: bool, row: &mut [f32]) {
    let h = row.len();
    if !is_f16 {
        row.copy_from_slice(bytemuck::cast_slice(&pool[slot * h..(slot + 1) * h]));
        return;
    }
    // Two halves a word, the first in the low half: all platforms are little-endian.
    let halves: &[u16] = bytemuck::cast_slice(&pool[slot * h / 2..(slot + 1) * h / 2]);
    let (eights, rest) = halves.as_chunks::<COLUMNS>();
    let (rows, row_rest) = row.as_chunks_mut::<COLUMNS>();
    for (out, bits) in rows.iter_mut().zip(eights) {
        let (low, high) = u16x8::from_slice(simd, bits).widen();
        half_lanes(low.combine(high)).store_slice(out);
    }
    for (out, bits) in row_rest.iter_mut().zip(rest) {
        *out = half(u32::from(*bits));
    }
}

/// [`half`] of each lane.
#[inline(always)]
fn half_lanes<S: Simd>(bits: u32x8<S>) -> f32x8<S> {
    let magnitude: f32x8<S> = ((bits & 0x7fff) << 13).bitcast();
    let magnitude: u32x8<S> = (magnitude * f32::from_bits((127 + 112) << 23)).bitcast();
    (magnitude | ((bits & 0x8000) << 16)).bitcast()
}

/// A finite f16 (the pages hold no other) by moving its bits and scaling its exponent: no branch, no table.
#[inline(always)]
fn half(bits: u32) -> f32 {
    let magnitude = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits((127 + 112) << 23);
    f32::from_bits(magnitude.to_bits() | (bits & 0x8000) << 16)
}

/// `attn_decode`.
pub fn decode(args: &mut Args<'_>) {
    let (h, is_f16) = (args.constant("HEAD_DIM"), args.has("KV_F16"));
    let (group, window) = (args.param("group"), args.param("window"));
    let mut prologue = Prologue::new(args);
    let n_heads = prologue.n_heads(args);
    let (k_pages, v_pages, lam_pages) = (args.take("k_pages"), args.take("v_pages"), args.take("lam_pages"));
    let partials = args.take_f32("partials");
    let queries: Vec<(Vec<f32>, u64)> = (0..n_heads)
        .map(|head| prologue.head(args, head, k_pages, v_pages, lam_pages))
        .map(|(query, lam)| (query.into_iter().map(|q| q as f32).collect(), lam))
        .collect();
    let pages = prologue.pages();
    let cache = Cache { k: k_pages, v: v_pages, lam: lam_pages, h, is_f16, group, window };
    let n_splits = args.step.n_splits as usize;
    let n_keys = args.step.pos as usize + 1;
    let oldest = cache.oldest(n_keys - 1);
    let shares: Vec<(usize, usize)> = (0..n_heads).map(|head| prologue.shares(args, head)).collect();
    let rows = map_ranges(n_heads * n_splits, 1, |range| {
        let (head, split) = (range.start / n_splits, range.start % n_splits);
        let (first_page, per_split) = shares[head];
        let first = first_page + split * per_split;
        let end = (first + per_split).min(n_keys.div_ceil(PAGE));
        let keys = |page: usize| oldest.saturating_sub(page * PAGE)..(n_keys - page * PAGE).min(PAGE);
        let (query, lam) = &queries[head];
        let pages = (first..end).map(|page| (cache.page(pages, page, head), keys(page)));
        dispatch!(Level::new(), simd => partial(simd, &cache, query, *lam, pages))
    });
    for (ix, row) in rows.iter().enumerate() {
        let at = (ix / n_splits * MAX_SPLITS + ix % n_splits) * (PARTIAL_HEAD + h);
        partials[at..at + row.len()].copy_from_slice(row);
    }
}

/// Maximum, Σ p and Σ p·v of one query over some keys of each page.
#[inline(always)]
fn partial<S: Simd>(
    simd: S,
    cache: &Cache<'_>,
    query: &[f32],
    lam: u64,
    pages: impl Iterator<Item = (Page, Range<usize>)>,
) -> Vec<f32> {
    let h = cache.h;
    let (mut top, mut total) = (LOWEST as f32, 0.0);
    let mut row = vec![0.0; h];
    let mut out = vec![0.0; PARTIAL_HEAD + h];
    for (page, keys) in pages {
        let (first, n) = (page.slot + keys.start, keys.len());
        let mut scores = [0.0; PAGE];
        for (key, score) in scores[..n].iter_mut().enumerate() {
            unpack_row(simd, cache.k, first + key, cache.is_f16, &mut row);
            *score = dot_simd(simd, query, &row);
        }
        let high = forget(simd, &mut scores, 0..n, 0.0, &cache.distances(page, keys, lam));
        if high - top < LEAST {
            continue;
        }
        let before = top;
        top = top.max(high);
        let fade = exp(before - top);
        total = total * fade + weigh(simd, &mut scores, 0..n, top);
        let sums = &mut out[PARTIAL_HEAD..];
        sums.iter_mut().for_each(|sum| *sum *= fade);
        for (key, p) in scores[..n].iter().enumerate() {
            unpack_row(simd, cache.v, first + key, cache.is_f16, &mut row);
            let p = f32x8::splat(simd, *p);
            for (sum, v) in sums.as_chunks_mut::<COLUMNS>().0.iter_mut().zip(row.as_chunks::<COLUMNS>().0) {
                p.mul_add(f32x8::from_slice(simd, v), f32x8::from_slice(simd, sum)).store_slice(sum);
            }
        }
    }
    (out[0], out[1]) = (top, total);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finite_half_is_itself() {
        for bits in (0..0x8000u32).filter(|bits| bits & 0x7c00 != 0x7c00).flat_map(|bits| [bits, bits | 0x8000]) {
            let lanes: [f32; 8] = dispatch!(Level::new(), simd => half_lanes(u32x8::splat(simd, bits)).into());
            assert_eq!(lanes[0].to_bits(), half(bits).to_bits(), "{bits:#x}");
            assert_eq!(half(bits).to_bits(), half::f16::from_bits(bits as u16).to_f32().to_bits(), "{bits:#x}");
        }
    }
}
