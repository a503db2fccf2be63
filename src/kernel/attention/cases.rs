//! Inputs for the cases of the attention kernels: a layer among several whose pages lie in no order, with some history in them.

use super::pages::write_row;
use super::{GateTable, Heads, Kv, PAGE, Proj, Prune, Vectors, lambda};
use crate::graph::compare::GUARD;
use crate::graph::{BufferId, Case, Compare, Expect, Program, Recorder, Role, Step};
use crate::kernel::{Rows, inputs};

/// What the gates of a case are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gates {
    /// −log f about 0.01.
    Soft,
    /// −log f about 2.8, and Λ already at 100,000.
    Hard,
    /// z = ±60: nothing or everything is forgotten.
    Saturated,
}

impl Gates {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Soft, Self::Hard, Self::Saturated];

    /// A gate before its sigmoid, from a number in (-1, 1).
    pub fn z(self, unit: f32) -> f32 {
        match self {
            Self::Soft => 4.6 + unit,
            Self::Hard => -2.7 + unit,
            Self::Saturated if unit < -0.8 => -60.0,
            Self::Saturated => 60.0,
        }
    }

    fn before(self) -> u64 {
        if self == Self::Hard { lambda::join(0x0123_4567, 100_000) } else { 0 }
    }
}

/// Page ids that are a permutation, another one in each layer: `[max_pages, n_layers, n_kv_heads]`.
pub fn scrambled_pages(heads: &Heads, max_pages: usize) -> Vec<u32> {
    let Heads { n_kv_heads, n_layers, .. } = *heads;
    let mut table = vec![0; max_pages * n_layers * n_kv_heads];
    for layer in 0..n_layers {
        let mut ids: Vec<u32> = (0..n_pages(heads, max_pages) as u32).collect();
        let draws = inputs::floats(91 + layer as u32, ids.len(), 1.0);
        for (ix, unit) in draws.iter().enumerate().rev() {
            ids.swap(ix, ((unit + 1.0) / 2.0 * (ix + 1) as f32) as usize % (ix + 1));
        }
        for page in 0..max_pages {
            for head in 0..n_kv_heads {
                table[(page * n_layers + layer) * n_kv_heads + head] = ids[page * n_kv_heads + head];
            }
        }
    }
    table
}

/// Pages of a layer's pools: one more than are in the table.
pub fn n_pages(heads: &Heads, max_pages: usize) -> usize {
    max_pages * heads.n_kv_heads + 1
}

/// A program with one layer's pages and some history in them; kernels add their own buffers.
pub struct Fixture {
    /// Its heads.
    pub heads: Heads,
    /// Its pages.
    pub kv: Kv,
    /// The program so far.
    pub program: Program,
    /// First contents so far.
    pub contents: Vec<(BufferId, Vec<u32>)>,
    gates: Gates,
    seed: u32,
}

impl Fixture {
    /// Pages for `positions` tokens of which the first `history` are written; the rest is
    /// guards, NaNs that spread to everything that reads them.
    pub fn new(heads: Heads, f16: bool, gates: Gates, history: usize, positions: usize) -> Self {
        let max_pages = positions.div_ceil(PAGE);
        let (n_pages, group) = (n_pages(&heads, max_pages), heads.group());
        let mut program = Program::default();
        let pool_words = n_pages * PAGE * Kv::row_words(heads.head_dim, f16);
        let kv = Kv {
            k_pages: program.buffer("k_pages", pool_words, Role::State),
            v_pages: program.buffer("v_pages", pool_words, Role::State),
            lam_pages: program.buffer("lam_pages", n_pages * heads.lam_words(), Role::State),
            page_table: program.buffer("page_table", max_pages * heads.n_layers * heads.n_kv_heads, Role::Input),
            f16,
            max_pages,
            window: None,
            prune: None,
        };
        let table = scrambled_pages(&heads, max_pages);
        let (mut k, mut v) = (vec![GUARD; pool_words], vec![GUARD; pool_words]);
        let mut lam = vec![GUARD; n_pages * heads.lam_words()];
        for head in 0..heads.n_heads {
            let mut sum = gates.before();
            let units = inputs::floats(17 + head as u32, history, 1.0);
            for (position, unit) in units.into_iter().enumerate() {
                let page = table[(position / PAGE * heads.n_layers + heads.layer) * heads.n_kv_heads + head / group] as usize;
                let slot = page * PAGE + position % PAGE;
                let seed = (head / group * positions + position) as u32;
                write_row(&mut k, slot, &inputs::floats(2 * seed + 1001, heads.head_dim, 2.0), f16);
                write_row(&mut v, slot, &inputs::floats(2 * seed + 1002, heads.head_dim, 2.0), f16);
                sum += lambda::forgotten(f64::from(gates.z(unit)));
                lambda::write(&mut lam, (page * group + head % group) * PAGE + position % PAGE, sum);
            }
        }
        let contents = vec![(kv.k_pages, k), (kv.v_pages, v), (kv.lam_pages, lam), (kv.page_table, table)];
        Self { heads, kv, program, contents, gates, seed: 1 }
    }

