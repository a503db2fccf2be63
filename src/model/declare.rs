//! The load half of [`super::fox`]: a layer's buffers, and the tensors that fill them.

use super::config::{Config, ForgetGate};
use super::gates::Gates;
use super::rope;
use super::state::Pages;
use super::weights::{Matrix, Place, TensorRows, Wanted};
use crate::graph::{BufferId, Program, Role};
use crate::kernel::attention::{GateTable, Heads, Kv, PAGE, Proj, Prune, Vectors};
use crate::kernel::layout::{Part, WeightType};
use crate::kernel::matvec::Bias;

/// The buffers of one layer.
#[derive(Clone, Debug)]
pub struct Layer {
    pub attn_norm: BufferId,
    /// q, k, v, (output gate): [d + 2 kv_width (+ d), d].
    pub proj: Matrix,
    /// One number for each of these rows.
    pub proj_bias: Option<BufferId>,
    /// Forget gate, k shift, v shift, those that the model has, as f32: [rows, d].
    pub gates: Option<Part>,
    pub columns: Proj,
    pub vectors: Vectors,
    pub attn_output: Matrix,
    pub ffn_norm: BufferId,
    pub gate_up: Matrix,
    pub down: Matrix,
    pub k_pages: BufferId,
    pub v_pages: BufferId,
    pub lam_pages: BufferId,
    /// Where dead pages are kept track of, if pages die.
    pub prune: Option<Prune>,
    pub shift_rows: BufferId,
}

impl Layer {
    /// The bias of rows of the projection from one on.
    pub fn bias(&self, first_row: usize) -> Option<Bias> {
        self.proj_bias.map(|buffer| Bias { buffer, offset: first_row })
    }

    /// The gate rows sit behind those of the projection.
    pub fn first_gate(&self) -> usize {
        self.proj.parts.iter().map(|part| part.n_rows).sum()
    }

    /// Channels inside the MLP, with the padding that the type of `down` asks for.
    pub fn act_words(&self) -> usize {
        self.down.parts.iter().map(|part| part.k).max().unwrap_or(0)
    }
}

/// Words of a layer's q_norm, k_norm, f_bias and out_norm, where the model has them.
fn vector_sizes(config: &Config) -> [Option<usize>; 4] {
    let Config { hidden: d, n_heads, qk_norm, output_norm, forget_gate, .. } = *config;
    let has_bias = forget_gate != ForgetGate::None;
    [qk_norm.then_some(d), qk_norm.then_some(config.kv_width()), has_bias.then_some(n_heads), output_norm.then_some(d)]
}

/// Declares buffers and takes down what is wanted.
pub struct Load<'a> {
    program: &'a mut Program,
    /// What is wanted so far.
    pub wanted: Vec<Wanted>,
    config: &'a Config,
    type_of: &'a dyn Fn(&str) -> WeightType,
    /// The rotary table from word 0 on, then gates that are replayed, then every layer's vectors.
    pub vectors: BufferId,
    /// The tables of those gates.
    tables: Vec<GateTable>,
    /// Its first free word.
    next_vector: usize,
}

impl<'a> Load<'a> {
    /// For sequences of these pages; every layer replays these gates if there are any.
    pub fn new(
        program: &'a mut Program,
        config: &'a Config,
        type_of: &'a dyn Fn(&str) -> WeightType,
        pages: &Pages,
        gates: Option<&Gates>,
    ) -> Self {
        let n_positions = pages.max_pages() * PAGE;
        let mut next_vector = config.rope_base.map_or(0, |_| n_positions.saturating_mul(rope::row_words(config.head_dim)));
        let tables = gates.map_or_else(Vec::new, |gates| gates.tables(config, next_vector));
        next_vector += tables.iter().map(|table| table.period * config.n_heads).sum::<usize>();
        let taus = if pages.evicts() { config.n_heads } else { 0 };
        let layer_words: usize = vector_sizes(config).into_iter().flatten().sum::<usize>() + taus;
        let vectors = program.buffer("vectors", next_vector + config.n_layers * layer_words, Role::Weight);
        Self { program, wanted: Vec::new(), config, type_of, vectors, tables, next_vector }
    }

