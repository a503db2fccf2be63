// o[i] = Σ_j p_ij v_j / Σ_j p_ij, p_ij = exp(q_i·k_j·scale − (Λ_i − Λ_j) − top_i) over the keys i − window < j ≤ i; Λ = −λ, top_i the running maximum
// A workgroup of 8 × 16 invocations takes 64 queries of one head and walks the pages. Invocation (g, n) has queries 8g .. 8g + 7:
// first their scores with keys 4n .. 4n + 3 of a page, then channels 4n .. 4n + 3 of their sums. Between the two the p go through
// workgroup memory, in the place of the keys. With PRUNE each half of the queries starts behind the pages that are dead for its first.

#import attn_prefill_io

const INVOCATIONS = 2u * QUERIES;
const QUADS = 16u; // fours of queries, and of keys in a page
var<workgroup> q_tile: array<vec4<f32>, HEAD_DIM * QUADS>; // [HEAD_DIM, QUADS]: four queries each
var<workgroup> tile: array<vec4<f32>, PAGE * QUADS>; // [HEAD_DIM, QUADS]: four keys each; then p: [PAGE, QUADS], four queries each
var<workgroup> v_tile: array<vec4<f32>, PAGE * WIDTH>; // [PAGE, WIDTH]

// Where quad n of row `row` lies: spread so that neither side of a transposition meets in a bank.
fn at(row: u32, n: u32) -> u32 { return row * QUADS + (n ^ (row / 4u % 8u)); }

// Channels 4c .. 4c + 3 of a query, scaled.
fn query(t: u32, head: u32, c: u32) -> vec4<f32> {
  let begin = min(t, step.n_tokens - 1u) * params.q_stride + params.q_column + head * HEAD_DIM + 4u * c;
  return vec4<f32>(q[begin], q[begin + 1u], q[begin + 2u], q[begin + 3u]) * params.scale;
}

// Channels 4c .. 4c + 3 of a key or value.
fn channels(row: vec4<u32>, c: u32) -> vec4<f32> {
#ifdef KV_F16
  if (c % 2u == 1u) { return second_half(row); }
  return first_half(row);
#else
  return bitcast<vec4<f32>>(row);
#endif
}
fn index(slot: u32, c: u32) -> u32 { return slot * ROW + c * ROW / WIDTH; }

// Keys that no query sees may hold anything, and 0 · NaN is NaN.
fn key_at(slot: u32, c: u32, seen: bool) -> vec4<f32> { return select(vec4<f32>(), channels(k_pages[index(slot, c)], c), seen); }

fn high_of(x: vec4<f32>) -> f32 { return max(max(x.x, x.y), max(x.z, x.w)); }
fn sum_of(x: vec4<f32>) -> f32 { return x.x + x.y + x.z + x.w; }
fn lam_of(t: u32, head: u32) -> vec2<u32> { return lam_pages[lam_slot_of(step.pos + min(t, step.n_tokens - 1u), head)]; }

// Scores of a query with the four keys from j, whose Λ are from lam_slot; LOWEST where it does not see them, or they are
// before the oldest.
fn scores(dots: vec4<f32>, t: u32, oldest: u32, lam: vec2<u32>, j: u32, lam_slot: u32) -> vec4<f32> {
  let i = step.pos + min(t, step.n_tokens - 1u);
  let keys = vec4<u32>(j) + vec4<u32>(0u, 1u, 2u, 3u);
  let fall = vec4<f32>(fixed_difference(lam, lam_pages[lam_slot]), fixed_difference(lam, lam_pages[lam_slot + 1u]),
    fixed_difference(lam, lam_pages[lam_slot + 2u]), fixed_difference(lam, lam_pages[lam_slot + 3u]));
  return select(vec4<f32>(LOWEST), dots - fall, (keys <= vec4<u32>(i)) & (keys >= vec4<u32>(max(oldest, oldest_of(i)))));
}

fn weights(scores: vec4<f32>, top: f32) -> vec4<f32> {
  return select(vec4<f32>(), exp(scores - top), scores > vec4<f32>(0.5 * LOWEST));
}

fn store(t: u32, head: u32, c: u32, sum: vec4<f32>) {
  if (c < WIDTH && t < step.n_tokens) { o[(t * params.n_kv_heads * params.group + head) * WIDTH + c] = sum; }
}

