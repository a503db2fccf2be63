// A weight matrix [rows, k]; its layout is that of kernel::layout. Of a kernel with weights, bindings 0 and 1 are these.
@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;
#ifndef W_F32
#ifndef W_F16
@group(0) @binding(1) var<storage, read> scales: array<u32>; // pairs of f16, one f16 for 32 weights

fn scale_of(block: u32) -> f32 {
  let pair = unpack2x16float(scales[block >> 1u]);
  return select(pair.x, pair.y, (block & 1u) == 1u);
}
#endif
#endif
#ifdef W_Q8_0

fn signed_bytes(word: u32) -> vec4<f32> {
  return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(word << 24u, word << 16u, word << 8u, word)) >> vec4<u32>(24u));
}
#endif
#ifdef W_Q4_0

// The low nibble of each byte, less 8; shift the word by 4 for the high ones.
fn low_nibbles(word: u32) -> vec4<f32> {
  return vec4<f32>(vec4<u32>(word, word >> 8u, word >> 16u, word >> 24u) & vec4<u32>(15u)) - 8.0;
}
#endif

// Weights 4c .. 4c + 3 of a row of k.
fn weights4(row: u32, c: u32, k: u32) -> vec4<f32> {
  let at = row * (k / 4u) + c;
#ifdef W_F32
  return bitcast<vec4<f32>>(data[at]);
#endif
#ifdef W_F16
  let quad = data[at >> 1u];
  let pair = select(quad.xy, quad.zw, (at & 1u) == 1u);
  return vec4<f32>(unpack2x16float(pair.x), unpack2x16float(pair.y));
#endif
#ifdef W_Q8_0
  return signed_bytes(data[at >> 2u][at & 3u]) * scale_of(at >> 3u);
#endif
#ifdef W_Q4_0
  // Word j of a block holds weights 4j .. 4j + 3 (low nibbles) and 16 + 4j .. 16 + 4j + 3 (high nibbles).
  let word = data[at >> 3u][at & 3u];
  return low_nibbles(word >> (at & 4u)) * scale_of(at >> 3u);
#endif
}
