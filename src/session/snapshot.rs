//! A sequence as bytes: saved here, gone on with there. Devices, pool sizes and chunks may differ; model, cache type and ε may not.
//!
//! Everything is little-endian words of 32 bits. n tokens are held, and their heads need the pages from `first` on (dead pages, and those
//! that a window has left, are not saved; what a page has beyond n is 0):
//!
//! ```text
//! magic "KFXS", version, words in all (2), fingerprint (2), flags, ln ε as f64 (2), tokens held n, ids N
//! ids          [N]                  those held, then those to be read next
//! live         [L, kv heads]        first live pages, where pages die
//! by layer:    shift rows           [2 (k, v), kv_width], with k or v shift and n > 0
//!              k, v                 [pages, 64, row] each; pages: column by column, head by head
//!              Λ                    [pages, group, 64] pairs
//!              ends                 [pages, group] pairs, where pages die
//! checksum (2)
//! ```
//! The fingerprint is of the configuration, the tensors' names, shapes and types, and the weights of all norms and biases: it tells one
//! training from another without a second reading of the matrices. Bytes from anywhere are checked in full before the model is
//! touched.

use super::Model;
use super::generate::check_ids;
use super::recover::Log;
use crate::error::{Error, Result};
use crate::format::Checkpoint;
use crate::graph::BufferId;
use crate::kernel::attention::{Heads, Kv, PAGE, lambda};
use crate::model::Config;

const MAGIC: u32 = u32::from_le_bytes(*b"KFXS");
const VERSION: u32 = 1;
/// Words before the ids, and of the checksum.
const HEADER: usize = 11;
const CHECKSUM: usize = 2;
/// Keys and values are f32, else f16.
const KV_F32: u32 = 1;
/// Pages die: there are `live` and `ends`.
const ENDS: u32 = 2;
/// τ where only sliding takes pages away: more than any Λ comes to (as the loader's).
const NEVER: f64 = 1e9;

/// FNV-1a over words, folded: every step is a bijection of the state, so that a change within one word always shows.
#[derive(Clone, Copy)]
struct Hash(u64);

impl Hash {
    const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    fn word(self, word: u32) -> Self {
        let mixed = (self.0 ^ u64::from(word)).wrapping_mul(0x100_0000_01b3);
        Self(mixed ^ mixed >> 32)
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        let hash = bytes.iter().fold(self, |hash, byte| hash.word(u32::from(*byte)));
        hash.word(bytes.len() as u32)
    }
}

/// What tells a model from others: `vectors` are its norms and biases, with zeros between them that are no part of it.
pub(super) fn fingerprint(config: &Config, checkpoint: &Checkpoint, vectors: &[f32]) -> u64 {
    let mut tensors: Vec<String> =
        checkpoint.tensors.iter().map(|tensor| format!("{} {:?} {}", tensor.name, tensor.shape, tensor.ty)).collect();
    tensors.sort_unstable();
    let hash =
        tensors.iter().fold(Hash::EMPTY.bytes(format!("{config:?}").as_bytes()), |hash, tensor| hash.bytes(tensor.as_bytes()));
    vectors.iter().filter(|value| **value != 0.0).fold(hash, |hash, value| hash.word(value.to_bits())).0
}

/// The sizes of a saved sequence.
struct Layout {
    n_ids: usize,
    n_layers: usize,
    n_kv_heads: usize,
    /// Columns that the tokens fill, and the first that each head has, `[L, kv heads]`.
    columns: usize,
    first: Vec<usize>,
    ends: bool,
    shift_words: usize,
    /// Words of a page of keys (or values), of its Λ, and of its ends.
    page_words: usize,
    lam_words: usize,
    end_words: usize,
}

impl Layout {
    fn live_words(&self) -> usize {
        if self.ends { self.first.len() } else { 0 }
    }

    /// Columns and heads of a layer's pages, in their order.
    fn slots(&self, layer: usize) -> impl Iterator<Item = (usize, usize)> + use<'_> {
        let heads = layer * self.n_kv_heads..(layer + 1) * self.n_kv_heads;
        (0..self.columns)
            .flat_map(move |column| heads.clone().filter(move |ix| column >= self.first[*ix]).map(move |ix| (column, ix)))
    }

    fn n_pages(&self, layer: usize) -> usize {
        self.first[layer * self.n_kv_heads..][..self.n_kv_heads].iter().map(|first| self.columns - first).sum()
    }

    fn layer_words(&self, layer: usize) -> u128 {
        let page = 2 * self.page_words + self.lam_words + if self.ends { self.end_words } else { 0 };
        self.shift_words as u128 + self.n_pages(layer) as u128 * page as u128
    }

    /// Of everything.
    fn words(&self) -> u128 {
        let layers: u128 = (0..self.n_layers).map(|layer| self.layer_words(layer)).sum();
        (HEADER + CHECKSUM) as u128 + self.n_ids as u128 + self.live_words() as u128 + layers
    }
}

