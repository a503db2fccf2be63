// E_b = Λ_b + τ + ln G_b of the pages that a prefill chunk completes, and the first live page of each key head as of its last token
// One workgroup a key head. (In decode attn_merge does this.)

@group(0) @binding(0) var<storage, read> vectors: array<f32>; // τ [heads] at params.prune
@group(0) @binding(1) var<storage, read_write> lam_pages: array<vec2<u32>>; // [pages, group, 64], then ends [pages, group]
@group(0) @binding(2) var<storage, read_write> page_table: array<u32>; // [max_pages, layers, kv_heads], then first live pages

struct Params { n_kv_heads: u32, n_layers: u32, layer: u32, group: u32, live: u32, ends: u32, prune: u32 }
@group(0) @binding(8) var<uniform> params: Params;
#import step
#import fixed
#import pages
#import lam_pages
#import live_pages
#import page_ends
#import prune

const INVOCATIONS = 64u;

@compute @workgroup_size(INVOCATIONS)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) { prune(group.x, lane); }
