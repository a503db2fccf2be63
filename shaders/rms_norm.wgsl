// y = x / √(mean(x²) + eps) · w, over rows of `width` inside each token's row: one row (attn_norm) or one a head (q_norm).
// LANES adjacent invocations share a row; WG / LANES rows a workgroup; a plane of workgroups: rows on x, tokens on y.

#ifdef COPY
@group(0) @binding(0) var<storage, read> x: array<f32>; // [tokens, in_stride]
#endif
@group(0) @binding(1) var<storage, read> weight: array<f32>; // [rows_per_token, width], from w_offset
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // [tokens, out_stride]

struct Params {
  rows_per_token: u32,
  width: u32,
  in_stride: u32,
  in_offset: u32,
  out_stride: u32,
  out_offset: u32,
  w_offset: u32,
  eps: f32,
}
@group(0) @binding(8) var<uniform> params: Params;
#import step

var<workgroup> lane_sums: array<f32, WG>;

fn load(at: u32) -> f32 {
#ifdef COPY
  return x[at];
#else
  return y[at];
#endif
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let lane = local % LANES;
  let row = group.x * (WG / LANES) + local / LANES;
  let t = group.y;
  let live = row < params.rows_per_token && t < step.n_tokens;
  let x_row = t * params.in_stride + params.in_offset + row * params.width;
  let y_row = t * params.out_stride + params.out_offset + row * params.width;
  var sum = 0.0;
  if (live) {
    for (var i = lane; i < params.width; i += LANES) {
      let value = load(x_row + i);
      sum += value * value;
    }
  }
  lane_sums[local] = sum;
  workgroupBarrier();
  if (!live) { return; }
  // Every lane adds all lane sums: cheaper than the barriers of a tree, and the same order in each.
  var total = 0.0;
  for (var i = 0u; i < LANES; i += 1u) { total += lane_sums[local - lane + i]; }
  let scale = inverseSqrt(total / f32(params.width) + params.eps);
  for (var i = lane; i < params.width; i += LANES) {
    y[y_row + i] = load(x_row + i) * scale * weight[params.w_offset + row * params.width + i];
  }
}
