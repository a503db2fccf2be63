//! Every filter alone and together, on vocabularies that fit in the list and that do not, with equal logits by the thousand.

use super::{FEW_LOGITS, GATHER, Options, Sample};
use crate::graph::{Case, Compare, Dispatch, Expect, Program, Role, Step, Tolerance};
use crate::kernel::inputs;
use crate::kernel::layout::{self, WeightType};

/// A row of the embedding: see [`crate::kernel::embed`].
const TOLERANCE: Tolerance = Tolerance { nmse: 0.0, max_abs: 0.0 };

const PLAIN: Options<'static> = Options {
    greedy: false,
    top_k: 0,
    top_p: 0,
    widest: f32::MAX,
    rate: 1.0,
    penalty: 1.0,
    recent: 0,
    seed: 0x0123_4567_89ab_cdef,
    first: 2,
    biases: &[],
};

/// For better and for worse; of a recent id, and of one that the vocabulary has not.
const BIASES: &[(u32, f32)] =
    &[(3, 4.5), (0, -2.0), (1, f32::MAX), (2, f32::MIN), (4, 0.0), (650, 9.0), (699, 8.5), (u32::MAX, 5.0)];

/// How the logits lie.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Logits {
    /// Uniform in (-8, 8).
    Wide,
    /// Of few values, 0 and -0 among them.
    Equal,
    /// All the same.
    Flat,
    /// -0, but for the third, which is 0: as good, and the first of them is the best.
    Zero,
    /// The largest and the least floats.
    Extreme,
    /// One is this.
    Bad(f32),
}

pub(super) fn cases() -> Vec<Case> {
    use Logits::{Bad, Equal, Extreme, Flat, Wide, Zero};
    let penalised = Options { penalty: 1.3, recent: 6, ..PLAIN };
    let half = 1 << 31;
    let mut all = Vec::new();
    for (ix, ty) in WeightType::ALL.into_iter().enumerate() {
        all.push(("default", Wide, 100 + ix, Options { top_k: 40, widest: 3.0, rate: 1.25, ..penalised }, Some(ty)));
    }
    let small = [(5, Wide), (300, Zero), (700, Wide), (5000, Wide), (5000, Equal), (2600, Flat)];
    // Those that a larger workgroup may take.
    let large = [(FEW_LOGITS as usize + 1, Zero), (9001, Equal), (9001, Flat), (9001, Extreme), (70_001, Wide)];
    for (vocab, logits) in small.into_iter().chain(large) {
        all.extend([
            ("plain", logits, vocab, PLAIN, None),
            ("greedy", logits, vocab, Options { greedy: true, ..penalised }, None),
            ("top-k", logits, vocab, Options { top_k: 40, ..penalised }, None),
            ("large top-k", logits, vocab, Options { top_k: 2000, ..PLAIN }, None),
            ("top-p", logits, vocab, Options { top_p: half, ..penalised }, None),
            ("min-p", logits, vocab, Options { widest: 3.0, ..PLAIN }, None),
            ("all", logits, vocab, Options { top_k: 3000, top_p: 3 << 30, widest: 6.0, rate: 0.5, ..penalised }, None),
            ("hot", logits, vocab, Options { rate: 1e-30, ..PLAIN }, None),
            ("cold", logits, vocab, Options { rate: f32::MAX, ..PLAIN }, None),
        ]);
    }
    // As the command line draws: recent ids of all kinds, more of them than a workgroup tells apart, too.
    let usual = Options { top_k: 40, widest: 2.9957323, rate: 1.25, penalty: 1.1, recent: 64, ..PLAIN };
    all.push(("usual", Wide, 199, usual, None));
    all.push(("usual, all recent", Wide, 5000, Options { recent: u32::MAX, ..usual }, None));
    for options in [PLAIN, Options { greedy: true, ..PLAIN }, Options { top_p: half, ..penalised }, usual] {
        let milder = &BIASES[4..];
        let kinds = [(Wide, 5), (Wide, 700), (Flat, 5000), (Extreme, 700), (Bad(f32::NAN), 1000)];
        for (logits, vocab) in kinds.into_iter().chain([(Wide, 9001), (Equal, 9001), (Bad(f32::NAN), 9001)]) {
            all.push(("biased", logits, vocab, Options { biases: BIASES, ..options }, None));
            all.push(("slightly biased", logits, vocab, Options { biases: milder, ..options }, None));
        }
    }
    all.push(("extreme", Extreme, 3000, Options { top_p: half, penalty: f32::MAX, recent: 6, ..PLAIN }, None));
    all.push(("all that came before", Wide, 5, Options { penalty: 2.0, recent: u32::MAX, ..PLAIN }, None));
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        all.push(("no number", Bad(bad), 1000, penalised, Some(WeightType::F32)));
        all.push(("no number", Bad(bad), 9001, penalised, None));
    }
    for (logits, vocab) in [(Zero, 300), (Wide, 9001), (Zero, 9001), (Bad(f32::NAN), 9001)] {
        all.push(("greedy", logits, vocab, Options { greedy: true, ..PLAIN }, Some(WeightType::F16)));
        all.push(("default", logits, vocab, Options { top_k: 40, widest: 3.0, rate: 1.25, ..penalised }, Some(WeightType::F16)));
    }
    all.into_iter()
        .enumerate()
        .map(|(ix, (name, logits, vocab, options, ty))| case(ix, name, logits, vocab, options, ty))
        .collect()
}

