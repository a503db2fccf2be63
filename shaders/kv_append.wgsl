// k_pages[page of pos + t, head] = k[t, head], v likewise: rows of f16 pairs (rounded by pack2x16float) or of f32
// One invocation a word of a row, for k and v both.

@group(0) @binding(0) var<storage, read> k: array<f32>; // [tokens, k_stride]
#ifdef V_OWN
@group(0) @binding(1) var<storage, read> v: array<f32>; // [tokens, v_stride]; without the flag v lies in k's buffer
#endif
@group(0) @binding(2) var<storage, read_write> k_pages: array<u32>; // [pages, 64, row]
@group(0) @binding(3) var<storage, read_write> v_pages: array<u32>; // [pages, 64, row]
@group(0) @binding(4) var<storage, read> page_table: array<u32>; // [max_pages, layers, kv_heads]

struct Params {
  k_stride: u32,
  k_column: u32,
  v_stride: u32,
  v_column: u32,
  row: u32,      // words of a key: head_dim / 2 in f16, head_dim in f32
  n_kv_heads: u32,
  n_layers: u32,
  layer: u32,
}
@group(0) @binding(8) var<uniform> params: Params;
#import step
#import pages

fn k_at(at: u32) -> f32 { return k[at]; }
#ifdef V_OWN
fn v_at(at: u32) -> f32 { return v[at]; }
#else
fn v_at(at: u32) -> f32 { return k[at]; }
#endif

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let word = id.x;
  let t = id.y;
  if (word >= params.n_kv_heads * params.row || t >= step.n_tokens) { return; }
  let to = slot_of(step.pos + t, word / params.row) * params.row + word % params.row;
  let from_k = t * params.k_stride + params.k_column;
  let from_v = t * params.v_stride + params.v_column;
#ifdef KV_F16
  // WGSL leaves open what becomes of numbers that f16 does not reach: they become its largest.
  let reach = vec2<f32>(65504.0);
  let two = 2u * word;
  k_pages[to] = pack2x16float(clamp(vec2<f32>(k_at(from_k + two), k_at(from_k + two + 1u)), -reach, reach));
  v_pages[to] = pack2x16float(clamp(vec2<f32>(v_at(from_v + two), v_at(from_v + two + 1u)), -reach, reach));
#else
  k_pages[to] = bitcast<u32>(k_at(from_k + word));
  v_pages[to] = bitcast<u32>(v_at(from_v + word));
#endif
}
