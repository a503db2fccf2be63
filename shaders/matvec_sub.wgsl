// y[out_offset + r] = s · Σ_c W[r, c] · w[c] · x[c], as matvec, for adapters with subgroups
//
// A workgroup first puts w·x into workgroup memory, a block of 32 a column, with the sum of each half block and of x². Then LANES
// adjacent invocations share ROWS rows (LANES divides the subgroup): each takes every LANES-th block of 32 weights, a whole block
// with one or a few 16-byte loads, and a subgroup adds up. The first blocks are on their way before the barrier.
#import matvec_io

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

fn store(slot: u32, product: f32, before: f32) {
  if (slot < params.n_rows) {
    var sum = product + before;
#ifdef BIAS
    sum += bias[params.bias_offset + slot];
#endif
    y[params.out_offset + slot] = sum;
  }
}

#ifdef W_Q4_0
// A nibble in the first bits behind the point of a float: 1 + q/16. No conversion, and nothing is rounded.
fn low_nibbles(w: u32) -> vec4<f32> {
  return bitcast<vec4<f32>>((vec4<u32>(w << 19u, w << 11u, w << 3u, w >> 5u) & vec4<u32>(0x780000u)) | vec4<u32>(0x3f800000u));
}
fn high_nibbles(w: u32) -> vec4<f32> {
  return bitcast<vec4<f32>>((vec4<u32>(w << 15u, w << 7u, w >> 1u, w >> 9u) & vec4<u32>(0x780000u)) | vec4<u32>(0x3f800000u));
}
#endif

// What an invocation has asked for: AHEAD turns of ROWS rows.
var<private> rows: array<u32, ROWS>; // first block of each
#ifdef W_Q4_0
var<private> quads: array<vec4<u32>, ROWS * AHEAD>;
var<private> scale_words: array<u32, ROWS * AHEAD>;

fn load_blocks(first: u32, lane: u32) {
  for (var n = 0u; n < AHEAD; n++) {
    for (var r = 0u; r < ROWS; r++) {
      let at = rows[r] + min((first + n) * LANES + lane, BLOCKS - 1u);
      quads[n * ROWS + r] = data[at];
      scale_words[n * ROWS + r] = scales[at >> 1u] >> ((at & 1u) * 16u);
    }
  }
}
#endif
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
#ifdef NORM
  square = subgroupAdd(square);
  if (sub_lane == 0u) { squares[local / sub_size] = square; }
#endif
  workgroupBarrier();

#ifdef NORM
  var total = 0.0;
  for (var i = 0u; i < WG / sub_size; i++) { total += squares[i]; }
  let scale = inverseSqrt(total / f32(K) + params.eps);
#else
  let scale = 1.0;
#endif
#ifdef GATES
  if (is_gates) {
    var sum = 0.0;
    for (var n = 0u; n < GATE_TURNS; n++) {
      let c = n * LANES + lane;
      if (c < K / 4u) { sum += dot(gate_row[n], chunks[c % 8u * COLUMN + c / 8u]); }
    }
    sum = lanes_sum(sum) * scale;
    if (lane == 0u && gate < params.n_gates) { y[params.gates_offset + gate] = sum; }
    return;
  }
#endif
  var sums: array<f32, ROWS>;
  for (var r = 0u; r < ROWS; r++) { sums[r] = 0.0; }
  for (var first = 0u; first < TURNS; first += AHEAD) {
#ifdef W_Q4_0
    if (first > 0u) { load_blocks(first, lane); }
#endif
    for (var n = 0u; n < AHEAD; n++) {
      let b = (first + n) * LANES + lane;
      if (b < BLOCKS) {
#ifdef W_Q4_0
      var dots: array<f32, ROWS>;
      for (var r = 0u; r < ROWS; r++) { dots[r] = 0.0; }
      for (var j = 0u; j < 4u; j++) {
        let low = chunks[j * COLUMN + b];
        let high = chunks[(j + 4u) * COLUMN + b];
        for (var r = 0u; r < ROWS; r++) {
          let w = quads[n * ROWS + r][j];
          dots[r] += dot(low_nibbles(w), low) + dot(high_nibbles(w), high);
        }
      }
      let zero = 1.5 * (half_sums[2u * b] + half_sums[2u * b + 1u]);
      for (var r = 0u; r < ROWS; r++) { sums[r] += (16.0 * unpack2x16float(scale_words[n * ROWS + r]).x) * (dots[r] - zero); }
#else
#ifdef PLANES
      var lows: array<f32, ROWS>;
      var highs: array<f32, ROWS>;
      for (var r = 0u; r < ROWS; r++) {
        lows[r] = 0.0;
        highs[r] = 0.0;
      }
      for (var j = 0u; j < 4u; j++) {
        let low = chunks[j * COLUMN + b];
        let high = chunks[(j + 4u) * COLUMN + b];
        for (var r = 0u; r < ROWS; r++) {
          lows[r] += dot(integers(rows[r] + b, j, 0u), low);
          highs[r] += dot(integers(rows[r] + b, j, 1u), high);
        }
      }
      let sum = vec4<f32>(half_sums[2u * b], half_sums[2u * b + 1u], 0.0, 0.0);
      for (var r = 0u; r < ROWS; r++) { sums[r] += combine(rows[r] + b, lows[r], highs[r], sum); }
#else
      for (var j = 0u; j < 8u; j++) {
        let value = chunks[j * COLUMN + b];
        for (var r = 0u; r < ROWS; r++) { sums[r] += dot(weights4(rows[r] / BLOCKS, b * 8u + j, K), value); }
      }
#endif
#endif
      }
    }
  }
  for (var r = 0u; r < ROWS; r++) {
    sums[r] = lanes_sum(sums[r]) * scale;
  }
  if (lane == 0u) {
#ifdef GLU
    for (var r = 0u; r < ROWS; r += 2u) {
      let gate = sums[r];
#ifdef SIGMOID
      let factor = 1.0 / (1.0 + exp(-gate));
#else
      let factor = gate / (1.0 + exp(-gate));
#endif
      if (slot + r < params.n_rows) { y[params.out_offset + (slot + r) / 2u] = factor * sums[r + 1u]; }
    }
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
}
