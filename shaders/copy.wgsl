// y[i] = x[i], for one pair of buffers or several, one behind the other
// One invocation an element of 16 bytes; workgroups folded over x and y, whole ones to a pair.

@group(0) @binding(0) var<storage, read> x0: array<vec4<u32>>; // [n], as all
@group(0) @binding(1) var<storage, read_write> y0: array<vec4<u32>>; // [n]
#ifndef PAIRS_1
@group(0) @binding(2) var<storage, read> x1: array<vec4<u32>>; // [n]
@group(0) @binding(3) var<storage, read_write> y1: array<vec4<u32>>; // [n]
#endif
#ifdef PAIRS_4
@group(0) @binding(4) var<storage, read> x2: array<vec4<u32>>; // [n]
@group(0) @binding(5) var<storage, read_write> y2: array<vec4<u32>>; // [n]
@group(0) @binding(6) var<storage, read> x3: array<vec4<u32>>; // [n]
@group(0) @binding(7) var<storage, read_write> y3: array<vec4<u32>>; // [n]
#endif

struct Params { n: u32 }
@group(0) @binding(8) var<uniform> params: Params;

@compute @workgroup_size(256)
fn main(
  @builtin(local_invocation_index) lane: u32,
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
) {
  let block = group.x + group.y * groups.x;
  let blocks = (params.n + 255u) / 256u; // of a pair
  let i = block % blocks * 256u + lane;
  if (i >= params.n) { return; }
  switch (block / blocks) {
    case 0u: { y0[i] = x0[i]; }
#ifndef PAIRS_1
    case 1u: { y1[i] = x1[i]; }
#endif
#ifdef PAIRS_4
    case 2u: { y2[i] = x2[i]; }
    case 3u: { y3[i] = x3[i]; }
#endif
    default: {} // the fold may reach past the last
  }
}
