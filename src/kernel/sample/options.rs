//! How tokens are drawn: what the host writes and the shader reads.

/// The most biases.
pub const MAX_BIASES: usize = 512;

/// How tokens are drawn, as the shader reads it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options<'a> {
    /// Take the best; nothing else counts but the penalty.
    pub greedy: bool,
    /// Keep the k best; 0: all.
    pub top_k: u32,
    /// Keep the fewest best whose probabilities sum to at least this part of 2^32; 0: all.
    pub top_p: u32,
    /// Keep logits at most this far below the best: -ln(min-p).
    pub widest: f32,
    /// 1 / temperature.
    pub rate: f32,
    /// Divides positive logits of recent tokens and multiplies negative ones.
    pub penalty: f32,
    /// How many of the last ids are recent.
    pub recent: u32,
    /// Of the random numbers.
    pub seed: u64,
    /// Position of the token that is drawn with random number 0.
    pub first: u32,
    /// Ids, no two the same, and what is added to the logit of each: [`MAX_BIASES`] at most.
    pub biases: &'a [(u32, f32)],
}

/// Words in front of the biases' number.
const FIXED: usize = 10;

impl Options<'_> {
    /// Words of the `options` buffer. Those behind the last bias are not read.
    pub const WORDS: usize = FIXED + 1 + 2 * MAX_BIASES;

    /// The words that are read, in the shader's order.
    pub fn words(&self) -> Vec<u32> {
        let Self { greedy, top_k, top_p, widest, rate, penalty, recent, seed, first, biases } = *self;
        assert!(biases.len() <= MAX_BIASES, "the buffer has room for {MAX_BIASES} biases");
        let [widest, rate, penalty] = [widest, rate, penalty].map(f32::to_bits);
        let fixed: [u32; FIXED] =
            [u32::from(greedy), top_k, top_p, widest, rate, penalty, recent, seed as u32, (seed >> 32) as u32, first];
        let biases = [biases.len() as u32].into_iter().chain(biases.iter().flat_map(|(id, bias)| [*id, bias.to_bits()]));
        fixed.into_iter().chain(biases).collect()
    }
}
