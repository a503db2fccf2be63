// What a product with several tokens' x is given: for matmul, matmul_wide and matmul_coop.
#import weights

@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>; // [tokens, k/4]
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [tokens, out_stride]
#ifdef BIAS
@group(0) @binding(4) var<storage, read> bias: array<f32>; // [n_rows] from params.bias_offset
#endif

struct Params {
  n_rows: u32, // of W
  k: u32,
  out_stride: u32,
  out_offset: u32,
  bias_offset: u32,
}
@group(0) @binding(8) var<uniform> params: Params;
#import step

// y[to + row] = product, and what is added to it.
fn store(row: u32, to: u32, product: f32) {
  if (row < params.n_rows) {
    var sum = product;
#ifdef BIAS
    sum += bias[params.bias_offset + row];
#endif
#ifdef RESIDUAL
    sum += y[to + row];
#endif
    y[to + row] = sum;
  }
}

// Four rows of a token.
fn store4(row: u32, token: u32, sum: vec4<f32>) {
  if (token >= step.n_tokens) { return; }
  let to = token * params.out_stride + params.out_offset;
  store(row, to, sum.x);
  store(row + 1u, to, sum.y);
  store(row + 2u, to, sum.z);
  store(row + 3u, to, sum.w);
}
