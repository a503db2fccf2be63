// y[t, out_offset + r] = Σ_c W[r, c] · x[t, c]; BIAS adds a number to each r, RESIDUAL adds to y. Products of f16, sums in f32
// Cooperative matrices of 16 × 16, for subgroups of 32. A workgroup makes ROWS rows × 128 tokens, each of its subgroups 64 × 64: 16
// matrices. 32 columns of W (dequantized) and of x lie in workgroup memory as f16, while the next 32 are on their way in registers.
// Rows on x, tokens on y.
#import matmul_io
#import coop_weights

const TOKENS = 128u;
const WG = ROWS; // two subgroups on tokens, one for 64 rows: an invocation brings one row's 32 columns of W
const RUN = 8u;  // vec4 columns of a tile
const STRIDE = RUN + 2u; // of a row in workgroup memory: the 16 rows of a matrix begin in different banks
const N_X = TOKENS * RUN / WG; // vec4 of x that an invocation brings
const LARGEST = 65504.0; // of f16

alias Sums = coop_mat16x16<f32, C>; // [16 tokens, 16 rows]

var<workgroup> w_tile: array<vec4<f16>, ROWS * STRIDE>; // [ROWS, STRIDE]
var<workgroup> x_tile: array<vec4<f16>, TOKENS * STRIDE>; // [TOKENS, STRIDE]
var<workgroup> edge: array<f32, WG * 8u>; // [subgroups, 16 tokens, 16 rows]

// A matrix of sums to whole, aligned rows of y.
fn put(sums: Sums, token: u32, row: u32) {
  let stride = params.out_stride;
  let to = token * stride + params.out_offset + row;
#ifdef RESIDUAL
  let before = coopLoadT<Sums>(&y[to], stride);
  let after = before + sums;
  coopStoreT(after, &y[to], stride);
#else
  coopStoreT(sums, &y[to], stride);
#endif
}

// The same through workgroup memory: at the edge of y, or with a bias.
fn put_each(sums: Sums, token: u32, row: u32, local: u32) {
  let own = local / 32u * 256u; // of this subgroup
  coopStoreT(sums, &edge[own], 16u);
  workgroupBarrier();
  for (var at = local % 32u; at < 256u; at += 32u) {
    let t = token + at / 16u;
    let r = row + at % 16u;
    if (t < step.n_tokens && r < params.n_rows) {
      let to = t * params.out_stride + params.out_offset + r;
      var sum = edge[own + at];
#ifdef BIAS
      sum += bias[params.bias_offset + r];
#endif
#ifdef RESIDUAL
      sum += y[to];
#endif
      y[to] = sum;
    }
  }
  workgroupBarrier();
}

// The four matrices of 16 tokens.
fn put4(a: Sums, b: Sums, c: Sums, d: Sums, token: u32, row: u32) {
  put(a, token, row);
  put(b, token, row + 16u);
  put(c, token, row + 32u);
  put(d, token, row + 48u);
}

fn put_each4(a: Sums, b: Sums, c: Sums, d: Sums, token: u32, row: u32, local: u32) {
  put_each(a, token, row, local);
  put_each(b, token, row + 16u, local);
  put_each(c, token, row + 32u, local);
  put_each(d, token, row + 48u, local);
}

fn tokens_of(at: u32) -> coop_mat16x16<f16, A> { return coopLoadT<coop_mat16x16<f16, A>>(&x_tile[at], STRIDE); }
fn rows_of(at: u32) -> coop_mat16x16<f16, B> { return coopLoad<coop_mat16x16<f16, B>>(&w_tile[at], STRIDE); }

// The x that this invocation brings, and where it goes.
var<private> xs: array<vec4<f32>, N_X>;

fn fetch_x(first_token: u32, local: u32, run: u32) {
  for (var i = 0u; i < N_X; i += 1u) {
    let token = min(first_token + local / RUN + i * (WG / RUN), step.n_tokens - 1u); // past the end the last, not stored
    xs[i] = x[token * (params.k / 4u) + run * RUN + local % RUN];
  }
}

