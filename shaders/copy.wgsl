// y[i] = x[i]
// One invocation an element of 16 bytes; workgroups folded over x and y.

@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>; // [n]
@group(0) @binding(1) var<storage, read_write> y: array<vec4<u32>>; // [n]

struct Params { n: u32 }
@group(0) @binding(8) var<uniform> params: Params;

@compute @workgroup_size(256)
fn main(
  @builtin(local_invocation_index) lane: u32,
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
) {
  let i = (group.x + group.y * groups.x) * 256u + lane;
  if (i < params.n) { y[i] = x[i]; }
}
