// Random numbers by counter: word 0 of Philox 2x32-10 (Salmon et al. 2011), as the host's sampler draws them.

// The 64 bits of a product, low word first.
fn mul_wide(a: u32, b: u32) -> vec2<u32> {
  let al = a & 0xffffu;
  let ah = a >> 16u;
  let bl = b & 0xffffu;
  let bh = b >> 16u;
  let low = al * bl;
  let m = ah * bl;
  let n = al * bh;
  let mid = (low >> 16u) + (m & 0xffffu) + (n & 0xffffu);
  return vec2<u32>((mid << 16u) | (low & 0xffffu), ah * bh + (m >> 16u) + (n >> 16u) + (mid >> 16u));
}

fn philox(index: u32, seed_high: u32, seed_low: u32) -> u32 {
  var counter = vec2<u32>(index, seed_high);
  var key = seed_low;
  for (var i = 0u; i < 10u; i += 1u) {
    let product = mul_wide(counter.x, 0xd256d193u);
    counter = vec2<u32>(product.y ^ key ^ counter.y, product.x);
    key += 0x9e3779b9u;
  }
  return counter.x;
}
