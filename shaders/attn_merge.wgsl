// o = Σ_s w_s·sum_s / Σ_s w_s·total_s, w_s = exp(top_s − highest); then o ← norm(o) (OUT_NORM), then o ← o·gate
// One workgroup a head, and with PRUNE one a key head behind them, which says what later tokens will see. An invocation takes a channel of every PARTS-th
// split, all loads at once; workgroup memory joins the parts.

@group(0) @binding(0) var<storage, read> partials: array<f32>; // [heads, MAX_SPLITS, 2 + head_dim]: top, Σ p, Σ p·v
#ifdef GATE
@group(0) @binding(1) var<storage, read> proj: array<f32>; // [stride]
#endif
#ifdef VECTORS
@group(0) @binding(2) var<storage, read> vectors: array<f32>; // out_norm [heads · head_dim] at params.out_norm, τ [heads] at params.prune
#endif
@group(0) @binding(3) var<storage, read_write> o: array<f32>; // [heads · head_dim]
#ifdef PRUNE
@group(0) @binding(4) var<storage, read_write> lam_pages: array<vec2<u32>>; // [pages, group, 64], then ends [pages, group]
@group(0) @binding(5) var<storage, read_write> page_table: array<u32>; // [max_pages, layers, kv_heads], then first live pages
#endif

struct Params {
  gate: u32,
  out_norm: u32,
  eps: f32,
  n_kv_heads: u32,
  n_layers: u32,
  layer: u32,
  group: u32, // query heads that share a key head
  live: u32,
  ends: u32,
  prune: u32,
}
@group(0) @binding(8) var<uniform> params: Params;
#import step
#ifdef PRUNE
#import fixed
#import pages
#import lam_pages
#import live_pages
#import page_ends
#import prune
#endif

const INVOCATIONS = 256u;
const PARTS = INVOCATIONS / HEAD_DIM;
const SPLITS_PER_PART = (MAX_SPLITS + PARTS - 1u) / PARTS;
const ROW = 2u + HEAD_DIM;
const LOWEST = -1e30; // below every top
var<workgroup> tops: array<f32, MAX_SPLITS>;
var<workgroup> weights: array<f32, MAX_SPLITS>;
var<workgroup> totals: array<f32, MAX_SPLITS>; // weighted
var<workgroup> sums: array<f32, PARTS * HEAD_DIM>;
var<workgroup> merged: array<f32, HEAD_DIM>;

@compute @workgroup_size(INVOCATIONS)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let head = group.x;
#ifdef PRUNE
  let n_heads = params.n_kv_heads * params.group;
  if (head >= n_heads) {
    prune(head - n_heads, lane);
    return;
  }
#endif
  let start = head * MAX_SPLITS * ROW;
  let last = step.n_splits - 1u;
  let channel = lane % HEAD_DIM;
  let part = lane / HEAD_DIM;
  // Splits past the last are the last again, with weight 0.
  var values: array<f32, SPLITS_PER_PART>;
  for (var n = 0u; n < SPLITS_PER_PART; n++) { values[n] = partials[start + min(part + n * PARTS, last) * ROW + 2u + channel]; }
  let at = head * HEAD_DIM + channel;
  var factor = 1.0;
#ifdef OUT_NORM
  factor = vectors[params.out_norm + at];
#endif
#ifdef GATE
  let g = proj[params.gate + at];
#ifdef GATE_SILU
  factor *= g / (1.0 + exp(-g));
#else
  factor *= 1.0 / (1.0 + exp(-g));
#endif
#endif
  var total = 0.0;
  if (lane < MAX_SPLITS) {
    let row = start + min(lane, last) * ROW;
    tops[lane] = select(LOWEST, partials[row], lane <= last);
    total = partials[row + 1u];
  }
  workgroupBarrier();
  if (lane < MAX_SPLITS) {
    var highest = LOWEST;
    for (var s = 0u; s < MAX_SPLITS; s++) { highest = max(highest, tops[s]); }
    let weight = select(0.0, exp(tops[lane] - highest), lane <= last);
    weights[lane] = weight;
    totals[lane] = weight * total;
  }
  workgroupBarrier();
  if (part < PARTS) {
    var sum = 0.0;
    for (var n = 0u; n < SPLITS_PER_PART; n++) {
      let s = part + n * PARTS;
      if (s < MAX_SPLITS) { sum += weights[s] * values[n]; }
    }
    sums[lane] = sum;
  }
  workgroupBarrier();
  var x = 0.0;
  if (lane < HEAD_DIM) {
    for (var p = 0u; p < PARTS; p++) { x += sums[p * HEAD_DIM + lane]; }
    var norm = 0.0;
    for (var s = 0u; s < MAX_SPLITS; s++) { norm += totals[s]; }
    x /= norm;
    merged[lane] = x;
  }
#ifdef OUT_NORM
  workgroupBarrier();
  var squares = 0.0;
  for (var c = 0u; c < HEAD_DIM; c++) { squares += merged[c] * merged[c]; }
  x *= inverseSqrt(squares / f32(HEAD_DIM) + params.eps);
#endif
  if (lane < HEAD_DIM) { o[at] = x * factor; }
}
