//! Files that are broken, by accident or on purpose: a typed error that names the place, or a checkpoint, and nothing else.

use crate::tiny::{TOKENIZER, checkpoint_of, converted, error_of, floats, official, read, weights};
use kitfox::format::random::SplitMix64;
use kitfox::format::{BytesSource, Checkpoint, Quant, TensorType};
use kitfox::{Error, Result};
use safetensors::Dtype;

/// Hand-made GGUF headers.
#[derive(Clone, Default)]
pub struct Raw(pub Vec<u8>);

impl Raw {
    pub fn start(n_tensors: u64, n_pairs: u64) -> Self {
        Self::default().bytes(b"GGUF").u32(3).u64(n_tensors).u64(n_pairs)
    }

    pub fn fox(n_tensors: u64) -> Self {
        Self::start(n_tensors, 1).text("general.architecture").u32(8).text("fox")
    }

    pub fn tensor(self, name: &str, dims: &[u64], ty: u32, offset: u64) -> Self {
        let start = self.text(name).u32(dims.len() as u32);
        dims.iter().fold(start, |raw, dim| raw.u64(*dim)).u32(ty).u64(offset)
    }

    pub fn data(mut self, n: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32) + n, 0);
        self
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub fn u32(self, v: u32) -> Self {
        self.bytes(&v.to_le_bytes())
    }

    pub fn u64(self, v: u64) -> Self {
        self.bytes(&v.to_le_bytes())
    }

    pub fn text(self, text: &str) -> Self {
        self.u64(text.len() as u64).bytes(text.as_bytes())
    }
}

