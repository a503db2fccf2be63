// y[out_offset + r] = s · Σ_c W[r, c] · w[c] · x[c]; with NORM s = 1 / √(mean(x²) + eps), else s = w = 1
// RESIDUAL adds to y; SWIGLU stores silu(row r) · (row r + n_rows/2); GATES has f32 rows behind W's, for the same x.
//
// LANES adjacent invocations walk a row together, 16 bytes each at a time; each holds ROWS rows, so that a piece of x is read
// once for all of them. WG / LANES such groups a workgroup. x² is summed on the way: no prologue, one barrier in all.
#import weights

@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>; // [k/4]; [tokens, k/4] with LAST_ROW
#ifdef NORM
@group(0) @binding(3) var<storage, read> norm_weight: array<vec4<f32>>; // [k/4]
#endif
#ifdef GATES
@group(0) @binding(4) var<storage, read> gates: array<vec4<f32>>; // [n_gates, k/4]
#endif
@group(0) @binding(5) var<storage, read_write> y: array<f32>;

struct Params {
  n_rows: u32,       // of W
  k: u32,
  out_offset: u32,   // of row 0 in y
  eps: f32,
  n_gates: u32,
  gates_offset: u32, // of gate 0 in y
}
@group(0) @binding(8) var<uniform> params: Params;
#import step

const GROUPS = WG / LANES;
const WG_ROWS = GROUPS * ROWS;
#ifdef W_Q4_0
const PIECE = 8u; // vec4s of x that 16 bytes of weights meet
#else
#ifdef W_Q8_0
const PIECE = 4u;
#else
const PIECE = 1u; // F16 rows may start in the middle of 16 bytes
#endif
#endif

var<workgroup> lane_sums: array<f32, LANES * WG_ROWS>;
#ifdef NORM
var<workgroup> lane_squares: array<f32, LANES>;
#endif

// The row of W behind a slot (WG_ROWS a workgroup); past the end the last row, computed and not stored.
fn row_of(slot: u32) -> u32 {
#ifdef SWIGLU
  // Slots in pairs: gate row, then the value row half of W further down.
  let n_out = params.n_rows / 2u;
  return min(slot >> 1u, n_out - 1u) + (slot & 1u) * n_out;
#else
  return min(slot, params.n_rows - 1u);
#endif
}

fn dot_piece(row: u32, q: u32, xs: ptr<function, array<vec4<f32>, PIECE>>) -> f32 {
#ifdef W_Q4_0
  let at = row * (params.k / 32u) + q;
  let words = data[at];
  var sum = dot(low_nibbles(words.x), (*xs)[0]) + dot(low_nibbles(words.x >> 4u), (*xs)[4]);
  sum += dot(low_nibbles(words.y), (*xs)[1]) + dot(low_nibbles(words.y >> 4u), (*xs)[5]);
  sum += dot(low_nibbles(words.z), (*xs)[2]) + dot(low_nibbles(words.z >> 4u), (*xs)[6]);
  sum += dot(low_nibbles(words.w), (*xs)[3]) + dot(low_nibbles(words.w >> 4u), (*xs)[7]);
  return sum * scale_of(at);
#else
#ifdef W_Q8_0
  let at = row * (params.k / 16u) + q;
  let words = data[at];
  var sum = dot(signed_bytes(words.x), (*xs)[0]) + dot(signed_bytes(words.y), (*xs)[1]);
  sum += dot(signed_bytes(words.z), (*xs)[2]) + dot(signed_bytes(words.w), (*xs)[3]);
  return sum * scale_of(at >> 1u);
#else
  return dot(weights4(row, q, params.k), (*xs)[0]);
#endif
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
  let slot = local / LANES * ROWS; // this invocation's first, of the workgroup's WG_ROWS
  let n_columns = params.k / 4u;
  var x_row = 0u;
#ifdef LAST_ROW
  x_row = (step.n_tokens - 1u) * n_columns;
#endif
  var first_slot = group * WG_ROWS;
  var sums: array<f32, ROWS>;
  var squares = 0.0;
#ifdef GATES
  let row_groups = (params.n_rows + WG_ROWS - 1u) / WG_ROWS;
  let is_gates = group >= row_groups;
  if (is_gates) {
    first_slot -= row_groups * WG_ROWS;
    for (var c = lane; c < n_columns; c += LANES) {
      var value = x[x_row + c];
#ifdef NORM
      squares += dot(value, value);
      value *= norm_weight[c];
#endif
      for (var j = 0u; j < ROWS; j += 1u) {
        sums[j] += dot(gates[min(first_slot + slot + j, params.n_gates - 1u) * n_columns + c], value);
      }
    }
  } else {
#endif
    for (var q = lane; q < n_columns / PIECE; q += LANES) {
      var xs: array<vec4<f32>, PIECE>;
      for (var i = 0u; i < PIECE; i += 1u) {
        let c = q * PIECE + i;
        let value = x[x_row + c];
#ifdef NORM
        squares += dot(value, value);
        xs[i] = value * norm_weight[c];
#else
        xs[i] = value;
#endif
      }
      for (var j = 0u; j < ROWS; j += 1u) { sums[j] += dot_piece(row_of(first_slot + slot + j), q, &xs); }
    }
#ifdef GATES
  }
#endif
  for (var j = 0u; j < ROWS; j += 1u) { lane_sums[lane * WG_ROWS + slot + j] = sums[j]; }
#ifdef NORM
  if (slot == 0u) { lane_squares[lane] = squares; }
#endif
  workgroupBarrier();

  // One invocation a row adds the lanes' sums: cheaper than the barriers of a tree.
  if (local >= WG_ROWS) { return; }
  var scale = 1.0;
#ifdef NORM
  var total = 0.0;
  for (var i = 0u; i < LANES; i += 1u) { total += lane_squares[i]; }
  scale = inverseSqrt(total / f32(params.k) + params.eps);
#endif
  let row = first_slot + local;
  var sum = 0.0;
  for (var i = 0u; i < LANES; i += 1u) { sum += lane_sums[i * WG_ROWS + local]; }
  sum *= scale;
#ifdef GATES
  if (is_gates) {
    if (row < params.n_gates) { y[params.gates_offset + row] = sum; }
    return;
  }
#endif
#ifdef SWIGLU
  if ((local & 1u) == 1u || row >= params.n_rows) { return; }
  var value = 0.0;
  for (var i = 0u; i < LANES; i += 1u) { value += lane_sums[i * WG_ROWS + local + 1u]; }
  y[params.out_offset + row / 2u] = sum / (1.0 + exp(-sum)) * value * scale;
#else
  if (row >= params.n_rows) { return; }
#ifdef RESIDUAL
  y[params.out_offset + row] += sum;
#else
  y[params.out_offset + row] = sum;
#endif
#endif
}
