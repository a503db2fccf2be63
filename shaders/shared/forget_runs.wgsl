// Λ of a chunk of tokens in fixed point, for forget_gate and forget_sum: each invocation sums a run of neighbouring tokens, then adds
// the totals of the runs before its own. The importing kernel says what a token adds (`gate`), where its sum is kept (`keep`, `kept`)
// and what comes before the first (`before_chunk`).
const RUNS = 64u;
var<workgroup> totals: array<vec2<u32>, RUNS>;

@compute @workgroup_size(RUNS)
fn main(@builtin(local_invocation_index) run: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let head = group.x;
  let length = (step.n_tokens + RUNS - 1u) / RUNS;
  let first = run * length;
  let end = min(first + length, step.n_tokens);
  // The sum inside the run is kept in the buffer: computing m twice could round it two ways.
  var total = vec2<u32>(0u, 0u);
  for (var t = first; t < end; t++) {
    total = fixed_add(total, gate(t, head));
    keep(t, head, total);
  }
  totals[run] = total;
  workgroupBarrier();
  var base = before_chunk(head);
  for (var before = 0u; before < run; before++) { base = fixed_add(base, totals[before]); }
  for (var t = first; t < end; t++) { keep(t, head, fixed_add(base, kept(t, head))); }
}