/// A draw as the command line makes it, from a vocabulary of the kind that the alternative is for.
pub(super) fn probe(dispatch: &Dispatch) -> Case {
    let ty = dispatch.variant.has(GATHER).then(|| WeightType::of(|flag| dispatch.variant.has(flag)));
    let options = Options { top_k: 40, widest: 2.9957323, rate: 1.25, penalty: 1.1, recent: 64, ..PLAIN };
    let vocab = if dispatch.param("vocab") > FEW_LOGITS { FEW_LOGITS as usize + 77 } else { 777 };
    case(0, "usual", Logits::Wide, vocab, options, ty)
}

fn logits_of(logits: Logits, vocab: usize) -> Vec<f32> {
    let wide = inputs::floats(vocab as u32, vocab, 8.0);
    let few = |x: f32| [0.0, -0.0, 1.5, -7.0][(x.to_bits() >> 9 & 3) as usize];
    match logits {
        Logits::Wide => wide,
        Logits::Equal => wide.into_iter().map(few).collect(),
        Logits::Flat => vec![-2.5; vocab],
        Logits::Zero => (0..vocab).map(|ix| if ix == 2 { 0.0 } else { -0.0 }).collect(),
        Logits::Extreme => wide.into_iter().map(|x| if x > 0.0 { f32::MAX } else { f32::MIN }).collect(),
        Logits::Bad(bad) => wide.into_iter().enumerate().map(|(ix, x)| if ix == 700 { bad } else { x }).collect(),
    }
}

fn case(ix: usize, name: &str, logits: Logits, vocab: usize, options: Options<'_>, ty: Option<WeightType>) -> Case {
    let (k, pos) = (256, if name.starts_with("usual") { 700 } else { 6 + ix });
    let mut program = Program::default();
    let mut contents = Vec::new();
    let gather = ty.map(|ty| {
        let part = layout::sample_part(&mut program, &mut contents, ty, vocab, k);
        (part, program.buffer("x", k, Role::State))
    });
    let buffers = Sample {
        logits: program.buffer("logits", vocab, Role::Output),
        ids: program.buffer("ids", pos + 3, Role::State),
        marks: program.buffer("marks", vocab, Role::State),
        options: program.buffer("options", Options::WORDS, Role::Input),
        gather,
    };
    let mut r = program.record("sample");
    buffers.record(&mut r);
    r.finish();
    contents.push((buffers.logits, logits_of(logits, vocab).into_iter().map(f32::to_bits).collect()));
    // Recent ids twice, and one that the vocabulary has not.
    contents.push((buffers.ids, {
        let kinds = if name.starts_with("usual") { 97 } else { 3 };
        (0..pos as u32 + 1).map(|ix| if ix % 5 == 4 { u32::MAX } else { ix * 7 % kinds }).collect()
    }));
    contents.push((buffers.options, options.words()));
    let mut expect = vec![Expect { buffer: buffers.ids, compare: Compare::Exact }];
    if let (Some((_, x)), false) = (gather, matches!(logits, Logits::Bad(_))) {
        expect.push(Expect { buffer: x, compare: Compare::F32(TOLERANCE) });
    }
    Case {
        name: format!("{name}, {logits:?} vocab={vocab}{}", ty.map_or(String::new(), |ty| format!(" {}", ty.name()))),
        program,
        contents,
        step: Step { pos: pos as u32, n_tokens: 1, ..Step::default() },
        expect,
    }
}