#[test]
fn hostile_headers_are_refused_by_name() {
    let pair = |key: &str, ty: u32| Raw::start(0, 2).text("general.architecture").u32(8).text("fox").text(key).u32(ty);
    let one = |dims: &[u64], ty: u32, offset: u64| Raw::fox(1).tensor("w", dims, ty, offset).data(64);
    let two = |a: (&str, u64), b: (&str, u64)| Raw::fox(2).tensor(a.0, &[8], 0, a.1).tensor(b.0, &[8], 0, b.1).data(128);
    let huge = u64::from(u32::MAX);
    #[rustfmt::skip]
    let cases: Vec<(Raw, &[&str])> = vec![
        (Raw::default(), &["magic", "4 bytes", "got 0"]),
        (Raw::default().bytes(b"<!doctype html>"), &["magic", "GGUF", "<!do"]),
        (Raw::default().bytes(b"GGUF").u32(2).u64(0).u64(0), &["version", "expected 3, got 2"]),
        (Raw::default().bytes(b"GGUF").u32(3 << 24).u64(0).u64(0), &["big-endian"]),
        (Raw::start(u64::MAX, 0), &["number of tensors"]),
        (Raw::start(0, u64::MAX), &["number of metadata pairs"]),
        (Raw::start(0, 0), &["general.architecture", "fox", "no such key"]),
        (Raw::start(0, 1).text("general.architecture").u32(8).text("llama"), &["general.architecture", "\"fox\"", "\"llama\""]),
        (Raw::start(0, 1).text("general.architecture").u32(4).u32(7), &["general.architecture", "got 7"]),
        (Raw::start(0, 1).u64(huge), &["metadata key", "65535"]),
        (Raw::start(0, 1).text("k").u32(8).u64(huge), &["k:", "at most 268435456 bytes", "4294967295"]),
        (Raw::start(0, 1).text("k").u32(8).u64(1 << 27), &["k:", "134217728 bytes", "got 0"]),
        (Raw::start(0, 1).text("k").u32(8).u64(u64::MAX), &["k:"]),
        (Raw::start(0, 1).u64(2).bytes(&[0xff, 0xfe]), &["metadata key", "UTF-8"]),
        (pair("k", 13), &["k:", "value type", "13"]),
        (pair("k", 7).bytes(&[2]), &["k:", "bool", "2"]),
        (pair("k", 9).u32(9).u64(1), &["k:", "array of numbers", "element type 9"]),
        (pair("k", 9).u32(10).u64(u64::MAX / 4), &["k:", "elements"]),
        (pair("k", 9).u32(4).u64(huge), &["k:"]),
        (pair("k", 9).u32(8).u64(u64::MAX).u64(u64::MAX), &["k:"]),
        (pair("general.architecture", 8).text("fox"), &["general.architecture", "second one"]),
        (pair("general.alignment", 4).u32(0), &["general.alignment", "power of two"]),
        (pair("general.alignment", 4).u32(48), &["general.alignment", "power of two"]),
        (pair("general.name", 4).u32(0), &["general.name", "a string"]),
        (pair("fox.block_count", 8).text("8"), &["fox.block_count", "whole number", "\"8\""]),
        (pair("fox.source_config", 8).text("{"), &["fox.source_config", "JSON"]),
        // ggml#1517, gguf-tools#25, llama.cpp#25378, llama.cpp#26690.
        (one(&[8, 0], 0, 0), &["tensor w", "dimension of 0"]),
        (one(&[], 0, 0), &["tensor w", "1 to 4 dimensions", "got 0"]),
        (one(&[1; 5], 0, 0), &["tensor w", "1 to 4 dimensions", "got 5"]),
        (Raw::fox(1).text("w").u32(u32::MAX), &["tensor w", "1 to 4 dimensions", "4294967295"]),
        (one(&[8], 24, 0), &["tensor w", "I8 (type 24)"]),
        (one(&[8], 28, 0), &["tensor w", "F64"]),
        (one(&[256], 10, 0), &["tensor w", "Q2_K"]),
        (one(&[8], 77, 0), &["tensor w", "type 77"]),
        (one(&[33], 8, 0), &["tensor w", "whole blocks of 32", "[33]"]),
        (one(&[1 << 32, 1 << 32], 0, 0), &["tensor w", "counted"]),
        (one(&[1 << 62], 0, 0), &["tensor w"]),
        (one(&[17], 0, 0), &["tensor w", "68 bytes", "64 (the file is cut short"]),
        (one(&[8], 0, 3), &["tensor w", "multiple of 32", "got 3"]),
        (one(&[8], 0, 64), &["tensor w", "32 bytes", "got 0"]),
        (one(&[8], 0, u64::MAX - 31), &["tensor w", "offset"]),
        (two(("a", 0), ("a", 32)), &["tensor a", "two"]),
        (two(("a", 32), ("b", 32)), &["overlap"]),
        (Raw::fox(1).tensor(&"n".repeat(65), &[8], 0, 0).data(64), &["name of tensor 0", "64 bytes", "65"]),
        (Raw::fox(9).tensor("a", &[8], 0, 0).data(64), &["tensor"]),
        (Raw::fox(1).tensor("a\u{1b}[2J", &[8], 0, 0).data(64), &["name of tensor 0", "control characters", "\\u{1b}[2J"]),
        (pair("general.name", 8).text("a\nb"), &["general.name", "control characters"]),
    ];
    for (raw, words) in cases {
        let error = error_of(read(raw.0));
        assert!(error.starts_with("x.gguf: ") && words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
    }
    // Data at the edge, out of order and with gaps are all fine.
    assert_eq!(read(two(("a", 96), ("b", 0)).0).unwrap().tensors[0].name, "b");
    // web-rwkv#61: three f16 numbers, then seven.
    let odd = Raw::fox(2).tensor("a", &[3], 1, 0).tensor("b", &[7], 1, 32).data(64);
    assert_eq!(floats(&mut read(odd.0).unwrap(), 1).unwrap().len(), 7);
}

#[test]
fn hostile_safetensors_are_refused_by_name() {
    let file = |json: &str, data: usize| [&(json.len() as u64).to_le_bytes(), json.as_bytes(), &vec![0; data]].concat();
    let one =
        |ty: &str, shape: &str, end: usize| format!(r#"{{"w":{{"dtype":"{ty}","shape":{shape},"data_offsets":[0,{end}]}}}}"#);
    let gate = one("F32", "[3,2]", 24).replace("\"w\"", "\"model.layers.0.mlp.gate_proj.weight\"");
    let bias = r#"{"model.layers.0.attn.fgate_bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
        "model.layers.0.attn.fgate_proj.bias":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}"#;
    for (bytes, words) in [
        (vec![1, 2, 3], vec!["length of the header", "8 bytes", "3"]),
        (u64::MAX.to_le_bytes().to_vec(), vec!["length of the header", "at most"]),
        (99_999_999u64.to_le_bytes().to_vec(), vec!["header", "99999999 bytes", "got 0"]),
        (file("{", 0), vec!["header"]),
        (file("[]", 0), vec!["header"]),
        (file(&one("F32", "[2]", 8), 7), vec!["length of the file", "8 bytes", "7"]),
        (file(&one("F32", "[2]", 8), 9), vec!["length of the file", "8 bytes", "9"]),
        (file(&one("F32", "[3]", 8), 8), vec!["tensor w", "[3] F32", "0 to 8"]),
        (file(&one("F32", "[18446744073709551615,2]", 8), 8), vec!["tensor w", "18446744073709551615", "0 to 8"]),
        (file(&one("F32", "[0,2]", 0), 0), vec!["tensor w", "above 0"]),
        (file(&one("F32", "[]", 4), 4), vec!["tensor w", "1 to 4 dimensions"]),
        (file(&one("I8", "[8]", 8), 8), vec!["tensor w", "F32, F16 or BF16", "I8"]),
        (file(&one("F8_E8M0", "[8]", 8), 8), vec!["tensor w", "F32, F16 or BF16", "F8_E8M0"]),
        (file(&one("FP12", "[8]", 8), 8), vec!["tensor w", "F32, F16 or BF16", "\"FP12\""]),
        (file(&one("F32", "2", 8), 8), vec!["tensor w", "dtype, shape and data_offsets"]),
        (file(&one("F32", "[2]", 8).replace("},", "}").replace("}}", r#"},"w":1}"#), 8), vec!["header", "\"w\" is listed twice"]),
        (file(&one("F32", "[2]", 8).replace("\"w\"", "\"w\\n\""), 8), vec!["name of a tensor", "control characters"]),
        (
            file(&one("F32", "[2]", 8).replace("\"w\"", &format!("\"{}\"", "w".repeat(1025))), 8),
            vec!["at most 1024 bytes", "1025"],
        ),
        (file(&gate, 24), vec!["mlp.gate_proj", "even", "3"]),
        (file(bias, 16), vec!["blk.0.attn_fgate.bias", "two"]),
    ] {
        let error = error_of(checkpoint_of(vec![Box::new(BytesSource::new("w.safetensors", bytes))], None));
        assert!(error.starts_with("w.safetensors: ") && words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
    }
}

/// Everything that a load does with a file.
fn exercise(checkpoint: Result<Checkpoint>) -> bool {
    let Ok(mut checkpoint) = checkpoint else { return false };
    (0..checkpoint.tensors.len()).all(|ix| floats(&mut checkpoint, ix).is_ok())
}

#[test]
fn two_thousand_mutations_of_each_format_give_an_error_or_a_checkpoint() {
    let gguf = converted(&mut official(Dtype::F16), Quant::plain(TensorType::Q8_0));
    let hf = weights(Dtype::F16, |_, _| ());
    let hf_header = 8 + u64::from_le_bytes(hf[..8].try_into().unwrap()) as usize;
    let gguf_header = gguf.windows(TOKENIZER.len()).position(|at| at == TOKENIZER.as_bytes()).unwrap() + TOKENIZER.len() + 900;
    let mut random = SplitMix64(7);
    let mut refused = [0, 0];
    for _ in 0..2000 {
        for (which, original, header) in [(0, &gguf, gguf_header), (1, &hf, hf_header)] {
            let mut bytes = original.clone();
            for _ in 0..1 + random.number() % 3 {
                let at = random.number() as usize % header;
                bytes[at] = match random.number() % 3 {
                    0 => random.number() as u8,
                    1 => bytes[at] ^ 1 << (random.number() % 8),
                    _ => [0, 0xff, 0x7f, 0x80][random.number() as usize % 4],
                };
            }
            let fine = match which {
                0 => exercise(read(bytes)),
                _ => exercise(checkpoint_of(vec![Box::new(BytesSource::new("m", bytes))], None)),
            };
            refused[which] += usize::from(!fine);
        }
    }
    assert!(refused.iter().all(|n| (500..2000).contains(n)), "{refused:?}");
    for n in (0..gguf.len()).step_by(7) {
        let error = read(gguf[..n].to_vec()).err();
        assert!(matches!(error, Some(Error::Format { .. })), "{n} of {} bytes", gguf.len());
    }
}
