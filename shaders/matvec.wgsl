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

#ifdef GATES
fn store_gate(gate: u32, sum: f32) {
  if (gate < params.n_gates) { y[params.gates_offset + gate] = sum; }
}
#endif

// Stores the product of a row.
fn finish(slot: u32, product: f32) {
  var before = 0.0;
#ifdef RESIDUAL
  if (slot < params.n_rows) { before = y[params.out_offset + slot]; }
#endif
  store(slot, product, before);
}

var<private> sums: vec4<f32>; // of this invocation's four rows
var<private> squares: f32;

// x at column c, its square added, weighed by the norm.
fn column(at: u32, c: u32) -> vec4<f32> {
  var value = x[at + c];
#ifdef NORM
  squares += dot(value, value);
  value *= norm_weight[c];
#endif
  return value;
}

#ifdef GATES
// Adds this lane's part of four gates.
fn add_gates(slot: u32, x_row: u32, lane: u32) {
  let n_columns = params.k / 4u;
  let rows = min(vec4<u32>(slot, slot + 1u, slot + 2u, slot + 3u), vec4<u32>(params.n_gates - 1u)) * n_columns;
  for (var c = lane; c < n_columns; c += LANES) {
    let value = column(x_row, c);
    sums += vec4<f32>(
      dot(gates[rows.x + c], value), dot(gates[rows.y + c], value), dot(gates[rows.z + c], value), dot(gates[rows.w + c], value),
    );
  }
}
#endif

// Adds this lane's part of four rows.
fn add_rows(slot: u32, x_row: u32, lane: u32) {
  let n_columns = params.k / 4u;
  let rows = vec4<u32>(row_of(slot), row_of(slot + 1u), row_of(slot + 2u), row_of(slot + 3u));
#ifdef PLANES
  for (var at = lane; at < n_columns / 2u; at += LANES) {
    let c = at / 4u * 8u + at % 4u;
    let low = column(x_row, c);
    let high = column(x_row, c + 4u);
    sums += vec4<f32>(
      product(rows.x, at, params.k, low, high), product(rows.y, at, params.k, low, high),
      product(rows.z, at, params.k, low, high), product(rows.w, at, params.k, low, high),
    );
  }
#else
  for (var c = lane; c < n_columns; c += LANES) {
    let value = column(x_row, c);
    sums += vec4<f32>(
      dot(weights4(rows.x, c, params.k), value), dot(weights4(rows.y, c, params.k), value),
      dot(weights4(rows.z, c, params.k), value), dot(weights4(rows.w, c, params.k), value),
    );
  }
#endif
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) id: vec3<u32>,
  @builtin(num_workgroups) n_groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let group = id.x + id.y * n_groups.x;
  let lane = local % LANES;
  var x_row = 0u;
#ifdef LAST_ROW
  x_row = (step.n_tokens - 1u) * (params.k / 4u);
#endif
  var first_slot = group * WG_ROWS;
#ifdef GATES
  let row_groups = (params.n_rows + WG_ROWS - 1u) / WG_ROWS;
  let is_gates = group >= row_groups;
  if (is_gates) {
    first_slot -= row_groups * WG_ROWS;
    add_gates(first_slot + local / LANES * 4u, x_row, lane);
  } else {
    add_rows(first_slot + local / LANES * 4u, x_row, lane);
  }
#else
  add_rows(first_slot + local / LANES * 4u, x_row, lane);
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
  let slot = first_slot + local * 4u; // the first of four
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
  finish(slot, sums.x);
  finish(slot + 1u, sums.y);
  finish(slot + 2u, sums.z);
  finish(slot + 3u, sums.w);
#endif
}