    /// A buffer of random floats.
    pub fn floats(&mut self, name: &str, words: usize, scale: f32) -> BufferId {
        let buffer = self.program.buffer(name, words, Role::Input);
        self.seed += 1;
        self.contents.push((buffer, inputs::words(self.seed, words, scale)));
        buffer
    }

    /// A buffer that the kernel writes.
    pub fn output(&mut self, name: &str, words: usize) -> BufferId {
        self.program.buffer(name, words, Role::Output)
    }

    /// A stacked projection with every column there is, of `tokens` tokens, its gates as the case says.
    pub fn proj(&mut self, tokens: usize) -> (BufferId, Proj) {
        let Heads { n_heads, n_kv_heads, .. } = self.heads;
        let (d, kv) = (self.heads.d(), self.heads.kv_width());
        let gates_at = 2 * (d + kv);
        let columns = Proj {
            stride: gates_at + n_heads + 2 * n_kv_heads,
            q: 0,
            k: d,
            v: d + kv,
            gate: Some(d + 2 * kv),
            f: Some(gates_at),
            k_shift: Some(gates_at + n_heads),
            v_shift: Some(gates_at + n_heads + n_kv_heads),
        };
        let proj = self.floats("proj", tokens * columns.stride, 2.0);
        let gates = self.gates;
        if let Some((_, words)) = self.contents.last_mut() {
            for row in words.chunks_exact_mut(columns.stride) {
                for z in &mut row[gates_at..gates_at + n_heads] {
                    *z = gates.z(f32::from_bits(*z) / 2.0).to_bits();
                }
            }
        }
        (proj, columns)
    }

    /// Every vector there is, with rotations for `positions`; the biases of the gates are small.
    pub fn vectors(&mut self, positions: usize) -> Vectors {
        let (d, kv, n_heads) = (self.heads.d(), self.heads.kv_width(), self.heads.n_heads);
        let (bias, rope) = (d + kv, 2 * d + kv + n_heads);
        let buffer = self.floats("vectors", rope + positions * self.heads.head_dim, 1.5);
        if let Some((_, words)) = self.contents.last_mut() {
            for word in &mut words[bias..bias + n_heads] {
                *word = (f32::from_bits(*word) / 10.0).to_bits();
            }
            let angles = words[rope..].chunks_exact_mut(self.heads.head_dim).flat_map(|row| {
                let (cos, sin) = row.split_at_mut(row.len() / 2);
                cos.iter_mut().zip(sin)
            });
            for (cos, sin) in angles {
                let (y, x) = f64::from(2.0 * f32::from_bits(*cos)).sin_cos();
                (*cos, *sin) = ((x as f32).to_bits(), (y as f32).to_bits());
            }
        }
        let (k_norm, f_bias, out_norm, rope) = (Some(d), Some(bias), Some(bias + n_heads), Some(rope));
        Vectors { buffer, q_norm: Some(0), k_norm, f_bias, f_table: None, out_norm, rope }
    }

    /// Gates by position behind the vectors, in the place of all others.
    pub fn gate_table(&mut self, vectors: &mut Vectors, period: usize) {
        let units = inputs::floats(77, period * self.heads.n_heads, 1.0);
        let known = units.into_iter().map(|unit| lambda::value(lambda::forgotten(f64::from(self.gates.z(unit)))) as f32);
        if let Some((buffer, words)) = self.contents.iter_mut().find(|(known, _)| *known == vectors.buffer) {
            vectors.f_table = Some(GateTable { at: words.len(), period });
            words.extend(known.map(f32::to_bits));
            self.program.buffers[buffer.0 as usize].words = words.len();
        }
    }

