// y[t, out_offset + r] = Σ_c W[r, c] · x[t, c]; BIAS adds a number to each r, RESIDUAL adds to y
// A workgroup of 16 × 16 invocations makes 128 rows × 128 tokens, each 8 × 8 of them: rows 4r .. 4r + 3 and 64 further on, tokens
// likewise. 16 columns of W (dequantized) and of x lie in workgroup memory, columns outermost, while the next 16 are on their way
// in registers: half of the invocations bring W, half x, four rows of four columns each. Rows on x, tokens on y.
#import matmul_io

const TILE = 128u; // rows, and tokens
const QUADS = TILE / 4u;
const DEPTH = 4u; // vec4 columns of a tile

// W, then x: [16 columns, QUADS], each four rows (tokens) of one column.
var<workgroup> tile: array<vec4<f32>, 2u * 4u * DEPTH * QUADS>;

// Where quad q of columns 4c .. 4c + 3 lies in its row: spread so that neither side of the transposition meets in a bank.
fn spread(q: u32, c: u32) -> u32 { return q ^ (c << 1u); }

// Row `at` of W or, for the second half of the invocations, token `at` of x: its columns 4c .. 4c + 3.
fn load(of_x: bool, at: u32, c: u32) -> vec4<f32> {
  if (c >= params.k / 4u) { return vec4<f32>(); }
  if (of_x) { return x[min(at, step.n_tokens - 1u) * (params.k / 4u) + c]; }
  return weights4(min(at, params.n_rows - 1u), c, params.k);
}

// Four of them, a row each.
fn load4(of_x: bool, at: u32, c: u32) -> mat4x4<f32> {
  return mat4x4<f32>(load(of_x, at, c), load(of_x, at + 1u, c), load(of_x, at + 2u, c), load(of_x, at + 3u, c));
}

// Rows 0 .. 3 and 64 .. 67 of a token.
fn store8(row: u32, token: u32, low: vec4<f32>, high: vec4<f32>) {
  store4(row, token, low);
  store4(row + 64u, token, high);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let first_row = group.x * TILE;
  let first_token = group.y * TILE;
  let n_columns = params.k / 4u;
  // Of 32 neighbours 8 differ in rows and 4 in tokens: they share most of what they read.
  let r = (local / 32u % 2u) * 8u + local % 8u;
  let t = (local / 64u) * 4u + local / 8u % 4u;
  // What this invocation brings.
  let of_x = local >= 128u;
  let c = local % DEPTH;
  let quad = local % 128u / DEPTH;
  let at = select(first_row, first_token, of_x) + quad * 4u;
  let to = select(0u, 4u * DEPTH * QUADS, of_x) + c * 4u * QUADS + spread(quad, c);
  var next = load4(of_x, at, c);
  // Tokens 4t .. 4t + 3, and 64 further on: rows 4r .. and 64 further on (u).
  var s0 = vec4<f32>();
  var s1 = vec4<f32>();
  var s2 = vec4<f32>();
  var s3 = vec4<f32>();
  var s4 = vec4<f32>();
  var s5 = vec4<f32>();
  var s6 = vec4<f32>();
  var s7 = vec4<f32>();
  var u0 = vec4<f32>();
  var u1 = vec4<f32>();
  var u2 = vec4<f32>();
  var u3 = vec4<f32>();
  var u4 = vec4<f32>();
  var u5 = vec4<f32>();
  var u6 = vec4<f32>();
  var u7 = vec4<f32>();
  for (var column = 0u; column < n_columns; column += DEPTH) {
    workgroupBarrier();
    let turned = transpose(next);
    tile[to] = turned[0];
    tile[to + QUADS] = turned[1];
    tile[to + 2u * QUADS] = turned[2];
    tile[to + 3u * QUADS] = turned[3];
    workgroupBarrier();
    next = load4(of_x, at, column + DEPTH + c);
    for (var k = 0u; k < 4u * DEPTH; k += 1u) {
      let from_w = k * QUADS;
      let from_x = (4u * DEPTH + k) * QUADS;
      let w = tile[from_w + spread(r, k / 4u)];
      let v = tile[from_w + spread(r + 16u, k / 4u)];
      let a = tile[from_x + spread(t, k / 4u)];
      let b = tile[from_x + spread(t + 16u, k / 4u)];
      s0 = fma(w, vec4<f32>(a.x), s0);
      u0 = fma(v, vec4<f32>(a.x), u0);
      s1 = fma(w, vec4<f32>(a.y), s1);
      u1 = fma(v, vec4<f32>(a.y), u1);
      s2 = fma(w, vec4<f32>(a.z), s2);
      u2 = fma(v, vec4<f32>(a.z), u2);
      s3 = fma(w, vec4<f32>(a.w), s3);
      u3 = fma(v, vec4<f32>(a.w), u3);
      s4 = fma(w, vec4<f32>(b.x), s4);
      u4 = fma(v, vec4<f32>(b.x), u4);
      s5 = fma(w, vec4<f32>(b.y), s5);
      u5 = fma(v, vec4<f32>(b.y), u5);
      s6 = fma(w, vec4<f32>(b.z), s6);
      u6 = fma(v, vec4<f32>(b.z), u6);
      s7 = fma(w, vec4<f32>(b.w), s7);
      u7 = fma(v, vec4<f32>(b.w), u7);
    }
  }
  let row = first_row + r * 4u;
  let token = first_token + t * 4u;
  store8(row, token, s0, u0);
  store8(row, token + 1u, s1, u1);
  store8(row, token + 2u, s2, u2);
  store8(row, token + 3u, s3, u3);
  store8(row, token + 64u, s4, u4);
  store8(row, token + 65u, s5, u5);
  store8(row, token + 66u, s6, u6);
  store8(row, token + 67u, s7, u7);
}
