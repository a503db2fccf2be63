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

const BINS = 256u;
const GROUPS = 256u;
const AHEAD = 8u; // times four logits that an invocation asks for at once
const LIST = 512u;
const LEVELS = 8u; // of bins: one of gaps, 4 of a byte of the key each, 3 of a byte of the id
const TOP_K = 0u;
const TOP_P = 1u;
const DRAW = 2u;
const LARGE = 3e38;
const LOWEST_KEY = 0x00800000u; // of finite numbers
const HIGHEST_KEY = 0xff7fffffu;
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

var<workgroup> tops: array<u32, WG>;    // best key of each invocation
var<workgroup> group_tops: array<vec4<u32>, GROUPS / 4u>;
var<workgroup> best_key: u32;
var<workgroup> floor_key: u32;         // no better than that of the k-th candidate, or 0
var<workgroup> least_key: atomic<u32>;
var<workgroup> best_id: atomic<u32>;
var<workgroup> bad_id: atomic<u32>;    // the first that is no finite number
var<workgroup> bin_count: array<atomic<u32>, BINS>;
var<workgroup> bin_low: array<atomic<u32>, BINS>;
var<workgroup> bin_high: array<atomic<u32>, BINS>;
var<workgroup> n_listed: atomic<u32>;
var<workgroup> list_key: array<u32, LIST>;
var<workgroup> list_id: array<u32, LIST>;
var<workgroup> list_sum: array<vec2<u32>, LIST>;
var<workgroup> total_low: atomic<u32>;
var<workgroup> total_high: atomic<u32>;
var<workgroup> cut: vec2<u32>;         // key and id of the last candidate that is left
var<workgroup> whole: u32;             // 1: the list has every candidate that is left
var<workgroup> need: vec2<u32>;        // what the candidates of the window add up to at the answer
var<workgroup> narrowed: u32;          // 0: go on, 1: the window fits in the list, 2: the bound is never reached
// The window: bins of gaps from first to last, and bits of key and id.
var<workgroup> stages: u32;          // bits of those to ask
var<workgroup> first_bin: u32;
var<workgroup> last_bin: u32;
var<workgroup> window: vec4<u32>;      // key, mask of the key, id, mask of the id

var<private> lane: u32;
var<private> best: f32;
var<private> bins_per_gap: f32;
var<private> widest: f32;              // gap that is left, by min-p
var<private> rate: f32;                // 1 / temperature

fn gap_of(key: u32) -> f32 { return min(best - logit_of(key), LARGE); }
fn bin_of(key: u32) -> u32 { return u32(min(gap_of(key) * bins_per_gap, f32(BINS - 1u))); }
fn is_left(key: u32, id: u32) -> bool { return !before(cut, vec2<u32>(key, id)) && gap_of(key) <= widest; }

fn in_window(key: u32, id: u32) -> bool {
  let bin = bin_of(key);
  return bin >= first_bin && bin <= last_bin && ((key ^ window.x) & window.y) == 0u && ((id ^ window.z) & window.w) == 0u;
}

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

// The keys of four candidates, `outside` past the end (0: no key of a number).
fn keys_at(i: u32, outside: u32) -> vec4<u32> {
  let at = vec4<u32>(i, i + WG, i + 2u * WG, i + 3u * WG);
  let inside = min(at, vec4<u32>(params.vocab - 1u));
  let four = vec4<f32>(logits[inside.x], logits[inside.y], logits[inside.z], logits[inside.w]);
  return select(vec4<u32>(outside), keys_of(bitcast<vec4<u32>>(four)), at < vec4<u32>(params.vocab));
}

// No id has two, so no logit is written twice.
fn add_biases() {
  let n = options[O_BIASES];
  for (var i = lane; i < n; i += WG) {
    let id = options[O_BIASES + 1u + 2u * i];
    if (id >= params.vocab) { continue; }
    let logit = logits[id];
    if (is_finite(bitcast<u32>(logit))) { logits[id] = within(logit + bitcast<f32>(options[O_BIASES + 2u + 2u * i])); }
  }
  if (n > 0u) {
    storageBarrier();
    workgroupBarrier();
  }
}

fn within(logit: f32) -> f32 { return clamp(logit, -3.4028234663852886e38, 3.4028234663852886e38); }

