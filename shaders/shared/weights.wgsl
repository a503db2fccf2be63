// A weight matrix [rows, k]; its layout is that of kernel::layout. Of a kernel with weights, bindings 0 and 1 are these.
// weights4 gives four neighbouring weights. Types with PLANES also give the product with eight x: each has its section below, with
//   integers(run, j, half): the integers 16·half + 4j .. 16·half + 4j + 3 of a run of 32, less the zero,
//   dequantize(run, half, q): such integers to weights,
//   combine(run, low, high, x): Σ w·x from Σ q·x of both halves, and from the x of both halves added up.
@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;
#ifdef SCALES
@group(0) @binding(1) var<storage, read> scales: array<u32>; // 16-bit words, the first in the low half

fn bits_of(at: u32) -> u32 { return (scales[at >> 1u] >> ((at & 1u) * 16u)) & 0xffffu; }

// An f16 by integers: WGSL lets unpack2x16float take subnormals for 0, and the scales of small weights are subnormal.
fn scale_of(at: u32) -> f32 {
  let bits = bits_of(at);
  let magnitude = bits & 0x7fffu;
  let normal = bitcast<f32>((magnitude << 13u) + 0x38000000u);
  let size = select(normal, f32(magnitude) * 5.9604644775390625e-8, magnitude < 0x400u);
  return select(size, -size, bits > 0x7fffu);
}
#endif
#ifdef W_Q8_0

fn signed_bytes(word: u32) -> vec4<f32> {
  return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(word << 24u, word << 16u, word << 8u, word)) >> vec4<u32>(24u));
}
#endif
#ifdef PLANES

fn word(at: u32) -> u32 { return data[at >> 2u][at & 3u]; }

// Planes of 4, 2 and 1 bits that start at a word: four integers, one a byte.
fn plane4(first: u32, j: u32, half: u32) -> u32 { return (word(first + j) >> (half * 4u)) & 0x0f0f0f0fu; }
fn plane2(first: u32, j: u32, half: u32) -> u32 {
  return (word(first + (j >> 1u)) >> ((j & 1u) * 4u + half * 2u)) & 0x03030303u;
}
fn plane1(first: u32, j: u32, half: u32) -> u32 { return (word(first) >> (j * 2u + half)) & 0x01010101u; }

fn bytes(word: u32) -> vec4<f32> {
  return vec4<f32>(vec4<u32>(word, word >> 8u, word >> 16u, word >> 24u) & vec4<u32>(255u));
}
#endif
#ifdef W_Q4_0

fn integers(run: u32, j: u32, half: u32) -> vec4<f32> { return bytes(plane4(run * 4u, j, half)) - 8.0; }
fn dequantize(run: u32, half: u32, q: vec4<f32>) -> vec4<f32> { return q * scale_of(run); }
fn combine(run: u32, low: f32, high: f32, x: vec4<f32>) -> f32 { return scale_of(run) * (low + high); }
#endif
#ifdef W_Q5_0

fn integers(run: u32, j: u32, half: u32) -> vec4<f32> {
  return bytes(plane4(run * 5u, j, half) | (plane1(run * 5u + 4u, j, half) << 4u)) - 16.0;
}
fn dequantize(run: u32, half: u32, q: vec4<f32>) -> vec4<f32> { return q * scale_of(run); }
fn combine(run: u32, low: f32, high: f32, x: vec4<f32>) -> f32 { return scale_of(run) * (low + high); }
#endif
#ifdef W_Q4_K

fn integers(run: u32, j: u32, half: u32) -> vec4<f32> { return bytes(plane4(run * 4u, j, half)); }

// Scale and offset of a run, each f16 times 6 bits: a byte has the lower four bits of both, a nibble further on the upper two.
fn affine(run: u32) -> vec2<f32> {
  let block = (run >> 3u) * 8u;
  let low = bits_of(block + 2u + ((run & 7u) >> 1u)) >> ((run & 1u) * 8u);
  let high = bits_of(block + 6u + ((run & 7u) >> 2u)) >> ((run & 3u) * 4u);
  let sixes = vec2<u32>((low & 15u) | ((high & 3u) << 4u), ((low >> 4u) & 15u) | ((high & 12u) << 2u));
  return vec2<f32>(scale_of(block), scale_of(block + 1u)) * vec2<f32>(sixes);
}
fn dequantize(run: u32, half: u32, q: vec4<f32>) -> vec4<f32> {
  let a = affine(run);
  return q * a.x - a.y;
}
fn combine(run: u32, low: f32, high: f32, x: vec4<f32>) -> f32 {
  let a = affine(run);
  return a.x * (low + high) - a.y * dot(x, vec4<f32>(1.0));
}
#endif
#ifdef W_Q6_K

fn integers(run: u32, j: u32, half: u32) -> vec4<f32> {
  return bytes(plane4(run * 6u, j, half) | (plane2(run * 6u + 4u, j, half) << 4u)) - 32.0;
}

// Of both halves: f16 times i8.
fn affine(run: u32) -> vec2<f32> {
  let block = (run >> 3u) * 9u;
  let pair = bits_of(block + 1u + (run & 7u));
  return scale_of(block) * vec2<f32>(bitcast<vec2<i32>>(vec2<u32>(pair << 24u, pair << 16u)) >> vec2<u32>(24u));
}
fn dequantize(run: u32, half: u32, q: vec4<f32>) -> vec4<f32> { return q * affine(run)[half]; }
fn combine(run: u32, low: f32, high: f32, x: vec4<f32>) -> f32 { return dot(affine(run), vec2<f32>(low, high)); }
#endif
#ifdef W_TQ2_0

fn integers(run: u32, j: u32, half: u32) -> vec4<f32> { return bytes(plane2(run * 2u, j, half)) - 1.0; }
fn dequantize(run: u32, half: u32, q: vec4<f32>) -> vec4<f32> { return q * scale_of(run >> 3u); }
fn combine(run: u32, low: f32, high: f32, x: vec4<f32>) -> f32 { return scale_of(run >> 3u) * (low + high); }
#endif
#ifdef PLANES

// Σ w·x of eight weights of a row: 4j .. 4j + 3 of a run, at = 4·run + j, with `low`, and those 16 further on with `high`.
fn product(row: u32, at: u32, k: u32, low: vec4<f32>, high: vec4<f32>) -> f32 {
  let run = row * (k / 32u) + (at >> 2u);
  let j = at & 3u;
  return combine(run, dot(integers(run, j, 0u), low), dot(integers(run, j, 1u), high), low + high);
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
#ifdef W_BF16
  let quad = data[at >> 1u];
  let pair = select(quad.xy, quad.zw, (at & 1u) == 1u);
  return bitcast<vec4<f32>>(vec4<u32>(pair.x << 16u, pair.x & 0xffff0000u, pair.y << 16u, pair.y & 0xffff0000u));
#endif
#ifdef W_Q8_0
  return signed_bytes(data[at >> 2u][at & 3u]) * scale_of(at >> 3u);
#endif
#ifdef PLANES
  let half = (at >> 2u) & 1u;
  return dequantize(at >> 3u, half, integers(at >> 3u, at & 3u, half));
#endif
}
