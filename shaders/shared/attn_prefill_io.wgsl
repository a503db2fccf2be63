// What attention of several tokens is given, and where the keys of a query begin: for attn_prefill and attn_prefill_wide, which
// declare INVOCATIONS and a workgroup array `tile` of vec4<f32>, one for each invocation at least.
@group(0) @binding(0) var<storage, read> q: array<f32>; // [tokens, q_stride]
@group(0) @binding(1) var<storage, read> k_pages: array<vec4<u32>>; // [pages, 64, ROW]
@group(0) @binding(2) var<storage, read> v_pages: array<vec4<u32>>; // [pages, 64, ROW]
@group(0) @binding(3) var<storage, read> lam_pages: array<vec2<u32>>; // [pages, group, 64], then ends [pages, group]
@group(0) @binding(4) var<storage, read> page_table: array<u32>; // [max_pages, layers, kv_heads], then first live pages
@group(0) @binding(5) var<storage, read_write> o: array<vec4<f32>>; // [tokens, heads, WIDTH]

struct Params {
  q_stride: u32,
  q_column: u32,
  n_kv_heads: u32,
  n_layers: u32,
  layer: u32,
  group: u32,  // query heads that share a key head
  window: u32, // keys that a query sees
  scale: f32,
  live: u32,   // word of page_table: first live pages
  ends: u32,   // entry of lam_pages
}
@group(0) @binding(8) var<uniform> params: Params;
#import step
#import fixed
#import pages
#import lam_pages
#ifdef PRUNE
#import live_pages
#import page_ends
#endif
#import rows

#ifdef PRUNE
// The first page that the query at position i sees, the same for all invocations of the workgroup. Counts in the importing
// kernel's tile, which may fill workgroup memory.
fn first_page_of(i: u32, head: u32, lane: u32) -> u32 {
  let first = first_live(head / params.group);
  let lam = lam_pages[lam_slot_of(i, head)];
  var n_dead = 0u;
  for (var page = first + lane; page < i / PAGE; page += INVOCATIONS) {
    if (!is_dead(page, head, lam)) { break; }
    n_dead++;
  }
  tile[lane].x = f32(n_dead);
  workgroupBarrier();
  if (lane == 0u) {
    for (var n = 1u; n < INVOCATIONS; n++) { tile[0].x += tile[n].x; }
  }
  return first + u32(workgroupUniformLoad(&tile[0]).x);
}
#endif

// The first key that the query at position i sees.
fn oldest_of(i: u32) -> u32 { return i + 1u - min(i + 1u, params.window); }
