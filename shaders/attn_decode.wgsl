// One token: partial sums of o = Σ_j p_j v_j, p_j = exp(q·k_j·scale − (Λ_t − Λ_j) − top), over the pages of one split of one head
// Workgroup (head, split). Every split norms q and computes Λ_t itself. The split with the newest page also shifts, norms and
// appends the new key and value, and then reads them back as they were rounded: decode sees what prefill sees.
// Page by page: an invocation a key for the scores, then neighbouring invocations along a value row.

@group(0) @binding(0) var<storage, read> proj: array<f32>; // [stride]
#ifdef VECTORS
@group(0) @binding(1) var<storage, read> vectors: array<f32>; // q_norm, k_norm [heads · head_dim], f_bias [heads] at the params' offsets
#endif
@group(0) @binding(2) var<storage, read_write> k_pages: array<vec4<u32>>; // [pages, 64, ROW]
@group(0) @binding(3) var<storage, read_write> v_pages: array<vec4<u32>>; // [pages, 64, ROW]
@group(0) @binding(4) var<storage, read_write> lam_pages: array<vec2<u32>>; // [pages, 64]
@group(0) @binding(5) var<storage, read> page_table: array<u32>; // [max_pages, layers, heads]
#ifdef SHIFT
@group(0) @binding(6) var<storage, read_write> shift_rows: array<f32>; // [slots, 2 (k, v), heads · head_dim]
#endif
@group(0) @binding(7) var<storage, read_write> partials: array<f32>; // [heads, MAX_SPLITS, 2 + head_dim]: top, Σ p, Σ p·v

struct Params {
  n_heads: u32,
  n_layers: u32,
  layer: u32,
  q: u32,       // columns of proj
  k: u32,
  v: u32,
  f: u32,
  k_shift: u32,
  v_shift: u32,
  q_norm: u32,  // words of vectors
  k_norm: u32,
  f_bias: u32,
  scale: f32,
  qk_eps: f32,
}
@group(0) @binding(8) var<uniform> params: Params;
#import step
#import fixed
#import pages
#import rows

var<workgroup> raw: array<vec4<f32>, 3u * WIDTH>; // q, then the new k and v (shifted), before the norm
var<workgroup> query: array<vec4<f32>, WIDTH>;
var<workgroup> scores: array<f32, PAGE>;
var<workgroup> weights: array<f32, PAGE>;
var<workgroup> sums: array<vec4<f32>, 2u * PAGE>;

fn proj4(at: u32) -> vec4<f32> { return vec4<f32>(proj[at], proj[at + 1u], proj[at + 2u], proj[at + 3u]); }

fn gate(head: u32) -> vec2<u32> {
#ifdef F_NONE
  return vec2<u32>(0u, 0u); // f = 1
#else
#ifdef F_FULL
  return forgotten(proj[params.f + head] + vectors[params.f_bias + head]);
#else
  return forgotten(vectors[params.f_bias + head]);
#endif
#endif
}

#ifdef SHIFT
// α·y[t−1] + (1 − α)·y[t] for the four channels from c of k (which = 0) or v (1); leaves y[t] for the next token.
fn shifted(now: vec4<f32>, which: u32, c: u32, gate_column: u32) -> vec4<f32> {
  let width = params.n_heads * HEAD_DIM;
  let start = (step.shift_in * 2u + which) * width + c;
  let to = (step.shift_out * 2u + which) * width + c;
  var before = vec4<f32>(0.0); // before the first token
  if (step.pos > 0u) { before = vec4<f32>(shift_rows[start], shift_rows[start + 1u], shift_rows[start + 2u], shift_rows[start + 3u]); }
  for (var n = 0u; n < 4u; n++) { shift_rows[to + n] = now[n]; }
  let alpha = 1.0 / (1.0 + exp(-proj[gate_column + c / HEAD_DIM]));
  return alpha * before + (1.0 - alpha) * now;
}
#endif

#ifdef QK_NORM
// The four channels from c (in the head: 4·lane) of the row that starts at raw[from], normed with the weights at `weight`.
fn normed(start: u32, lane: u32, weight: u32) -> vec4<f32> {
  var squares = 0.0;
  for (var c = 0u; c < WIDTH; c++) { squares += dot(raw[start + c], raw[start + c]); }
  let w = weight + 4u * lane;
  return raw[start + lane] * inverseSqrt(squares / f32(HEAD_DIM) + params.qk_eps)
    * vec4<f32>(vectors[w], vectors[w + 1u], vectors[w + 2u], vectors[w + 3u]);
}
#endif

fn new_key(head: u32, lane: u32) -> vec4<f32> {
#ifdef QK_NORM
  return normed(WIDTH, lane, params.k_norm + head * HEAD_DIM);
#else
  return raw[WIDTH + lane];
#endif
}

