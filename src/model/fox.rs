//! The network, read top to bottom. The load half ([`Fox::declare`]) names every tensor and its place; the record half
//! ([`Fox::record_decode`], [`Fox::record_prefill`]) mirrors it.
//!
//! ```text
//! x = embedding[id]
//! per layer:  a = norm(x)                     q, k, v, g, f and shift rows are one stacked product of a
//!             k, v = mix with the token before;  q, k = norm per head
//!             o = softmax(q·k/√h + λ_i − λ_j) v;  o = norm per head(o) · sigmoid(g)
//!             x = x + o_proj(o)
//!             x = x + down(silu(gate(norm(x))) · up(norm(x)))
//! logits = head(norm(x))
//! ```
//! Source: Lin et al., arXiv 2503.02130, and the official code as `config.rs` states it.

use super::config::{Config, ForgetGate, OutputGate, QK_NORM_EPS};
use super::draw::Draw;
use super::state::Pages;
use super::weights::{Matrix, Place, TensorRows, Wanted};
use crate::graph::{BufferId, GraphId, Program, Recorder, Role};
use crate::kernel::attention::{GateAct, Heads, Kv, PAGE, Proj, Rows, SHIFT_SLOTS, Vectors};
use crate::kernel::attn_decode::AttnDecode;
use crate::kernel::attn_merge::AttnMerge;
use crate::kernel::layout::{Part, WeightType};
use crate::kernel::matmul::MatMul;
use crate::kernel::matvec::{Epilogue, Gates, MatVec, Norm};
use crate::kernel::rms_norm::{self, RmsNorm};
use crate::kernel::{attn_prefill, embed, forget_gate, kv_append, output_gate, silu_gate, token_shift};

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
    /// Token ids by position, [context] u32: written by the host, or by the device when it draws them.
    pub ids: BufferId,
    /// What drawing on the device needs.
    pub draw: Draw,
    /// Logits after the last token of a replay, [V] f32.
    pub logits: BufferId,
    /// Logits after every token of a replay, [chunk, V] f32, when scores were asked for.
    pub scores: Option<BufferId>,
}

#[derive(Clone, Debug)]
struct Layer {
    attn_norm: BufferId,
    /// q, k, v, (output gate): [3d or 4d, d].
    proj: Matrix,
    /// Forget gate, k shift, v shift, as f32: [H, 2H or 3H, d].
    gates: Option<Part>,
    columns: Proj,
    vectors: Vectors,
    attn_output: Matrix,
    ffn_norm: BufferId,
    gate_up: Matrix,
    down: Matrix,
    k_pages: BufferId,
    v_pages: BufferId,
    lam_pages: BufferId,
    shift_rows: BufferId,
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
}

impl Fox {
    /// Declares every buffer, and says which tensors are wanted and where they go.
    pub fn declare(
        program: &mut Program,
        config: &Config,
        pages: &Pages,
        max_pages: usize,
        options: &Options<'_>,
    ) -> (Self, Vec<Wanted>) {
        let mut load = Load { program, wanted: Vec::new(), config, type_of: options.type_of };
        let (d, vocab) = (config.hidden, config.vocab);
        let embedding = load.matrix("token_embd", "token_embd.weight", vocab, d);
        let layers = (0..config.n_layers).map(|ix| load.layer(ix, pages.per_layer(), options.kv_f16)).collect();
        let norm = load.vector("output_norm.weight", d);
        let head = if config.tied { embedding.clone() } else { load.matrix("output", "output.weight", vocab, d) };
        let wanted = load.wanted;
        let page_table = program.buffer("page table", pages.table_words(), Role::Input);
        let ids = program.buffer("ids", max_pages * PAGE, Role::Input);
        let draw = Draw::declare(program, vocab, d);
        let logits = program.buffer("logits", vocab, Role::Output);
        let scores = options.scores.then(|| program.buffer("scores", options.chunk * vocab, Role::Output));
        let (config, kv_f16, chunk) = (config.clone(), options.kv_f16, options.chunk);
        (Self { config, chunk, embedding, layers, norm, head, kv_f16, max_pages, page_table, ids, draw, logits, scores }, wanted)
    }

