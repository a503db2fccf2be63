// How attn_decode walks the pages of a head: an invocation a key for the scores, then neighbouring invocations along a value row.

// Invocations that walk the values: whole rows at a time, so that each stays with its channels.
const ROWS_AT_ONCE = PAGE / ROW;
const WALKERS = ROWS_AT_ONCE * ROW;
const WALK = (PAGE + ROWS_AT_ONCE - 1u) / ROWS_AT_ONCE; // steps through a page
const BATCH = min(WALK, 8u); // of them asked for at once

var<workgroup> scores: array<f32, PAGE>;
var<workgroup> weights: array<f32, PAGE>;
var<workgroup> sums: array<vec4<f32>, 2u * PAGE>;

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

// The sums so far.
var<private> top: f32;
var<private> total: f32; // of the keys that were this invocation's
var<private> low: vec4<f32>; // four channels of Σ p·v over this invocation's share of the keys
#ifdef KV_F16
var<private> high: vec4<f32>; // the four channels behind them
#endif

// Adds what the query sees of the page that is loaded, from position `oldest` on.
fn add_page(page: u32, oldest: u32, lam: vec2<u32>, lane: u32) {
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
}

// Stores the sums of all invocations as those of this split, from `to` on.
fn store_sums(to: u32, lane: u32) {
  // Every invocation has left the scores (two barriers a page); only weights may still be read.
  scores[lane] = total;
  sums[lane] = low;
#ifdef KV_F16
  sums[PAGE + lane] = high;
#endif
  workgroupBarrier();
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
