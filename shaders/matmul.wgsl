// y[t, out_offset + r] = Σ_c W[r, c] · x[t, c]; BIAS adds a number to each r, RESIDUAL adds to y
// A workgroup of 8 × 8 invocations makes TILE rows × TILE tokens: 64 (WIDE) or 32. It brings 16 columns of W (dequantized) and of
// x into workgroup memory at a time, while the next 16 are on their way. Invocation (r, t) has rows 4r .. 4r + 3 (WIDE: and 32 further on) of tokens t, t +
// 8, ..., each four rows of a token one vec4: no arrays in registers, since not every compiler unrolls. Rows on x, tokens on y.
#import matmul_io

const DEPTH = 4u; // vec4 columns of a tile
const QUADS = TILE / 4u;

var<workgroup> w_tile: array<vec4<f32>, 4u * DEPTH * QUADS>; // [16 columns, QUADS]: four rows each
var<workgroup> x_tile: array<vec4<f32>, TILE * DEPTH>; // [TILE tokens, DEPTH]: four columns each

fn load_w(row: u32, c: u32) -> vec4<f32> {
  if (row >= params.n_rows || c >= params.k / 4u) { return vec4<f32>(); }
  return weights4(row, c, params.k);
}

// Four columns of four rows, a column each; those of no row of the tile are of no use.
fn four_rows(first_row: u32, quad: u32, c: u32) -> mat4x4<f32> {
  if (quad >= QUADS) { return mat4x4<f32>(); }
  let row = first_row + quad * 4u;
  return transpose(mat4x4<f32>(load_w(row, c), load_w(row + 1u, c), load_w(row + 2u, c), load_w(row + 3u, c)));
}

fn load_x(token: u32, c: u32) -> vec4<f32> {
  if (token >= step.n_tokens || c >= params.k / 4u) { return vec4<f32>(); }
  return x[token * (params.k / 4u) + c];
}

// Four rows at four columns, a column each.
fn columns(c: u32, quad: u32) -> mat4x4<f32> {
  let at = c * 4u * QUADS + quad;
  return mat4x4<f32>(w_tile[at], w_tile[at + QUADS], w_tile[at + 2u * QUADS], w_tile[at + 3u * QUADS]);
}

fn add(sum: vec4<f32>, w: mat4x4<f32>, a: vec4<f32>) -> vec4<f32> {
  return fma(w[3], vec4<f32>(a.w), fma(w[2], vec4<f32>(a.z), fma(w[1], vec4<f32>(a.y), fma(w[0], vec4<f32>(a.x), sum))));
}

// Four rows of four tokens, 8 apart.
fn store16(row: u32, token: u32, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) {
  store4(row, token, a);
  store4(row, token + 8u, b);
  store4(row, token + 16u, c);
  store4(row, token + 24u, d);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let first_row = group.x * TILE;
  let first_token = group.y * TILE;
  let n_tokens = step.n_tokens - first_token; // of this tile, or more
  let r = local % 8u;
  let t = local / 8u;
  let row = first_row + r * 4u;
  let first = first_token + t;
  var s0 = vec4<f32>(); var s1 = vec4<f32>(); var s2 = vec4<f32>(); var s3 = vec4<f32>();
#ifdef WIDE
  var s4 = vec4<f32>(); var s5 = vec4<f32>(); var s6 = vec4<f32>(); var s7 = vec4<f32>();
  // The rows 32 further on.
  var u0 = vec4<f32>(); var u1 = vec4<f32>(); var u2 = vec4<f32>(); var u3 = vec4<f32>();
  var u4 = vec4<f32>(); var u5 = vec4<f32>(); var u6 = vec4<f32>(); var u7 = vec4<f32>();
#endif
  // What this invocation brings: four rows (in the narrow tile, half of them do) and every 16th token, at one of the vec4 columns.
  let own = local % DEPTH;
  let other = local / DEPTH;
  let token = first_token + other;
  let to = own * 4u * QUADS + other;
  let n_columns = params.k / 4u;
  var w = four_rows(first_row, other, own);
  var x0 = load_x(token, own);
  var x1 = load_x(token + 16u, own);
#ifdef WIDE
  var x2 = load_x(token + 32u, own); var x3 = load_x(token + 48u, own);
#endif
  for (var column = 0u; column < n_columns; column += DEPTH) {
    if (other < QUADS) {
      w_tile[to] = w[0];
      w_tile[to + QUADS] = w[1];
      w_tile[to + 2u * QUADS] = w[2];
      w_tile[to + 3u * QUADS] = w[3];
    }
    x_tile[local] = x0;
    x_tile[local + 64u] = x1;
#ifdef WIDE
    x_tile[local + 128u] = x2; x_tile[local + 192u] = x3;
#endif
    workgroupBarrier();
    let next = column + DEPTH + own;
    w = four_rows(first_row, other, next);
    x0 = load_x(token, next);
    x1 = load_x(token + 16u, next);
#ifdef WIDE
    x2 = load_x(token + 32u, next); x3 = load_x(token + 48u, next);
#endif
    for (var c = 0u; c < DEPTH; c += 1u) {
      let at = t * DEPTH + c;
      let q = columns(c, r);
      s0 = add(s0, q, x_tile[at]);
#ifdef WIDE
      let v = columns(c, r + 8u);
      u0 = add(u0, v, x_tile[at]);
#endif
      // The same for the whole workgroup: a short tile costs only about the tokens that it has.
      if (n_tokens > 8u) {
        s1 = add(s1, q, x_tile[at + 8u * DEPTH]); s2 = add(s2, q, x_tile[at + 16u * DEPTH]);
        s3 = add(s3, q, x_tile[at + 24u * DEPTH]);
#ifdef WIDE
        u1 = add(u1, v, x_tile[at + 8u * DEPTH]); u2 = add(u2, v, x_tile[at + 16u * DEPTH]);
        u3 = add(u3, v, x_tile[at + 24u * DEPTH]);
      }
      if (n_tokens > 32u) {
        s4 = add(s4, q, x_tile[at + 32u * DEPTH]); u4 = add(u4, v, x_tile[at + 32u * DEPTH]);
        s5 = add(s5, q, x_tile[at + 40u * DEPTH]); u5 = add(u5, v, x_tile[at + 40u * DEPTH]);
        s6 = add(s6, q, x_tile[at + 48u * DEPTH]); u6 = add(u6, v, x_tile[at + 48u * DEPTH]);
        s7 = add(s7, q, x_tile[at + 56u * DEPTH]); u7 = add(u7, v, x_tile[at + 56u * DEPTH]);
#endif
      }
    }
    workgroupBarrier();
  }
  store16(row, first, s0, s1, s2, s3);
#ifdef WIDE
  store16(row, first + 32u, s4, s5, s6, s7);
  store16(row + 32u, first, u0, u1, u2, u3);
  store16(row + 32u, first + 32u, u4, u5, u6, u7);
#endif
}
