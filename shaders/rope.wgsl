// y[c] = x[c]·cos − x[c + h/2]·sin, y[c + h/2] = x[c + h/2]·cos + x[c]·sin, c < h/2: the heads' rows inside each token's row turn
// by the angles of their position. One invocation a pair, in place.

@group(0) @binding(0) var<storage, read> vectors: array<f32>; // at params.table: [positions, 2 (cos, sin), half]
@group(0) @binding(1) var<storage, read_write> x: array<f32>; // [tokens, stride]

struct Params {
  pairs: u32,  // of a token: heads · half
  half: u32,   // head_dim / 2
  stride: u32,
  column: u32, // of the first head
  table: u32,
}
@group(0) @binding(8) var<uniform> params: Params;
#import step

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let pair = id.x;
  let t = id.y;
  if (pair >= params.pairs || t >= step.n_tokens) { return; }
  let c = pair % params.half;
  let angle = params.table + (step.pos + t) * 2u * params.half + c;
  let cosine = vectors[angle];
  let sine = vectors[angle + params.half];
  let at = t * params.stride + params.column + pair / params.half * 2u * params.half + c;
  let first = x[at];
  let second = x[at + params.half];
  x[at] = first * cosine - second * sine;
  x[at + params.half] = second * cosine + first * sine;
}
