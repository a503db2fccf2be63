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
