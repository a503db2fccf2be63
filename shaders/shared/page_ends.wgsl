// The end of a page: the Λ beyond which no query sees it or any page before it, E_b = Λ_b + τ + ln G_b (docs/model.md, section 4). Λ_b is that of its last key,
// τ = 2U − ln ε, G_b = Σ_{j ≤ b} exp(−(Λ_b − Λ_j)): when Λ_t > E_b, all keys up to there weigh less than ε of row t together.
// Entry in lam_pages, behind all Λ: [pages, group] from params.ends on. After `fixed` and `lam_pages`.
fn end_at(page: u32, head: u32) -> u32 {
  return params.ends + page_of(page * PAGE, head / params.group) * params.group + head % params.group;
}

fn is_dead(page: u32, head: u32, lam: vec2<u32>) -> bool { return fixed_less(lam_pages[end_at(page, head)], lam); }
