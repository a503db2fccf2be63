// Λ[t, head] = Σ_{s ≤ t} m_s, m = −log(sigmoid(z) + 1e-6), z = x[s, column + head] + bias[head]; signed 32.32 fixed point
// One workgroup a head.

@group(0) @binding(0) var<storage, read> x: array<f32>; // [tokens, stride]
@group(0) @binding(1) var<storage, read> bias: array<f32>; // [heads]
@group(0) @binding(2) var<storage, read_write> lam: array<vec2<u32>>; // [tokens, heads]

struct Params { stride: u32, column: u32, n_heads: u32 }
@group(0) @binding(8) var<uniform> params: Params;
#import step
#import fixed
#import forget_runs

const SHIFT = 1e-6;

// m on the grid, negative (two's complement) where sigmoid(z) + 1e-6 > 1.
fn fixed_gate(z: f32) -> vec2<u32> {
  let e = exp(-abs(z));
  var m = 0.0;
  if (z < 0.0) {
    m = -log(e / (1.0 + e) + SHIFT);
  } else {
    // sigmoid(z) + 1e-6 = 1 + u; −log(1 + u) = −2·atanh(s), s = u / (2 + u) in [−1/3, 5e-7], by eight terms of its series: WGSL's
    // log may be off by 2^-21 near 1.
    let u = SHIFT - e / (1.0 + e);
    let s = u / (2.0 + u);
    let s2 = s * s;
    m = -2.0 * s * (1.0 + s2 * (1.0 / 3.0 + s2 * (1.0 / 5.0 + s2 * (1.0 / 7.0 + s2 * (1.0 / 9.0
      + s2 * (1.0 / 11.0 + s2 * (1.0 / 13.0 + s2 * (1.0 / 15.0))))))));
  }
  let size = abs(m);
  let whole = floor(size);
  let fixed = vec2<u32>(u32(round((size - whole) * 4294967296.0)), u32(whole));
  // −a = ~a + 1
  return select(fixed, fixed_add(~fixed, vec2<u32>(1u, 0u)), m < 0.0);
}

fn gate(t: u32, head: u32) -> vec2<u32> {
  return fixed_gate(x[t * params.stride + params.column + head] + bias[head]);
}

fn kept(t: u32, head: u32) -> vec2<u32> { return lam[t * params.n_heads + head]; }
fn keep(t: u32, head: u32, sum: vec2<u32>) { lam[t * params.n_heads + head] = sum; }
fn before_chunk(head: u32) -> vec2<u32> { return vec2<u32>(0u, 0u); }
