//! The next token, drawn on the device from its logits, and its embedding row as the next token's input: biases → repeat penalty →
//! top-k → top-p → min-p → temperature → draw, by the rules of `session::sampler` (the same order of candidates, the same numbers of the
//! same seed), so that equal logits give the same id here and there.
//!
//! The host knows positions ahead and ids only later: the id goes to `ids` at its position, and the host may queue the tokens behind
//! it before it has read this one. A logit that is no finite number is told in the id's place, see [`outcome`].

use super::layout::{self, N_FLAGS, Part, SCALES, WeightType};
use crate::graph::{
    Alternative, Alternatives, Args, BindingDecl, BufferId, Dispatch, Elem, Extent, Features, Grid, Kernel, Need, Recorder,
    Variant,
};

mod cases;
mod options;

pub use options::{MAX_BIASES, Options};

/// `logits: [vocab]` and `ids: [context]` (of which those before the next position are read) to one word of `ids`, and with `GATHER`
/// from `data, scales: [vocab, k]` to `x: [k]`.
pub static SAMPLE: Kernel = Kernel {
    name: "sample",
    wgsl: wgsl!("sample"),
    bindings: &[
        BindingDecl::read("data", Elem::U32x4).only_if(&[GATHER]),
        BindingDecl::read("scales", Elem::U32).only_if(&[SCALES]),
        BindingDecl::write("logits", Elem::F32),
        BindingDecl::write("ids", Elem::U32),
        BindingDecl::write("marks", Elem::U32),
        BindingDecl::write("x", Elem::F32x4).only_if(&[GATHER]),
        BindingDecl::read("options", Elem::U32),
    ],
    params: &["vocab", "k"],
    flags: &layout::flags::<{ N_FLAGS + 2 }>(&[GATHER, LARGE_GROUP]),
    consts: &["WG"],
    twin,
    alternatives: Some(Alternatives {
        needs: &[(LARGE_GROUP, Need::Invocations(LARGE_WG)), (LARGE_GROUP, Need::WorkgroupBytes(LARGE_BYTES))],
        of: offers,
    }),
    probe: Some(cases::probe),
    cases: cases::cases,
    ..Kernel::PLAIN
};

/// WebGPU's default largest workgroup.
const WG: u32 = 256;

const GATHER: &str = "GATHER";

/// A large vocabulary is read by one workgroup in fewer turns where that may be larger. The shader knows only its size.
const LARGE_GROUP: &str = "LARGE_GROUP";
const LARGE_WG: u32 = 1024;
/// Its workgroup memory at most.
const LARGE_BYTES: u32 = 24 << 10;
/// Logits that the usual workgroup asks for in one turn.
const FEW_LOGITS: u32 = 8192;

fn offers(dispatch: &Dispatch, _: &Features) -> Vec<Alternative> {
    if dispatch.param("vocab") <= FEW_LOGITS {
        return Vec::new();
    }
    let flags = dispatch.variant.flags.iter().copied().chain([LARGE_GROUP]).collect();
    let variant = Variant { flags, consts: vec![("WG", LARGE_WG)] };
    vec![Alternative { kernel: &SAMPLE, variant, grid: dispatch.grid, tolerance: None }]
}

/// The most candidates and ids that the search's bytes tell apart.
pub const MAX_VOCAB: usize = 1 << 24;

/// Where the numbers are and where the id goes.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// `[vocab]`; biases and penalty stay in them.
    pub logits: BufferId,
    /// Token ids by position, `[context]`.
    pub ids: BufferId,
    /// `[vocab]`, to find an id among the recent ones only once.
    pub marks: BufferId,
    /// [`Options::WORDS`] words.
    pub options: BufferId,
    /// The embedding `[vocab, k]` and the row `[k]` that gets the id's, if it is to be gathered.
    pub gather: Option<(Part, BufferId)>,
}

impl Sample {
    /// Records it.
    pub fn record(&self, r: &mut Recorder<'_>) {
        let vocab = r.whole(self.logits).words;
        assert!(vocab <= MAX_VOCAB, "the search tells apart 2^24 ids");
        let mut bindings = self.gather.map_or_else(Vec::new, |(part, _)| part.bindings(r));
        bindings.extend([self.logits, self.ids, self.marks].map(|buffer| r.whole(buffer)));
        bindings.extend(self.gather.map(|(_, x)| r.whole(x)));
        bindings.push(r.whole(self.options));
        let variant = self.gather.map_or_else(Variant::new, |(part, _)| part.ty.variant().flag(GATHER)).constant("WG", WG);
        let k = self.gather.map_or(0, |(part, _)| part.k);
        r.dispatch(&SAMPLE, variant, &bindings, &[vocab as u32, k as u32], Grid::x(Extent::Fixed(1)));
    }
}

