// 32 weights of a row on their way to the w_tile of matmul_coop: fetched as they lie in memory, unpacked as f16.

#ifdef W_Q4_0
// 32 weights as they lie in memory.
struct Run { q: vec4<u32>, scale: f32 }

fn fetch(row: u32, run: u32) -> Run {
  let at = row * (params.k / 32u) + run;
  return Run(data[at], scale_of(at));
}

// The low nibbles of four bytes, less 8. An f16 of 1024 or more, below 2048, has an integer in its lower bits.
fn nibbles(q: u32) -> vec4<f16> {
  let even = vec2<f16>(unpack2x16float((q & 0x000f000fu) | 0x64006400u));
  let odd = vec2<f16>(unpack2x16float(((q >> 8u) & 0x000f000fu) | 0x64006400u));
  return vec4<f16>(even.x, odd.x, even.y, odd.y) - 1032.0h;
}

// Written out, as below: not every compiler unrolls a loop over the parts of a vector.
fn unpack(run: Run, to: u32) {
  let scale = f16(run.scale);
  w_tile[to] = nibbles(run.q.x) * scale;
  w_tile[to + 1u] = nibbles(run.q.y) * scale;
  w_tile[to + 2u] = nibbles(run.q.z) * scale;
  w_tile[to + 3u] = nibbles(run.q.w) * scale;
  w_tile[to + 4u] = nibbles(run.q.x >> 4u) * scale;
  w_tile[to + 5u] = nibbles(run.q.y >> 4u) * scale;
  w_tile[to + 6u] = nibbles(run.q.z >> 4u) * scale;
  w_tile[to + 7u] = nibbles(run.q.w >> 4u) * scale;
}
#else
#ifdef W_Q8_0
// 32 weights as they lie in memory.
struct Run { low: vec4<u32>, high: vec4<u32>, scale: f32 }

fn fetch(row: u32, run: u32) -> Run {
  let at = row * (params.k / 32u) + run;
  return Run(data[2u * at], data[2u * at + 1u], scale_of(at));
}

// Four signed bytes, as the nibbles above.
fn integers4(q: u32) -> vec4<f16> {
  let raised = q ^ 0x80808080u; // by 128
  let even = vec2<f16>(unpack2x16float((raised & 0x00ff00ffu) | 0x64006400u));
  let odd = vec2<f16>(unpack2x16float(((raised >> 8u) & 0x00ff00ffu) | 0x64006400u));
  return vec4<f16>(even.x, odd.x, even.y, odd.y) - 1152.0h;
}

// Written out, too: other words of other names.
fn unpack(run: Run, to: u32) {
  let scale = f16(run.scale);
  w_tile[to] = integers4(run.low.x) * scale;
  w_tile[to + 1u] = integers4(run.low.y) * scale;
  w_tile[to + 2u] = integers4(run.low.z) * scale;
  w_tile[to + 3u] = integers4(run.low.w) * scale;
  w_tile[to + 4u] = integers4(run.high.x) * scale;
  w_tile[to + 5u] = integers4(run.high.y) * scale;
  w_tile[to + 6u] = integers4(run.high.z) * scale;
  w_tile[to + 7u] = integers4(run.high.w) * scale;
}
#else
// Where 32 weights lie: read when they are unpacked.
struct Run { row: u32, run: u32 }

fn fetch(row: u32, run: u32) -> Run { return Run(row, run); }

fn unpack(run: Run, to: u32) {
  for (var c = 0u; c < RUN; c += 1u) { w_tile[to + c] = vec4<f16>(weights4(run.row, run.run * RUN + c, params.k)); }
}
#endif
#endif