fn penalise() {
  let n = min(options[O_RECENT], step.pos + step.n_tokens);
  let first = step.pos + step.n_tokens - n;
  // Of the places of an id only one penalises it: the first, where they are few; else the one whose mark stays.
  let few = n <= LIST;
  for (var i = lane; i < n; i += WG) {
    let id = ids[first + i];
    if (few) { list_id[i] = id; } else if (id < params.vocab) { atomicStore(&marks[id], i); }
  }
  storageBarrier();
  workgroupBarrier();
  for (var i = lane; i < n; i += WG) {
    let id = ids[first + i];
    if (id >= params.vocab) { continue; }
    var counts = true;
    if (few) {
      for (var before = 0u; before < i; before += 1u) { counts = counts & (list_id[before] != id); }
    } else {
      counts = atomicLoad(&marks[id]) == i;
    }
    if (counts) {
      let penalty = bitcast<f32>(options[O_PENALTY]);
      let logit = logits[id];
      if (is_finite(bitcast<u32>(logit))) { logits[id] = within(select(logit * penalty, logit / penalty, logit > 0.0)); }
    }
  }
  storageBarrier();
  workgroupBarrier();
}

// Best logit, whether some is no finite number, and a key that the k best reach.
fn look() {
  var high = vec4<u32>(0u);
  var low = vec4<u32>(0xffffffffu);
  for (var first = lane; first < params.vocab; first += 4u * AHEAD * WG) {
    var ahead: array<vec4<u32>, AHEAD>;
    for (var n = 0u; n < AHEAD; n += 1u) { ahead[n] = keys_at(first + 4u * n * WG, 0x80000000u); }
    for (var n = 0u; n < AHEAD; n += 1u) {
      // Past the end are zeros: no bad numbers, and none of anybody's best.
      let inside = vec4<u32>(first + 4u * n * WG) + vec4<u32>(0u, WG, 2u * WG, 3u * WG) < vec4<u32>(params.vocab);
      high = max(high, select(vec4<u32>(0u), ahead[n], inside));
      low = min(low, ahead[n]);
    }
  }
  let top = max(max(high.x, high.y), max(high.z, high.w));
  tops[lane] = top;
  if (top > HIGHEST_KEY || min(min(low.x, low.y), min(low.z, low.w)) < LOWEST_KEY) { find_bad(); }
  workgroupBarrier();
  if (lane < GROUPS / 4u) {
    var four = vec4<u32>(0u);
    for (var n = 4u * lane; n < WG; n += GROUPS) { four = max(four, vec4<u32>(tops[n], tops[n + 1u], tops[n + 2u], tops[n + 3u])); }
    group_tops[lane] = four;
  }
  workgroupBarrier();
  if (lane < GROUPS) {
    let mine = group_tops[lane / 4u][lane % 4u];
    var ahead_of_mine = vec4<u32>(0u);
    for (var n = 0u; n < GROUPS / 4u; n += 1u) {
      let four = group_tops[n];
      let ties = vec4<u32>(4u * n, 4u * n + 1u, 4u * n + 2u, 4u * n + 3u) < vec4<u32>(lane);
      ahead_of_mine += select(vec4<u32>(0u), vec4<u32>(1u), (four > vec4<u32>(mine)) | ((four == vec4<u32>(mine)) & ties));
    }
    let rank = ahead_of_mine.x + ahead_of_mine.y + ahead_of_mine.z + ahead_of_mine.w;
    if (rank == 0u) { best_key = mine; }
    if (rank + 1u == options[O_TOP_K]) { floor_key = mine; }
  }
  workgroupBarrier();
  best = logit_of(best_key);
}

// The first logit that is no finite number, among this invocation's.
fn find_bad() {
  for (var id = lane; id < params.vocab; id += WG) {
    if (!is_finite(bitcast<u32>(logits[id]))) {
      atomicMin(&bad_id, id);
      return;
    }
  }
}

// The first id of the best.
fn find_best() {
  for (var i = lane; i < params.vocab; i += 4u * WG) {
    let keys = keys_at(i, 0u);
    for (var j = 0u; j < 4u; j += 1u) {
      if (keys[j] == best_key) { atomicMin(&best_id, i + j * WG); }
    }
  }
}

// How wide a bin of gaps is.
fn size_bins() {
  var least = 0xffffffffu;
  for (var i = lane; i < params.vocab; i += 4u * WG) {
    let keys = keys_at(i, 0u);
    for (var j = 0u; j < 4u; j += 1u) { least = min(least, select(keys[j], 0xffffffffu, keys[j] == 0u)); }
  }
  atomicMin(&least_key, least);
  workgroupBarrier();
  let span = min(gap_of(atomicLoad(&least_key)), widest);
  bins_per_gap = select(f32(BINS) / span, 0.0, span < 1e-30);
}

