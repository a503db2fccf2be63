// o[t, c] = o[t, c] · sigmoid(g), or · silu(g) = g·sigmoid(g), g = proj[t, column + c]
// One invocation an element (prefill; decode does it while merging splits).

@group(0) @binding(0) var<storage, read> proj: array<f32>; // [tokens, stride]
@group(0) @binding(1) var<storage, read_write> o: array<f32>; // [tokens, width]

struct Params { width: u32, stride: u32, column: u32 }
@group(0) @binding(8) var<uniform> params: Params;
#import step

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let c = id.x;
  let t = id.y;
  if (c >= params.width || t >= step.n_tokens) { return; }
  let g = proj[t * params.stride + params.column + c];
#ifdef GATE_SILU
  let gate = g / (1.0 + exp(-g));
#else
  let gate = 1.0 / (1.0 + exp(-g));
#endif
  o[t * params.width + c] *= gate;
}