    fn rows(&self, name: String, n_rows: usize) -> TensorRows {
        let ty = (self.type_of)(&name);
        TensorRows { name, n_rows, ty }
    }

    /// A matrix of its own.
    pub fn matrix(&mut self, label: &str, tensor: &str, n_rows: usize, k: usize) -> Matrix {
        let rows = self.rows(tensor.to_owned(), n_rows);
        Matrix::stack(self.program, &mut self.wanted, label, &[rows], k)
    }

    fn words(&mut self, name: String, shape: Vec<usize>, buffer: BufferId, at_word: usize, repeat: usize) {
        self.wanted.push(Wanted { name, shape, place: Place::Words { buffer, at_word, repeat } });
    }

    /// A vector of its own.
    pub fn vector(&mut self, tensor: &str, n: usize) -> BufferId {
        let buffer = self.program.buffer(tensor.trim_end_matches(".weight"), n, Role::Weight);
        self.words(tensor.to_owned(), vec![n], buffer, 0, 1);
        buffer
    }

    /// Layer `ix`.
    pub fn layer(&mut self, ix: usize, pages: &Pages, kv_f16: bool) -> Layer {
        let Config { hidden: d, intermediate, head_dim, n_heads, n_kv_heads, n_layers, .. } = *self.config;
        let heads = Heads { n_heads, n_kv_heads, head_dim, n_layers, layer: ix };
        let kv = heads.kv_width();
        let name = |tensor: &str| format!("blk.{ix}.{tensor}.weight");
        let attn_norm = self.vector(&name("attn_norm"), d);
        let stacked = [("attn_q", d), ("attn_k", kv), ("attn_v", kv), ("attn_gate", d)];
        let n_stacked = if self.config.output_gate.is_some() { 4 } else { 3 };
        let rows: Vec<TensorRows> = stacked[..n_stacked].iter().map(|(tensor, rows)| self.rows(name(tensor), *rows)).collect();
        let proj = Matrix::stack(self.program, &mut self.wanted, &format!("blk.{ix}.proj"), &rows, d);
        let n_rows = rows.iter().map(|rows| rows.n_rows).sum();
        let proj_bias = self.config.qkv_bias.then(|| self.proj_bias(ix, n_rows, [0, d, d + kv, d + 2 * kv]));
        let (gates, columns) = self.gates(ix, n_rows);
        let (vectors, n_pages) = (self.vectors(ix), pages.per_layer());
        let prune = pages.evicts().then(|| {
            let tau = self.next_vector;
            self.next_vector += n_heads;
            Prune::new(&heads, n_pages, pages.max_pages(), tau)
        });
        let lam_words = heads.lam_words() + if prune.is_some() { heads.end_words() } else { 0 };
        let attn_output = self.matrix(&format!("blk.{ix}.attn_output"), &name("attn_output"), d, d);
        let ffn_norm = self.vector(&name("ffn_norm"), d);
        let pair = ["ffn_gate", "ffn_up"].map(|tensor| self.rows(name(tensor), intermediate));
        let padded = (self.type_of)(&name("ffn_down")).padded(intermediate);
        let gate_up = Matrix::pairs(self.program, &mut self.wanted, &format!("blk.{ix}.gate_up"), pair, padded, d);
        let down = self.matrix(&format!("blk.{ix}.down"), &name("ffn_down"), d, intermediate);
        let row_words = Kv::row_words(head_dim, kv_f16);
        // Saturating: a size that passes 32-bit memory is refused by the loader, not wrapped to a small one.
        let mut state = |what: &str, n: usize, words: usize| {
            self.program.buffer(format!("blk.{ix}.{what}"), n.saturating_mul(words), Role::State)
        };
        Layer {
            attn_norm,
            proj,
            proj_bias,
            gates,
            columns,
            vectors,
            attn_output,
            ffn_norm,
            gate_up,
            down,
            k_pages: state("k_pages", n_pages, PAGE * row_words),
            v_pages: state("v_pages", n_pages, PAGE * row_words),
            lam_pages: state("lam_pages", n_pages, lam_words),
            prune,
            shift_rows: state("shift_rows", 1, heads.shift_words()),
        }
    }

