//! A plan made from a header says what the load then takes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::tiny::Tiny;
use kitfox::format::{self, Checkpoint};
use kitfox::session::load::plan::plan;
use kitfox::session::{DeviceChoice, KvType, LoadOptions, Model};
use std::path::PathBuf;

fn checkpoint(test: &str) -> Checkpoint {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("plan").join(test);
    pollster::block_on(format::open(&Tiny::new(None).write(&folder))).unwrap()
}

fn demo() -> Checkpoint {
    pollster::block_on(format::open("www/models/demo.gguf".as_ref())).unwrap()
}

#[test]
fn a_plan_counts_the_buffers_that_the_load_makes() {
    let options = LoadOptions { device: DeviceChoice::Cpu, ..LoadOptions::default() };
    let cases = [
        LoadOptions { context: Some(64), ..options.clone() },
        LoadOptions { context: Some(1000), kv: KvType::F32, ..options.clone() },
        LoadOptions { context: Some(300), scores: true, chunk: Some(64), ..options.clone() },
        options,
    ];
    for (make, name) in [(&(|| checkpoint("counts")) as &dyn Fn() -> Checkpoint, "tiny"), (&demo, "demo")] {
        for options in &cases {
            let planned = plan(&make(), options, false).unwrap();
            let model = pollster::block_on(Model::load(make(), options.clone(), &mut |_| Ok(()))).unwrap();
            assert!(planned.refusal.is_none());
            assert_eq!(planned.device_bytes, model.bytes(), "{name} {options:?}");
            assert_eq!(planned.kv_bytes_pool, model.kv_bytes_pool(), "{name} {options:?}");
            assert_eq!((planned.context, planned.chunk), (model.context(), model.max_chunk()));
        }
    }
    let bytes = std::fs::metadata("www/models/demo.gguf").unwrap().len();
    assert_eq!(plan(&demo(), &cases[0], true).unwrap().file_bytes, bytes, "the tensors reach to the end of the file");
}

#[test]
fn what_does_not_fit_is_part_of_the_plan_and_what_cannot_be_is_an_error() {
    let asked = |context| LoadOptions { context: Some(context), ..LoadOptions::default() };
    let planned = plan(&demo(), &asked(1 << 18), true).unwrap();
    let told = planned.refusal.unwrap().to_string();
    assert!(told.contains("a context of at most") && planned.device_bytes > 1 << 30, "{told} {}", planned.device_bytes);
    assert_eq!(plan(&demo(), &asked(1 << 19), true).unwrap_err().code(), "argument");
}
