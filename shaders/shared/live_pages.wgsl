// Pages of a head that are dead, never to be seen again, come first. Behind its ids page_table has [1 + slots, layers, kv_heads] words from
// params.live on: how many pages the host has taken away, then, by slot of the shift rows, the first live page as of that token.
// After `pages` and `step`.
fn live_at(row: u32, kv_head: u32) -> u32 {
  return params.live + (row * params.n_layers + params.layer) * params.n_kv_heads + kv_head;
}

// As of the token before this replay.
fn first_live(kv_head: u32) -> u32 {
  if (step.pos == 0u) { return 0u; }
  return max(page_table[live_at(0u, kv_head)], page_table[live_at(1u + step.shift_in, kv_head)]);
}