/// What a word of `ids` says: the id, or the index and kind of a logit that is no finite number.
pub fn outcome(word: u32) -> Result<u32, (usize, f32)> {
    if word < 1 << 31 {
        return Ok(word);
    }
    let got = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN][(word >> 29 & 3) as usize];
    Err(((word & ((1 << 29) - 1)) as usize, got))
}

fn twin(args: &mut Args<'_>) {
    let (logits, ids, options) = (args.take_f32("logits"), args.take("ids"), args.take("options"));
    let &mut [greedy, top_k, top_p, widest, rate, penalty, recent, seed_low, seed_high, first, n_biases, ref biases @ ..] =
        options
    else {
        unreachable!("the options have {} words", Options::WORDS)
    };
    let [widest, rate] = [widest, rate].map(|bits| f64::from(f32::from_bits(bits)));
    let next = (args.step.pos + args.step.n_tokens) as usize;
    for bias in biases.chunks_exact(2).take(n_biases as usize) {
        if let Some(logit) = logits.get_mut(bias[0] as usize).filter(|logit| logit.is_finite()) {
            *logit = (*logit + f32::from_bits(bias[1])).clamp(f32::MIN, f32::MAX);
        }
    }
    let mut seen = Vec::new();
    for id in ids[next - (recent as usize).min(next)..next].iter().map(|id| *id as usize) {
        if id < logits.len() && !seen.contains(&id) && logits[id].is_finite() {
            seen.push(id);
            let penalty = f32::from_bits(penalty);
            let less = if logits[id] > 0.0 { logits[id] / penalty } else { logits[id] * penalty };
            logits[id] = less.clamp(f32::MIN, f32::MAX);
        }
    }
    if let Some(bad) = logits.iter().position(|logit| !logit.is_finite()) {
        let kind = if logits[bad].is_nan() { 0 } else { 1 + u32::from(logits[bad] < 0.0) };
        ids[next] = 1 << 31 | kind << 29 | bad as u32;
        return;
    }
    let mut ranked: Vec<usize> = (0..logits.len()).collect();
    // A stable sort: equal logits stay in the order of their ids.
    ranked.sort_by(|a, b| logits[*b].partial_cmp(&logits[*a]).unwrap_or_else(|| unreachable!("finite numbers compare")));
    let best = f64::from(logits[ranked[0]]);
    let gap = |id: &usize| best - f64::from(logits[*id]);
    if top_k > 0 {
        ranked.truncate(top_k as usize);
    }
    if top_p > 0 {
        let weights = ranked.iter().map(|id| (-gap(id)).exp());
        let wanted = weights.clone().sum::<f64>() * f64::from(top_p) / 2f64.powi(32);
        let mut sum = 0.0;
        let reached = weights.take_while(|weight| {
            let before = sum;
            sum += weight;
            before < wanted
        });
        let n = reached.count();
        ranked.truncate(n);
    }
    ranked.retain(|id| gap(id) <= widest);
    let weight = |id: &usize| (-gap(id) * rate).exp();
    let number = philox_2x32([next as u32 - first, seed_high], seed_low)[0];
    let mut left = ranked.iter().map(weight).sum::<f64>() * f64::from(number) / 2f64.powi(32);
    let drawn = ranked.iter().find(|id| {
        left -= weight(id);
        left < 0.0
    });
    let id = if greedy != 0 { ranked[0] } else { *drawn.unwrap_or(&ranked[0]) };
    ids[next] = id as u32;
    if args.has(GATHER) {
        let (ty, k) = (WeightType::of(|flag| args.has(flag)), args.param("k"));
        let data = args.take("data");
        let scales: &[u32] = if ty.has_scales() { args.take("scales") } else { &[] };
        args.take_f32("x")[..k].copy_from_slice(&layout::read_row(ty, k, data, scales, id));
    }
}

/// Philox 2x32 with 10 rounds (Random123): a bijection of the counter for each key. What is drawn uses word 0 of [index, upper half of the
/// seed] by the lower half.
pub fn philox_2x32([mut x0, mut x1]: [u32; 2], mut key: u32) -> [u32; 2] {
    for _ in 0..10 {
        let product = u64::from(x0) * 0xd256_d193;
        (x0, x1) = ((product >> 32) as u32 ^ key ^ x1, product as u32);
        key = key.wrapping_add(0x9e37_79b9);
    }
    [x0, x1]
}

#[cfg(test)]
mod tests {
    use super::philox_2x32;

    #[test]
    fn philox_gives_the_published_answers() {
        // Random123's kat_vectors, philox2x32 10.
        assert_eq!(philox_2x32([0, 0], 0), [0xff1d_ae59, 0x6cd1_0df2]);
        assert_eq!(philox_2x32([u32::MAX, u32::MAX], u32::MAX), [0x2c3f_628b, 0xab4f_d7ad]);
        assert_eq!(philox_2x32([0x243f_6a88, 0x85a3_08d3], 0x1319_8a2e), [0xdd7c_e038, 0xf62a_4c12]);
    }
}