    /// The biases of q, k and v over all rows of the projection: the output gate has none.
    fn proj_bias(&mut self, ix: usize, n_rows: usize, bounds: [usize; 4]) -> BufferId {
        let buffer = self.program.buffer(format!("blk.{ix}.proj_bias"), n_rows, Role::Weight);
        for (tensor, rows) in ["attn_q", "attn_k", "attn_v"].into_iter().zip(bounds.windows(2)) {
            self.words(format!("blk.{ix}.{tensor}.bias"), vec![rows[1] - rows[0]], buffer, rows[0], 1);
        }
        buffer
    }

    /// The rows of one a head behind `wide` columns of whole heads: forget gate, k shift, v shift, those that the model has.
    fn gates(&mut self, ix: usize, wide: usize) -> (Option<Part>, Proj) {
        let Config { hidden: d, n_heads, n_kv_heads, forget_gate, k_shift, v_shift, .. } = *self.config;
        let kv = self.config.kv_width();
        let present = [
            ("attn_fgate", n_heads, forget_gate == ForgetGate::Full),
            ("attn_k_shift", n_kv_heads, k_shift),
            ("attn_v_shift", n_kv_heads, v_shift),
        ];
        let n_rows = present.iter().filter(|(_, _, on)| *on).map(|(_, rows, _)| rows).sum();
        let data = (n_rows > 0).then(|| self.program.buffer(format!("blk.{ix}.gates"), n_rows * d, Role::Weight));
        let mut at = 0;
        let columns = present.map(|(tensor, rows, on)| {
            let buffer = data.filter(|_| on)?;
            self.words(format!("blk.{ix}.{tensor}.weight"), vec![rows, d], buffer, at * d, 1);
            at += rows;
            Some(wide + at - rows)
        });
        let [f, k_shift, v_shift] = columns;
        let gate = self.config.output_gate.map(|_| d + 2 * kv);
        let gates = data.map(|data| Part { ty: WeightType::F32, n_rows, k: d, data, scales: None });
        (gates, Proj { stride: wide + n_rows, q: 0, k: d, v: d + kv, gate, f, k_shift, v_shift })
    }

    /// The small vectors of a layer, behind those of the layer before.
    fn vectors(&mut self, ix: usize) -> Vectors {
        let Config { n_heads, n_kv_heads, qk_norm_shared, .. } = *self.config;
        // A weight that all heads share serves each of them.
        let shared = |n_heads: usize| if qk_norm_shared { n_heads } else { 1 };
        let tensors = [
            ("attn_q_norm.weight", shared(n_heads)),
            ("attn_k_norm.weight", shared(n_kv_heads)),
            ("attn_fgate.bias", 1),
            ("attn_sub_norm.weight", 1),
        ];
        let sizes = vector_sizes(self.config);
        let [q_norm, k_norm, f_bias, out_norm] = std::array::from_fn(|part| {
            let (size, (tensor, repeat)) = (sizes[part]?, tensors[part]);
            let at = self.next_vector;
            self.next_vector += size;
            self.words(format!("blk.{ix}.{tensor}"), vec![size / repeat], self.vectors, at, repeat);
            Some(at)
        });
        let f_table = (!self.tables.is_empty()).then(|| self.tables[ix % self.tables.len()]);
        Vectors { buffer: self.vectors, q_norm, k_norm, f_bias, f_table, out_norm, rope: self.config.rope_base.map(|_| 0) }
    }
}