fn put_x(local: u32) {
  for (var i = 0u; i < N_X; i += 1u) {
    let to = (local / RUN + i * (WG / RUN)) * STRIDE + local % RUN;
    // What is no number stays none: a clamp may make one of it, and x - x is 0 of all others.
    x_tile[to] = vec4<f16>(clamp(xs[i], vec4<f32>(-LARGEST), vec4<f32>(LARGEST)) + (xs[i] - xs[i]));
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let first_row = group.x * ROWS;
  let first_token = group.y * TOKENS;
  let n_runs = params.k / 32u;
  let subgroup = local / 32u;
  let subgroup_row = subgroup / 2u * 64u;
  let subgroup_token = subgroup % 2u * 64u;
  let from_w = subgroup_row * STRIDE;
  let from_x = subgroup_token * STRIDE;
  let w_row = min(first_row + local, params.n_rows - 1u); // past the end the last, not stored
  var run = fetch(w_row, 0u);
  fetch_x(first_token, local, 0u);
  var sums00 = Sums(); var sums01 = Sums(); var sums02 = Sums(); var sums03 = Sums();
  var sums10 = Sums(); var sums11 = Sums(); var sums12 = Sums(); var sums13 = Sums();
  var sums20 = Sums(); var sums21 = Sums(); var sums22 = Sums(); var sums23 = Sums();
  var sums30 = Sums(); var sums31 = Sums(); var sums32 = Sums(); var sums33 = Sums();
  for (var n = 0u; n < n_runs; n += 1u) {
    workgroupBarrier();
    unpack(run, local * STRIDE);
    put_x(local);
    workgroupBarrier();
    let next = min(n + 1u, n_runs - 1u);
    run = fetch(w_row, next);
    fetch_x(first_token, local, next);
    for (var k = 0u; k < RUN; k += 4u) {
      let a0 = tokens_of(from_x + 0u * STRIDE + k);
      let a1 = tokens_of(from_x + 16u * STRIDE + k);
      let a2 = tokens_of(from_x + 32u * STRIDE + k);
      let a3 = tokens_of(from_x + 48u * STRIDE + k);
      let b0 = rows_of(from_w + 0u * STRIDE + k);
      let b1 = rows_of(from_w + 16u * STRIDE + k);
      let b2 = rows_of(from_w + 32u * STRIDE + k);
      let b3 = rows_of(from_w + 48u * STRIDE + k);
      sums00 = coopMultiplyAdd(a0, b0, sums00); sums01 = coopMultiplyAdd(a0, b1, sums01);
      sums02 = coopMultiplyAdd(a0, b2, sums02); sums03 = coopMultiplyAdd(a0, b3, sums03);
      sums10 = coopMultiplyAdd(a1, b0, sums10); sums11 = coopMultiplyAdd(a1, b1, sums11);
      sums12 = coopMultiplyAdd(a1, b2, sums12); sums13 = coopMultiplyAdd(a1, b3, sums13);
      sums20 = coopMultiplyAdd(a2, b0, sums20); sums21 = coopMultiplyAdd(a2, b1, sums21);
      sums22 = coopMultiplyAdd(a2, b2, sums22); sums23 = coopMultiplyAdd(a2, b3, sums23);
      sums30 = coopMultiplyAdd(a3, b0, sums30); sums31 = coopMultiplyAdd(a3, b1, sums31);
      sums32 = coopMultiplyAdd(a3, b2, sums32); sums33 = coopMultiplyAdd(a3, b3, sums33);
    }
  }
  let row = first_row + subgroup_row;
  let token = first_token + subgroup_token;
#ifndef BIAS
  let aligned = (params.out_stride | params.out_offset) % 4u == 0u;
  if (aligned && first_row + ROWS <= params.n_rows && first_token + TOKENS <= step.n_tokens) {
    put4(sums00, sums01, sums02, sums03, token + 0u, row);
    put4(sums10, sums11, sums12, sums13, token + 16u, row);
    put4(sums20, sums21, sums22, sums23, token + 32u, row);
    put4(sums30, sums31, sums32, sums33, token + 48u, row);
    return;
  }
#endif
  put_each4(sums00, sums01, sums02, sums03, token + 0u, row, local);
  put_each4(sums10, sums11, sums12, sums13, token + 16u, row, local);
  put_each4(sums20, sums21, sums22, sums23, token + 32u, row, local);
  put_each4(sums30, sums31, sums32, sums33, token + 48u, row, local);
}
