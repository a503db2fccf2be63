// y[out_offset + r] = s · Σ_c W[r, c] · w[c] · x[c], as matvec, for adapters with subgroups
//
// A workgroup first puts w·x into workgroup memory, a block of 32 a column, with the sum of each half block and of x². Then LANES
// adjacent invocations share ROWS rows (LANES divides the subgroup): each takes every LANES-th block of 32 weights, a whole block
// with one or a few 16-byte loads, and a subgroup adds up. The first blocks are on their way before the barrier.
#import matvec_io
#import matvec_blocks

const BLOCKS = K / 32u;
const TURNS = (BLOCKS + LANES - 1u) / LANES;
const AHEAD = min(TURNS, max(1u, 16u / ROWS)); // turns whose weights are asked for at once
const WG_ROWS = WG / LANES * ROWS;
// A column has a place more than there are blocks: the four chunks of a half lie in different banks.
const COLUMN = BLOCKS + 1u;

var<workgroup> chunks: array<vec4<f32>, 8u * COLUMN>; // [8, COLUMN]: chunk j of block b
var<workgroup> half_sums: array<f32, 2u * BLOCKS>; // [BLOCKS, 2]
#ifdef NORM
var<workgroup> squares: array<f32, WG / 4u>; // of each subgroup
#endif

// The sum over LANES neighbouring invocations, for each of them.
fn lanes_sum(value: f32) -> f32 {
  var sum = value;
  for (var step = LANES / 2u; step > 0u; step >>= 1u) { sum += subgroupShuffleXor(sum, step); }
  return sum;
}

#ifdef GATES
const GATE_TURNS = (K / 4u + LANES - 1u) / LANES;
var<private> gate_row: array<vec4<f32>, GATE_TURNS>;
#endif
#ifdef RESIDUAL
var<private> before: array<f32, ROWS>;
#endif

fn load_rows(slot: u32, lane: u32) {
  for (var r = 0u; r < ROWS; r++) { rows[r] = row_of(slot + r) * BLOCKS; }
#ifdef W_Q4_0
  load_blocks(0u, lane);
#endif
#ifdef RESIDUAL
  for (var r = 0u; r < ROWS; r++) { before[r] = y[params.out_offset + row_of(slot + r)]; }
#endif
}

// Puts w·x into workgroup memory; gives this invocation's part of the sum of x².
fn bring(x_row: u32, local: u32) -> f32 {
  var square = 0.0;
  for (var first = 0u; first < K / 4u; first += WG) {
    let c = first + local;
    var value = vec4<f32>();
    if (c < K / 4u) {
      value = x[x_row + c];
#ifdef NORM
      square += dot(value, value);
      value *= norm_weight[c];
#endif
      chunks[c % 8u * COLUMN + c / 8u] = value;
    }
    var sum = value.x + value.y + value.z + value.w;
    sum += subgroupShuffleXor(sum, 1u);
    sum += subgroupShuffleXor(sum, 2u);
    if (c < K / 4u && c % 4u == 0u) { half_sums[c / 4u] = sum; }
  }
  return square;
}

#ifdef GATES
// This invocation's part of a gate.
fn gate_part(lane: u32) -> f32 {
  var sum = 0.0;
  for (var n = 0u; n < GATE_TURNS; n++) {
    let c = n * LANES + lane;
    if (c < K / 4u) { sum += dot(gate_row[n], chunks[c % 8u * COLUMN + c / 8u]); }
  }
  return sum;
}
#endif

// Stores the sums of the ROWS rows from `slot` on.
fn store_rows(slot: u32) {
#ifdef GLU
  for (var r = 0u; r < ROWS; r += 2u) { store_pair(slot + r, sums[r], sums[r + 1u]); }
#else
  for (var r = 0u; r < ROWS; r++) {
#ifdef RESIDUAL
    store(slot + r, sums[r], before[r]);
#else
    store(slot + r, sums[r], 0.0);
#endif
  }
#endif
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) id: vec3<u32>,
  @builtin(num_workgroups) grid: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
  @builtin(subgroup_invocation_id) sub_lane: u32,
  @builtin(subgroup_size) sub_size: u32,
) {
  var group = id.x + id.y * grid.x;
  let lane = local % LANES;
#ifdef GATES
  // The first workgroups have the gates, one for each of their LANES: they take longest.
  let gate_groups = (params.n_gates + WG / LANES - 1u) / (WG / LANES);
  let is_gates = group < gate_groups;
  let gate = group * (WG / LANES) + local / LANES;
  if (is_gates) {
    let row = min(gate, params.n_gates - 1u) * (K / 4u);
    for (var n = 0u; n < GATE_TURNS; n++) { gate_row[n] = gates[row + min(n * LANES + lane, K / 4u - 1u)]; }
  }
  group -= select(gate_groups, 0u, is_gates);
#endif
  let slot = group * WG_ROWS + local / LANES * ROWS; // the first of ROWS
  load_rows(slot, lane);
  var x_row = 0u;
#ifdef LAST_ROW
  x_row = (step.n_tokens - 1u) * (K / 4u);
#endif
  let square = bring(x_row, local);
  var scale = 1.0;
#ifdef NORM
  let subgroup_square = subgroupAdd(square);
  if (sub_lane == 0u) { squares[local / sub_size] = subgroup_square; }
#endif
  workgroupBarrier();
#ifdef NORM
  var total = 0.0;
  for (var i = 0u; i < WG / sub_size; i++) { total += squares[i]; }
  scale = inverseSqrt(total / f32(K) + params.eps);
#endif
#ifdef GATES
  if (is_gates) {
    let sum = lanes_sum(gate_part(lane)) * scale;
    if (lane == 0u && gate < params.n_gates) { y[params.gates_offset + gate] = sum; }
    return;
  }
#endif
  for (var r = 0u; r < ROWS; r++) { sums[r] = 0.0; }
  add_blocks(lane);
  for (var r = 0u; r < ROWS; r++) { sums[r] = lanes_sum(sums[r]) * scale; }
  if (lane == 0u) { store_rows(slot); }
}
