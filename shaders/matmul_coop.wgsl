// y[t, out_offset + r] = Σ_c W[r, c] · x[t, c]; BIAS adds a number to each r, RESIDUAL adds to y. Products of f16, sums in f32
// Cooperative matrices of 16 × 16, for subgroups of 32. A workgroup makes ROWS rows × 128 tokens, each of its subgroups 64 × 64: 16
// matrices. 32 columns of W (dequantized) and of x lie in workgroup memory as f16, while the next 32 are on their way in registers.
// Rows on x, tokens on y.
#import matmul_io

const TOKENS = 128u;
const WG = ROWS; // two subgroups on tokens, one for 64 rows: an invocation brings one row's 32 columns of W
const RUN = 8u;  // vec4 columns of a tile
const STRIDE = RUN + 2u; // of a row in workgroup memory: the 16 rows of a matrix begin in different banks
const N_X = TOKENS * RUN / WG; // vec4 of x that an invocation brings
const LARGEST = 65504.0; // of f16

var<workgroup> w_tile: array<vec4<f16>, ROWS * STRIDE>; // [ROWS, STRIDE]
var<workgroup> x_tile: array<vec4<f16>, TOKENS * STRIDE>; // [TOKENS, STRIDE]
var<workgroup> edge: array<f32, WG * 8u>; // [subgroups, 16 tokens, 16 rows]

#ifdef W_Q4_0
// 32 weights as they lie in memory.
struct Run { q: vec4<u32>, scale: f32 }

fn fetch(row: u32, run: u32) -> Run {
  let at = row * (params.k / 32u) + run;
  return Run(data[at], scale_of(at));
}

// The low nibbles of four bytes, less 8. An f16 of 1024 or more, below 2048, has an integer in its lower bits.
fn nibbles(q: u32) -> vec4<f16> {
  let even = vec2<f16>(unpack2x16float((q & 0x000f000fu) | 0x64006400u));
  let odd = vec2<f16>(unpack2x16float(((q >> 8u) & 0x000f000fu) | 0x64006400u));
  return vec4<f16>(even.x, odd.x, even.y, odd.y) - 1032.0h;
}

fn unpack(run: Run, to: u32) {
  let scale = f16(run.scale);
  w_tile[to] = nibbles(run.q.x) * scale;
  w_tile[to + 1u] = nibbles(run.q.y) * scale;
  w_tile[to + 2u] = nibbles(run.q.z) * scale;
  w_tile[to + 3u] = nibbles(run.q.w) * scale;
  w_tile[to + 4u] = nibbles(run.q.x >> 4u) * scale;
  w_tile[to + 5u] = nibbles(run.q.y >> 4u) * scale;
  w_tile[to + 6u] = nibbles(run.q.z >> 4u) * scale;
  w_tile[to + 7u] = nibbles(run.q.w >> 4u) * scale;
}
#else
#ifdef W_Q8_0
// 32 weights as they lie in memory.
struct Run { low: vec4<u32>, high: vec4<u32>, scale: f32 }

fn fetch(row: u32, run: u32) -> Run {
  let at = row * (params.k / 32u) + run;
  return Run(data[2u * at], data[2u * at + 1u], scale_of(at));
}

// Four signed bytes, as the nibbles above.
fn integers4(q: u32) -> vec4<f16> {
  let raised = q ^ 0x80808080u; // by 128
  let even = vec2<f16>(unpack2x16float((raised & 0x00ff00ffu) | 0x64006400u));
  let odd = vec2<f16>(unpack2x16float(((raised >> 8u) & 0x00ff00ffu) | 0x64006400u));
  return vec4<f16>(even.x, odd.x, even.y, odd.y) - 1152.0h;
}

fn unpack(run: Run, to: u32) {
  let scale = f16(run.scale);
  w_tile[to] = integers4(run.low.x) * scale;
  w_tile[to + 1u] = integers4(run.low.y) * scale;
  w_tile[to + 2u] = integers4(run.low.z) * scale;
  w_tile[to + 3u] = integers4(run.low.w) * scale;
  w_tile[to + 4u] = integers4(run.high.x) * scale;
  w_tile[to + 5u] = integers4(run.high.y) * scale;
  w_tile[to + 6u] = integers4(run.high.z) * scale;
  w_tile[to + 7u] = integers4(run.high.w) * scale;
}
#else
// Where 32 weights lie: read when they are unpacked.
struct Run { row: u32, run: u32 }

