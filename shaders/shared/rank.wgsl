// Candidates in order (logit descending, id ascending), and sums of their weights as 64-bit integers (low word first), for sample.
// A key is a logit whose bits order as integers do. No number has the key 0.

fn logit_bits(key: u32) -> u32 { return select(~key, key & 0x7fffffffu, key > 0x7fffffffu); }
fn logit_of(key: u32) -> f32 { return bitcast<f32>(logit_bits(key)); }
fn is_finite(bits: u32) -> bool { return (bits & 0x7f800000u) != 0x7f800000u; }

fn keys_of(bits: vec4<u32>) -> vec4<u32> {
  let plain = select(bits, vec4<u32>(), bits == vec4<u32>(0x80000000u)); // -0 ranks as 0
  return select(plain | vec4<u32>(0x80000000u), ~plain, plain > vec4<u32>(0x7fffffffu));
}

// Whether a (key, id) ranks before b.
fn before(a: vec2<u32>, b: vec2<u32>) -> bool { return a.x > b.x || (a.x == b.x && a.y < b.y); }

// A level's byte of key or id, lower for what ranks before: levels 1 to 4 are the key's bytes, 5 to 7 the id's lower three.
fn digit(level: u32, key: u32, id: u32) -> u32 {
  if (level < 5u) { return 255u - ((key >> (32u - 8u * level)) & 255u); }
  return (id >> (56u - 8u * level)) & 255u;
}

// A window (key, mask, id, mask) narrowed to a byte of a level.
fn window_of(level: u32, byte: u32, window: vec4<u32>) -> vec4<u32> {
  if (level < 5u) {
    let shift = 32u - 8u * level;
    return window | vec4<u32>((255u - byte) << shift, 255u << shift, 0u, 0u);
  }
  let shift = 56u - 8u * level;
  return window | vec4<u32>(0u, 0u, byte << shift, 255u << shift);
}

fn add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn sub64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x)); }
fn less64(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }

// total · p / 2^32, rounded up; the next integer above it if `more`.
fn part_of(total: vec2<u32>, p: u32, more: bool) -> vec2<u32> {
  let low = mul_wide(total.x, p);
  let part = add64(mul_wide(total.y, p), vec2<u32>(low.y, 0u));
  return add64(part, vec2<u32>(select(0u, 1u, more || low.x != 0u), 0u));
}

// e^-x for x >= 0, in units of 2^-44. By x = n·ln 2 - r and the series of e^r, |r| <= ln 2 / 2: below 2e-7 relative on every
// device, where WGSL's exp may be off by more the larger x is.
fn exp_of_less(x: f32) -> vec2<u32> {
  let c = min(x, 60.0);
  let n = round(c * 1.4426950408889634);
  let r = (n * 0.693145751953125 - c) + n * 1.4286068203094172e-6;
  let series = 1.0 + r * (1.0 + r * (1.0 / 2.0 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0
    + r * (1.0 / 720.0 + r * (1.0 / 5040.0)))))));
  let mantissa = u32(series * 16777216.0); // 25 bits, units of 2^-24
  let shift = u32(n);
  if (shift > 20u) { return vec2<u32>(mantissa >> min(shift - 20u, 31u), 0u); }
  let left = 20u - shift;
  return vec2<u32>(mantissa << left, select(mantissa >> (32u - max(left, 1u)), 0u, left == 0u));
}
