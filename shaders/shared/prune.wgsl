// Bookkeeping of dead pages, by a workgroup of INVOCATIONS (PAGE at least) for a key head. After `live_pages` and `page_ends`, whose
// buffers it writes; vectors has τ [heads] at params.prune.
var<workgroup> faded: array<f32, PAGE>;
var<workgroup> n_dead: atomic<u32>;

// The end of a page that is complete. G goes on from the page before: G_b = Σ_{j in b} exp(−(Λ_b − Λ_j)) + exp(E_a − τ − Λ_b).
fn end_page(page: u32, head: u32, lane: u32) {
  let last = lam_pages[lam_slot_of(page * PAGE + PAGE - 1u, head)];
  if (lane < PAGE) { faded[lane] = exp(-fixed_difference(last, lam_pages[lam_slot_of(page * PAGE + lane, head)])); }
  workgroupBarrier();
  if (lane == 0u) {
    var sum = 0.0;
    for (var n = 0u; n < PAGE; n++) { sum += faded[n]; }
    let base = fixed_add(last, fixed_of(vectors[params.prune + head]));
    if (page > 0u) {
      let before = lam_pages[end_at(page - 1u, head)];
      if (fixed_less(before, base)) {
        sum += exp(-fixed_difference(base, before));
      } else {
        sum += exp(fixed_difference(before, base));
      }
    }
    lam_pages[end_at(page, head)] = fixed_add(base, fixed_of(max(log(sum), 0.0)));
  }
  storageBarrier();
  workgroupBarrier();
}

// The first live page of a key head as of the last token of this replay: dead are those that all its query heads are done with.
fn count_dead(kv_head: u32, lane: u32) {
  if (lane == 0u) { atomicStore(&n_dead, 0u); }
  workgroupBarrier();
  let first = first_live(kv_head);
  let n_tokens = step.pos + step.n_tokens;
  for (var page = first + lane; page < n_tokens / PAGE; page += INVOCATIONS) {
    var dead = true;
    for (var n = 0u; n < params.group; n++) {
      let head = kv_head * params.group + n;
      dead &= is_dead(page, head, lam_pages[lam_slot_of(n_tokens - 1u, head)]);
    }
    if (!dead) { break; }
    atomicAdd(&n_dead, 1u);
  }
  workgroupBarrier();
  if (lane == 0u) { page_table[live_at(1u + step.shift_out, kv_head)] = first + atomicLoad(&n_dead); }
}

// What a replay leaves: the ends of the pages that it completed, then the first live page.
fn prune(kv_head: u32, lane: u32) {
  for (var page = step.pos / PAGE; page < (step.pos + step.n_tokens) / PAGE; page++) {
    for (var n = 0u; n < params.group; n++) { end_page(page, kv_head * params.group + n, lane); }
  }
  count_dead(kv_head, lane);
}