#ifdef KV_F16
// WGSL leaves open what becomes of numbers that f16 does not reach: they become its largest.
fn pack4(x: vec4<f32>) -> vec2<u32> {
  let within = clamp(x, vec4<f32>(-65504.0), vec4<f32>(65504.0));
  return vec2<u32>(pack2x16float(within.xy), pack2x16float(within.zw));
}
#endif

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let head = group.x;
  let split = group.y;
  let pages = step.pos / PAGE + 1u;
  let first = min(split * step.pages_per_split, pages);
  let end = min(first + step.pages_per_split, pages);
  let newest = first < end && end == pages;
  let channel = head * HEAD_DIM + 4u * lane;

  if (lane < WIDTH) {
    raw[lane] = proj4(params.q + channel);
    if (newest) {
      var k = proj4(params.k + channel);
      var v = proj4(params.v + channel);
#ifdef K_SHIFT
      k = shifted(k, 0u, channel, params.k_shift);
#endif
#ifdef V_SHIFT
      v = shifted(v, 1u, channel, params.v_shift);
#endif
      raw[WIDTH + lane] = k;
      raw[2u * WIDTH + lane] = v;
    }
  }
  workgroupBarrier();

  var lam = gate(head);
  if (step.pos > 0u) { lam = fixed_add(lam, lam_pages[slot_of(step.pos - 1u, head)]); }
  if (lane < WIDTH) {
#ifdef QK_NORM
    query[lane] = normed(0u, lane, params.q_norm + head * HEAD_DIM) * params.scale;
#else
    query[lane] = raw[lane] * params.scale;
#endif
  }
  if (newest) {
    let slot = slot_of(step.pos, head);
    if (lane < ROW) {
#ifdef KV_F16
      k_pages[slot * ROW + lane] = vec4<u32>(pack4(new_key(head, 2u * lane)), pack4(new_key(head, 2u * lane + 1u)));
      v_pages[slot * ROW + lane] = vec4<u32>(pack4(raw[2u * (WIDTH + lane)]), pack4(raw[2u * (WIDTH + lane) + 1u]));
#else
      k_pages[slot * ROW + lane] = bitcast<vec4<u32>>(new_key(head, lane));
      v_pages[slot * ROW + lane] = bitcast<vec4<u32>>(raw[2u * WIDTH + lane]);
#endif
    }
    if (lane == 0u) { lam_pages[slot] = lam; }
  }
  storageBarrier();
  workgroupBarrier();

  var top = LOWEST;
  var total = 0.0; // of the keys that were this invocation's
  var low = vec4<f32>(0.0); // four channels of Σ p·v over this invocation's share of the keys
#ifdef KV_F16
  var high = vec4<f32>(0.0); // the four channels behind them
#endif
  for (var page = first; page < end; page++) {
    let slot = slot_of(page * PAGE, head);
    let seen = page * PAGE + lane <= step.pos;
    var score = LOWEST;
    if (seen) {
      let k = (slot + lane) * ROW;
      var products = vec4<f32>(0.0);
      for (var c = 0u; c < ROW; c++) {
        let x = k_pages[k + c];
#ifdef KV_F16
        products += query[2u * c] * first_half(x) + query[2u * c + 1u] * second_half(x);
#else
        products += query[c] * bitcast<vec4<f32>>(x);
#endif
      }
      score = products.x + products.y + products.z + products.w - fixed_difference(lam, lam_pages[slot + lane]);
    }
    scores[lane] = score;
    workgroupBarrier();
    let before = top;
    for (var n = 0u; n < PAGE; n++) { top = max(top, scores[n]); }
    let fade = exp(before - top);
    let p = select(0.0, exp(score - top), seen);
    weights[lane] = p;
    total = total * fade + p;
    workgroupBarrier();
    low *= fade;
#ifdef KV_F16
    high *= fade;
#endif
    for (var n = lane; n < PAGE * ROW; n += PAGE) {
      let key = n / ROW;
      if (page * PAGE + key > step.pos) { break; } // what lies there may be anything, and 0 · NaN is NaN
      let x = v_pages[slot * ROW + n];
#ifdef KV_F16
      low += weights[key] * first_half(x);
      high += weights[key] * second_half(x);
#else
      low += weights[key] * bitcast<vec4<f32>>(x);
#endif
    }
  }

  // Every invocation has left the scores (two barriers a page); only weights may still be read.
  scores[lane] = total;
  sums[lane] = low;
#ifdef KV_F16
  sums[PAGE + lane] = high;
#endif
  workgroupBarrier();
  let to = (head * MAX_SPLITS + split) * (2u + HEAD_DIM);
  if (lane < WIDTH) {
#ifdef KV_F16
    let start = lane % 2u * PAGE + lane / 2u;
#else
    let start = lane;
#endif
    var sum = vec4<f32>(0.0);
    for (var n = 0u; n < PAGE; n += ROW) { sum += sums[start + n]; }
    for (var n = 0u; n < 4u; n++) { partials[to + 2u + 4u * lane + n] = sum[n]; }
  }
  if (lane == 0u) {
    var sum = 0.0;
    for (var n = 0u; n < PAGE; n++) { sum += scores[n]; }
    partials[to] = top;
    partials[to + 1u] = sum;
  }
}