fn fetch(row: u32, run: u32) -> Run { return Run(row, run); }

fn unpack(run: Run, to: u32) {
  for (var c = 0u; c < RUN; c += 1u) { w_tile[to + c] = vec4<f16>(weights4(run.row, run.run * RUN + c, params.k)); }
}
#endif
#endif

// A matrix of sums to whole, aligned rows of y.
fn put(sums: coop_mat16x16<f32, C>, token: u32, row: u32) {
  let stride = params.out_stride;
  let to = token * stride + params.out_offset + row;
#ifdef RESIDUAL
  let before = coopLoadT<coop_mat16x16<f32, C>>(&y[to], stride);
  let after = before + sums;
  coopStoreT(after, &y[to], stride);
#else
  coopStoreT(sums, &y[to], stride);
#endif
}

// The same through workgroup memory: at the edge of y, or with a bias.
fn put_each(sums: coop_mat16x16<f32, C>, token: u32, row: u32, lane: u32, own: u32) {
  coopStoreT(sums, &edge[own], 16u);
  workgroupBarrier();
  for (var at = lane; at < 256u; at += 32u) {
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

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let first_row = group.x * ROWS;
  let first_token = group.y * TOKENS;
  let n_columns = params.k / 4u;
  let n_runs = params.k / 32u;
  let lane = local % 32u;
  let subgroup = local / 32u;
  let subgroup_row = subgroup / 2u * 64u;
  let subgroup_token = subgroup % 2u * 64u;
  let from_w = subgroup_row * STRIDE;
  let from_x = subgroup_token * STRIDE;
  // Rows and tokens past the end repeat the last, and are not stored.
  let w_row = min(first_row + local, params.n_rows - 1u);
  let x_token = first_token + local / RUN;
  var xs: array<vec4<f32>, N_X>;
  var run = fetch(w_row, 0u);
  for (var i = 0u; i < N_X; i += 1u) {
    xs[i] = x[min(x_token + i * (WG / RUN), step.n_tokens - 1u) * n_columns + local % RUN];
  }
  var sums00 = coop_mat16x16<f32, C>();
  var sums01 = coop_mat16x16<f32, C>();
  var sums02 = coop_mat16x16<f32, C>();
  var sums03 = coop_mat16x16<f32, C>();
  var sums10 = coop_mat16x16<f32, C>();
  var sums11 = coop_mat16x16<f32, C>();
  var sums12 = coop_mat16x16<f32, C>();
  var sums13 = coop_mat16x16<f32, C>();
  var sums20 = coop_mat16x16<f32, C>();
  var sums21 = coop_mat16x16<f32, C>();
  var sums22 = coop_mat16x16<f32, C>();
  var sums23 = coop_mat16x16<f32, C>();
  var sums30 = coop_mat16x16<f32, C>();
  var sums31 = coop_mat16x16<f32, C>();
  var sums32 = coop_mat16x16<f32, C>();
  var sums33 = coop_mat16x16<f32, C>();
  for (var n = 0u; n < n_runs; n += 1u) {
    workgroupBarrier();
    unpack(run, local * STRIDE);
    for (var i = 0u; i < N_X; i += 1u) {
      let to = (local / RUN + i * (WG / RUN)) * STRIDE + local % RUN;
      // What is no number stays none: a clamp may make one of it, and x - x is 0 of all others.
      x_tile[to] = vec4<f16>(clamp(xs[i], vec4<f32>(-LARGEST), vec4<f32>(LARGEST)) + (xs[i] - xs[i]));
    }
    workgroupBarrier();
    let next = min(n + 1u, n_runs - 1u);
    run = fetch(w_row, next);
    for (var i = 0u; i < N_X; i += 1u) {
      xs[i] = x[min(x_token + i * (WG / RUN), step.n_tokens - 1u) * n_columns + next * RUN + local % RUN];
    }
    for (var k = 0u; k < RUN; k += 4u) {
      let x0 = from_x + 0u * STRIDE + k;
      let a0 = coopLoadT<coop_mat16x16<f16, A>>(&x_tile[x0], STRIDE);
      let x1 = from_x + 16u * STRIDE + k;
      let a1 = coopLoadT<coop_mat16x16<f16, A>>(&x_tile[x1], STRIDE);
      let x2 = from_x + 32u * STRIDE + k;
      let a2 = coopLoadT<coop_mat16x16<f16, A>>(&x_tile[x2], STRIDE);
      let x3 = from_x + 48u * STRIDE + k;
      let a3 = coopLoadT<coop_mat16x16<f16, A>>(&x_tile[x3], STRIDE);
      let w0 = from_w + 0u * STRIDE + k;
      let b0 = coopLoad<coop_mat16x16<f16, B>>(&w_tile[w0], STRIDE);
      let w1 = from_w + 16u * STRIDE + k;
      let b1 = coopLoad<coop_mat16x16<f16, B>>(&w_tile[w1], STRIDE);
      let w2 = from_w + 32u * STRIDE + k;
      let b2 = coopLoad<coop_mat16x16<f16, B>>(&w_tile[w2], STRIDE);
      let w3 = from_w + 48u * STRIDE + k;
      let b3 = coopLoad<coop_mat16x16<f16, B>>(&w_tile[w3], STRIDE);
      sums00 = coopMultiplyAdd(a0, b0, sums00);
      sums01 = coopMultiplyAdd(a0, b1, sums01);
      sums02 = coopMultiplyAdd(a0, b2, sums02);
      sums03 = coopMultiplyAdd(a0, b3, sums03);
      sums10 = coopMultiplyAdd(a1, b0, sums10);
      sums11 = coopMultiplyAdd(a1, b1, sums11);
      sums12 = coopMultiplyAdd(a1, b2, sums12);
      sums13 = coopMultiplyAdd(a1, b3, sums13);
      sums20 = coopMultiplyAdd(a2, b0, sums20);
      sums21 = coopMultiplyAdd(a2, b1, sums21);
      sums22 = coopMultiplyAdd(a2, b2, sums22);
      sums23 = coopMultiplyAdd(a2, b3, sums23);
      sums30 = coopMultiplyAdd(a3, b0, sums30);
      sums31 = coopMultiplyAdd(a3, b1, sums31);
      sums32 = coopMultiplyAdd(a3, b2, sums32);
      sums33 = coopMultiplyAdd(a3, b3, sums33);
    }
  }
  let row = first_row + subgroup_row;
  let token = first_token + subgroup_token;
  let own = subgroup * 256u;
#ifndef BIAS
  let aligned = (params.out_stride | params.out_offset) % 4u == 0u;
  if (aligned && first_row + ROWS <= params.n_rows && first_token + TOKENS <= step.n_tokens) {
    put(sums00, token + 0u, row + 0u);
    put(sums01, token + 0u, row + 16u);
    put(sums02, token + 0u, row + 32u);
    put(sums03, token + 0u, row + 48u);
    put(sums10, token + 16u, row + 0u);
    put(sums11, token + 16u, row + 16u);
    put(sums12, token + 16u, row + 32u);
    put(sums13, token + 16u, row + 48u);
    put(sums20, token + 32u, row + 0u);
    put(sums21, token + 32u, row + 16u);
    put(sums22, token + 32u, row + 32u);
    put(sums23, token + 32u, row + 48u);
    put(sums30, token + 48u, row + 0u);
    put(sums31, token + 48u, row + 16u);
    put(sums32, token + 48u, row + 32u);
    put(sums33, token + 48u, row + 48u);
    return;
  }
#endif
  put_each(sums00, token + 0u, row + 0u, lane, own);
  put_each(sums01, token + 0u, row + 16u, lane, own);
  put_each(sums02, token + 0u, row + 32u, lane, own);
  put_each(sums03, token + 0u, row + 48u, lane, own);
  put_each(sums10, token + 16u, row + 0u, lane, own);
  put_each(sums11, token + 16u, row + 16u, lane, own);
  put_each(sums12, token + 16u, row + 32u, lane, own);
  put_each(sums13, token + 16u, row + 48u, lane, own);
  put_each(sums20, token + 32u, row + 0u, lane, own);
  put_each(sums21, token + 32u, row + 16u, lane, own);
  put_each(sums22, token + 32u, row + 32u, lane, own);
  put_each(sums23, token + 32u, row + 48u, lane, own);
  put_each(sums30, token + 48u, row + 0u, lane, own);
  put_each(sums31, token + 48u, row + 16u, lane, own);
  put_each(sums32, token + 48u, row + 32u, lane, own);
  put_each(sums33, token + 48u, row + 48u, lane, own);
}
