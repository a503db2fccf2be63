// o[i] = Σ_j p_ij v_j / Σ_j p_ij, p_ij = exp(q_i·k_j·scale − (Λ_i − Λ_j) − top_i) over the keys i − window < j ≤ i; Λ = −λ, top_i the running maximum
// A workgroup takes 32 queries of one head and walks the pages in tiles of TILE keys. Four shares of 32 invocations see the
// same queries; each takes a quarter of every tile, so all of a share read one key at once. Their sums are merged at the end.
// With PRUNE it starts behind the pages that are dead for its first query: they come first, so counting finds them.

#import attn_prefill_io

const QUERIES = 32u;
const SHARES = 4u;
const INVOCATIONS = QUERIES * SHARES;
const KEYS = TILE / SHARES; // of a tile, for each share; a multiple of 4
const V_TILE = TILE * WIDTH;
var<workgroup> tile: array<vec4<f32>, 2u * TILE * WIDTH>; // keys, then values; at the end what is merged

// Of this invocation's query and share.
var<private> query: array<vec4<f32>, WIDTH>;
var<private> sums: array<vec4<f32>, WIDTH>;
var<private> top: f32;
var<private> total: f32;

// Brings TILE keys and values from slot on, the first at position `key`; `last`: the last key that is seen.
fn bring(slot: u32, key: u32, last: u32, lane: u32) {
  for (var at = lane; at < TILE * ROW; at += INVOCATIONS) {
    // Keys that no query sees may hold anything, and 0 · NaN is NaN.
    let seen = key + at / ROW <= last;
    let k = select(vec4<u32>(0u), k_pages[slot * ROW + at], seen);
    let v = select(vec4<u32>(0u), v_pages[slot * ROW + at], seen);
#ifdef KV_F16
    tile[2u * at] = first_half(k);
    tile[2u * at + 1u] = second_half(k);
    tile[V_TILE + 2u * at] = first_half(v);
    tile[V_TILE + 2u * at + 1u] = second_half(v);
#else
    tile[at] = bitcast<vec4<f32>>(k);
    tile[V_TILE + at] = bitcast<vec4<f32>>(v);
#endif
  }
}

// Adds what the query at position i sees of a share's keys from position `key` on, the first of which has its Λ at `lam_slot`.
fn add_keys(share: u32, key: u32, i: u32, oldest: u32, lam: vec2<u32>, lam_slot: u32) {
  for (var n = share * KEYS; n < (share + 1u) * KEYS; n += 4u) {
    let j = vec4<u32>(key + n) + vec4<u32>(0u, 1u, 2u, 3u);
    if (j.x > i) { break; }
    if (j.w < oldest) { continue; }
    let k = n * WIDTH;
    var dots = vec4<f32>(0.0);
    for (var c = 0u; c < WIDTH; c++) {
      let x = query[c];
      dots += vec4<f32>(dot(x, tile[k + c]), dot(x, tile[k + WIDTH + c]), dot(x, tile[k + 2u * WIDTH + c]), dot(x, tile[k + 3u * WIDTH + c]));
    }
    let at = lam_slot + n;
    let fall = vec4<f32>(fixed_difference(lam, lam_pages[at]), fixed_difference(lam, lam_pages[at + 1u]),
      fixed_difference(lam, lam_pages[at + 2u]), fixed_difference(lam, lam_pages[at + 3u]));
    let seen = (j <= vec4<u32>(i)) & (j >= vec4<u32>(oldest));
    let scores = select(vec4<f32>(LOWEST), dots - fall, seen);
    let high = max(max(scores.x, scores.y), max(scores.z, scores.w));
    if (high > top) {
      let fade = exp(top - high);
      top = high;
      total *= fade;
      for (var c = 0u; c < WIDTH; c++) { sums[c] *= fade; }
    }
    let p = select(vec4<f32>(0.0), exp(scores - top), seen);
    total += p.x + p.y + p.z + p.w;
    let v = V_TILE + k;
    for (var c = 0u; c < WIDTH; c++) {
      sums[c] += p.x * tile[v + c] + p.y * tile[v + WIDTH + c] + p.z * tile[v + 2u * WIDTH + c] + p.w * tile[v + 3u * WIDTH + c];
    }
  }
}

// Adds up what the shares saw of the same query: [WIDTH, QUERIES] in the tile.
fn merge(row: u32, share: u32, lane: u32) {
  // A share that saw no key has top = LOWEST and weighs exp(LOWEST − highest) = 0.
  workgroupBarrier();
  tile[lane] = vec4<f32>(top, total, 0.0, 0.0);
  workgroupBarrier();
  var highest = LOWEST;
  for (var s = 0u; s < SHARES; s++) { highest = max(highest, tile[s * QUERIES + row].x); }
  var norm = 0.0;
  for (var s = 0u; s < SHARES; s++) { norm += tile[s * QUERIES + row].y * exp(tile[s * QUERIES + row].x - highest); }
  let weight = exp(top - highest) / norm;
  for (var s = 0u; s < SHARES; s++) {
    workgroupBarrier();
    if (s == share) {
      for (var c = 0u; c < WIDTH; c++) {
        let at = c * QUERIES + row;
        // A select would keep what the tile held before, should that be NaN.
        if (s == 0u) { tile[at] = sums[c] * weight; } else { tile[at] += sums[c] * weight; }
      }
    }
  }
}

@compute @workgroup_size(128)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let head = group.y;
  let kv_head = head / params.group;
  let first = group.x * QUERIES;
  let row = lane % QUERIES;
  let share = lane / QUERIES;
  let t = min(first + row, step.n_tokens - 1u); // those past the end repeat the last query, and store nothing
  let i = step.pos + t;
  let last = step.pos + min(first + QUERIES, step.n_tokens) - 1u; // the last key that any of them sees
  let oldest = oldest_of(i);
  let lam = lam_pages[lam_slot_of(i, head)];
  let start = t * params.q_stride + params.q_column + head * HEAD_DIM;
  for (var c = 0u; c < WIDTH; c++) {
    let at = start + 4u * c;
    query[c] = vec4<f32>(q[at], q[at + 1u], q[at + 2u], q[at + 3u]) * params.scale;
  }
  top = LOWEST;
  var first_key = oldest_of(step.pos + first) / TILE * TILE;
#ifdef PRUNE
  first_key = max(first_key, first_page_of(step.pos + first, head, lane) * PAGE);
#endif
  for (var key = first_key; key <= last; key += TILE) {
    let slot = slot_of(key, kv_head); // TILE divides 64: a tile lies in one page
    let lam_slot = lam_slot_of(key, head);
    workgroupBarrier();
    bring(slot, key, last, lane);
    workgroupBarrier();
    add_keys(share, key, i, oldest, lam, lam_slot);
  }
  merge(row, share, lane);
  workgroupBarrier();
  for (var at = lane; at < QUERIES * WIDTH; at += INVOCATIONS) {
    let to = first + at / WIDTH;
    let c = at % WIDTH;
    if (to < step.n_tokens) { o[(to * params.n_kv_heads * params.group + head) * WIDTH + c] = tile[c * QUERIES + at / WIDTH]; }
  }
}
