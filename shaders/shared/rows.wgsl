// Rows of keys and values as four-word vectors, in f16 pairs (KV_F16) or f32. HEAD_DIM is a constant of the importing kernel.
const WIDTH = HEAD_DIM / 4u; // vec4<f32> of a head
#ifdef KV_F16
const ROW = HEAD_DIM / 8u; // vec4<u32> of a key in the pages

fn first_half(x: vec4<u32>) -> vec4<f32> { return vec4<f32>(unpack2x16float(x.x), unpack2x16float(x.y)); }
fn second_half(x: vec4<u32>) -> vec4<f32> { return vec4<f32>(unpack2x16float(x.z), unpack2x16float(x.w)); }
#else
const ROW = HEAD_DIM / 4u; // vec4<u32> of a key in the pages
#endif

// Below every score, and finite: exp(LOWEST − score) is 0 and (LOWEST − LOWEST) is 0, with no infinity on the way.
const LOWEST = -1e30;
