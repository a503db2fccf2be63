// y[t, out_offset + r] = Σ_c W[r, c] · x[t, c]; RESIDUAL adds to y
// A workgroup makes TILE × TILE outputs with 8 × 8 invocations of SIDE × SIDE each, SIDE = TILE / 8. It brings 16 columns of
// TILE rows of W (dequantized) and of x into workgroup memory at a time. Rows of W on x, tokens on y.
#import weights

@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>; // [tokens, k/4]
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [tokens, out_stride]

struct Params {
  n_rows: u32, // of W
  k: u32,
  out_stride: u32,
  out_offset: u32,
}
@group(0) @binding(8) var<uniform> params: Params;
#import step

const SIDE = TILE / 8u;
const DEPTH = 4u; // vec4 columns of a tile
const FILL = TILE * DEPTH / 64u; // vec4s of a tile that each invocation brings

var<workgroup> w_tile: array<vec4<f32>, TILE * DEPTH>; // [TILE, DEPTH], see place()
var<workgroup> x_tile: array<vec4<f32>, TILE * DEPTH>;

// Where column c of a tile's row lies. The columns of a row are swapped by the row's number, so that 8 adjacent rows at one
// column, which the invocations read together, lie in 8 different bank groups of workgroup memory.
fn place(row: u32, c: u32) -> u32 {
  return row * DEPTH + (c ^ ((row >> 1u) & 3u));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let first_row = group.x * TILE;
  let first_token = group.y * TILE;
  let n_columns = params.k / 4u;
  // Outputs: rows first_row + r + 8i, tokens first_token + t + 8j.
  let r = local % 8u;
  let t = local / 8u;
  let n_tokens = step.n_tokens - first_token; // of this tile, or more
  var sums: array<array<f32, SIDE>, SIDE>;
  for (var column = 0u; column < n_columns; column += DEPTH) {
    for (var i = 0u; i < FILL; i += 1u) {
      let at = i * 64u + local;
      let c = column + at % DEPTH;
      let row = first_row + at / DEPTH;
      let token = first_token + at / DEPTH;
      var w4 = vec4<f32>();
      var x4 = vec4<f32>();
      if (c < n_columns) {
        if (row < params.n_rows) { w4 = weights4(row, c, params.k); }
        if (token < step.n_tokens) { x4 = x[token * n_columns + c]; }
      }
      let to = place(at / DEPTH, at % DEPTH);
      w_tile[to] = w4;
      x_tile[to] = x4;
    }
    workgroupBarrier();
    for (var c = 0u; c < DEPTH; c += 1u) {
      var ws: array<vec4<f32>, SIDE>;
      for (var i = 0u; i < SIDE; i += 1u) { ws[i] = w_tile[place(r + 8u * i, c)]; }
      for (var j = 0u; j < SIDE; j += 1u) {
        // The same for the whole workgroup: a short last tile costs only the tokens that it has.
        if (8u * j < n_tokens) {
          let a = x_tile[place(t + 8u * j, c)];
          for (var i = 0u; i < SIDE; i += 1u) {
            let w = ws[i];
            sums[j][i] = fma(a.w, w.w, fma(a.z, w.z, fma(a.y, w.y, fma(a.x, w.x, sums[j][i]))));
          }
        }
      }
    }
    workgroupBarrier();
  }
  for (var j = 0u; j < SIDE; j += 1u) {
    let token = first_token + t + 8u * j;
    for (var i = 0u; i < SIDE; i += 1u) {
      let row = first_row + r + 8u * i;
      if (token < step.n_tokens && row < params.n_rows) {
        let to = token * params.out_stride + params.out_offset + row;
#ifdef RESIDUAL
        y[to] += sums[j][i];
#else
        y[to] = sums[j][i];
#endif
      }
    }
  }
}
