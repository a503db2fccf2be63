// The tiles of attn_prefill_wide, and what an invocation does with them: scores of eight queries with four keys, then four channels of their sums.
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

fn weights(scores: vec4<f32>, top: f32) -> vec4<f32> {
  return select(vec4<f32>(), exp(scores - top), scores > vec4<f32>(0.5 * LOWEST));
}

// Scores, then weights, of this invocation's eight queries with its four keys.
var<private> s0: vec4<f32>;
var<private> s1: vec4<f32>;
var<private> s2: vec4<f32>;
var<private> s3: vec4<f32>;
var<private> s4: vec4<f32>;
var<private> s5: vec4<f32>;
var<private> s6: vec4<f32>;
var<private> s7: vec4<f32>;
// Four channels of the sums of its queries.
var<private> o0: vec4<f32>;
var<private> o1: vec4<f32>;
var<private> o2: vec4<f32>;
var<private> o3: vec4<f32>;
var<private> o4: vec4<f32>;
var<private> o5: vec4<f32>;
var<private> o6: vec4<f32>;
var<private> o7: vec4<f32>;
// Running maxima of its queries, and Σ p over its keys.
var<private> top_a: vec4<f32>;
var<private> top_b: vec4<f32>;
var<private> total_a: vec4<f32>;
var<private> total_b: vec4<f32>;

// Brings the queries from `first` on.
fn bring_queries(first: u32, head: u32, lane: u32) {
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
}

// Brings a page: the keys from slot on, the first at position `key`; `last`: the last key that is seen.
fn bring_page(slot: u32, key: u32, last: u32, lane: u32) {
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
}

// Products of the queries of quads g and g + 1 with the keys of quad n.
fn multiply(g: u32, n: u32) {
  s0 = vec4<f32>();
  s1 = vec4<f32>();
  s2 = vec4<f32>();
  s3 = vec4<f32>();
  s4 = vec4<f32>();
  s5 = vec4<f32>();
  s6 = vec4<f32>();
  s7 = vec4<f32>();
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
}

// From scores to weights, in workgroup memory, too.
fn weigh(g: u32, n: u32) {
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
}

// Adds the values of a page.
fn add_values(g: u32, column: u32) {
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
