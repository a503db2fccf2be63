// y[t, offset + i] = act(g[t, i]) · u[t, i], act(z) = silu(z) = z / (1 + exp(-z)), or sigmoid(z) = 1 / (1 + exp(-z)) with SIGMOID
// One invocation an element: columns on x, tokens on y.

@group(0) @binding(0) var<storage, read> gate_up: array<f32>; // [tokens, 2·width]: gate row, then value row
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // [tokens, stride]

struct Params { width: u32, stride: u32, offset: u32 }
@group(0) @binding(8) var<uniform> params: Params;
#import step

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let i = id.x;
  let t = id.y;
  if (i >= params.width || t >= step.n_tokens) { return; }
  let row = t * 2u * params.width;
  let g = gate_up[row + i];
#ifdef SIGMOID
  let gate = 1.0 / (1.0 + exp(-g));
#else
  let gate = g / (1.0 + exp(-g));
#endif
  y[t * params.stride + params.offset + i] = gate * gate_up[row + params.width + i];
}