@compute @workgroup_size(INVOCATIONS)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let head = group.y;
  let kv_head = head / params.group;
  let first = group.x * QUERIES;
  let last = step.pos + min(first + QUERIES, step.n_tokens) - 1u; // the last key that any of them sees
  let n = lane % 16u;
  let g = 2u * (lane / 16u); // the first of two quads of queries
  let t = first + 4u * g; // queries past the end repeat the last, and are not stored
  let column = min(n, WIDTH - 1u);
  let lam0 = lam_of(t + 0u, head);
  let lam1 = lam_of(t + 1u, head);
  let lam2 = lam_of(t + 2u, head);
  let lam3 = lam_of(t + 3u, head);
  let lam4 = lam_of(t + 4u, head);
  let lam5 = lam_of(t + 5u, head);
  let lam6 = lam_of(t + 6u, head);
  let lam7 = lam_of(t + 7u, head);
  for (var unit = lane; unit < QUADS * WIDTH; unit += INVOCATIONS) {
    let c = unit % WIDTH;
    let quad = unit / WIDTH;
    let begin = first + 4u * quad;
    let turned = transpose(mat4x4<f32>(
      query(begin, head, c), query(begin + 1u, head, c), query(begin + 2u, head, c), query(begin + 3u, head, c),
    ));
    q_tile[at(4u * c, quad)] = turned[0];
    q_tile[at(4u * c + 1u, quad)] = turned[1];
    q_tile[at(4u * c + 2u, quad)] = turned[2];
    q_tile[at(4u * c + 3u, quad)] = turned[3];
  }
  var top_a = vec4<f32>(LOWEST);
  var top_b = vec4<f32>(LOWEST);
  var total_a = vec4<f32>(); // of this invocation's keys
  var total_b = vec4<f32>();
  var o0 = vec4<f32>();
  var o1 = vec4<f32>();
  var o2 = vec4<f32>();
  var o3 = vec4<f32>();
  var o4 = vec4<f32>();
  var o5 = vec4<f32>();
  var o6 = vec4<f32>();
  var o7 = vec4<f32>();
  var first_key = oldest_of(step.pos + first) / PAGE * PAGE;
#ifdef PRUNE
  let first_half_from = first_page_of(step.pos + first, head, lane) * PAGE;
  let second = min(first + QUERIES / 2u, step.n_tokens - 1u);
  let second_half_from = first_page_of(step.pos + second, head, lane) * PAGE;
  first_key = max(first_key, first_half_from);
  let oldest = select(first_half_from, second_half_from, lane >= INVOCATIONS / 2u);
#else
  let oldest = 0u;