fn bin_all(stage: u32, level: u32) {
  if (lane < BINS) {
    atomicStore(&bin_count[lane], 0u);
    atomicStore(&bin_low[lane], 0u);
    atomicStore(&bin_high[lane], 0u);
  }
  workgroupBarrier();
  for (var i = lane; i < params.vocab; i += 4u * WG) {
    let keys = keys_at(i, 0u);
    for (var j = 0u; j < 4u; j += 1u) {
      let id = i + j * WG;
      if (is_left(keys[j], id) && in_window(keys[j], id)) {
        var bin = bin_of(keys[j]);
        if (level > 0u) { bin = digit(level, keys[j], id); }
        let sum = measure(stage, keys[j]);
        atomicAdd(&bin_count[bin], 1u);
        let old = atomicAdd(&bin_low[bin], sum.x);
        atomicAdd(&bin_high[bin], sum.y + select(0u, 1u, old + sum.x < old));
      }
    }
  }
  workgroupBarrier();
}

// Narrows the window to the bin with the answer.
fn narrow(stage: u32, level: u32) {
  var n_before = 0u;
  var sum = vec2<u32>();
  let own = min(lane, BINS - 1u);
  for (var bin = 0u; bin < own; bin += 1u) {
    n_before += atomicLoad(&bin_count[bin]);
    sum = add64(sum, vec2<u32>(atomicLoad(&bin_low[bin]), atomicLoad(&bin_high[bin])));
  }
  let n = atomicLoad(&bin_count[own]);
  let after = add64(sum, vec2<u32>(atomicLoad(&bin_low[own]), atomicLoad(&bin_high[own])));
  if (level == 0u && lane == BINS - 1u) {
    need = bound(stage, after);
    narrowed = 2u;
  }
  workgroupBarrier();
  let wanted = need;
  workgroupBarrier();
  if (lane >= BINS || !less64(sum, wanted) || less64(after, wanted)) { return; }
  narrowed = select(0u, 1u, n <= LIST || level == LEVELS - 1u);
  if (level == 0u) {
    last_bin = lane;
    if (n_before + n <= LIST) {
      // All that ranks up to here fits: later questions are asked of the list.
      narrowed = 1u;
      whole = 1u;
      return;
    }
    first_bin = lane;
  } else {
    window = window_of(level, lane, window);
  }
  need = sub64(wanted, sum);
}

// Lists what is left and in the window, from a key on.
fn list_window(least: u32) {
  if (lane == 0u) { atomicStore(&n_listed, 0u); }
  workgroupBarrier();
  // An invocation whose best is none of them need not look at the others.
  let end = select(params.vocab, 0u, tops[lane] < least);
  for (var first = lane; first < end; first += 4u * AHEAD * WG) {
    var ahead: array<vec4<u32>, AHEAD>;
    for (var n = 0u; n < AHEAD; n += 1u) { ahead[n] = keys_at(first + 4u * n * WG, 0u); }
    for (var n = 0u; n < AHEAD; n += 1u) {
      for (var j = 0u; j < 4u; j += 1u) {
        let key = ahead[n][j];
        let id = first + (4u * n + j) * WG;
        if (key >= least && is_left(key, id) && in_window(key, id) && atomicLoad(&n_listed) < LIST + 1u) {
          let slot = atomicAdd(&n_listed, 1u);
          if (slot < LIST) {
            list_key[slot] = key;
            list_id[slot] = id;
          }
        }
      }
    }
  }
  workgroupBarrier();
}

// Cuts at the candidate of the list where the sum reaches the bound. `add_up`: the bound is of the list's own total.
fn cut_list(stage: u32, add_up: bool) {
  let n = min(atomicLoad(&n_listed), LIST);
  for (var i = lane; i < n; i += WG) {
    var sum = vec2<u32>();
    if (is_left(list_key[i], list_id[i])) { sum = measure(stage, list_key[i]); }
    list_sum[i] = sum;
    let old = atomicAdd(&total_low, sum.x);
    atomicAdd(&total_high, sum.y + select(0u, 1u, old + sum.x < old));
  }
  workgroupBarrier();
  var wanted = need;
  if (add_up) { wanted = bound(stage, vec2<u32>(atomicLoad(&total_low), atomicLoad(&total_high))); }
  var found = vec2<u32>();
  for (var i = lane; i < n; i += WG) {
    let candidate = vec2<u32>(list_key[i], list_id[i]);
    var sum = vec2<u32>();
    for (var j = 0u; j < n; j += 1u) {
      if (before(vec2<u32>(list_key[j], list_id[j]), candidate)) { sum = add64(sum, list_sum[j]); }
    }
    if (less64(sum, wanted) && !less64(add64(sum, list_sum[i]), wanted)) { found = candidate; }
  }
  workgroupBarrier();
  if (found.x != 0u) { cut = found; }
  if (lane == 0u) {
    atomicStore(&total_low, 0u);
    atomicStore(&total_high, 0u);
  }
  workgroupBarrier();
}

fn reset_window() {
  if (lane == 0u) {
    first_bin = 0u;
    last_bin = BINS - 1u;
    window = vec4<u32>();
  }
  workgroupBarrier();
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
