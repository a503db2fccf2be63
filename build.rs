//! Says whether there is a demo model to embed (with the feature `demo-model` and the file at hand, `cfg(kitfox_demo)` is set), and
//! leaves the shaders without comments and indentation in `OUT_DIR/shaders`: they would travel in every wasm module.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

const DEMO: &str = "www/models/demo.gguf";
const SHADERS: [&str; 2] = ["shaders", "shaders/shared"];

fn main() -> io::Result<()> {
    println!("cargo::rustc-check-cfg=cfg(kitfox_demo)");
    println!("cargo::rerun-if-changed=build.rs");
    // A path that is not there would make every build run this again, so its nearest folder is watched instead. The packaged
    // crate has not even that, and nothing to watch for.
    if let Some(watched) = Path::new(DEMO).ancestors().find(|path| !path.as_os_str().is_empty() && path.exists()) {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    if env::var_os("CARGO_FEATURE_DEMO_MODEL").is_some() && Path::new(DEMO).is_file() {
        println!("cargo::rustc-cfg=kitfox_demo");
    }
    println!("cargo::rerun-if-changed=shaders");
    let out = env::var_os("OUT_DIR").map(PathBuf::from).ok_or_else(|| io::Error::other("cargo sets no OUT_DIR"))?;
    SHADERS.iter().try_for_each(|folder| shorten(folder, &out.join(folder)))?;
    fs::write(out.join("shaders/shared.rs"), listed("shaders/shared", &out.join("shaders/shared"))?)
}

/// A folder's shaders as a Rust slice of names and texts, which lie in `out`.
fn listed(folder: &str, out: &Path) -> io::Result<String> {
    let mut stems = Vec::new();
    for path in shaders(folder)? {
        stems.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    stems.sort();
    let line = |stem: &String| format!("({stem:?}, include_str!({:?})),\n", out.join(format!("{stem}.wgsl")));
    Ok(format!("&[\n{}]\n", stems.iter().map(line).collect::<String>()))
}

/// The files of a folder that are shaders.
fn shaders(folder: &str) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "wgsl")).collect())
}

/// Writes the code of a folder's shaders to another folder.
fn shorten(folder: &str, out: &Path) -> io::Result<()> {
    fs::create_dir_all(out)?;
    for path in shaders(folder)? {
        let Some(name) = path.file_name() else { continue };
        let text = fs::read_to_string(&path)?;
        if text.contains("/*") {
            return Err(io::Error::other(format!("{}: a comment opens with /*; only // is taken out", path.display())));
        }
        fs::write(out.join(name), text.lines().map(code).collect::<String>())?;
    }
    Ok(())
}

/// A line's code, perhaps none: a compiler's line numbers stay the file's. WGSL has no texts in which `//` could stand.
fn code(line: &str) -> String {
    let code = line.split_once("//").map_or(line, |(code, _)| code);
    format!("{}\n", code.trim())
}