/// Bytes that were found to be a sequence of this model.
struct Checked<'a> {
    layout: Layout,
    n_tokens: usize,
    ids: Vec<u32>,
    live: Vec<u32>,
    bytes: &'a [u8],
}

fn wrong(place: &str, expected: impl std::fmt::Display, got: impl std::fmt::Display) -> Error {
    Error::format("saved session", place, expected, got)
}

impl Model {
    /// The sequence as bytes that [`Model::restore`] takes, in this process or another, and the ids `pending` that are to be read next
    /// (the logits after an id come from reading it, so often the last is still unread). Costs a copy of what is live on the device
    /// ([`Model::kv_bytes_live`]). Marks are not part of it.
    ///
    /// # Errors
    /// [`Error::Argument`] for an id outside the vocabulary, [`Error::OutOfMemory`], and what the device reports.
    pub async fn save(&mut self, pending: &[u32]) -> Result<Vec<u8>> {
        self.lasting(async |model| model.try_save(pending).await).await
    }

    async fn try_save(&mut self, pending: &[u32]) -> Result<Vec<u8>> {
        check_ids("pending", pending, self.config.vocab)?;
        self.end_draws();
        let n_tokens = self.pages.n_tokens();
        let live = self.first_live().await?;
        let layout = self.layout(n_tokens, n_tokens + pending.len(), self.pages.evicts(), &live);
        let n_bytes = 4 * layout.words();
        let mut out = Vec::new();
        let refused = |reason: String| Error::OutOfMemory { what: "the saved session".to_owned(), bytes: n_bytes as u64, reason };
        let fits = usize::try_from(n_bytes).map_err(|error| refused(error.to_string()))?;
        out.try_reserve_exact(fits).map_err(|error| refused(error.to_string()))?;
        put(&mut out, &self.header(&layout, n_tokens));
        put(&mut out, &self.history);
        put(&mut out, pending);
        put(&mut out, &live[..layout.live_words()]);
        for layer in 0..layout.n_layers {
            self.save_layer(&layout, layer, n_tokens, &mut out).await?;
        }
        let sum = checksum(&out);
        put(&mut out, &halves(sum));
        assert!(out.len() == fits, "a saved session has the length that its layout says");
        Ok(out)
    }

    /// Takes a saved sequence in the place of the model's own, and gives the ids that are to be read next. On the device that saved it
    /// everything after is the same, bit for bit, as if it had never been saved. (Where the oldest keys slide away *and* pages are pruned,
    /// other pages may be the next to slide: by which are known to be dead, and bytes say that of their last token, while who went on knew it of
    /// some tokens ago. What comes after that is the same whenever these bytes are restored.)
    ///
    /// # Errors
    /// [`Error::Format`] for bytes that are damaged, of another version, or of a model or cache other than this; [`Error::ContextFull`] and
    /// [`Error::PagesFull`] where it has no room. The model is as before then. What the device reports: then it is empty.
    pub async fn restore(&mut self, bytes: &[u8]) -> Result<Vec<u32>> {
        let pending = self.lasting(async |model| model.try_restore(bytes).await).await?;
        if self.origin.is_some() {
            self.log = Log::of_bytes(bytes.into(), self.pages.n_tokens());
        }
        Ok(pending)
    }

    pub(super) async fn try_restore(&mut self, bytes: &[u8]) -> Result<Vec<u32>> {
        let Checked { layout, n_tokens, mut ids, live, bytes } = self.check(bytes)?;
        let pending = ids.split_off(n_tokens);
        self.end_draws();
        let table = self.pages.adopt(n_tokens, layout.first.clone()).map_err(|short| Error::PagesFull {
            tokens: n_tokens,
            needed: short.needed,
            free: short.free,
            held: self.pages.per_layer(),
            context: self.context,
        })?;
        self.begin_at(n_tokens);
        self.device.write(self.network.page_table(), 0, &table);
        if self.pages.evicts() {
            self.device.write(self.network.page_table(), self.pages.live_at().0, &live);
        }
        self.device.write(self.network.ids, 0, &ids);
        let mut words = Words { bytes, at: HEADER + layout.n_ids + layout.live_words() };
        for layer in 0..layout.n_layers {
            self.restore_layer(&layout, layer, &mut words);
            // So that copies of a long text do not pile up on their way.
            if let Err(error) = self.device.flush().await {
                self.reset();
                return Err(error);
            }
        }
        self.history = ids;
        Ok(pending)
    }

