// q[t, i] = clamp(round(x[t, i] · 127 / m_t), −128, 127), scales[t] = m_t / 127, m_t = max(max_i |x[t, i]|, 1e-5); round to even
// One workgroup a token. q is packed four int8 a word, first in the lowest byte, and zero from column width on.

@group(0) @binding(0) var<storage, read> x: array<f32>; // [tokens, width]
@group(0) @binding(1) var<storage, read_write> q: array<u32>; // [tokens, words]
@group(0) @binding(2) var<storage, read_write> scales: array<f32>; // [tokens]

struct Params { width: u32, words: u32 }
@group(0) @binding(8) var<uniform> params: Params;
#import step

const LANES = 64u;
var<workgroup> largest: array<f32, LANES>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let t = group.x;
  let row = t * params.width;
  var own = 1e-5;
  for (var i = lane; i < params.width; i += LANES) { own = max(own, abs(x[row + i])); }
  largest[lane] = own;
  workgroupBarrier();
  var m = 1e-5;
  for (var i = 0u; i < LANES; i++) { m = max(m, largest[i]); }
  let inverse = 127.0 / m;
  for (var at = lane; at < params.words; at += LANES) {
    var word = 0u;
    for (var byte = 0u; byte < 4u; byte++) {
      let i = at * 4u + byte;
      if (i < params.width) {
        let value = i32(clamp(round(x[row + i] * inverse), -128.0, 127.0));
        word |= (bitcast<u32>(value) & 255u) << (8u * byte);
      }
    }
    q[t * params.words + at] = word;
  }
  if (lane == 0u) { scales[t] = m / 127.0; }
}
