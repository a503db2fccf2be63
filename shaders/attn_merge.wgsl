// o = Σ_s w_s·sum_s / Σ_s w_s·total_s, w_s = exp(top_s − highest); then o ← norm(o) (OUT_NORM), then o ← o·gate
// One workgroup a head; an invocation takes every 64th channel, and sees all splits.

@group(0) @binding(0) var<storage, read> partials: array<f32>; // [heads, MAX_SPLITS, 2 + head_dim]: top, Σ p, Σ p·v
#ifdef GATE
@group(0) @binding(1) var<storage, read> proj: array<f32>; // [stride]
#endif
#ifdef OUT_NORM
@group(0) @binding(2) var<storage, read> vectors: array<f32>; // out_norm [heads · head_dim] at params.out_norm
#endif
@group(0) @binding(3) var<storage, read_write> o: array<f32>; // [heads · head_dim]

struct Params { gate: u32, out_norm: u32, eps: f32 }
@group(0) @binding(8) var<uniform> params: Params;
#import step

const INVOCATIONS = 64u;
var<workgroup> merged: array<f32, HEAD_DIM>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let head = group.x;
  let row = 2u + HEAD_DIM;
  let start = head * MAX_SPLITS * row;
  var highest = partials[start];
  for (var s = 1u; s < step.n_splits; s++) { highest = max(highest, partials[start + s * row]); }
  var total = 0.0;
  for (var s = 0u; s < step.n_splits; s++) {
    total += exp(partials[start + s * row] - highest) * partials[start + s * row + 1u];
  }
  for (var c = lane; c < HEAD_DIM; c += INVOCATIONS) {
    var sum = 0.0;
    for (var s = 0u; s < step.n_splits; s++) {
      sum += exp(partials[start + s * row] - highest) * partials[start + s * row + 2u + c];
    }
    merged[c] = sum / total;
  }
#ifdef OUT_NORM
  workgroupBarrier();
  var squares = 0.0;
  for (var c = 0u; c < HEAD_DIM; c++) { squares += merged[c] * merged[c]; }
  let scale = inverseSqrt(squares / f32(HEAD_DIM) + params.eps);
#endif
  for (var c = lane; c < HEAD_DIM; c += INVOCATIONS) {
    let at = head * HEAD_DIM + c;
    var x = merged[c];
#ifdef OUT_NORM
    x *= scale * vectors[params.out_norm + at];
#endif
#ifdef GATE
    let g = proj[params.gate + at];
#ifdef GATE_SILU
    x *= g / (1.0 + exp(-g));
#else
    x *= 1.0 / (1.0 + exp(-g));
#endif
#endif
    o[at] = x;
  }
}