    /// The ids of the tokens held.
    pub fn history(&self) -> &[u32] {
        &self.history[..self.history.len().min(self.pos())]
    }

    fn layout(&self, n_tokens: usize, n_ids: usize, ends: bool, live: &[u32]) -> Layout {
        let Config { n_layers, n_heads, n_kv_heads, head_dim, k_shift, v_shift, .. } = self.config;
        let heads = Heads { n_heads, n_kv_heads, head_dim, n_layers, layer: 0 };
        Layout {
            n_ids,
            n_layers,
            n_kv_heads,
            columns: n_tokens.div_ceil(PAGE),
            first: self.pages.first_needed(n_tokens, live),
            ends,
            shift_words: if (k_shift || v_shift) && n_tokens > 0 { 2 * self.config.kv_width() } else { 0 },
            page_words: PAGE * Kv::row_words(head_dim, self.network.kv_f16()),
            lam_words: heads.lam_words(),
            end_words: heads.end_words(),
        }
    }

    fn flags(&self, ends: bool) -> u32 {
        (if self.network.kv_f16() { 0 } else { KV_F32 }) | if ends { ENDS } else { 0 }
    }

    fn header(&self, layout: &Layout, n_tokens: usize) -> [u32; HEADER] {
        let [length, fingerprint] = [layout.words() as u64, self.fingerprint].map(halves);
        let ln_epsilon = halves(self.pruning.unwrap_or(0.0).to_bits());
        let (flags, n_ids) = (self.flags(layout.ends), layout.n_ids as u32);
        let [[l0, l1], [f0, f1], [e0, e1]] = [length, fingerprint, ln_epsilon];
        [MAGIC, VERSION, l0, l1, f0, f1, flags, e0, e1, n_tokens as u32, n_ids]
    }

    async fn save_layer(&mut self, layout: &Layout, layer: usize, n_tokens: usize, out: &mut Vec<u8>) -> Result<()> {
        if layout.shift_words > 0
            && let Some(rows) = self.network.shift_rows().nth(layer)
        {
            let at = self.pages.shift_slot() * layout.shift_words;
            put(out, &self.device.read_words(rows, at, layout.shift_words).await?);
        }
        let pages: Vec<usize> = layout.slots(layer).map(|(column, ix)| self.pages.page(column, ix)).collect();
        for pool in self.pools(layout, layer) {
            let mut words = self.device.gather(pool.buffer, pool.at, pool.stride, &pages).await?;
            // Beyond the tokens held a page has what was there before.
            let slots = words.chunks_exact_mut(pool.stride).zip(layout.slots(layer));
            for (page, _) in slots.filter(|(_, (column, _))| *column == n_tokens / PAGE) {
                page.chunks_exact_mut(pool.piece).for_each(|piece| piece[pool.kept(n_tokens)..].fill(0));
            }
            put(out, &words);
        }
        Ok(())
    }

    fn restore_layer(&mut self, layout: &Layout, layer: usize, words: &mut Words<'_>) {
        if layout.shift_words > 0
            && let Some(rows) = self.network.shift_rows().nth(layer)
        {
            self.device.write(rows, self.pages.shift_slot() * layout.shift_words, &words.take(layout.shift_words));
        }
        let pages: Vec<usize> = layout.slots(layer).map(|(column, ix)| self.pages.page(column, ix)).collect();
        let mut lam = Vec::new();
        for Pool { buffer, at, stride, .. } in self.pools(layout, layer) {
            // The last of the three.
            lam.clear();
            for run in pages.chunk_by(|a, b| *b == a + 1) {
                let run_words = words.take(run.len() * stride);
                self.device.write(buffer, at + run[0] * stride, &run_words);
                lam.extend(run_words);
            }
        }
        let prune = self.network.pools().nth(layer).and_then(|kv| kv.prune);
        match (prune, layout.ends) {
            (Some(prune), false) => self.end_pages(2 * prune.ends, layout, layer, &pages, &lam),
            (None, true) => words.at += pages.len() * layout.end_words,
            _ => {}
        }
    }

