//! Reports to the trackers of other programs about files (tests/README.md has the table), each under its symptom.

use crate::hostile::Raw;
use crate::tiny::{checkpoint_of, error_of, floats, official, read};
use kitfox::format::{BytesSource, TensorType, from_f32, to_f32};
use safetensors::Dtype;

/// ggml#1517.
#[test]
fn a_dimension_of_zero_divides_nothing_by_zero() {
    for dims in [&[8, 0][..], &[0], &[0, 0, 0, 0]] {
        for ty in [0, 1, 8, 14] {
            let error = error_of(read(Raw::fox(1).tensor("w", dims, ty, 0).data(64).0));
            assert!(error.contains("tensor w: expected dimensions above 0, got a dimension of 0"), "{error}");
        }
    }
    // What reads next is none the worse.
    assert_eq!(read(Raw::fox(1).tensor("w", &[8], 0, 0).data(64).0).unwrap().tensors.len(), 1);
}

/// gguf-tools#25, llama.cpp#25378, candle#3556.
#[test]
fn a_length_or_count_of_4_billion_in_a_small_file_allocates_nothing() {
    let huge = u64::from(u32::MAX);
    let pair = |ty: u32| Raw::start(0, 2).text("general.architecture").u32(8).text("fox").text("k").u32(ty);
    let fill = |raw: Raw| raw.bytes(&[0; 100]).0;
    let gguf = [
        fill(Raw::start(huge, 0)),
        fill(Raw::start(0, huge)),
        fill(Raw::start(0, 1).u64(huge)),
        fill(pair(8).u64(huge)),
        fill(pair(9).u32(8).u64(huge)),
        fill(pair(9).u32(4).u64(huge)),
        fill(Raw::fox(1).u64(huge)),
        fill(Raw::fox(1).text("w").u32(u32::MAX)),
        fill(Raw::fox(1).tensor("w", &[huge, huge], 0, 0)),
        fill(Raw::fox(1).tensor("w", &[1 << 40], 2, 0)),
    ];
    for (ix, file) in gguf.into_iter().enumerate() {
        assert!(file.len() < 250);
        let allocated = allocation_counter::measure(|| drop(error_of(read(file.clone()))));
        assert!(allocated.bytes_max < 64 << 10, "file {ix}: {} bytes", allocated.bytes_max);
    }
    let safetensors = [
        huge.to_le_bytes().to_vec(),
        99_999_999u64.to_le_bytes().to_vec(),
        b"\x4a\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"F32\",\"shape\":[4294967295],\"data_offsets\":[0,17179869180]}}".to_vec(),
    ];
    for (ix, file) in safetensors.into_iter().enumerate() {
        let source = || -> Box<dyn kitfox::format::Source> { Box::new(BytesSource::new("w", file.clone())) };
        let allocated = allocation_counter::measure(|| drop(error_of(checkpoint_of(vec![source()], None))));
        assert!(allocated.bytes_max < 64 << 10, "file {ix}: {} bytes", allocated.bytes_max);
    }
}