    /// The page table's buffer, [max_pages, L, H] u32.
    pub fn page_table(&self) -> BufferId {
        self.page_table
    }

    fn heads(&self, layer: usize) -> Heads {
        Heads { n_heads: self.config.n_heads, head_dim: self.config.head_dim, n_layers: self.config.n_layers, layer }
    }

    fn kv(&self, layer: &Layer) -> Kv {
        Kv {
            k_pages: layer.k_pages,
            v_pages: layer.v_pages,
            lam_pages: layer.lam_pages,
            page_table: self.page_table,
            f16: self.kv_f16,
            max_pages: self.max_pages,
        }
    }

    /// The graph of one token of `ids`: six dispatches a layer and two beside.
    pub fn record_decode(&self, program: &mut Program) -> GraphId {
        self.start_decode(program, "decode", None).finish()
    }

    /// One token to its logits; it comes from `x` if that is given, else from `ids`.
    pub(super) fn start_decode<'p>(&self, program: &'p mut Program, name: &str, x: Option<BufferId>) -> Recorder<'p> {
        let Config { hidden: d, norm_eps: eps, intermediate, .. } = self.config;
        let mut r = program.record(name);
        let x = x.unwrap_or_else(|| {
            let x = r.scratch("x", d);
            self.record_embedding(&mut r, x);
            x
        });
        let proj = r.scratch("proj", self.layers[0].columns.stride);
        let partials = r.scratch("partials", self.heads(0).partial_words());
        let (o, act) = (r.scratch("o", d), r.scratch("act", intermediate));
        for (ix, layer) in self.layers.iter().enumerate() {
            let (heads, kv) = (&self.heads(ix), &self.kv(layer));
            let Layer { columns, vectors, shift_rows, .. } = layer;
            // 1. norm, then all rows that read it
            for (first_row, part) in layer.proj.with_first_rows() {
                let gates = layer.gates.filter(|_| first_row == 0);
                let gates =
                    gates.map(|gates| Gates { weight: gates.data, n_gates: gates.n_rows, out_offset: gates_column(d, columns) });
                MatVec { norm: Some(Norm { weight: layer.attn_norm, eps }), gates, ..store(part, x, proj, first_row) }
                    .record(&mut r);
            }
            // 2. shift, norms, append, attention by splits; 3. merge, output norm and gate
            AttnDecode { heads, proj, columns, vectors, kv, shift_rows: *shift_rows, partials }.record(&mut r);
            let act_of_gate = self.gate_act();
            AttnMerge { heads, partials, proj, columns, vectors, eps, act: act_of_gate, o }.record(&mut r);
            // 4. back to the stream
            for (first_row, part) in layer.attn_output.with_first_rows() {
                MatVec { epilogue: Epilogue::Residual, ..store(part, o, x, first_row) }.record(&mut r);
            }
            // 5. norm, gate and value rows, silu; 6. back to the stream
            for (first_row, part) in layer.gate_up.with_first_rows() {
                let norm = Some(Norm { weight: layer.ffn_norm, eps });
                MatVec { norm, epilogue: Epilogue::SwiGlu, ..store(part, x, act, first_row / 2) }.record(&mut r);
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
        let Config { hidden: d, norm_eps, intermediate, .. } = self.config;
        let (n, stride) = (self.chunk, self.layers[0].columns.stride);
        let mut r = program.record(if scores { "score" } else { "prefill" });
        let x = r.scratch("x", n * d);
        self.record_embedding(&mut r, x);
        let (a, o) = (r.scratch("a", n * d), r.scratch("o", n * d));
        let (proj, act) = (r.scratch("proj", n * stride), r.scratch("act", n * intermediate));
        for (ix, layer) in self.layers.iter().enumerate() {
            let (heads, kv) = (&self.heads(ix), &self.kv(layer));
            let Layer { columns, vectors, .. } = layer;
            norm_rows(&mut r, x, a, layer.attn_norm, d, norm_eps);
            for (out_offset, part) in layer.proj.with_first_rows() {
                MatMul { part: *part, x: a, y: proj, out_stride: stride, out_offset, residual: false }.record(&mut r);
            }
            if let Some(part) = layer.gates {
                let out_offset = gates_column(d, columns);
                MatMul { part, x: a, y: proj, out_stride: stride, out_offset, residual: false }.record(&mut r);
            }
            let [q, k, v] = self.record_qkv(&mut r, layer, heads, proj);
            forget_gate::record(&mut r, heads, proj, columns, vectors, kv);
            kv_append::record(&mut r, heads, &k, &v, kv);
            attn_prefill::record(&mut r, heads, &q, kv, o);
            if let Some(weight_offset) = vectors.out_norm {
                norm_heads(&mut r, heads, vectors, weight_offset, norm_eps, None, o);
            }
            if columns.gate.is_some() {
                output_gate::record(&mut r, heads, proj, columns, self.gate_act(), o);
            }
            for (out_offset, part) in layer.attn_output.with_first_rows() {
                MatMul { part: *part, x: o, y: x, out_stride: d, out_offset, residual: true }.record(&mut r);
            }
            norm_rows(&mut r, x, a, layer.ffn_norm, d, norm_eps);
            for (first_row, part) in layer.gate_up.with_first_rows() {
                let gate_up = r.scratch("gate up", n * part.n_rows);
                MatMul { part: *part, x: a, y: gate_up, out_stride: part.n_rows, out_offset: 0, residual: false }.record(&mut r);
                silu_gate::record(&mut r, gate_up, act, part.n_rows / 2, intermediate, first_row / 2);
            }
            for (out_offset, part) in layer.down.with_first_rows() {
                MatMul { part: *part, x: act, y: x, out_stride: d, out_offset, residual: true }.record(&mut r);
            }
        }
        match self.scores.filter(|_| scores) {
            None => self.record_last_logits(&mut r, x),
            Some(y) => {
                r.for_logits();
                norm_rows(&mut r, x, a, self.norm, d, norm_eps);
                for (out_offset, part) in self.head.with_first_rows() {
                    MatMul { part: *part, x: a, y, out_stride: self.config.vocab, out_offset, residual: false }.record(&mut r);
                }
            }
        }
        r.finish()
    }

    /// Shift and norm of q, k and v: where attention finds each.
    fn record_qkv(&self, r: &mut Recorder<'_>, layer: &Layer, heads: &Heads, proj: BufferId) -> [Rows; 3] {
        let (d, n) = (self.config.hidden, self.chunk);
        let Layer { columns, vectors, shift_rows, .. } = layer;
        let column = |column| Rows { buffer: proj, stride: columns.stride, column };
        let own = |buffer| Rows { buffer, stride: d, column: 0 };
        let [mut q, mut k, mut v] = [columns.q, columns.k, columns.v].map(column);
        if columns.k_shift.is_some() {
            let y = r.scratch("k shifted", n * d);
            token_shift::record(r, heads, proj, columns, token_shift::Which::K, *shift_rows, y);
            k = own(y);
        }
        if columns.v_shift.is_some() {
            let y = r.scratch("v shifted", n * d);
            token_shift::record(r, heads, proj, columns, token_shift::Which::V, *shift_rows, y);
            v = own(y);
        }
        for (rows, weight_offset, name) in [(&mut q, vectors.q_norm, "q"), (&mut k, vectors.k_norm, "k normed")] {
            if let Some(weight_offset) = weight_offset {
                let y = r.scratch(name, n * d);
                norm_heads(r, heads, vectors, weight_offset, QK_NORM_EPS, Some(*rows), y);
                *rows = own(y);
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
    MatVec { part: *part, x, y, out_offset, norm: None, gates: None, epilogue: Epilogue::Store, last_row: false }
}

/// The norm over d of every token's row.
fn norm_rows(r: &mut Recorder<'_>, x: BufferId, y: BufferId, weight: BufferId, d: usize, eps: f32) {
    let own = |buffer| rms_norm::Rows { buffer, stride: d, offset: 0 };
    let weight = r.whole(weight);
    RmsNorm { x: Some(own(x)), y: own(y), weight, weight_offset: 0, rows_per_token: 1, width: d, eps }.record(r);
}

/// The norm of each head's channels; in place on `y` without an `x`.
fn norm_heads(
    r: &mut Recorder<'_>,
    heads: &Heads,
    vectors: &Vectors,
    weight_offset: usize,
    eps: f32,
    x: Option<Rows>,
    y: BufferId,
) {
    let x = x.map(|x| rms_norm::Rows { buffer: x.buffer, stride: x.stride, offset: x.column });
    let y = rms_norm::Rows { buffer: y, stride: heads.d(), offset: 0 };
    let weight = r.whole(vectors.buffer);
    RmsNorm { x, y, weight, weight_offset, rows_per_token: heads.n_heads, width: heads.head_dim, eps }.record(r);
}

/// The gate rows sit behind the d-wide ones.
fn gates_column(d: usize, columns: &Proj) -> usize {
    columns.gate.unwrap_or(columns.v) + d
}

/// Declares buffers and takes down what is wanted.
struct Load<'a> {
    program: &'a mut Program,
    wanted: Vec<Wanted>,
    config: &'a Config,
    type_of: &'a dyn Fn(&str) -> WeightType,
}

impl Load<'_> {
    fn rows(&self, name: String, n_rows: usize) -> TensorRows {
        let ty = (self.type_of)(&name);
        TensorRows { name, n_rows, ty }
    }

    fn matrix(&mut self, label: &str, tensor: &str, n_rows: usize, k: usize) -> Matrix {
        let rows = self.rows(tensor.to_owned(), n_rows);
        Matrix::stack(self.program, &mut self.wanted, label, &[rows], k)
    }

    fn words(&mut self, name: String, shape: Vec<usize>, buffer: BufferId, at_word: usize, repeat: usize) {
        self.wanted.push(Wanted { name, shape, place: Place::Words { buffer, at_word, repeat } });
    }

    fn vector(&mut self, tensor: &str, n: usize) -> BufferId {
        let buffer = self.program.buffer(tensor.trim_end_matches(".weight"), n, Role::Weight);
        self.words(tensor.to_owned(), vec![n], buffer, 0, 1);
        buffer
    }

    fn layer(&mut self, ix: usize, n_pages: usize, kv_f16: bool) -> Layer {
        let Config { hidden: d, intermediate, head_dim, n_heads, .. } = *self.config;
        let name = |tensor: &str| format!("blk.{ix}.{tensor}.weight");
        let attn_norm = self.vector(&name("attn_norm"), d);
        let stacked = ["attn_q", "attn_k", "attn_v", "attn_gate"];
        let n_stacked = if self.config.output_gate.is_some() { 4 } else { 3 };
        let rows: Vec<TensorRows> = stacked[..n_stacked].iter().map(|tensor| self.rows(name(tensor), d)).collect();
        let proj = Matrix::stack(self.program, &mut self.wanted, &format!("blk.{ix}.proj"), &rows, d);
        let (gates, columns) = self.gates(ix, n_stacked * d);
        let vectors = self.vectors(ix);
        let attn_output = self.matrix(&format!("blk.{ix}.attn_output"), &name("attn_output"), d, d);
        let ffn_norm = self.vector(&name("ffn_norm"), d);
        let pair = ["ffn_gate", "ffn_up"].map(|tensor| self.rows(name(tensor), intermediate));
        let gate_up = Matrix::pairs(self.program, &mut self.wanted, &format!("blk.{ix}.gate_up"), pair, d);
        let down = self.matrix(&format!("blk.{ix}.down"), &name("ffn_down"), d, intermediate);
        let row_words = Kv::row_words(head_dim, kv_f16);
        let mut state = |what: &str, words| self.program.buffer(format!("blk.{ix}.{what}"), words, Role::State);
        Layer {
            attn_norm,
            proj,
            gates,
            columns,
            vectors,
            attn_output,
            ffn_norm,
            gate_up,
            down,
            k_pages: state("k_pages", n_pages * PAGE * row_words),
            v_pages: state("v_pages", n_pages * PAGE * row_words),
            lam_pages: state("lam_pages", n_pages * PAGE * 2),
            shift_rows: state("shift_rows", SHIFT_SLOTS * 2 * n_heads * head_dim),
        }
    }

    /// The H-wide rows behind `wide` columns of d-wide ones: forget gate, k shift, v shift, those that the model has.
    fn gates(&mut self, ix: usize, wide: usize) -> (Option<Part>, Proj) {
        let Config { hidden: d, n_heads, forget_gate, k_shift, v_shift, .. } = *self.config;
        let present = [("attn_fgate", forget_gate == ForgetGate::Full), ("attn_k_shift", k_shift), ("attn_v_shift", v_shift)];
        let n_rows = present.iter().filter(|(_, on)| *on).count() * n_heads;
        let data = (n_rows > 0).then(|| self.program.buffer(format!("blk.{ix}.gates"), n_rows * d, Role::Weight));
        let mut at = 0;
        let columns = present.map(|(tensor, on)| {
            let buffer = data.filter(|_| on)?;
            self.words(format!("blk.{ix}.{tensor}.weight"), vec![n_heads, d], buffer, at * d, 1);
            at += n_heads;
            Some(wide + at - n_heads)
        });
        let [f, k_shift, v_shift] = columns;
        let gate = (wide == 4 * d).then_some(3 * d);
        let gates = data.map(|data| Part { ty: WeightType::F32, n_rows, k: d, data, scales: None });
        (gates, Proj { stride: wide + n_rows, q: 0, k: d, v: 2 * d, gate, f, k_shift, v_shift })
    }

    /// The small vectors of a layer in one buffer, so that decode attention stays within eight bindings.
    fn vectors(&mut self, ix: usize) -> Vectors {
        let Config { hidden: d, n_heads, head_dim, qk_norm, qk_norm_shared, output_norm, forget_gate, .. } = *self.config;
        let present = [qk_norm, qk_norm, forget_gate != ForgetGate::None, output_norm];
        let sizes = [d, d, n_heads, d];
        let total: usize = present.iter().zip(sizes).filter(|(on, _)| **on).map(|(_, size)| size).sum();
        let buffer = self.program.buffer(format!("blk.{ix}.vectors"), total, Role::Weight);
        let mut at = 0;
        let mut place = |on: bool, size: usize| {
            on.then(|| {
                at += size;
                at - size
            })
        };
        let [q_norm, k_norm, f_bias, out_norm] = std::array::from_fn(|ix| place(present[ix], sizes[ix]));
        let (norm_shape, repeat) = if qk_norm_shared { (head_dim, n_heads) } else { (d, 1) };
        for (tensor, at, shape, repeat) in [
            ("attn_q_norm.weight", q_norm, norm_shape, repeat),
            ("attn_k_norm.weight", k_norm, norm_shape, repeat),
            ("attn_fgate.bias", f_bias, n_heads, 1),
            ("attn_sub_norm.weight", out_norm, d, 1),
        ] {
            if let Some(at) = at {
                self.words(format!("blk.{ix}.{tensor}"), vec![shape], buffer, at, repeat);
            }
        }
        Vectors { buffer, q_norm, k_norm, f_bias, out_norm }
    }
}
