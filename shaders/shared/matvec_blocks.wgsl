// How matvec_sub walks the blocks of its ROWS rows: AHEAD turns are asked for at once, and each adds a block of 32 weights a row.

#ifdef W_Q4_0
// A nibble in the first bits behind the point of a float: 1 + q/16. No conversion, and nothing is rounded.
fn low_nibbles(w: u32) -> vec4<f32> {
  return bitcast<vec4<f32>>((vec4<u32>(w << 19u, w << 11u, w << 3u, w >> 5u) & vec4<u32>(0x780000u)) | vec4<u32>(0x3f800000u));
}
fn high_nibbles(w: u32) -> vec4<f32> {
  return bitcast<vec4<f32>>((vec4<u32>(w << 15u, w << 7u, w >> 1u, w >> 9u) & vec4<u32>(0x780000u)) | vec4<u32>(0x3f800000u));
}
#endif

// What an invocation has asked for: AHEAD turns of ROWS rows.
var<private> rows: array<u32, ROWS>; // first block of each
#ifdef W_Q4_0
var<private> quads: array<vec4<u32>, ROWS * AHEAD>;
var<private> scale_words: array<u32, ROWS * AHEAD>;

fn load_blocks(first: u32, lane: u32) {
  for (var n = 0u; n < AHEAD; n++) {
    for (var r = 0u; r < ROWS; r++) {
      let at = rows[r] + min((first + n) * LANES + lane, BLOCKS - 1u);
      quads[n * ROWS + r] = data[at];
      scale_words[n * ROWS + r] = scales[at >> 1u] >> ((at & 1u) * 16u);
    }
  }
}
#endif
var<private> sums: array<f32, ROWS>;

// Adds the products of block b of the rows, which were asked for as turn n.
fn add_block(n: u32, b: u32) {
#ifdef W_Q4_0
  var dots: array<f32, ROWS>;
  for (var r = 0u; r < ROWS; r++) { dots[r] = 0.0; }
  for (var j = 0u; j < 4u; j++) {
    let low = chunks[j * COLUMN + b];
    let high = chunks[(j + 4u) * COLUMN + b];
    for (var r = 0u; r < ROWS; r++) {
      let w = quads[n * ROWS + r][j];
      dots[r] += dot(low_nibbles(w), low) + dot(high_nibbles(w), high);
    }
  }
  let zero = 1.5 * (half_sums[2u * b] + half_sums[2u * b + 1u]);
  for (var r = 0u; r < ROWS; r++) { sums[r] += (16.0 * unpack2x16float(scale_words[n * ROWS + r]).x) * (dots[r] - zero); }
#else
#ifdef PLANES
  var lows: array<f32, ROWS>;
  var highs: array<f32, ROWS>;
  for (var r = 0u; r < ROWS; r++) {
    lows[r] = 0.0;
    highs[r] = 0.0;
  }
  for (var j = 0u; j < 4u; j++) {
    let low = chunks[j * COLUMN + b];
    let high = chunks[(j + 4u) * COLUMN + b];
    for (var r = 0u; r < ROWS; r++) {
      lows[r] += dot(integers(rows[r] + b, j, 0u), low);
      highs[r] += dot(integers(rows[r] + b, j, 1u), high);
    }
  }
  let sum = vec4<f32>(half_sums[2u * b], half_sums[2u * b + 1u], 0.0, 0.0);
  for (var r = 0u; r < ROWS; r++) { sums[r] += combine(rows[r] + b, lows[r], highs[r], sum); }
#else
  for (var j = 0u; j < 8u; j++) {
    let value = chunks[j * COLUMN + b];
    for (var r = 0u; r < ROWS; r++) { sums[r] += dot(weights4(rows[r] / BLOCKS, b * 8u + j, K), value); }
  }
#endif
#endif
}

// Adds the products of every LANES-th block of the rows.
fn add_blocks(lane: u32) {
  for (var first = 0u; first < TURNS; first += AHEAD) {
#ifdef W_Q4_0
    if (first > 0u) { load_blocks(first, lane); }
#endif
    for (var n = 0u; n < AHEAD; n++) {
      let b = (first + n) * LANES + lane;
      if (b < BLOCKS) { add_block(n, b); }
    }
  }
}
