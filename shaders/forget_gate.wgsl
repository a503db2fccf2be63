// Λ[t] = Λ[t−1] + m[t], m = −log sigmoid(z) in 32.32 fixed point, z = proj[t, column + head] + bias[head] (or the bias alone);
// or m[t] = table[t mod period, head], as it is
// One workgroup a head.

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
#import forget_runs

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

fn kept(t: u32, head: u32) -> vec2<u32> { return lam_pages[lam_slot_of(step.pos + t, head)]; }
fn keep(t: u32, head: u32, sum: vec2<u32>) { lam_pages[lam_slot_of(step.pos + t, head)] = sum; }

fn before_chunk(head: u32) -> vec2<u32> {
  if (step.pos == 0u) { return vec2<u32>(0u, 0u); }
  return lam_pages[lam_slot_of(step.pos - 1u, head)];
}
