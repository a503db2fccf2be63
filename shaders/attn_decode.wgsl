// One token: partial sums of o = Σ_j p_j v_j, p_j = exp(q·k_j·scale − (Λ_t − Λ_j) − top), over the pages of one split of one head
// Workgroup (head, split). Every split norms and rotates q and computes Λ_t itself. The split with the newest page also shifts,
// norms, rotates and appends the new key and value, and begins its sums with them as they were rounded: decode sees what prefill
// sees. Heads that share a key each make it for themselves, since no workgroup can wait for another; the first of them stores it.
// Page by page: an invocation a key for the scores, then neighbouring invocations along a value row. Loads do not wait for each other:
// a page's keys and its first values are asked for before the page in front of it is summed up.

@group(0) @binding(0) var<storage, read> proj: array<f32>; // [stride]
#ifdef VECTORS
@group(0) @binding(1) var<storage, read> vectors: array<f32>; // at the params' offsets: q_norm, k_norm, f_bias, rope [positions, 2, head_dim / 2]
#endif
@group(0) @binding(2) var<storage, read_write> k_pages: array<vec4<u32>>; // [pages, 64, ROW]
@group(0) @binding(3) var<storage, read_write> v_pages: array<vec4<u32>>; // [pages, 64, ROW]
@group(0) @binding(4) var<storage, read_write> lam_pages: array<vec2<u32>>; // [pages, group, 64]
@group(0) @binding(5) var<storage, read> page_table: array<u32>; // [max_pages, layers, kv_heads], then first live pages
#ifdef SHIFT
@group(0) @binding(6) var<storage, read_write> shift_rows: array<f32>; // [slots, 2 (k, v), kv_heads · head_dim]
#endif
@group(0) @binding(7) var<storage, read_write> partials: array<f32>; // [heads, MAX_SPLITS, 2 + head_dim]: top, Σ p, Σ p·v

struct Params {
  n_kv_heads: u32,
  n_layers: u32,
  layer: u32,
  group: u32,   // query heads that share a key head
  q: u32,       // columns of proj
  k: u32,
  v: u32,
  f: u32,
  k_shift: u32,
  v_shift: u32,
  q_norm: u32,  // words of vectors
  k_norm: u32,
  f_bias: u32,  // or of a table of gates [period, heads]
  period: u32,
  rope: u32,
  window: u32,  // keys that a query sees
  live: u32,    // word of page_table: first live pages
  scale: f32,
  qk_eps: f32,
}
@group(0) @binding(8) var<uniform> params: Params;
#import step
#import fixed
#import pages
#import lam_pages
#ifdef PRUNE
#import live_pages
#endif
#import rows

const INVOCATIONS = PAGE;
// Invocations that walk the values: whole rows at a time, so that each stays with its channels.
const ROWS_AT_ONCE = PAGE / ROW;
const WALKERS = ROWS_AT_ONCE * ROW;
const WALK = (PAGE + ROWS_AT_ONCE - 1u) / ROWS_AT_ONCE; // steps through a page
const BATCH = min(WALK, 8u); // of them asked for at once

var<workgroup> raw: array<vec4<f32>, 3u * WIDTH>; // q, then the new k and v (shifted), before the norm
var<workgroup> query: array<vec4<f32>, WIDTH>;
// Four channels as the pages hold them. The newest key and value are kept in this form and unpacked behind a barrier: where a value
// is packed and unpacked in one expression, a compiler may leave both out, and decode would not see what later tokens will see.
#ifdef KV_F16
alias Stored = vec2<u32>;
fn stored(x: vec4<f32>) -> Stored {
  // WGSL leaves open what becomes of numbers that f16 does not reach: they become its largest.
  let within = clamp(x, vec4<f32>(-65504.0), vec4<f32>(65504.0));
  return vec2<u32>(pack2x16float(within.xy), pack2x16float(within.zw));
}
fn restored(x: Stored) -> vec4<f32> { return vec4<f32>(unpack2x16float(x.x), unpack2x16float(x.y)); }
#else
alias Stored = vec4<f32>;
fn stored(x: vec4<f32>) -> Stored { return x; }
fn restored(x: Stored) -> vec4<f32> { return x; }
#endif
var<workgroup> newest_key: array<Stored, WIDTH>;
var<workgroup> newest_value: array<Stored, WIDTH>;
var<workgroup> scores: array<f32, PAGE>;
var<workgroup> weights: array<f32, PAGE>;
var<workgroup> sums: array<vec4<f32>, 2u * PAGE>;

fn proj4(at: u32) -> vec4<f32> { return vec4<f32>(proj[at], proj[at + 1u], proj[at + 2u], proj[at + 3u]); }

#ifdef VECTORS
fn vectors4(at: u32) -> vec4<f32> { return vec4<f32>(vectors[at], vectors[at + 1u], vectors[at + 2u], vectors[at + 3u]); }
#endif

