//! What a verb writes: never over what it reads, nor over what is no file; and a run that fails leaves what was there.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::cli::model;
use crate::common::command::{assert_fails, folder, stdout_of, text};

#[test]
fn an_input_is_not_overwritten() {
    let folder = folder("cli", "overwrite");
    let good = model(&folder, true);
    let gguf = text(&folder.join("good.gguf"));
    stdout_of(&["convert", &good, "-o", &gguf, "--quant", "q8_0"]);
    let before = std::fs::read(&gguf).unwrap();
    assert_fails(2, &["output", "good.gguf"], &["convert", &gguf, "-o", &gguf, "--quant", "f16"]);
    assert_eq!(std::fs::read(&gguf).unwrap(), before);
}

#[test]
fn what_is_no_file_or_an_input_is_not_written_over() {
    let folder = folder("cli", "outputs");
    let good = model(&folder, true);
    let at = |name: &str| text(&folder.join(name));
    let (gguf, part, book, ids) = (at("model.gguf"), at("other.gguf.part"), at("book"), at("ids"));
    stdout_of(&["convert", &good, "-o", &gguf, "--quant", "q8_0"]);
    std::fs::copy(&gguf, &part).unwrap();
    std::fs::write(&book, "hello a world").unwrap();
    std::fs::write(&ids, "1 2").unwrap();
    let before = || [&gguf, &part, &book, &ids].map(|path| std::fs::read(path).unwrap());
    let kept = before();
    let logits = |out: &str| ["logits", "-m", &gguf, "--ids", "1", "--device", "cpu", "-o", out].map(str::to_owned);
    let loss = |out: &str| {
        ["eval", "per-token-loss", "-m", &gguf, "-f", &book, "-c", "4", "--device", "cpu", "-o", out].map(str::to_owned)
    };
    let cases: Vec<(&str, Vec<String>)> = vec![
        (
            "model.safetensors",
            ["convert", &good, "-o", &format!("{good}/model.safetensors"), "--quant", "f16"].map(str::to_owned).to_vec(),
        ),
        ("a directory", ["convert", &good, "-o", &at(""), "--quant", "f16"].map(str::to_owned).to_vec()),
        ("a directory", logits(&at("")).to_vec()),
        ("/dev/null", logits("/dev/null").to_vec()),
        ("model.gguf", logits(&gguf).to_vec()),
        ("ids", ["logits", "-m", &gguf, "--ids-file", &ids, "-o", &ids].map(str::to_owned).to_vec()),
        ("book", loss(&book).to_vec()),
        ("a directory", loss(&at("")).to_vec()),
        ("plot", [&loss(&at("x.svg"))[..], &["--plot".to_owned(), at("x.svg")]].concat()),
    ];
    for (named, arguments) in cases {
        assert_fails(2, &[named], &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    }
    // What lies beside an output under any such name is nobody's business, nor what a run that fails removes.
    stdout_of(&["convert", &part, "-o", &at("other.gguf"), "--quant", "f16"]);
    assert_fails(1, &["config.json"], &["convert", &at(""), "-o", &at("another.gguf"), "--quant", "f16"]);
    assert_eq!(before(), kept);
}