    /// Ends of pages that never die, from their Λ.
    fn end_pages(&mut self, at: usize, layout: &Layout, layer: usize, pages: &[usize], lam: &[u32]) {
        let Some(buffer) = self.network.lam_pages().nth(layer) else { return };
        for (page, lam) in pages.iter().zip(lam.chunks_exact(layout.lam_words)) {
            let last = |lam: &[u32]| lambda::read(lam, PAGE - 1).saturating_add(lambda::fixed(NEVER));
            let ends: Vec<u32> = lam.chunks_exact(2 * PAGE).flat_map(|lam| lambda::split(last(lam))).collect();
            self.device.write(buffer, at + page * layout.end_words, &ends);
        }
    }

    /// What a layer's pages lie in, in the order in which they are saved.
    fn pools(&self, layout: &Layout, layer: usize) -> Vec<Pool> {
        let Some(kv) = self.network.pools().nth(layer) else { return Vec::new() };
        let stride = layout.page_words;
        let mut pools = [kv.k_pages, kv.v_pages]
            .map(|buffer| Pool { buffer, at: 0, stride, piece: stride, by_key: true })
            .into_iter()
            .collect::<Vec<_>>();
        pools.push(Pool { buffer: kv.lam_pages, at: 0, stride: layout.lam_words, piece: 2 * PAGE, by_key: true });
        if let (Some(prune), true) = (kv.prune, layout.ends) {
            let stride = layout.end_words;
            pools.push(Pool { buffer: kv.lam_pages, at: 2 * prune.ends, stride, piece: stride, by_key: false });
        }
        pools
    }

    /// Finds everything wrong that bytes can say, before anything is done with them.
    fn check<'a>(&self, bytes: &'a [u8]) -> Result<Checked<'a>> {
        let (n_tokens, n_ids, ends) = self.check_header(bytes)?;
        let mut words = Words { bytes, at: HEADER };
        let rest = bytes.len() / 4 - HEADER - CHECKSUM;
        let heads = self.config.n_layers * self.config.n_kv_heads;
        let live_words = if ends { heads } else { 0 };
        if n_ids > rest || live_words > rest - n_ids {
            return Err(wrong("ids", format!("{n_ids} and {live_words} words behind them"), format!("{rest} words in all")));
        }
        let ids = words.take(n_ids);
        if let Some(id) = ids.iter().find(|id| **id as usize >= self.config.vocab) {
            return Err(wrong("ids", format!("token ids below {}", self.config.vocab), id));
        }
        let live = if ends { words.take(heads) } else { vec![0; heads] };
        if let Some(first) = live.iter().find(|first| **first as usize > n_tokens / PAGE) {
            return Err(wrong("first live pages", format!("at most {}", n_tokens / PAGE), first));
        }
        if !self.pages.evicts() && live.iter().any(|first| *first > 0) {
            let expected = "a session without dead pages, for a model loaded with --overflow error and nothing pruned";
            return Err(wrong("first live pages", expected, "one with dead pages"));
        }
        let layout = self.layout(n_tokens, n_ids, ends, &live);
        if layout.words() != (bytes.len() / 4) as u128 {
            return Err(wrong("length", format!("{} bytes", 4 * layout.words()), format!("{} bytes", bytes.len())));
        }
        for layer in 0..layout.n_layers {
            check_lambdas(&layout, layer, n_tokens, &mut words)?;
        }
        if n_tokens > self.positions {
            return Err(Error::ContextFull { needed: n_tokens, available: self.positions });
        }
        Ok(Checked { layout, n_tokens, ids, live, bytes })
    }

    /// Tokens held, ids, and whether pages die.
    fn check_header(&self, bytes: &[u8]) -> Result<(usize, usize, bool)> {
        if bytes.len() < 4 * (HEADER + CHECKSUM) || !bytes.len().is_multiple_of(4) {
            let expected = format!("whole words, at least {}", HEADER + CHECKSUM);
            return Err(wrong("length", expected, format!("{} bytes", bytes.len())));
        }
        let header = Words { bytes, at: 0 }.take(HEADER);
        let [magic, version, l0, l1, f0, f1, flags, e0, e1, n_tokens, n_ids] = header[..] else {
            unreachable!("a header has {HEADER} words")
        };
        if magic != MAGIC {
            return Err(wrong("magic", "a saved session, which begins with KFXS", magic.to_le_bytes().escape_ascii()));
        }
        if version != VERSION {
            return Err(wrong("version", VERSION, version));
        }
        let n_words = (bytes.len() / 4) as u64;
        if whole([l0, l1]) != n_words {
            return Err(wrong("length", format!("{} words, as it says", whole([l0, l1])), n_words));
        }
        let (body, sum) = bytes.split_at(bytes.len() - 4 * CHECKSUM);
        let (stated, found) = (Words { bytes: sum, at: 0 }.take(CHECKSUM), checksum(body));
        if stated != halves(found) {
            return Err(wrong("checksum", format!("{:#018x}", whole([stated[0], stated[1]])), format!("{found:#018x}")));
        }
        if whole([f0, f1]) != self.fingerprint {
            let expected = format!("a session of {} ({:#018x})", self.file, self.fingerprint);
            return Err(wrong("model", expected, format!("one of another model ({:#018x})", whole([f0, f1]))));
        }
        let ends = flags & ENDS != 0;
        if flags != self.flags(ends) {
            let kv = if self.network.kv_f16() { "f16" } else { "f32" };
            return Err(wrong("flags", format!("{:#x} (kv {kv}), or with {ENDS:#x}", self.flags(false)), format!("{flags:#x}")));
        }
        let (stated, ours) = (f64::from_bits(whole([e0, e1])), self.pruning.unwrap_or(0.0));
        if stated.to_bits() != ours.to_bits() {
            return Err(wrong("pruning", format!("ln ε = {ours} (0: off), as the model was loaded"), stated));
        }
        // The device's positions are 32 bits, and so is what a sequence of any model may have.
        if n_tokens > n_ids || (ours != 0.0 && !ends) {
            return Err(wrong("tokens", format!("at most {n_ids} (the ids), first live pages where pages die"), n_tokens));
        }
        Ok((n_tokens as usize, n_ids as usize, ends))
    }
}