#endif
  for (var key = first_key; key <= last; key += PAGE) {
    let slot = slot_of(key, kv_head);
    let lam_slot = lam_slot_of(key, head) + 4u * n;
    workgroupBarrier();
    for (var unit = lane; unit < QUADS * WIDTH; unit += INVOCATIONS) {
      let c = unit % WIDTH;
      let quad = unit / WIDTH;
      let begin = slot + 4u * quad;
      let j = key + 4u * quad;
      let turned = transpose(mat4x4<f32>(
        key_at(begin, c, j <= last), key_at(begin + 1u, c, j + 1u <= last), key_at(begin + 2u, c, j + 2u <= last),
        key_at(begin + 3u, c, j + 3u <= last),
      ));
      tile[at(4u * c, quad)] = turned[0];
      tile[at(4u * c + 1u, quad)] = turned[1];
      tile[at(4u * c + 2u, quad)] = turned[2];
      tile[at(4u * c + 3u, quad)] = turned[3];
    }
    for (var unit = lane; unit < PAGE * WIDTH; unit += INVOCATIONS) {
      let c = unit % WIDTH;
      let row = unit / WIDTH;
      v_tile[unit] = select(vec4<f32>(), channels(v_pages[index(slot + row, c)], c), key + row <= last);
    }
    workgroupBarrier();
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    var s2 = vec4<f32>();
    var s3 = vec4<f32>();
    var s4 = vec4<f32>();
    var s5 = vec4<f32>();
    var s6 = vec4<f32>();
    var s7 = vec4<f32>();
    for (var c = 0u; c < HEAD_DIM; c++) {
      let a = q_tile[at(c, g)];
      let b = q_tile[at(c, g + 1u)];
      let k = tile[at(c, n)];
      s0 = fma(k, vec4<f32>(a.x), s0);
      s1 = fma(k, vec4<f32>(a.y), s1);
      s2 = fma(k, vec4<f32>(a.z), s2);
      s3 = fma(k, vec4<f32>(a.w), s3);
      s4 = fma(k, vec4<f32>(b.x), s4);
      s5 = fma(k, vec4<f32>(b.y), s5);
      s6 = fma(k, vec4<f32>(b.z), s6);
      s7 = fma(k, vec4<f32>(b.w), s7);
    }
    s0 = scores(s0, t + 0u, oldest, lam0, key + 4u * n, lam_slot);
    s1 = scores(s1, t + 1u, oldest, lam1, key + 4u * n, lam_slot);
    s2 = scores(s2, t + 2u, oldest, lam2, key + 4u * n, lam_slot);
    s3 = scores(s3, t + 3u, oldest, lam3, key + 4u * n, lam_slot);
    s4 = scores(s4, t + 4u, oldest, lam4, key + 4u * n, lam_slot);
    s5 = scores(s5, t + 5u, oldest, lam5, key + 4u * n, lam_slot);
    s6 = scores(s6, t + 6u, oldest, lam6, key + 4u * n, lam_slot);
    s7 = scores(s7, t + 7u, oldest, lam7, key + 4u * n, lam_slot);
    // The largest of a query's scores, from the 16 invocations that have them.
    workgroupBarrier();
    tile[at(4u * n, g)] = vec4<f32>(high_of(s0), high_of(s1), high_of(s2), high_of(s3));
    tile[at(4u * n, g + 1u)] = vec4<f32>(high_of(s4), high_of(s5), high_of(s6), high_of(s7));
    workgroupBarrier();
    let before_a = top_a;
    let before_b = top_b;
    for (var m = 0u; m < 16u; m++) {
      top_a = max(top_a, tile[at(4u * m, g)]);
      top_b = max(top_b, tile[at(4u * m, g + 1u)]);
    }
    let a = exp(before_a - top_a);
    let b = exp(before_b - top_b);
    o0 *= a.x;
    o1 *= a.y;
    o2 *= a.z;
    o3 *= a.w;
    o4 *= b.x;
    o5 *= b.y;
    o6 *= b.z;
    o7 *= b.w;
    s0 = weights(s0, top_a.x);
    s1 = weights(s1, top_a.y);
    s2 = weights(s2, top_a.z);
    s3 = weights(s3, top_a.w);
    s4 = weights(s4, top_b.x);
    s5 = weights(s5, top_b.y);
    s6 = weights(s6, top_b.z);
    s7 = weights(s7, top_b.w);
    total_a = total_a * a + vec4<f32>(sum_of(s0), sum_of(s1), sum_of(s2), sum_of(s3));
    total_b = total_b * b + vec4<f32>(sum_of(s4), sum_of(s5), sum_of(s6), sum_of(s7));
    workgroupBarrier();
    let turned_a = transpose(mat4x4<f32>(s0, s1, s2, s3));
    let turned_b = transpose(mat4x4<f32>(s4, s5, s6, s7));
    tile[at(4u * n + 0u, g)] = turned_a[0];
    tile[at(4u * n + 0u, g + 1u)] = turned_b[0];
    tile[at(4u * n + 1u, g)] = turned_a[1];
    tile[at(4u * n + 1u, g + 1u)] = turned_b[1];
    tile[at(4u * n + 2u, g)] = turned_a[2];
    tile[at(4u * n + 2u, g + 1u)] = turned_b[2];
    tile[at(4u * n + 3u, g)] = turned_a[3];
    tile[at(4u * n + 3u, g + 1u)] = turned_b[3];
    workgroupBarrier();
    for (var j = 0u; j < PAGE; j++) {
      let a = tile[at(j, g)];
      let b = tile[at(j, g + 1u)];
      let v = v_tile[j * WIDTH + column];
      o0 = fma(v, vec4<f32>(a.x), o0);
      o1 = fma(v, vec4<f32>(a.y), o1);
      o2 = fma(v, vec4<f32>(a.z), o2);
      o3 = fma(v, vec4<f32>(a.w), o3);
      o4 = fma(v, vec4<f32>(b.x), o4);
      o5 = fma(v, vec4<f32>(b.y), o5);
      o6 = fma(v, vec4<f32>(b.z), o6);
      o7 = fma(v, vec4<f32>(b.w), o7);
    }
  }

  workgroupBarrier();
  tile[at(4u * n, g)] = total_a;
  tile[at(4u * n, g + 1u)] = total_b;
  workgroupBarrier();
  var a = vec4<f32>();
  var b = vec4<f32>();
  for (var m = 0u; m < 16u; m++) {
    a += tile[at(4u * m, g)];
    b += tile[at(4u * m, g + 1u)];
  }
  store(t + 0u, head, n, o0 / a.x);
  store(t + 1u, head, n, o1 / a.y);
  store(t + 2u, head, n, o2 / a.z);
  store(t + 3u, head, n, o3 / a.w);
  store(t + 4u, head, n, o4 / b.x);
  store(t + 5u, head, n, o5 / b.y);
  store(t + 6u, head, n, o6 / b.z);
  store(t + 7u, head, n, o7 / b.w);
}
