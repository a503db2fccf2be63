// The head of a token as attn_decode begins with it: q, and the new key and value, each normed, shifted and rotated, and its gate.
// The importing kernel has INVOCATIONS of one head.

var<workgroup> raw: array<vec4<f32>, 3u * WIDTH>; // q, then the new k and v (shifted), before the norm
var<workgroup> query: array<vec4<f32>, WIDTH>;
// Four channels as the pages hold them. The newest key and value are kept in this form and unpacked behind a barrier: where a value
// is packed and unpacked in one expression, a compiler may leave both out, and decode would not see what later tokens will see.
#ifdef KV_F16
alias Stored = vec2<u32>;
fn stored(x: vec4<f32>) -> Stored {
  // WGSL leaves open what becomes of numbers that f16 does not reach: they become its largest.
  let within = clamp(x, vec4<f32>(-65504.0), vec4<f32>(65504.0));
  return vec2<u32>(pack2x16float(within.xy), pack2x16float(within.zw));
}
fn restored(x: Stored) -> vec4<f32> { return vec4<f32>(unpack2x16float(x.x), unpack2x16float(x.y)); }
#else
alias Stored = vec4<f32>;
fn stored(x: vec4<f32>) -> Stored { return x; }
fn restored(x: Stored) -> vec4<f32> { return x; }
#endif
var<workgroup> newest_key: array<Stored, WIDTH>;
var<workgroup> newest_value: array<Stored, WIDTH>;

fn proj4(at: u32) -> vec4<f32> { return vec4<f32>(proj[at], proj[at + 1u], proj[at + 2u], proj[at + 3u]); }

#ifdef VECTORS
fn vectors4(at: u32) -> vec4<f32> { return vec4<f32>(vectors[at], vectors[at + 1u], vectors[at + 2u], vectors[at + 3u]); }
#endif

fn gate(head: u32) -> vec2<u32> {
#ifdef F_NONE
  return vec2<u32>(0u, 0u); // f = 1
#else
#ifdef F_TABLE
  let row = step.pos % params.period * params.n_kv_heads * params.group;
  return fixed_of(clamp(vectors[params.f_bias + row + head], 0.0, 16384.0));
#else
#ifdef F_FULL
  return forgotten(proj[params.f + head] + vectors[params.f_bias + head]);
#else
  return forgotten(vectors[params.f_bias + head]);
#endif
#endif
#endif
}

#ifdef SHIFT
// α·y[t−1] + (1 − α)·y[t] for the four channels from c of k (which = 0) or v (1); leaves y[t] for the next token.
fn shifted(now: vec4<f32>, which: u32, c: u32, gate_column: u32) -> vec4<f32> {
  let width = params.n_kv_heads * HEAD_DIM;
  let start = (step.shift_in * 2u + which) * width + c;
  let to = (step.shift_out * 2u + which) * width + c;
  var before = vec4<f32>(0.0); // before the first token
  if (step.pos > 0u) { before = vec4<f32>(shift_rows[start], shift_rows[start + 1u], shift_rows[start + 2u], shift_rows[start + 3u]); }
  for (var n = 0u; n < 4u; n++) { shift_rows[to + n] = now[n]; }
  let alpha = 1.0 / (1.0 + exp(-proj[gate_column + c / HEAD_DIM]));
  return alpha * before + (1.0 - alpha) * now;
}
#endif

// Four channels, from 4·c, of row n of `raw` (0: q, 1: the new k), normed with `own`, of the weights at `weight`, and rotated.
fn finished(n: u32, c: u32, own: vec4<f32>, weight: u32) -> vec4<f32> {
  let start = n * WIDTH;
  var x = raw[start + c];
#ifdef ROPE
  let half = WIDTH / 2u;
  let first = c < half;
  let other = select(c - half, c + half, first);
  var y = raw[start + other];
#endif
#ifdef QK_NORM
  var squares = 0.0;
  for (var i = 0u; i < WIDTH; i++) { squares += dot(raw[start + i], raw[start + i]); }
  let scale = inverseSqrt(squares / f32(HEAD_DIM) + params.qk_eps);
  x *= scale * own;
#ifdef ROPE
  y *= scale * vectors4(weight + 4u * other);
#endif
#endif
#ifdef ROPE
  let at = params.rope + step.pos * HEAD_DIM + 4u * min(c, other);
  x = x * vectors4(at) + select(y, -y, first) * vectors4(at + HEAD_DIM / 2u);
#endif
  return x;
}

// Norm weights of what this invocation finishes: asked for with the rows themselves.
var<private> norm_weights: array<vec4<f32>, (3u * WIDTH + INVOCATIONS - 1u) / INVOCATIONS>;

// Rows of `raw`: q, and with the newest page the new k and v; n vec4 in all.
fn gather_rows(head: u32, kv_head: u32, n: u32, lane: u32) {
  for (var at = lane; at < n; at += INVOCATIONS) {
#ifdef QK_NORM
    let weights_at = select(params.k_norm + kv_head * HEAD_DIM, params.q_norm + head * HEAD_DIM, at < WIDTH);
    norm_weights[at / INVOCATIONS] = vectors4(weights_at + 4u * (at % WIDTH));
#endif
    let channel = kv_head * HEAD_DIM + 4u * (at % WIDTH);
    if (at < WIDTH) {
      raw[at] = proj4(params.q + head * HEAD_DIM + 4u * at);
    } else if (at < 2u * WIDTH) {
      var k = proj4(params.k + channel);
#ifdef K_SHIFT
      k = shifted(k, 0u, channel, params.k_shift);
#endif
      raw[at] = k;
    } else {
      var v = proj4(params.v + channel);
#ifdef V_SHIFT
      v = shifted(v, 1u, channel, params.v_shift);
#endif
      raw[at] = v;
    }
  }
}

// What attention works with, from the n vec4 of `raw`.
fn finish_rows(head: u32, kv_head: u32, n: u32, lane: u32) {
  for (var at = lane; at < n; at += INVOCATIONS) {
    let c = at % WIDTH;
    if (at < WIDTH) {
      query[c] = finished(0u, c, norm_weights[at / INVOCATIONS], params.q_norm + head * HEAD_DIM) * params.scale;
    } else if (at < 2u * WIDTH) {
      newest_key[c] = stored(finished(1u, c, norm_weights[at / INVOCATIONS], params.k_norm + kv_head * HEAD_DIM));
    } else {
      newest_value[c] = stored(raw[at]);
    }
  }
}
