// o[i] = Σ_j p_ij v_j / Σ_j p_ij, p_ij = exp(q_i·k_j·scale + Λ_j − Λ_e − top_i); Λ = −λ, top_i the running maximum
// Over all keys j, e the last one; CAUSAL: over keys j ≤ i, e = i. D_ij = λ_i − λ_j = Λ_j − Λ_i differs by Λ_e − Λ_i, the same for all
// keys of a query, which the softmax does not see: what it sees is small where D is large and the weights are.
// A workgroup takes 64 queries of one head and walks the keys in tiles of TILE through workgroup memory.

@group(0) @binding(0) var<storage, read> proj: array<vec4<f32>>; // [tokens, stride/4]: q, k, v of [heads, WIDTH] each
@group(0) @binding(1) var<storage, read> lam: array<vec2<u32>>; // [tokens, heads]
@group(0) @binding(2) var<storage, read_write> o: array<vec4<f32>>; // [tokens, heads, WIDTH]

struct Params { stride: u32, n_heads: u32, scale: f32 }
@group(0) @binding(8) var<uniform> params: Params;
#import step

const QUERIES = 64u;
const WIDTH = HEAD_DIM / 4u;
// Below every score, and finite.
const LOWEST = -1e30;
var<workgroup> keys: array<vec4<f32>, TILE * WIDTH>;
var<workgroup> values: array<vec4<f32>, TILE * WIDTH>;

// Λ_a − Λ_b, signed: exact in integers, rounded once.
fn rise(a: vec2<u32>, b: vec2<u32>) -> f32 {
  let whole = a.y - b.y - select(0u, 1u, a.x < b.x);
  return f32(bitcast<i32>(whole)) + f32(a.x - b.x) * 2.3283064365386963e-10;
}

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let head = group.y;
  let first = group.x * QUERIES;
  let i = min(first + lane, step.n_tokens - 1u); // those past the end repeat the last query, and store nothing
  let stride = params.stride / 4u;
  let d = params.n_heads * WIDTH;
  let column = head * WIDTH;
#ifdef CAUSAL
  let end = min(first + QUERIES, step.n_tokens); // of the keys that any of these queries sees
  let last = i;
#else
  let end = step.n_tokens;
  let last = end - 1u;
#endif
  let base = lam[last * params.n_heads + head];
  var query: array<vec4<f32>, WIDTH>;
  var sums: array<vec4<f32>, WIDTH>;
  for (var c = 0u; c < WIDTH; c++) {
    query[c] = proj[i * stride + column + c] * params.scale;
    sums[c] = vec4<f32>(0.0);
  }
  var top = LOWEST;
  var total = 0.0;
  for (var key = 0u; key < end; key += TILE) {
    workgroupBarrier();
    for (var at = lane; at < TILE * WIDTH; at += QUERIES) {
      // Keys past the end repeat the last: finite, and not seen.
      let row = min(key + at / WIDTH, end - 1u) * stride + column + at % WIDTH;
      keys[at] = proj[row + d];
      values[at] = proj[row + 2u * d];
    }
    workgroupBarrier();
    let seen = min(key + TILE, last + 1u); // by this query
    for (var j = key; j < seen; j++) {
      let row = (j - key) * WIDTH;
      var score = rise(lam[j * params.n_heads + head], base);
      for (var c = 0u; c < WIDTH; c++) { score += dot(query[c], keys[row + c]); }
      if (score > top) {
        let fade = exp(top - score);
        top = score;
        total *= fade;
        for (var c = 0u; c < WIDTH; c++) { sums[c] *= fade; }
      }
      let p = exp(score - top);
      total += p;
      for (var c = 0u; c < WIDTH; c++) { sums[c] += p * values[row + c]; }
    }
  }
  if (first + lane < step.n_tokens) {
    for (var c = 0u; c < WIDTH; c++) { o[i * d + column + c] = sums[c] / total; }
  }
}
