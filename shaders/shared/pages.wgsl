// Where a key lies: pages of 64 keys, each of one layer and key head, found through page_table: [max_pages, layers, kv_heads].
// The importing shader declares page_table and the params n_kv_heads, n_layers, layer.
const PAGE = 64u;

fn page_of(position: u32, kv_head: u32) -> u32 {
  return page_table[(position / PAGE * params.n_layers + params.layer) * params.n_kv_heads + kv_head];
}

// Row of a position in k_pages and v_pages, [pages · 64, ...].
fn slot_of(position: u32, kv_head: u32) -> u32 { return page_of(position, kv_head) * PAGE + position % PAGE; }
