// The list of sample: candidates whose sums in rank order are found by adding, for each, what ranks before it.
const LIST = 512u;

var<workgroup> n_listed: atomic<u32>;
var<workgroup> n_worth: atomic<u32>;
var<workgroup> worth: array<u32, WG>;   // invocations among whose logits some may be listed
var<workgroup> list_key: array<u32, LIST>;
var<workgroup> list_id: array<u32, LIST>;
var<workgroup> list_sum: array<vec2<u32>, LIST>;
var<workgroup> total_low: atomic<u32>;
var<workgroup> total_high: atomic<u32>;

// Lists what is left and in the window, from a key on.
fn list_window(least: u32) {
  if (lane == 0u) {
    atomicStore(&n_listed, 0u);
    atomicStore(&n_worth, 0u);
  }
  workgroupBarrier();
  // An invocation whose best is none of them need not have its logits looked at again; all share those of the others.
  let top = tops[lane];
  if (top >= least && gap_of(top) <= widest) { worth[atomicAdd(&n_worth, 1u)] = lane; }
  workgroupBarrier();
  let n = atomicLoad(&n_worth);
  let end = n * ((params.vocab + WG - 1u) / WG);
  for (var first = lane; first < end; first += 4u * WG) {
    let at = min(vec4<u32>(first, first + WG, first + 2u * WG, first + 3u * WG), vec4<u32>(end));
    let turns = at / n;
    let owners = at - turns * n;
    let ids = vec4<u32>(worth[owners.x], worth[owners.y], worth[owners.z], worth[owners.w]) + turns * WG;
    let keys = keys_of_ids(ids);
    for (var j = 0u; j < 4u; j += 1u) {
      let key = keys[j];
      let id = ids[j];
      if (at[j] < end && key >= least && is_left(key, id) && in_window(key, id) && atomicLoad(&n_listed) < LIST + 1u) {
        let slot = atomicAdd(&n_listed, 1u);
        if (slot < LIST) {
          list_key[slot] = key;
          list_id[slot] = id;
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
