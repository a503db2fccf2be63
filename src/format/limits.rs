//! What a file may claim. Nothing is set aside for a count, length or offset before it is compared with these and with the bytes that are
//! there; beyond one of them a file is refused by name. They are far above what any model has, and far below what fills a memory.
//!
//! Objects and arrays of JSON nest 127 deep, and the values of a JSON text take 32 MiB and sixteen times its length at most ([`crate::json`]).

/// Bytes of a GGUF file's header: its longest part is a tokenizer, of 20 MB at most in today's models.
pub const MAX_HEADER: u64 = 256 << 20;
/// Bytes of a safetensors file's header: the limit of the safetensors library itself.
pub const MAX_SAFETENSORS_HEADER: u64 = 100_000_000;
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
/// Bytes of the index of shards, of a vocabulary, of a tokenizer.
pub const MAX_TEXT: u64 = 256 << 20;
/// Bytes of a manifest: that of a file of 500 GB has 8 MB.
pub const MAX_MANIFEST: u64 = 16 << 20;
