//! The network, read top to bottom. The load half ([`Fox::declare`]) names every tensor and its place; the record half
//! ([`Fox::record_decode`], [`Fox::record_prefill`]) mirrors it.
//!
//! ```text
//! x = embedding[id]
//! per layer:  a = norm(x)                     q, k, v, g, f and shift rows are one stacked product of a
//!             k, v = mix with the token before;  q, k = norm per head, then rotated
//!             o = softmax(q·k/√h + λ_i − λ_j) v;  o = norm per head(o) · sigmoid(g)
//!             x = x + o_proj(o)
//!             x = x + down(act(gate(norm(x))) · up(norm(x)))
//! logits = head(norm(x))
//! ```
//! Each part but the products is a switch of [`Config`]. Source: Lin et al., arXiv 2503.02130, and the official code.

use super::bound::{norm_of, score_bound};
use super::config::{Config, MlpAct, OutputGate};
use super::declare::{Layer, Load};
use super::draw::Draw;
use super::gates::Gates;
use super::rope as angles;
use super::state::Pages;
use super::weights::{Matrix, Wanted};
use crate::graph::{BufferId, GraphId, Program, Recorder, Role};
use crate::kernel::attention::{GateAct, Heads, Kv, PAGE, QK_NORM_EPS};
use crate::kernel::attn_decode::AttnDecode;
use crate::kernel::attn_merge::AttnMerge;
use crate::kernel::glu::Glu;
use crate::kernel::layout::{Part, WeightType};
use crate::kernel::matmul::MatMul;
use crate::kernel::matvec::{self, Epilogue, GluAct, MatVec, Norm};
use crate::kernel::rms_norm::RmsNorm;
use crate::kernel::{Rows, attn_prefill, embed, forget_gate, kv_append, output_gate, page_ends, rope, token_shift};

/// The buffers of a model in a [`Program`].
#[derive(Clone, Debug)]
pub struct Fox {
    config: Config,
    chunk: usize,
    pub(super) embedding: Matrix,
    layers: Vec<Layer>,
    norm: BufferId,
    head: Matrix,
    kv_f16: bool,
    max_pages: usize,
    page_table: BufferId,
    /// The rotary table, then norms and biases (and τ) of every layer.
    vectors: BufferId,
    /// Token ids by position, `[context]` u32: written by the host, or by the device when it draws them.
    pub ids: BufferId,
    /// What drawing on the device needs.
    pub draw: Draw,
    /// Logits after the last token of a replay, `[V]` f32.
    pub logits: BufferId,
    /// Logits after every token of a replay, [chunk, V] f32, when scores were asked for.
    pub scores: Option<BufferId>,
}

/// What a [`Fox`] is declared with.
pub struct Options<'a> {
    /// Element type in memory of a matrix, by canonical tensor name.
    pub type_of: &'a dyn Fn(&str) -> WeightType,
    /// Tokens of a prefill replay at most.
    pub chunk: usize,
    /// KV pages in f16 (else f32).
    pub kv_f16: bool,
    /// Whether logits of every position can be asked for.
    pub scores: bool,
    /// Gates that every layer replays in the place of its own: [`Fox::replayed`].
    pub gates: Option<&'a Gates>,
}

impl Fox {
    /// Declares every buffer, and says which tensors are wanted and where they go.
    pub fn declare(program: &mut Program, config: &Config, pages: &Pages, options: &Options<'_>) -> (Self, Vec<Wanted>) {
        let max_pages = pages.max_pages();
        let mut load = Load::new(program, config, options.type_of, pages, options.gates);
        let (d, vocab) = (config.hidden, config.vocab);
        let embedding = load.matrix("token_embd", "token_embd.weight", vocab, d);
        let layers = (0..config.n_layers).map(|ix| load.layer(ix, pages, options.kv_f16)).collect();
        let norm = load.vector("output_norm.weight", d);
        let head = if config.tied { embedding.clone() } else { load.matrix("output", "output.weight", vocab, d) };
        let Load { wanted, vectors, .. } = load;
        let page_table = program.buffer("page table", pages.table_words(), Role::Input);
        let ids = program.buffer("ids", pages.max_pages() * PAGE, Role::Input);
        let draw = Draw::declare(program, vocab, d);
        let logits = program.buffer("logits", vocab, Role::Output);
        let scores = options.scores.then(|| program.buffer("scores", options.chunk.saturating_mul(vocab), Role::Output));
        let (config, kv_f16, chunk) = (config.clone(), options.kv_f16, options.chunk);
        let fox = Self {
            config,
            chunk,
            embedding,
            layers,
            norm,
            head,
            kv_f16,
            max_pages,
            page_table,
            vectors,
            ids,
            draw,
            logits,
            scores,
        };
        (fox, wanted)
    }

