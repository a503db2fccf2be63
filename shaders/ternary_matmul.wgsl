// y[t, out_offset + r] = scale · scales[t] · Σ_c W[r, c] · q[t, c], W ∈ {−1, 0, 1}, q int8: the sum is exact, in i32
// A workgroup of 8 × 8 invocations makes 32 rows × 32 tokens; each invocation has four rows of four tokens. Rows on x, tokens on y.

@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>; // [n_rows, groups]: 64 codes W + 1 of two bits
@group(0) @binding(1) var<storage, read> q: array<vec4<u32>>; // [tokens, groups, 4]: 16 int8
@group(0) @binding(2) var<storage, read> scales: array<f32>; // [tokens]
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [tokens, out_stride]

struct Params { n_rows: u32, groups: u32, out_stride: u32, out_offset: u32, scale: f32 }
@group(0) @binding(8) var<uniform> params: Params;
#import step

// Byte `byte` of four words of weights, whose pair of bits is the lowest.
fn weights4(codes: vec4<u32>, byte: u32) -> vec4<i32> {
  return vec4<i32>((codes >> vec4<u32>(8u * byte)) & vec4<u32>(3u)) - vec4<i32>(1);
}

// Byte `byte` of four words of activations.
fn bytes4(words: vec4<u32>, byte: u32) -> vec4<i32> {
  return bitcast<vec4<i32>>(words << vec4<u32>(24u - 8u * byte)) >> vec4<u32>(24u);
}

fn dot4(w: vec4<i32>, a0: vec4<i32>, a1: vec4<i32>, a2: vec4<i32>, a3: vec4<i32>) -> vec4<i32> {
  return vec4<i32>(dot(w, a0), dot(w, a1), dot(w, a2), dot(w, a3));
}

// The sums of one row, a token each.
fn store(row: u32, token: u32, sums: vec4<i32>) {
  if (row >= params.n_rows) { return; }
  for (var i = 0u; i < 4u; i++) {
    let t = token + i;
    if (t < step.n_tokens) { y[t * params.out_stride + params.out_offset + row] = f32(sums[i]) * (params.scale * scales[t]); }
  }
}

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let row = id.x * 4u;
  let token = id.y * 4u;
  if (row >= params.n_rows || token >= step.n_tokens) { return; }
  // Those past the end repeat the last, and are not stored.
  let rows = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.n_rows - 1u)) * params.groups;
  let tokens = min(vec4<u32>(token) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(step.n_tokens - 1u)) * params.groups;
  var s0 = vec4<i32>();
  var s1 = vec4<i32>();
  var s2 = vec4<i32>();
  var s3 = vec4<i32>();
  for (var group = 0u; group < params.groups; group++) {
    var w0 = data[rows.x + group];
    var w1 = data[rows.y + group];
    var w2 = data[rows.z + group];
    var w3 = data[rows.w + group];
    for (var n = 0u; n < 4u; n++) {
      let x0 = q[(tokens.x + group) * 4u + n];
      let x1 = q[(tokens.y + group) * 4u + n];
      let x2 = q[(tokens.z + group) * 4u + n];
      let x3 = q[(tokens.w + group) * 4u + n];
      for (var byte = 0u; byte < 4u; byte++) {
        let a0 = bytes4(x0, byte);
        let a1 = bytes4(x1, byte);
        let a2 = bytes4(x2, byte);
        let a3 = bytes4(x3, byte);
        s0 += dot4(weights4(w0, byte), a0, a1, a2, a3);
        s1 += dot4(weights4(w1, byte), a0, a1, a2, a3);
        s2 += dot4(weights4(w2, byte), a0, a1, a2, a3);
        s3 += dot4(weights4(w3, byte), a0, a1, a2, a3);
      }
      w0 >>= vec4<u32>(2u);
      w1 >>= vec4<u32>(2u);
      w2 >>= vec4<u32>(2u);
      w3 >>= vec4<u32>(2u);
    }
  }
  store(row, token, s0);
  store(row + 1u, token, s1);
  store(row + 2u, token, s2);
  store(row + 3u, token, s3);
}
