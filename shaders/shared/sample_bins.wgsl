// The window of sample, with the candidate where a running sum reaches its bound: narrowed down by bins of equal gaps, then of the bits
// of logit and id, until what is in it fits in the list.
const BINS = 256u;
const LEVELS = 8u; // of bins: one of gaps, 4 of a byte of the key each, 3 of a byte of the id

var<workgroup> least_key: atomic<u32>;
var<workgroup> bin_count: array<atomic<u32>, BINS>;
var<workgroup> bin_low: array<atomic<u32>, BINS>;
var<workgroup> bin_high: array<atomic<u32>, BINS>;
var<workgroup> need: vec2<u32>;        // what the candidates of the window add up to at the answer
var<workgroup> narrowed: u32;          // 0: go on, 1: the window fits in the list, 2: the bound is never reached
// The window: bins of gaps from first to last, and bits of key and id.
var<workgroup> first_bin: u32;
var<workgroup> last_bin: u32;
var<workgroup> window: vec4<u32>;      // key, mask of the key, id, mask of the id

var<private> bins_per_gap: f32;

fn bin_of(key: u32) -> u32 { return u32(min(gap_of(key) * bins_per_gap, f32(BINS - 1u))); }

fn in_window(key: u32, id: u32) -> bool {
  let bin = bin_of(key);
  return bin >= first_bin && bin <= last_bin && ((key ^ window.x) & window.y) == 0u && ((id ^ window.z) & window.w) == 0u;
}

fn reset_window() {
  if (lane == 0u) {
    first_bin = 0u;
    last_bin = BINS - 1u;
    window = vec4<u32>();
  }
  workgroupBarrier();
}

// How wide a bin of gaps is.
fn size_bins() {
  var least = 0xffffffffu;
  for (var i = lane; i < params.vocab; i += 4u * WG) {
    let keys = keys_of_ids(four_ids(i));
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
    let keys = keys_of_ids(four_ids(i));
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