fn gate(head: u32) -> vec2<u32> {
#ifdef F_NONE
  return vec2<u32>(0u, 0u); // f = 1
#else
#ifdef F_TABLE
  let row = step.pos % params.period * params.n_kv_heads * params.group;
  return fixed_of(clamp(vectors[params.f_bias + row + head], 0.0, 16384.0));
#else
#ifdef F_FULL
  return forgotten(proj[params.f + head] + vectors[params.f_bias + head]);
#else
  return forgotten(vectors[params.f_bias + head]);
#endif
#endif
#endif
}

#ifdef SHIFT
// α·y[t−1] + (1 − α)·y[t] for the four channels from c of k (which = 0) or v (1); leaves y[t] for the next token.
fn shifted(now: vec4<f32>, which: u32, c: u32, gate_column: u32) -> vec4<f32> {
  let width = params.n_kv_heads * HEAD_DIM;
  let start = (step.shift_in * 2u + which) * width + c;
  let to = (step.shift_out * 2u + which) * width + c;
  var before = vec4<f32>(0.0); // before the first token
  if (step.pos > 0u) { before = vec4<f32>(shift_rows[start], shift_rows[start + 1u], shift_rows[start + 2u], shift_rows[start + 3u]); }
  for (var n = 0u; n < 4u; n++) { shift_rows[to + n] = now[n]; }
  let alpha = 1.0 / (1.0 + exp(-proj[gate_column + c / HEAD_DIM]));
  return alpha * before + (1.0 - alpha) * now;
}
#endif

// Four channels, from 4·c, of row n of `raw` (0: q, 1: the new k), normed with `own`, of the weights at `weight`, and rotated.
fn finished(n: u32, c: u32, own: vec4<f32>, weight: u32) -> vec4<f32> {
  let start = n * WIDTH;
  var x = raw[start + c];
#ifdef ROPE
  let half = WIDTH / 2u;
  let first = c < half;
  let other = select(c - half, c + half, first);
  var y = raw[start + other];
#endif
#ifdef QK_NORM
  var squares = 0.0;
  for (var i = 0u; i < WIDTH; i++) { squares += dot(raw[start + i], raw[start + i]); }
  let scale = inverseSqrt(squares / f32(HEAD_DIM) + params.qk_eps);
  x *= scale * own;
#ifdef ROPE
  y *= scale * vectors4(weight + 4u * other);
#endif
#endif
#ifdef ROPE
  let at = params.rope + step.pos * HEAD_DIM + 4u * min(c, other);
  x = x * vectors4(at) + select(y, -y, first) * vectors4(at + HEAD_DIM / 2u);
#endif
  return x;
}

// Norm weights of what this invocation finishes: asked for with the rows themselves.
var<private> norm_weights: array<vec4<f32>, (3u * WIDTH + INVOCATIONS - 1u) / INVOCATIONS>;
// What a page holds for this invocation.
var<private> key: array<vec4<u32>, ROW>;
var<private> values: array<vec4<u32>, BATCH>;
var<private> key_lam: vec2<u32>;
var<private> slot: u32;

// Step n of the walk through the page's values: the key, and this invocation's part of it.
fn walked_key(n: u32, lane: u32) -> u32 { return n * ROWS_AT_ONCE + lane / ROW; }

fn load_values(first: u32, lane: u32) {
  for (var n = 0u; n < BATCH; n++) {
    values[n] = v_pages[(slot + min(walked_key(first + n, lane), PAGE - 1u)) * ROW + lane % ROW];
  }
}

fn load_page(page: u32, head: u32, kv_head: u32, lane: u32) {
  slot = slot_of(page * PAGE, kv_head);
  for (var c = 0u; c < ROW; c++) { key[c] = k_pages[(slot + lane) * ROW + c]; }
  key_lam = lam_pages[(slot / PAGE * params.group + head % params.group) * PAGE + lane];
  load_values(0u, lane);
}

@compute @workgroup_size(INVOCATIONS)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let head = group.x;
  let split = group.y;
  let kv_head = head / params.group;
  let pages = step.pos / PAGE + 1u;
#ifdef PRUNE
  // The live pages are shared evenly; splits behind the last of them have none.
  let oldest_page = max(step.first_page, first_live(kv_head));
  let share = (pages - oldest_page + step.n_splits - 1u) / step.n_splits;
#else
  let oldest_page = step.first_page;
  let share = step.pages_per_split;
