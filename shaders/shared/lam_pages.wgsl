// Where Λ of a position lies: a page of keys has Λ of every query head that shares them. After `pages`; with the param group.
// Entry of a position and query head in lam_pages, [pages, group, 64].
fn lam_slot_of(position: u32, head: u32) -> u32 {
  return (page_of(position, head / params.group) * params.group + head % params.group) * PAGE + position % PAGE;
}