/// llama.cpp#26690.
#[test]
fn numbers_narrower_or_wider_than_they_are_read_are_refused_by_type() {
    // I8, I16, I32, I64, F64: of no weight.
    for (ty, name) in [(24, "I8"), (25, "I16"), (26, "I32"), (27, "I64"), (28, "F64")] {
        let error = error_of(read(Raw::fox(1).tensor("w", &[8], ty, 0).data(64).0));
        assert!(error.contains("tensor w: expected one of the types F32, F16") && error.contains(name), "{error}");
    }
    for ty in ["U8", "I8", "F64", "I64", "BOOL"] {
        let json =
            format!(r#"{{"w":{{"dtype":"{ty}","shape":[8],"data_offsets":[0,{}]}}}}"#, if ty.contains("64") { 64 } else { 8 });
        let file =
            [&(json.len() as u64).to_le_bytes(), json.as_bytes(), &[0; 64][..if ty.contains("64") { 64 } else { 8 }]].concat();
        let error = error_of(checkpoint_of(vec![Box::new(BytesSource::new("w", file))], None));
        assert!(error.contains("tensor w: expected type F32, F16 or BF16"), "{error}");
    }
    // Blocks with their scales, the last of which is not there.
    for ty in TensorType::ALL {
        let n = 4 * ty.block() as u64;
        let whole = Raw::fox(1).tensor("w", &[n], ty.gguf_id(), 0).data(4 * ty.block_bytes()).0;
        read(whole.clone()).unwrap();
        let error = error_of(read(whole[..whole.len() - 1].to_vec()));
        assert!(error.contains("tensor w") && error.contains("the file is cut short"), "{ty}: {error}");
    }
}

/// web-rwkv#61: safetensors pads nothing, so that an odd number of f16 leaves what follows at an odd place.
#[test]
fn a_tensor_at_an_odd_place_reads_as_any_other() {
    let (three, seven): (Vec<f32>, Vec<f32>) = ((1..4).map(|v| v as f32).collect(), (1..8).map(|v| v as f32 / 4.0).collect());
    let (mut data, mut behind) = (Vec::new(), Vec::new());
    from_f32(TensorType::F16, &three, &mut data);
    from_f32(TensorType::F32, &seven, &mut behind);
    data.extend(behind);
    for padding in 0..8 {
        let json = format!(
            r#"{{"a":{{"dtype":"F16","shape":[3],"data_offsets":[0,6]}},"b":{{"dtype":"F32","shape":[7],"data_offsets":[6,34]}}}}{}"#,
            " ".repeat(padding)
        );
        let file = [&(json.len() as u64).to_le_bytes(), json.as_bytes(), &data].concat();
        let mut checkpoint = checkpoint_of(vec![Box::new(BytesSource::new("odd", file))], None).unwrap();
        assert_eq!(floats(&mut checkpoint, 0).unwrap(), three);
        assert_eq!(floats(&mut checkpoint, 1).unwrap(), seven);
    }
    // From any place in memory, too.
    let mut bytes = vec![0xff];
    from_f32(TensorType::Q8_0, &[1.5; 64], &mut bytes);
    let mut values = Vec::new();
    to_f32(TensorType::Q8_0, &bytes[1..], &mut values);
    assert!(values.iter().all(|value| (value - 1.5).abs() < 0.01));
    assert_eq!(official(Dtype::F16).tensors.len(), 16);
}

/// The same of a download whose length nobody knows: what is asked for follows what has come, not what the header says will.
#[test]
fn a_claim_of_a_download_without_a_length_asks_for_no_memory() {
    struct Asked(Vec<u8>, std::rc::Rc<std::cell::Cell<usize>>);
    impl kitfox::format::Source for Asked {
        fn name(&self) -> &str {
            "download"
        }
        fn len(&self) -> Option<u64> {
            None
        }
        fn read<'a>(&'a mut self, at: u64, n: usize) -> kitfox::format::BoxFuture<'a, kitfox::Result<Vec<u8>>> {
            self.1.set(self.1.get().max(n));
            let start = (at as usize).min(self.0.len());
            Box::pin(async move { Ok(self.0[start..(start + n).min(self.0.len())].to_vec()) })
        }
    }
    let d = 16_384u64;
    let names = ["attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight"];
    let mut raw = Raw::start(6, 4).text("general.architecture").u32(8).text("fox-layer");
    raw = raw.text("fox-layer.embedding_length").u32(4).u32(d as u32);
    raw = raw.text("fox-layer.attention.head_count").u32(4).u32(128).text("fox-layer.mode").u32(8).text("encoder");
    for (ix, name) in names.into_iter().enumerate() {
        raw = raw.tensor(name, &[d, d], 0, ix as u64 * 4 * d * d);
    }
    raw = raw.tensor("attn_fgate.weight", &[d, 128], 0, 16 * d * d).tensor("attn_fgate.bias", &[128], 0, 16 * d * d + 512 * d);
    let file = raw.data(5 << 20).0;
    let asked = std::rc::Rc::new(std::cell::Cell::new(0));
    let source = Box::new(Asked(file.clone(), asked.clone()));
    let error = error_of(pollster::block_on(kitfox::format::layer_gguf::read(source)));
    assert!(error.contains("attn_q.weight") && error.contains("got 5242880 (the file is cut short)"), "{error}");
    assert!(asked.get() <= 4 << 20, "asked for {} bytes at once", asked.get());
    let allocated = allocation_counter::measure(|| {
        let source = Box::new(Asked(file.clone(), asked.clone()));
        drop(error_of(pollster::block_on(kitfox::format::layer_gguf::read(source))));
    });
    assert!(allocated.bytes_max < 4 * file.len() as u64 + (1 << 20), "{} bytes", allocated.bytes_max);
}
