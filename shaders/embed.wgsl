// x[t] = E[ids[pos + t]], for the ids inside this part of the embedding matrix; the others are another dispatch's.
// One invocation for 4 columns; a row of workgroups for a token.
#import weights

@group(0) @binding(2) var<storage, read> ids: array<u32>; // [context], by position
@group(0) @binding(3) var<storage, read_write> x: array<vec4<f32>>; // [tokens, k/4]

struct Params {
  first_row: u32, // of this part in the whole matrix
  n_rows: u32,    // in this part
  k: u32,
}
@group(0) @binding(8) var<uniform> params: Params;
#import step

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let n_columns = params.k / 4u;
  let t = id.y;
  if (id.x >= n_columns || t >= step.n_tokens) { return; }
  let row = ids[step.pos + t] - params.first_row; // wraps to a huge number below the part
  if (row >= params.n_rows) { return; }
  x[t * n_columns + id.x] = weights4(row, id.x, params.k);
}