#endif
  let first = min(oldest_page + split * share, pages);
  let end = min(first + share, pages);
  let newest = first < end && end == pages;
  let oldest = step.pos + 1u - min(step.pos + 1u, params.window); // the first key in the window

  if (first < end) { load_page(first, head, kv_head, lane); }
  var lam = gate(head);
  if (step.pos > 0u) { lam = fixed_add(lam, lam_pages[lam_slot_of(step.pos - 1u, head)]); }
  for (var at = lane; at < select(WIDTH, 3u * WIDTH, newest); at += INVOCATIONS) {
#ifdef QK_NORM
    let weights_at = select(params.k_norm + kv_head * HEAD_DIM, params.q_norm + head * HEAD_DIM, at < WIDTH);
    norm_weights[at / INVOCATIONS] = vectors4(weights_at + 4u * (at % WIDTH));
#endif
    let channel = kv_head * HEAD_DIM + 4u * (at % WIDTH);
    if (at < WIDTH) {
      raw[at] = proj4(params.q + head * HEAD_DIM + 4u * at);
    } else if (at < 2u * WIDTH) {
      var k = proj4(params.k + channel);
#ifdef K_SHIFT
      k = shifted(k, 0u, channel, params.k_shift);
#endif
      raw[at] = k;
    } else {
      var v = proj4(params.v + channel);
#ifdef V_SHIFT
      v = shifted(v, 1u, channel, params.v_shift);
#endif
      raw[at] = v;
    }
  }
  workgroupBarrier();

  for (var at = lane; at < select(WIDTH, 3u * WIDTH, newest); at += INVOCATIONS) {
    let c = at % WIDTH;
    if (at < WIDTH) {
      query[c] = finished(0u, c, norm_weights[at / INVOCATIONS], params.q_norm + head * HEAD_DIM) * params.scale;
    } else if (at < 2u * WIDTH) {
      newest_key[c] = stored(finished(1u, c, norm_weights[at / INVOCATIONS], params.k_norm + kv_head * HEAD_DIM));
    } else {
      newest_value[c] = stored(raw[at]);
    }
  }
  workgroupBarrier();

  var top = LOWEST;
  var total = 0.0; // of the keys that were this invocation's
  var low = vec4<f32>(0.0); // four channels of Σ p·v over this invocation's share of the keys
#ifdef KV_F16
  var high = vec4<f32>(0.0); // the four channels behind them
#endif
  if (newest) {
    // The newest key comes first, with weight 1 until a better one is seen; D = 0.
    var products = vec4<f32>(0.0);
    for (var c = 0u; c < WIDTH; c++) { products += query[c] * restored(newest_key[c]); }
    top = products.x + products.y + products.z + products.w;
    if (lane == 0u) {
      total = 1.0;
      lam_pages[lam_slot_of(step.pos, head)] = lam;
    }
    if (lane < ROW) {
#ifdef KV_F16
      low = restored(newest_value[2u * lane]);
      high = restored(newest_value[2u * lane + 1u]);
      let k = vec4<u32>(newest_key[2u * lane], newest_key[2u * lane + 1u]);
      let v = vec4<u32>(newest_value[2u * lane], newest_value[2u * lane + 1u]);
#else
      low = restored(newest_value[lane]);
      let k = bitcast<vec4<u32>>(newest_key[lane]);
      let v = bitcast<vec4<u32>>(low);
#endif
      if (head % params.group == 0u) {
        let at = slot_of(step.pos, kv_head) * ROW + lane;
        k_pages[at] = k;
        v_pages[at] = v;
      }
    }
  }
  for (var page = first; page < end; page++) {
    let position = page * PAGE + lane;
    let seen = position >= oldest && position < step.pos;
    var products = vec4<f32>(0.0);
    for (var c = 0u; c < ROW; c++) {
#ifdef KV_F16
      products += query[2u * c] * first_half(key[c]) + query[2u * c + 1u] * second_half(key[c]);
#else
      products += query[c] * bitcast<vec4<f32>>(key[c]);
#endif
    }
    let product = products.x + products.y + products.z + products.w;
    let score = select(LOWEST, product - fixed_difference(lam, key_lam), seen); // what lies in an unseen place may be anything
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
    for (var done = 0u; done < WALK; done += BATCH) {
      if (done > 0u) { load_values(done, lane); }
      for (var n = 0u; n < BATCH; n++) {
        let key = walked_key(done + n, lane);
        // Past the page, or a key that is not seen: what lies there may be anything, and 0 · NaN is NaN.
        let counts = lane < WALKERS && key < PAGE && page * PAGE + key < step.pos;
        let x = select(vec4<u32>(), values[n], counts);
        let weight = select(0.0, weights[min(key, PAGE - 1u)], counts);
#ifdef KV_F16
        low += weight * first_half(x);
        high += weight * second_half(x);
#else
        low += weight * bitcast<vec4<f32>>(x);
#endif
      }
    }
    if (page + 1u < end) { load_page(page + 1u, head, kv_head, lane); }
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
    for (var n = 0u; n < WALKERS; n += ROW) { sum += sums[start + n]; }
    for (var n = 0u; n < 4u; n++) { partials[to + 2u + 4u * lane + n] = sum[n]; }
  }
  if (lane == 0u) {
    var sum = 0.0;
    for (var n = 0u; n < PAGE; n++) { sum += scores[n]; }
    partials[to] = top;
    partials[to + 1u] = sum;
  }
}