/// Where pages of a kind lie: `stride` words each from word `at` on, in pieces of one kind for all keys.
struct Pool {
    buffer: BufferId,
    at: usize,
    stride: usize,
    piece: usize,
    /// Whether each key has its part of a piece.
    by_key: bool,
}

impl Pool {
    /// Words of a piece of the page that the next token is in.
    fn kept(&self, n_tokens: usize) -> usize {
        if self.by_key { n_tokens % PAGE * self.piece / PAGE } else { 0 }
    }
}

/// Λ never falls, and grows by no more than [`lambda::MAX`] a token; passes over the rest of a layer.
fn check_lambdas(layout: &Layout, layer: usize, n_tokens: usize, words: &mut Words<'_>) -> Result<()> {
    let n_pages = layout.n_pages(layer);
    words.at += layout.shift_words + 2 * n_pages * layout.page_words;
    let most = (n_tokens as u64).saturating_mul(lambda::fixed(lambda::MAX));
    let group = layout.end_words / 2;
    let mut before = vec![0; layout.n_kv_heads * group];
    for (column, ix) in layout.slots(layer) {
        let lam = words.take(layout.lam_words);
        let heads = &mut before[ix % layout.n_kv_heads * group..][..group];
        for (lam, before) in lam.chunks_exact(2 * PAGE).zip(heads) {
            for key in 0..PAGE.min(n_tokens - column * PAGE) {
                let lam = lambda::read(lam, key);
                if lam < *before || lam > most {
                    let place = format!("Λ of layer {layer}, token {}", column * PAGE + key);
                    return Err(wrong(&place, format!("{before} to {most}"), lam));
                }
                *before = lam;
            }
        }
    }
    if layout.ends {
        words.at += n_pages * layout.end_words;
    }
    Ok(())
}

/// Words of checked length, from one on.
struct Words<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Words<'_> {
    fn take(&mut self, n: usize) -> Vec<u32> {
        let words = words(&self.bytes[4 * self.at..4 * (self.at + n)]).collect();
        self.at += n;
        words
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

fn put(out: &mut Vec<u8>, words: &[u32]) {
    out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

fn checksum(bytes: &[u8]) -> u64 {
    words(bytes).fold(Hash::EMPTY, Hash::word).0
}

fn halves(long: u64) -> [u32; 2] {
    [long as u32, (long >> 32) as u32]
}

fn whole([low, high]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
