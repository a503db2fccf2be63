// o[i] = Σ_j p_ij v_j / Σ_j p_ij, p_ij = exp(q_i·k_j·scale − (Λ_i − Λ_j) − top_i) over the keys i − window < j ≤ i; Λ = −λ, top_i the running maximum
// A workgroup of 8 × 16 invocations takes 64 queries of one head and walks the pages. Invocation (g, n) has queries 8g .. 8g + 7:
// first their scores with keys 4n .. 4n + 3 of a page, then channels 4n .. 4n + 3 of their sums. Between the two the p go through
// workgroup memory, in the place of the keys. With PRUNE each half of the queries starts behind the pages that are dead for its first.

#import attn_prefill_io
#import attn_prefill_tiles

const INVOCATIONS = 2u * QUERIES;

fn lam_of(t: u32, head: u32) -> vec2<u32> { return lam_pages[lam_slot_of(step.pos + min(t, step.n_tokens - 1u), head)]; }

// Scores of a query with the four keys from j, whose Λ are from lam_slot; LOWEST where it does not see them, or they are
// before the oldest.
fn scores(dots: vec4<f32>, t: u32, oldest: u32, lam: vec2<u32>, j: u32, lam_slot: u32) -> vec4<f32> {
  let i = step.pos + min(t, step.n_tokens - 1u);
  let keys = vec4<u32>(j) + vec4<u32>(0u, 1u, 2u, 3u);
  let fall = vec4<f32>(fixed_difference(lam, lam_pages[lam_slot]), fixed_difference(lam, lam_pages[lam_slot + 1u]),
    fixed_difference(lam, lam_pages[lam_slot + 2u]), fixed_difference(lam, lam_pages[lam_slot + 3u]));
  return select(vec4<f32>(LOWEST), dots - fall, (keys <= vec4<u32>(i)) & (keys >= vec4<u32>(max(oldest, oldest_of(i)))));
}

fn store(t: u32, head: u32, c: u32, sum: vec4<f32>) {
  if (c < WIDTH && t < step.n_tokens) { o[(t * params.n_kv_heads * params.group + head) * WIDTH + c] = sum; }
}

@compute @workgroup_size(INVOCATIONS)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let head = group.y;
  let kv_head = head / params.group;
  let first = group.x * QUERIES;
  let last = step.pos + min(first + QUERIES, step.n_tokens) - 1u; // the last key that any of them sees
  let n = lane % 16u;
  let g = 2u * (lane / 16u); // the first of two quads of queries
  let t = first + 4u * g; // queries past the end repeat the last, and are not stored
  let column = min(n, WIDTH - 1u);
  let lam0 = lam_of(t + 0u, head);
  let lam1 = lam_of(t + 1u, head);
  let lam2 = lam_of(t + 2u, head);
  let lam3 = lam_of(t + 3u, head);
  let lam4 = lam_of(t + 4u, head);
  let lam5 = lam_of(t + 5u, head);
  let lam6 = lam_of(t + 6u, head);
  let lam7 = lam_of(t + 7u, head);
  bring_queries(first, head, lane);
  top_a = vec4<f32>(LOWEST);
  top_b = vec4<f32>(LOWEST);
  var first_key = oldest_of(step.pos + first) / PAGE * PAGE;
#ifdef PRUNE
  let first_half_from = first_page_of(step.pos + first, head, lane) * PAGE;
  let second = min(first + QUERIES / 2u, step.n_tokens - 1u);
  let second_half_from = first_page_of(step.pos + second, head, lane) * PAGE;
  first_key = max(first_key, first_half_from);
  let oldest = select(first_half_from, second_half_from, lane >= INVOCATIONS / 2u);
#else
  let oldest = 0u;
#endif
  for (var key = first_key; key <= last; key += PAGE) {
    let slot = slot_of(key, kv_head);
    let lam_slot = lam_slot_of(key, head) + 4u * n;
    workgroupBarrier();
    bring_page(slot, key, last, lane);
    workgroupBarrier();
    multiply(g, n);
    s0 = scores(s0, t + 0u, oldest, lam0, key + 4u * n, lam_slot);
    s1 = scores(s1, t + 1u, oldest, lam1, key + 4u * n, lam_slot);
    s2 = scores(s2, t + 2u, oldest, lam2, key + 4u * n, lam_slot);
    s3 = scores(s3, t + 3u, oldest, lam3, key + 4u * n, lam_slot);
    s4 = scores(s4, t + 4u, oldest, lam4, key + 4u * n, lam_slot);
    s5 = scores(s5, t + 5u, oldest, lam5, key + 4u * n, lam_slot);
    s6 = scores(s6, t + 6u, oldest, lam6, key + 4u * n, lam_slot);
    s7 = scores(s7, t + 7u, oldest, lam7, key + 4u * n, lam_slot);
    weigh(g, n);
    workgroupBarrier();
    add_values(g, column);
  }

  workgroupBarrier();
  tile[at(4u * n, g)] = total_a;
  tile[at(4u * n, g + 1u)] = total_b;
  workgroupBarrier();
  var a = vec4<f32>();
  var b = vec4<f32>();
  for (var m = 0u; m < 16u; m++) {
    a += tile[at(4u * m, g)];
    b += tile[at(4u * m, g + 1u)];
  }
  store(t + 0u, head, n, o0 / a.x);
  store(t + 1u, head, n, o1 / a.y);
  store(t + 2u, head, n, o2 / a.z);
  store(t + 3u, head, n, o3 / a.w);
  store(t + 4u, head, n, o4 / b.x);
  store(t + 5u, head, n, o5 / b.y);
  store(t + 6u, head, n, o6 / b.z);
  store(t + 7u, head, n, o7 / b.w);
}
