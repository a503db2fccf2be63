// The logits of sample as keys: biases and the repeat penalty, the best of them, and the first that is no finite number.
const GROUPS = 256u;
const AHEAD = select(8u, 4u, WG > 256u); // times four logits that an invocation asks for at once
const LARGE = 3e38;
const LOWEST_KEY = 0x00800000u; // of finite numbers
const HIGHEST_KEY = 0xff7fffffu;

var<workgroup> tops: array<u32, WG>;    // best key of each invocation
var<workgroup> group_tops: array<vec4<u32>, GROUPS / 4u>;
var<workgroup> best_key: u32;
var<workgroup> floor_key: u32;         // no better than that of the k-th candidate, or 0
var<workgroup> best_id: atomic<u32>;
var<workgroup> bad_id: atomic<u32>;    // the first that is no finite number

var<private> lane: u32;
var<private> best: f32;

// The keys of four ids; past the end no key of a number: 0.
fn keys_of_ids(ids: vec4<u32>) -> vec4<u32> {
  let at = min(ids, vec4<u32>(params.vocab - 1u));
  let four = vec4<f32>(logits[at.x], logits[at.y], logits[at.z], logits[at.w]);
  return select(vec4<u32>(), keys_of(bitcast<vec4<u32>>(four)), ids < vec4<u32>(params.vocab));
}

fn four_ids(i: u32) -> vec4<u32> { return vec4<u32>(i, i + WG, i + 2u * WG, i + 3u * WG); }

fn within(logit: f32) -> f32 { return clamp(logit, -3.4028234663852886e38, 3.4028234663852886e38); }

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
  var high = vec4<u32>();
  var low = vec4<u32>(0xffffffffu);
  for (var first = lane; first < params.vocab; first += 4u * AHEAD * WG) {
    var ahead: array<vec4<u32>, AHEAD>;
    for (var n = 0u; n < AHEAD; n += 1u) {
      let at = min(four_ids(first + 4u * n * WG), vec4<u32>(params.vocab - 1u));
      ahead[n] = bitcast<vec4<u32>>(vec4<f32>(logits[at.x], logits[at.y], logits[at.z], logits[at.w]));
    }
    for (var n = 0u; n < AHEAD; n += 1u) {
      let keys = ahead[n] ^ (bitcast<vec4<u32>>(bitcast<vec4<i32>>(ahead[n]) >> vec4<u32>(31u)) | vec4<u32>(0x80000000u));
      // Past the end is the last again, and nobody's best.
      high = max(high, select(vec4<u32>(), keys, four_ids(first + 4u * n * WG) < vec4<u32>(params.vocab)));
      low = min(low, keys);
    }
  }
  var top = max(max(high.x, high.y), max(high.z, high.w));
  top += select(0u, 1u, top == 0x7fffffffu); // -0 ranks as 0
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
    let keys = keys_of_ids(four_ids(i));
    for (var j = 0u; j < 4u; j += 1u) {
      if (keys[j] == best_key) { atomicMin(&best_id, i + j * WG); }
    }
  }
}
