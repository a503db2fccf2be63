// Λ = −λ, the running sum of −log f, as unsigned 32.32 fixed point: vec2(fraction · 2^32, whole). Integer sums do not depend on
// where a chunk ends and do not drift; a difference is taken exactly and rounded once.

// −log sigmoid(z) = softplus(−z) = max(−z, 0) + log1p(e), e = exp(−|z|), on the grid.
// log1p(e) = 2·atanh(s), s = e / (2 + e) ≤ 1/3, by eight terms of its series (the ninth is below 2e-9 of the sum): WGSL's log
// may be off by 2^-21 near 1, more than the whole of a gate that forgets softly over a page.
fn forgotten(z: f32) -> vec2<u32> {
  let e = exp(-abs(z));
  let s = e / (2.0 + e);
  let s2 = s * s;
  let series = 1.0 + s2 * (1.0 / 3.0 + s2 * (1.0 / 5.0 + s2 * (1.0 / 7.0 + s2 * (1.0 / 9.0
    + s2 * (1.0 / 11.0 + s2 * (1.0 / 13.0 + s2 * (1.0 / 15.0)))))));
  let m = clamp(max(-z, 0.0) + 2.0 * s * series, 0.0, 16384.0);
  return fixed_of(m);
}

fn fixed_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

// a − b as f32, for a ≥ b. Meaningless, but finite, for a < b.
fn fixed_difference(a: vec2<u32>, b: vec2<u32>) -> f32 {
  let whole = a.y - b.y - select(0u, 1u, a.x < b.x);
  return f32(whole) + f32(a.x - b.x) * 2.3283064365386963e-10;
}

fn fixed_less(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }

// A float from 0 to below 2^32.
fn fixed_of(x: f32) -> vec2<u32> {
  let whole = floor(x);
  return vec2<u32>(u32(round((x - whole) * 4294967296.0)), u32(whole));
}
