// The words that differ from replay to replay: graph::Step.
struct Step {
  pos: u32,             // position of the first token of this replay
  n_tokens: u32,        // tokens in this replay
  n_splits: u32,        // workgroups a head that share the keys in decode attention
  pages_per_split: u32, // KV pages that each of them takes
  shift_in: u32,        // slot of the shift rows of token pos - 1
  shift_out: u32,       // slot of the shift rows for the last token of this replay
  first_page: u32,      // KV page with the first key that its first token sees
  pad: u32,
}
@group(0) @binding(9) var<uniform> step: Step;
