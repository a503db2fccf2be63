// What a product with one token's x is given, and what the rows of W are called: for matvec and matvec_sub.
#import weights

@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>; // [k/4]; [tokens, k/4] with LAST_ROW
#ifdef NORM
@group(0) @binding(3) var<storage, read> norm_weight: array<vec4<f32>>; // [k/4]
#endif
#ifdef GATES
@group(0) @binding(4) var<storage, read> gates: array<vec4<f32>>; // [n_gates, k/4]
#endif
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
#ifdef BIAS
@group(0) @binding(6) var<storage, read> bias: array<f32>; // [n_rows] from params.bias_offset
#endif

struct Params {
  n_rows: u32,       // of W
  k: u32,
  out_offset: u32,   // of row 0 in y
  eps: f32,
  n_gates: u32,
  gates_offset: u32, // of gate 0 in y
  bias_offset: u32,  // of row 0 in bias
}
@group(0) @binding(8) var<uniform> params: Params;
#import step

// The row of W behind a slot; past the end the last row, computed and not stored.
fn row_of(slot: u32) -> u32 {
#ifdef GLU
  // Slots in pairs: gate row, then the value row half of W further down.
  let n_out = params.n_rows / 2u;
  return min(slot >> 1u, n_out - 1u) + (slot & 1u) * n_out;
#else
  return min(slot, params.n_rows - 1u);
#endif
}

// y[slot] = product + before, and the bias where there is one.
fn store(slot: u32, product: f32, before: f32) {
  if (slot < params.n_rows) {
    var sum = product + before;
#ifdef BIAS
    sum += bias[params.bias_offset + slot];
#endif
    y[params.out_offset + slot] = sum;
  }
}

#ifdef GLU
// Of the pair of slots from an even one on.
fn store_pair(slot: u32, gate: f32, value: f32) {
#ifdef SIGMOID
  let factor = 1.0 / (1.0 + exp(-gate));
#else
  let factor = gate / (1.0 + exp(-gate));
#endif
  if (slot < params.n_rows) { y[params.out_offset + slot / 2u] = factor * value; }
}
#endif
