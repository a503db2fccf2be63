// ids[next] = a draw from softmax(logits / temperature) over what the filters leave: biases, repeat penalty, top-k, top-p, min-p, in that
// order; x = E[that id], the next token's input (GATHER)
// One workgroup. Candidates rank by logit descending, then id ascending, and every filter keeps a prefix of that order, so there
// is one question, asked up to three times: at which candidate does a running sum in rank order reach a bound? top-k counts,
// top-p sums e^gap, the draw sums e^(gap / temperature), gap = logit - best. Sums are integers (units of 2^-44): no order of
// addition changes them. Candidates are listed if few enough are left, and an answer is found by adding, for each, what ranks before
// it. A small top-k leaves few: the k-th of the best of 256 groups is no better than the k-th of all, and hardly worse. Else bins
// (of equal gaps, then of the bits of logit and id) narrow the question down until its candidates fit in the list.
#ifdef GATHER
#import weights
#endif
@group(0) @binding(2) var<storage, read_write> logits: array<f32>; // [vocab]; biases and penalty stay in them
@group(0) @binding(3) var<storage, read_write> ids: array<u32>; // [context], by position
@group(0) @binding(4) var<storage, read_write> marks: array<atomic<u32>>; // [vocab]
#ifdef GATHER
@group(0) @binding(5) var<storage, read_write> x: array<vec4<f32>>; // [k/4]
#endif
@group(0) @binding(6) var<storage, read> options: array<u32>; // kernel::sample::Options

struct Params { vocab: u32, k: u32 }
@group(0) @binding(8) var<uniform> params: Params;
#import step
#import philox
#import rank
#import sample_logits
#import sample_bins
#import sample_list

// The questions.
const TOP_K = 0u;
const TOP_P = 1u;
const DRAW = 2u;
// Words of options.
const O_GREEDY = 0u;
const O_TOP_K = 1u; // 0: off
const O_TOP_P = 2u; // of 2^32; 0: off
const O_WIDEST = 3u;
const O_RATE = 4u;
const O_PENALTY = 5u;
const O_RECENT = 6u;
const O_SEED_LOW = 7u;
const O_SEED_HIGH = 8u;
const O_FIRST = 9u; // position of the token that is drawn with number 0
const O_BIASES = 10u; // how many; then an id and what is added to its logit, each

var<workgroup> cut: vec2<u32>;         // key and id of the last candidate that is left
var<workgroup> whole: u32;             // 1: the list has every candidate that is left
var<workgroup> stages: u32;            // bits of those to ask

var<private> widest: f32;              // gap that is left, by min-p
var<private> rate: f32;                // 1 / temperature

fn gap_of(key: u32) -> f32 { return min(best - logit_of(key), LARGE); }
fn is_left(key: u32, id: u32) -> bool { return !before(cut, vec2<u32>(key, id)) && gap_of(key) <= widest; }

fn measure(stage: u32, key: u32) -> vec2<u32> {
  if (stage == TOP_K) { return vec2<u32>(1u, 0u); }
  return exp_of_less(gap_of(key) * select(1.0, rate, stage == DRAW));
}

// The running sum at which the answer lies.
fn bound(stage: u32, total: vec2<u32>) -> vec2<u32> {
  if (stage == TOP_K) { return vec2<u32>(options[O_TOP_K], 0u); }
  if (stage == TOP_P) { return part_of(total, options[O_TOP_P], false); } // at least p of all
  return part_of(total, philox(step.pos + step.n_tokens - options[O_FIRST], options[O_SEED_HIGH], options[O_SEED_LOW]), true); // more than u of all
}

// Cuts what is left of the candidates by one question.
fn ask(stage: u32) {
  let listed = workgroupUniformLoad(&whole) == 1u;
  if (!listed) {
    reset_window();
    size_bins();
    for (var level = 0u; level < LEVELS; level += 1u) {
      bin_all(stage, level);
      narrow(stage, level);
      if (workgroupUniformLoad(&narrowed) != 0u) { break; }
    }
    if (workgroupUniformLoad(&narrowed) == 2u) { return; }
    list_window(1u);
  }
  cut_list(stage, listed);
}

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) index: u32) {
  lane = index;
  let by_min_p = bitcast<f32>(options[O_WIDEST]);
  widest = select(by_min_p, LARGE, options[O_TOP_P] != 0u); // top-p sums over what min-p will take, too
  rate = bitcast<f32>(options[O_RATE]);
  if (lane == 0u) {
    best_key = 0u;
    floor_key = 0u;
    atomicStore(&least_key, 0xffffffffu);
    atomicStore(&best_id, 0xffffffffu);
    atomicStore(&bad_id, 0xffffffffu);
    atomicStore(&total_low, 0u);
    atomicStore(&total_high, 0u);
    cut = vec2<u32>(1u, 0u);
    whole = 0u;
  }
  workgroupBarrier();
  add_biases();
  penalise();
  look();
  let bad = atomicLoad(&bad_id);
  if (lane == 0u) {
    let filters = select(0u, 1u, options[O_TOP_K] != 0u) | select(0u, 2u, options[O_TOP_P] != 0u);
    stages = select(filters | 4u, 0u, options[O_GREEDY] != 0u || bad != 0xffffffffu);
    // Where min-p or top-k may leave few, it is quickest to see.
    if (stages != 0u && (widest < 80.0 || floor_key != 0u || params.vocab <= LIST)) { stages |= 8u; }
  }
  let todo = workgroupUniformLoad(&stages);
  if ((todo & 8u) != 0u) {
    reset_window();
    list_window(max(workgroupUniformLoad(&floor_key), 1u));
    if (lane == 0u) { whole = select(0u, 1u, atomicLoad(&n_listed) <= LIST); }
  }
  for (var stage = 0u; stage < 3u; stage += 1u) {
    if (stage == DRAW) { widest = by_min_p; }
    if (((todo >> stage) & 1u) != 0u) { ask(stage); }
  }
  if (todo == 0u) { find_best(); }
  workgroupBarrier();
  let id = select(cut.y, atomicLoad(&best_id), todo == 0u);
  if (lane == 0u) {
    var word = id;
    if (bad != 0xffffffffu) {
      // No id: which logit, and what it is (0 NaN, 1 infinity, 2 minus infinity).
      let bits = bitcast<u32>(logits[bad]);
      let infinite = select(1u, 2u, (bits >> 31u) == 1u);
      word = 0x80000000u | (select(infinite, 0u, (bits & 0x7fffffu) != 0u) << 29u) | bad;
    }
    ids[step.pos + step.n_tokens] = word;
  }
#ifdef GATHER
  if (bad == 0xffffffffu) {
    for (var c = lane; c < params.k / 4u; c += WG) { x[c] = weights4(id, c, params.k); }
  }
#endif
}
