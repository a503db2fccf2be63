// out[t, c] = α·y[t−1, c] + (1 − α)·y[t, c], α = sigmoid(proj[t, gate + head of c]), y = the columns of k or v in proj
// One invocation an element. y[−1] comes from the shift row that the replay before left; the last y is left for the next.

@group(0) @binding(0) var<storage, read> proj: array<f32>; // [tokens, stride]
@group(0) @binding(1) var<storage, read_write> shift_rows: array<f32>; // [slots, 2 (k, v), width]
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // [tokens, width]

struct Params {
  width: u32,    // heads · head_dim
  head_dim: u32,
  stride: u32,   // of proj
  column: u32,   // first column of k or v in proj
  gate: u32,     // first of the heads' columns for α
  which: u32,    // 0 for k, 1 for v
}
@group(0) @binding(8) var<uniform> params: Params;
#import step

fn shift_row(slot: u32) -> u32 { return (slot * 2u + params.which) * params.width; }

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let c = id.x;
  let t = id.y;
  if (c >= params.width || t >= step.n_tokens) { return; }
  let row = t * params.stride;
  let now = proj[row + params.column + c];
  var before = 0.0; // before the first token
  if (t > 0u) {
    before = proj[row - params.stride + params.column + c];
  } else if (step.pos > 0u) {
    before = shift_rows[shift_row(step.shift_in) + c];
  }
  let alpha = 1.0 / (1.0 + exp(-proj[row + params.gate + c / params.head_dim]));
  y[t * params.width + c] = alpha * before + (1.0 - alpha) * now;
  // Never the slot that is read above: no invocation can see this too early.
  if (t + 1u == step.n_tokens) { shift_rows[shift_row(step.shift_out) + c] = now; }
}
