// y[out_offset + r] = s · Σ_c W[r, c] · w[c] · x[c]; with NORM s = 1 / √(mean(x²) + eps), else s = w = 1
// BIAS adds a number to each row; RESIDUAL adds to y; GLU stores silu(row r) · (row r + n_rows/2), or sigmoid(row r) with SIGMOID;
// GATES has f32 rows behind W's, for the same x.
//
// LANES adjacent invocations share four rows and walk them together, eight weights (PLANES) or four each at a time: their loads
// of W and of x are adjacent, and a piece of x is read once for four rows. WG / LANES such groups a workgroup.
// x² is summed on the way: no prologue, one barrier in all. No arrays in registers: not every compiler unrolls.
#import matvec_io

const WG_ROWS = WG / LANES * 4u;

var<workgroup> lane_sums: array<vec4<f32>, WG>;
#ifdef NORM
var<workgroup> lane_squares: array<f32, WG>;
#endif

fn store(slot: u32, product: f32) {
  if (slot < params.n_rows) {
    var sum = product;
#ifdef BIAS
    sum += bias[params.bias_offset + slot];
#endif
#ifdef RESIDUAL
    sum += y[params.out_offset + slot];
#endif
    y[params.out_offset + slot] = sum;
  }
}

#ifdef GATES
fn store_gate(gate: u32, sum: f32) {
  if (gate < params.n_gates) { y[params.gates_offset + gate] = sum; }
}
#endif

#ifdef GLU
fn store_pair(slot: u32, gate: f32, value: f32) {
#ifdef SIGMOID
  let factor = 1.0 / (1.0 + exp(-gate));
#else
  let factor = gate / (1.0 + exp(-gate));
#endif
  if (slot < params.n_rows) { y[params.out_offset + slot / 2u] = factor * value; }
}
#endif

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) id: vec3<u32>,
  @builtin(num_workgroups) n_groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let group = id.x + id.y * n_groups.x;
  let lane = local % LANES;
  let n_columns = params.k / 4u;
  var x_row = 0u;
#ifdef LAST_ROW
  x_row = (step.n_tokens - 1u) * n_columns;
#endif
  var first_slot = group * WG_ROWS;
#ifdef GATES
  let row_groups = (params.n_rows + WG_ROWS - 1u) / WG_ROWS;
  let is_gates = group >= row_groups;
  if (is_gates) { first_slot -= row_groups * WG_ROWS; }
#endif
  var slot = first_slot + local / LANES * 4u; // the first of four
  var sums = vec4<f32>();
  var squares = 0.0;
#ifdef GATES
  if (is_gates) {
    let rows = min(vec4<u32>(slot, slot + 1u, slot + 2u, slot + 3u), vec4<u32>(params.n_gates - 1u)) * n_columns;
    for (var c = lane; c < n_columns; c += LANES) {
      var value = x[x_row + c];
#ifdef NORM
      squares += dot(value, value);
      value *= norm_weight[c];
#endif
      sums += vec4<f32>(
        dot(gates[rows.x + c], value), dot(gates[rows.y + c], value), dot(gates[rows.z + c], value), dot(gates[rows.w + c], value),
      );
    }
  } else {
#endif
    let rows = vec4<u32>(row_of(slot), row_of(slot + 1u), row_of(slot + 2u), row_of(slot + 3u));
#ifdef PLANES
    for (var at = lane; at < n_columns / 2u; at += LANES) {
      let c = at / 4u * 8u + at % 4u;
      var low = x[x_row + c];
      var high = x[x_row + c + 4u];
#ifdef NORM
      squares += dot(low, low) + dot(high, high);
      low *= norm_weight[c];
      high *= norm_weight[c + 4u];
#endif
      sums += vec4<f32>(
        product(rows.x, at, params.k, low, high), product(rows.y, at, params.k, low, high),
        product(rows.z, at, params.k, low, high), product(rows.w, at, params.k, low, high),
      );
    }
#else
    for (var c = lane; c < n_columns; c += LANES) {
      var value = x[x_row + c];
#ifdef NORM
      squares += dot(value, value);
      value *= norm_weight[c];
#endif
      sums += vec4<f32>(
        dot(weights4(rows.x, c, params.k), value), dot(weights4(rows.y, c, params.k), value),
        dot(weights4(rows.z, c, params.k), value), dot(weights4(rows.w, c, params.k), value),
      );
    }
#endif
#ifdef GATES
  }
#endif
  lane_sums[local] = sums;
#ifdef NORM
  lane_squares[local] = squares;
#endif
  workgroupBarrier();

  // One invocation for four rows adds the lanes' sums, the first ones of the workgroup: cheaper than the barriers of a tree.
  if (local >= WG / LANES) { return; }
  let first_lane = local * LANES;
  sums = lane_sums[first_lane];
  for (var i = 1u; i < LANES; i += 1u) { sums += lane_sums[first_lane + i]; }
#ifdef NORM
  squares = lane_squares[first_lane];
  for (var i = 1u; i < LANES; i += 1u) { squares += lane_squares[first_lane + i]; }
  sums *= inverseSqrt(squares / f32(params.k) + params.eps);
#endif
  slot = first_slot + local * 4u;
#ifdef GATES
  if (is_gates) {
    store_gate(slot, sums.x);
    store_gate(slot + 1u, sums.y);
    store_gate(slot + 2u, sums.z);
    store_gate(slot + 3u, sums.w);
    return;
  }
#endif
#ifdef GLU
  store_pair(slot, sums.x, sums.y);
  store_pair(slot + 2u, sums.z, sums.w);
#else
  store(slot, sums.x);
  store(slot + 1u, sums.y);
  store(slot + 2u, sums.z);
  store(slot + 3u, sums.w);
#endif
}
