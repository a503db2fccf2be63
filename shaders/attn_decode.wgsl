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
#import decode_head
#import decode_pages

const INVOCATIONS = PAGE;

// Begins with the newest key and value, and stores them.
fn begin_with_newest(head: u32, kv_head: u32, lam: vec2<u32>, lane: u32) {
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
  let n_rows = select(WIDTH, 3u * WIDTH, newest);
  gather_rows(head, kv_head, n_rows, lane);
  workgroupBarrier();
  finish_rows(head, kv_head, n_rows, lane);
  workgroupBarrier();

  top = LOWEST;
  if (newest) { begin_with_newest(head, kv_head, lam, lane); }
  for (var page = first; page < end; page++) {
    add_page(page, oldest, lam, lane);
    if (page + 1u < end) { load_page(page + 1u, head, kv_head, lane); }
  }
  store_sums((head * MAX_SPLITS + split) * (2u + HEAD_DIM), lane);
}
