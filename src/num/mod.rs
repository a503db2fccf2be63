//! Numbers as bits: f16, bf16 and the block formats of GGUF, to floats and back. Knows nothing above it.
