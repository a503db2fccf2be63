// Where a key lies: pages of 64 keys, each of one layer and head, found through page_table: [max_pages, layers, heads].
// The importing shader declares page_table and the params n_heads, n_layers, layer.
const PAGE = 64u;

// Row of a position in k_pages, v_pages, lam_pages, all [pages · 64, ...].
fn slot_of(position: u32, head: u32) -> u32 {
  let id = page_table[(position / PAGE * params.n_layers + params.layer) * params.n_heads + head];
  return id * PAGE + position % PAGE;
}
