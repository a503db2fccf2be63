//! Says whether there is a demo model to embed: with the feature `demo-model` and the file at hand, `cfg(kitfox_demo)` is set.

use std::path::Path;

const DEMO: &str = "www/models/demo.gguf";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(kitfox_demo)");
    println!("cargo::rerun-if-changed=build.rs");
    // A path that is not there would make every build run this again, so its nearest folder is watched instead. The packaged
    // crate has not even that, and nothing to watch for.
    if let Some(watched) = Path::new(DEMO).ancestors().find(|path| !path.as_os_str().is_empty() && path.exists()) {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    if std::env::var_os("CARGO_FEATURE_DEMO_MODEL").is_some() && Path::new(DEMO).is_file() {
        println!("cargo::rustc-cfg=kitfox_demo");
    }
}
