// Λ[t] = Λ[t−1] + m[t], m = −log sigmoid(z) in 32.32 fixed point, z = proj[t, column + head] + bias[head] (or the bias alone);
// or m[t] = table[t mod period, head], as it is
// One workgroup a head. Each invocation sums a run of neighbouring tokens, then adds the totals of the runs before its own.

#ifdef F_FULL
@group(0) @binding(0) var<storage, read> proj: array<f32>; // [tokens, stride]
#endif
#ifndef F_NONE
@group(0) @binding(1) var<storage, read> vectors: array<f32>; // at params.bias: the bias [heads], or the table [period, heads]
#endif
@group(0) @binding(2) var<storage, read_write> lam_pages: array<vec2<u32>>; // [pages, group, 64]
@group(0) @binding(3) var<storage, read> page_table: array<u32>; // [max_pages, layers, kv_heads]

struct Params { stride: u32, column: u32, bias: u32, n_kv_heads: u32, n_layers: u32, layer: u32, group: u32, period: u32 }
@group(0) @binding(8) var<uniform> params: Params;
#import step
#import fixed
#import pages
#import lam_pages

const RUNS = 64u;
var<workgroup> totals: array<vec2<u32>, RUNS>;

fn gate(t: u32, head: u32) -> vec2<u32> {
#ifdef F_NONE
  return vec2<u32>(0u, 0u); // f = 1
#else
#ifdef F_TABLE
  let row = (step.pos + t) % params.period * params.n_kv_heads * params.group;
  return fixed_of(clamp(vectors[params.bias + row + head], 0.0, 16384.0));
#else
#ifdef F_FULL
  return forgotten(proj[t * params.stride + params.column + head] + vectors[params.bias + head]);
#else
  return forgotten(vectors[params.bias + head]);
#endif
#endif
#endif
}

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) run: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let head = group.x;
  let length = (step.n_tokens + RUNS - 1u) / RUNS;
  let first = run * length;
  let end = min(first + length, step.n_tokens);
  // The sum inside the run is kept in the pages: computing m twice could round it two ways.
  var total = vec2<u32>(0u, 0u);
  for (var t = first; t < end; t++) {
    total = fixed_add(total, gate(t, head));
    lam_pages[lam_slot_of(step.pos + t, head)] = total;
  }
  totals[run] = total;
  workgroupBarrier();
  var base = vec2<u32>(0u, 0u);
  if (step.pos > 0u) { base = lam_pages[lam_slot_of(step.pos - 1u, head)]; }
  for (var before = 0u; before < run; before++) { base = fixed_add(base, totals[before]); }
  for (var t = first; t < end; t++) {
    let slot = lam_slot_of(step.pos + t, head);
    lam_pages[slot] = fixed_add(base, lam_pages[slot]);
  }
}