    /// Lets pages die, with τ from `tau` on, a tenth more from head to head: the ends of all pages that `n_keys` keys complete are there,
    /// and as of the token before the step's (slot 7 of the shift rows) every second page that is dead by its Λ is known to be.
    pub fn prune(&mut self, vectors: &Vectors, tau: f32, n_keys: usize) {
        let Heads { n_heads, n_kv_heads, n_layers, layer, .. } = self.heads;
        let (group, max_pages) = (self.heads.group(), self.kv.max_pages);
        let n_pages = n_pages(&self.heads, max_pages);
        let of = |buffer: BufferId| self.contents.iter().position(|(known, _)| *known == buffer);
        let [Some(vectors_ix), Some(lam_ix), Some(table_ix)] = [vectors.buffer, self.kv.lam_pages, self.kv.page_table].map(of)
        else {
            unreachable!("the fixture fills them")
        };
        let prune = Prune::new(&self.heads, n_pages, max_pages, self.contents[vectors_ix].1.len());
        self.kv.prune = Some(prune);
        let taus: Vec<f32> = (0..n_heads).map(|head| tau * (1.0 + head as f32 / 10.0)).collect();
        self.contents[vectors_ix].1.extend(taus.iter().map(|tau| tau.to_bits()));
        let table = self.contents[table_ix].1.clone();
        let lam_words = &mut self.contents[lam_ix].1;
        lam_words.resize(lam_words.len() + n_pages * self.heads.end_words(), GUARD);
        let page_of = |page: usize, head: usize| table[(page * n_layers + layer) * n_kv_heads + head / group] as usize;
        let entry = |page: usize, head: usize| page_of(page, head) * group + head % group;
        let n_complete = n_keys / PAGE;
        let mut live = vec![GUARD; Prune::live_words(n_layers, n_kv_heads)];
        for kv_head in 0..n_kv_heads {
            let mut n_dead = usize::MAX;
            for (head, tau) in taus.iter().enumerate().skip(kv_head * group).take(group) {
                let lam = |key: usize| lambda::value(lambda::read(lam_words, entry(key / PAGE, head) * PAGE + key % PAGE));
                let ends: Vec<f64> = (1..=n_complete)
                    .map(|page| {
                        let last = lam(page * PAGE - 1);
                        let g: f64 = (0..page * PAGE).map(|key| (lam(key) - last).exp()).sum();
                        last + f64::from(*tau) + g.ln()
                    })
                    .collect();
                let last = if n_keys == 0 { 0.0 } else { lam(n_keys - 1) };
                n_dead = n_dead.min(ends.iter().filter(|end| **end < last).count());
                for (page, end) in ends.into_iter().enumerate() {
                    lambda::write(lam_words, prune.ends + entry(page, head), lambda::fixed(end));
                }
            }
            live[layer * n_kv_heads + kv_head] = kv_head as u32 % 2 * n_dead.div_ceil(3) as u32;
            live[((1 + 7) * n_layers + layer) * n_kv_heads + kv_head] = n_dead as u32 / 2;
        }
        self.contents[table_ix].1.extend(live);
        for ix in [vectors_ix, lam_ix, table_ix] {
            let (buffer, words) = &self.contents[ix];
            self.program.buffers[buffer.0 as usize].words = words.len();
        }
    }

    /// All of a buffer `[tokens, d]`.
    pub fn rows(&self, buffer: BufferId) -> Rows {
        Rows { buffer, stride: self.heads.d(), column: 0 }
    }

    /// Behind its prologue: what `record` records, replayed once.
    pub fn case(
        mut self,
        name: String,
        step: Step,
        expect: &[(BufferId, Compare)],
        record: impl FnOnce(&mut Recorder<'_>),
    ) -> Case {
        let mut r = self.program.record("case");
        record(&mut r);
        r.finish();
        let expect = expect.iter().map(|(buffer, compare)| Expect { buffer: *buffer, compare: *compare }).collect();
        // Buffers that the dispatch does not bind are no part of the case.
        let bound: Vec<BufferId> =
            self.program.graphs.iter().flat_map(|g| &g.dispatches).flat_map(|d| &d.bindings).map(|b| b.buffer).collect();
        self.contents.retain(|(buffer, _)| bound.contains(buffer));
        Case { name, program: self.program, contents: self.contents, step, expect }
    }
}