    /// What must be written beside the checkpoint's tensors, in pieces: buffer, first word, numbers.
    pub fn constants(&self) -> impl Iterator<Item = (BufferId, usize, Vec<f32>)> + use<'_> {
        let Config { head_dim, rope_base, .. } = self.config;
        rope_base.into_iter().flat_map(move |base| {
            (0..self.max_pages).map(move |page| {
                let rows = angles::rows(page * PAGE..(page + 1) * PAGE, head_dim, base);
                (self.vectors, page * rows.len(), rows)
            })
        })
    }

    /// Whether keys and values are held as f16 (else f32).
    pub fn kv_f16(&self) -> bool {
        self.kv_f16
    }

    /// The buffer of norms and biases of every layer.
    pub fn vectors(&self) -> BufferId {
        self.vectors
    }

    /// U ≥ |q·k|/√h of each layer and head, [L, H], from the weights of the norms of q and k: `weights` gives words of
    /// [`Fox::vectors`]. `None` where q and k are not normed, and nothing bounds their product.
    pub fn score_bounds(&self, weights: &dyn Fn(usize, usize) -> Vec<f32>) -> Option<Vec<f64>> {
        let Config { n_heads, head_dim: h, rope_base, .. } = self.config;
        let heads = self.layers.iter().flat_map(|layer| (0..n_heads).map(move |head| (layer, head)));
        let bounds = heads.map(|(layer, head)| {
            let (q_norm, k_norm) = (layer.vectors.q_norm?, layer.vectors.k_norm?);
            let kv_head = head / self.heads(0).group();
            let (q, k) = (weights(q_norm + head * h, h), weights(k_norm + kv_head * h, h));
            Some(score_bound(&q, &k, rope_base.is_some(), self.kv_f16))
        });
        bounds.collect()
    }

    /// What must be written into [`Fox::vectors`] where gates are replayed, in pieces: first word, numbers. These are the gates, and norms
    /// of q and k that make their U the bound of the scores, if they have one.
    pub fn replayed<'a>(&'a self, gates: &'a Gates) -> impl Iterator<Item = (usize, Vec<f32>)> + use<'a> {
        let Config { n_heads, n_kv_heads, head_dim, .. } = self.config;
        let tables = self.layers.iter().zip(gates.rows(n_heads));
        let tables = tables.filter_map(|(layer, rows)| Some((layer.vectors.f_table?.at, rows)));
        let norms = self.layers.iter().enumerate().filter_map(move |(ix, layer)| {
            let (q_norm, k_norm) = (layer.vectors.q_norm?, layer.vectors.k_norm?);
            let of_head = |head: usize| Some(vec![norm_of(gates.bound(ix, head)?, head_dim, self.kv_f16); head_dim]);
            let q = (0..n_heads).map(of_head).collect::<Option<Vec<Vec<f32>>>>()?.concat();
            Some([(q_norm, q), (k_norm, vec![1.0; n_kv_heads * head_dim])])
        });
        tables.chain(norms.flatten())
    }

    /// The shift rows of each layer, [slots, 2 (k, v), kv_width].
    pub fn shift_rows(&self) -> impl Iterator<Item = BufferId> + use<'_> {
        self.layers.iter().map(|layer| layer.shift_rows)
    }

    /// Λ of each layer, [pages, group, 64] pairs of words, and what lies behind where pages die.
    pub fn lam_pages(&self) -> impl Iterator<Item = BufferId> + use<'_> {
        self.layers.iter().map(|layer| layer.lam_pages)
    }

    /// The pools of each layer.
    pub fn pools(&self) -> impl Iterator<Item = Kv> + use<'_> {
        self.layers.iter().map(|layer| self.kv(layer))
    }

    /// Where τ of each layer's heads goes in [`Fox::vectors`], if pages die.
    pub fn taus_at(&self) -> impl Iterator<Item = usize> + use<'_> {
        self.layers.iter().filter_map(|layer| layer.prune.map(|prune| prune.tau))
    }

    /// The page table's buffer, [max_pages, L, kv heads] u32, and what lies behind ([`Pages::live_at`]).
    pub fn page_table(&self) -> BufferId {
        self.page_table
    }

    fn heads(&self, layer: usize) -> Heads {
        let Config { n_heads, n_kv_heads, head_dim, n_layers, .. } = self.config;
        Heads { n_heads, n_kv_heads, head_dim, n_layers, layer }
    }

    fn kv(&self, layer: &Layer) -> Kv {
        Kv {
            k_pages: layer.k_pages,
            v_pages: layer.v_pages,
            lam_pages: layer.lam_pages,
            page_table: self.page_table,
            f16: self.kv_f16,
            max_pages: self.max_pages,
            window: self.config.window,
            prune: layer.prune,
        }
    }

    /// The graph of one token of `ids`: six dispatches a layer and two beside.
    pub fn record_decode(&self, program: &mut Program) -> GraphId {
        self.start_decode(program, "decode", None).finish()
    }

    /// One token to its logits; it comes from `x` if that is given, else from `ids`.
    pub(super) fn start_decode<'p>(&self, program: &'p mut Program, name: &str, x: Option<BufferId>) -> Recorder<'p> {
        let Config { hidden: d, norm_eps: eps, .. } = self.config;
        let mut r = program.record(name);
        let x = x.unwrap_or_else(|| {
            let x = r.scratch("x", d);
            self.record_embedding(&mut r, x);
            x
        });
        let proj = r.scratch("proj", self.layers[0].columns.stride);
        let partials = r.scratch("partials", self.heads(0).partial_words());
        let (o, act) = (r.scratch("o", d), r.scratch("act", self.act_words()));
        for (ix, layer) in self.layers.iter().enumerate() {
            let (heads, kv) = (&self.heads(ix), &self.kv(layer));
            let Layer { columns, vectors, shift_rows, .. } = layer;
            // 1. norm, then all rows that read it
            for (first_row, part) in layer.proj.with_first_rows() {
                let gates = layer.gates.filter(|_| first_row == 0);
                let gates = gates.map(|gates| matvec::Gates {
                    weight: gates.data,
                    n_gates: gates.n_rows,
                    out_offset: layer.first_gate(),
                });
                let (norm, bias) = (Some(Norm { weight: layer.attn_norm, eps }), layer.bias(first_row));
                MatVec { norm, gates, bias, ..store(part, x, proj, first_row) }.record(&mut r);
            }
            // 2. shift, norms, rotation, append, attention by splits; 3. merge, output norm and gate
            AttnDecode { heads, proj, columns, vectors, kv, shift_rows: *shift_rows, partials }.record(&mut r);
            let act_of_gate = self.gate_act();
            AttnMerge { heads, partials, proj, columns, vectors, eps, act: act_of_gate, kv, o }.record(&mut r);
            // 4. back to the stream
            for (first_row, part) in layer.attn_output.with_first_rows() {
                MatVec { epilogue: Epilogue::Residual, ..store(part, o, x, first_row) }.record(&mut r);
            }
            // 5. norm, gate and value rows, activation; 6. back to the stream
            for (first_row, part) in layer.gate_up.with_first_rows() {
                let norm = Some(Norm { weight: layer.ffn_norm, eps });
                MatVec { norm, epilogue: Epilogue::Glu(self.glu_act()), ..store(part, x, act, first_row / 2) }.record(&mut r);
            }
            for (first_row, part) in layer.down.with_first_rows() {
                MatVec { epilogue: Epilogue::Residual, ..store(part, act, x, first_row) }.record(&mut r);
            }
        }
        self.record_last_logits(&mut r, x);
        r
    }

    /// The graph of up to `chunk` tokens. With `scores`, the logits of every position; else of the last.
    pub fn record_prefill(&self, program: &mut Program, scores: bool) -> GraphId {
        let Config { hidden: d, norm_eps, .. } = self.config;
        let (n, stride) = (self.chunk, self.layers[0].columns.stride);
        let mut r = program.record(if scores { "score" } else { "prefill" });
        let x = r.scratch("x", n * d);
        self.record_embedding(&mut r, x);
        let (a, o) = (r.scratch("a", n * d), r.scratch("o", n * d));
        let (proj, act) = (r.scratch("proj", n * stride), r.scratch("act", n * self.act_words()));
        for (ix, layer) in self.layers.iter().enumerate() {
            let (heads, kv) = (&self.heads(ix), &self.kv(layer));
            let Layer { columns, vectors, .. } = layer;
            norm_rows(&mut r, x, a, layer.attn_norm, d, norm_eps);
            for (out_offset, part) in layer.proj.with_first_rows() {
                let bias = layer.bias(out_offset);
                MatMul { part: *part, x: a, y: proj, out_stride: stride, out_offset, bias, residual: false }.record(&mut r);
            }
            if let Some(part) = layer.gates {
                let out_offset = layer.first_gate();
                MatMul { part, x: a, y: proj, out_stride: stride, out_offset, bias: None, residual: false }.record(&mut r);
            }
            let [q, k, v] = self.record_qkv(&mut r, layer, heads, proj);
            forget_gate::record(&mut r, heads, proj, columns, vectors, kv);
            page_ends::record(&mut r, heads, vectors, kv);
            kv_append::record(&mut r, heads, &k, &v, kv);
            attn_prefill::record(&mut r, heads, &q, kv, o);
            if let Some(weight_offset) = vectors.out_norm {
                norm_heads(&mut r, heads.n_heads, heads.head_dim, (vectors.buffer, weight_offset), norm_eps, None, o);
            }
            if columns.gate.is_some() {
                output_gate::record(&mut r, heads, proj, columns, self.gate_act(), o);
            }
            for (out_offset, part) in layer.attn_output.with_first_rows() {
                MatMul { part: *part, x: o, y: x, out_stride: d, out_offset, bias: None, residual: true }.record(&mut r);
            }
            norm_rows(&mut r, x, a, layer.ffn_norm, d, norm_eps);
            for (first_row, part) in layer.gate_up.with_first_rows() {
                let gate_up = r.scratch("gate up", n * part.n_rows);
                MatMul { part: *part, x: a, y: gate_up, out_stride: part.n_rows, out_offset: 0, bias: None, residual: false }
                    .record(&mut r);
                let (width, stride, offset) = (part.n_rows / 2, layer.act_words(), first_row / 2);
                Glu { gate_up, y: act, width, stride, offset, act: self.glu_act() }.record(&mut r);
            }
            for (out_offset, part) in layer.down.with_first_rows() {
                MatMul { part: *part, x: act, y: x, out_stride: d, out_offset, bias: None, residual: true }.record(&mut r);
            }
        }
        match self.scores.filter(|_| scores) {
            None => self.record_last_logits(&mut r, x),
            Some(y) => {
                r.for_logits();
                norm_rows(&mut r, x, a, self.norm, d, norm_eps);
                for (out_offset, part) in self.head.with_first_rows() {
                    MatMul { part: *part, x: a, y, out_stride: self.config.vocab, out_offset, bias: None, residual: false }
                        .record(&mut r);
                }
            }
        }
        r.finish()
    }

    /// Shift, norm and rotation of q, k and v: where attention finds each.
    fn record_qkv(&self, r: &mut Recorder<'_>, layer: &Layer, heads: &Heads, proj: BufferId) -> [Rows; 3] {
        let (d, kv, n) = (heads.d(), heads.kv_width(), self.chunk);
        let Layer { columns, vectors, shift_rows, .. } = layer;
        let column = |column| Rows { buffer: proj, stride: columns.stride, column };
        let own = |buffer, stride| Rows { buffer, stride, column: 0 };
        let [mut q, mut k, mut v] = [columns.q, columns.k, columns.v].map(column);
        if columns.k_shift.is_some() {
            let y = r.scratch("k shifted", n * kv);
            token_shift::record(r, heads, proj, columns, token_shift::Which::K, *shift_rows, y);
            k = own(y, kv);
        }
        if columns.v_shift.is_some() {
            let y = r.scratch("v shifted", n * kv);
            token_shift::record(r, heads, proj, columns, token_shift::Which::V, *shift_rows, y);
            v = own(y, kv);
        }
        let normed =
            [(&mut q, vectors.q_norm, heads.n_heads, d, "q"), (&mut k, vectors.k_norm, heads.n_kv_heads, kv, "k normed")];
        for (rows, weight_offset, n_heads, width, name) in normed {
            if let Some(weight_offset) = weight_offset {
                let y = r.scratch(name, n * width);
                norm_heads(r, n_heads, heads.head_dim, (vectors.buffer, weight_offset), QK_NORM_EPS, Some(*rows), y);
                *rows = own(y, width);
            }
            if vectors.rope.is_some() {
                rope::record(r, n_heads, heads.head_dim, vectors, rows);
            }
        }
        [q, k, v]
    }

    fn gate_act(&self) -> GateAct {
        match self.config.output_gate {
            Some(OutputGate::Silu) => GateAct::Silu,
            _ => GateAct::Sigmoid,
        }
    }

    fn glu_act(&self) -> GluAct {
        match self.config.mlp_act {
            MlpAct::Silu => GluAct::Silu,
            MlpAct::Sigmoid => GluAct::Sigmoid,
        }
    }

    /// Channels inside the widest MLP, padding included.
    fn act_words(&self) -> usize {
        self.layers.iter().map(Layer::act_words).max().unwrap_or(0)
    }

    fn record_embedding(&self, r: &mut Recorder<'_>, x: BufferId) {
        for (first_row, part) in self.embedding.with_first_rows() {
            embed::record(r, self.ids, part, first_row, x);
        }
    }

    fn record_last_logits(&self, r: &mut Recorder<'_>, x: BufferId) {
        r.for_logits();
        let norm = Some(Norm { weight: self.norm, eps: self.config.norm_eps });
        for (first_row, part) in self.head.with_first_rows() {
            MatVec { norm, last_row: true, ..store(part, x, self.logits, first_row) }.record(r);
        }
    }
}

/// A plain product, to be refined.
fn store(part: &Part, x: BufferId, y: BufferId, out_offset: usize) -> MatVec {
    MatVec { part: *part, x, y, out_offset, norm: None, gates: None, bias: None, epilogue: Epilogue::Store, last_row: false }
}

/// The norm over d of every token's row.
fn norm_rows(r: &mut Recorder<'_>, x: BufferId, y: BufferId, weight: BufferId, d: usize, eps: f32) {
    let own = |buffer| Rows { buffer, stride: d, column: 0 };
    let weight = r.whole(weight);
    RmsNorm { x: Some(own(x)), y: own(y), weight, weight_offset: 0, rows_per_token: 1, width: d, eps }.record(r);
}

/// The norm of each head's channels; in place on `y` without an `x`.
fn norm_heads(
    r: &mut Recorder<'_>,
    n_heads: usize,
    head_dim: usize,
    (weight, weight_offset): (BufferId, usize),
    eps: f32,
    x: Option<Rows>,
    y: BufferId,
) {
    let y = Rows { buffer: y, stride: n_heads * head_dim, column: 0 };
    let weight = r.whole(weight);
    RmsNorm { x, y, weight, weight_offset, rows_per_token: n_heads, width: head_dim, eps }.record(r);
}
