//! What a file may claim. Nothing is set aside for a count, length or offset before it is compared with these and with the bytes that are
//! there; beyond one of them a file is refused by name. They are far above what any model has, and far below what fills a memory.
//!
//! Objects and arrays of JSON nest 127 deep, and the values of a JSON text take 48 MiB and twice its length at most (`crate::json`); of a
//! tokenizer no values are made, and its tables are counted ([`crate::text`]).

/// Bytes of a GGUF file's header: its longest part is a tokenizer ([`MAX_TOKENIZER`]).
pub const MAX_HEADER: u64 = 256 << 20;
/// Bytes of a safetensors file's header: the limit of the safetensors library itself.
pub const MAX_SAFETENSORS_HEADER: u64 = 100_000_000;
/// Bytes that the values of a safetensors header may take, however long the file is: those of [`MAX_COUNT`] tensors take 96 MB.
pub const MAX_SAFETENSORS_VALUES: usize = 160 << 20;
/// Tensors of a file, and metadata pairs of a GGUF file.
pub const MAX_COUNT: u64 = 1 << 16;
/// Safetensors files of a checkpoint.
pub const MAX_SHARDS: usize = 1 << 12;
/// Bytes of a GGUF metadata key (the GGUF specification's limit).
pub const MAX_KEY: u64 = (1 << 16) - 1;
/// Bytes of a tensor's name in GGUF (the GGUF specification's limit).
pub const MAX_TENSOR_NAME: u64 = 64;
/// Bytes of a tensor's name in safetensors.
pub const MAX_ORIGIN: usize = 1 << 10;
/// Dimensions of a tensor; none of them is 0.
pub const MAX_DIMS: u32 = 4;
/// Bytes of a file, as far as its tensors reach: sums of the lengths of [`MAX_SHARDS`] files fit in 64 bits.
pub const MAX_FILE: u64 = 1 << 50;
/// Bytes of `config.json`, also inside of a GGUF file.
pub const MAX_CONFIG: u64 = 1 << 20;
/// Bytes of a `tokenizer.json`: the longest, of 256,000 tokens, have 35 MB.
pub const MAX_TOKENIZER: u64 = 64 << 20;
/// Bytes of the index of shards, and of each of the files of GPT-2's tokenizers.
pub const MAX_LIST: u64 = 16 << 20;
/// Bytes of a manifest: that of a file of 500 GB has 8 MB.
pub const MAX_MANIFEST: u64 = 16 << 20;
