//! `kitfox eval` and `kitfox perplexity`: what they measure, that an interrupted run ends with the same table, and bad input.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::tiny::Tiny;
use crate::common::tokenizers;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The tiny model in an empty folder, and a text of nearly 200 tokens.
fn folder(test: &str) -> (PathBuf, String, String) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("eval").join(test);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let model = shown(&Tiny::new(Some(tokenizers::byte_level())).write(&folder.join("model")));
    let text = folder.join("text");
    std::fs::write(&text, &"It was a bright cold day in April. ".repeat(6)[..200]).unwrap();
    let text = shown(&text);
    (folder, model, text)
}

fn shown(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn kitfox(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kitfox")).args(arguments).args(["--device", "cpu"]).stdin(Stdio::null()).output().unwrap()
}

/// Runs what must succeed, in silence; its stdout.
fn stdout_of(arguments: &[&str]) -> String {
    let output = kitfox(arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn assert_fails(code: i32, named: &[&str], arguments: &[&str]) {
    let output = kitfox(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    let line = stderr.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    for name in named {
        assert!(line.contains(name), "{arguments:?}: no {name:?} in {line:?}");
    }
}

/// The numbers of a table; an empty field is NaN.
fn rows(path: &Path) -> Vec<Vec<f64>> {
    let table = std::fs::read_to_string(path).unwrap();
    let row = |line: &str| line.split(',').map(|field| field.parse().unwrap_or(f64::NAN)).collect();
    table.lines().skip(1).map(row).collect()
}

#[test]
fn the_mean_of_the_bins_is_the_perplexity_of_the_same_windows() {
    let (folder, model, text) = folder("means");
    let out = folder.join("loss.csv");
    let loss = ["eval", "per-token-loss", "-m", &model, "-f", &text, "-c", "16", "--kv", "f32", "-o", out.to_str().unwrap()];
    // 201 ids with BOS give twelve whole windows.
    let perplexity = ["perplexity", "-m", &model, "-f", &text, "-c", "16", "--kv", "f32", "--json", "--max-tokens"];
    let nll =
        |n: &str| serde_json::from_str::<Value>(&stdout_of(&[&perplexity[..], &[n]].concat())).unwrap()["nll"].as_f64().unwrap();
    let n_tokens = stdout_of(&[&perplexity[..], &["9999"]].concat());
    let n_windows = serde_json::from_str::<Value>(&n_tokens).unwrap()["tokens"].as_u64().unwrap() as usize / 16;
    let line = stdout_of(&[&loss[..], &["--bins", "3"]].concat());
    let bins = rows(&out);
    assert_eq!(bins.iter().map(|row| (row[0], row[1])).collect::<Vec<_>>(), [(1.0, 5.0), (6.0, 10.0), (11.0, 16.0)]);
    let n: f64 = bins.iter().map(|row| row[2]).sum();
    assert_eq!(n, (16 * n_windows) as f64);
    let mean = bins.iter().map(|row| row[2] * row[3]).sum::<f64>() / n;
    let expected = nll(&(16 * n_windows).to_string());
    assert!((mean - expected).abs() < 2e-6, "{mean} {expected}");
    assert!(
        line.contains(&format!("mean {expected:.6} nats")) && line.contains(&format!("windows: {n_windows}")),
        "{line} {expected}"
    );

    // One window, a bin a position: prefixes of the text give each loss as a difference of sums.
    stdout_of(&[&loss[..], &["--bins", "16", "--windows", "1"]].concat());
    let positions = rows(&out);
    assert!(positions.iter().all(|row| row[2] == 1.0 && row[4].is_nan()), "a single token has no error");
    for n in [1, 2, 7, 16] {
        let sum: f64 = positions[..n].iter().map(|row| row[3]).sum();
        assert!((sum / n as f64 - nll(&n.to_string())).abs() < 2e-6, "{n}");
    }
    assert!(!folder.join("loss.csv.journal").exists());
}

#[test]
fn the_standard_error_is_that_of_the_tokens() {
    let (folder, model, text) = folder("error");
    let out = folder.join("loss.csv");
    let loss = ["eval", "per-token-loss", "-m", &model, "-f", &text, "-c", "32", "--windows", "1", "-o", out.to_str().unwrap()];
    stdout_of(&[&loss[..], &["--bins", "32"]].concat());
    let losses: Vec<f64> = rows(&out).iter().map(|row| row[3]).collect();
    stdout_of(&[&loss[..], &["--bins", "1"]].concat());
    let whole = &rows(&out)[0];
    let mean = losses.iter().sum::<f64>() / 32.0;
    let variance = losses.iter().map(|loss| (loss - mean).powi(2)).sum::<f64>() / 31.0;
    assert!((whole[3] - mean).abs() < 2e-6 && (whole[4] - (variance / 32.0).sqrt()).abs() < 2e-6, "{whole:?}");
}

#[test]
fn plots_are_written_in_the_format_of_their_name() {
    let (folder, model, text) = folder("plots");
    let [table, svg, png] = ["out.csv", "plot.svg", "plot.png"].map(|name| shown(&folder.join(name)));
    for plot in [&svg, &png] {
        stdout_of(&[
            "eval",
            "per-token-loss",
            "-m",
            &model,
            "-f",
            &text,
            "-c",
            "64",
            "--bins",
            "4",
            "-o",
            &table,
            "--plot",
            plot,
        ]);
    }
    let text = std::fs::read_to_string(&svg).unwrap();
    assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n") && text.contains("mean loss (nats)"), "{text}");
    assert_eq!(std::fs::read(&png).unwrap()[..8], *b"\x89PNG\r\n\x1a\n");
    stdout_of(&["eval", "niah", "-m", &model, "--lengths", "128,150", "--depths", "0,100", "-o", &table, "--plot", &svg]);
    let text = std::fs::read_to_string(&svg).unwrap();
    assert!(text.contains(">128<") && text.contains(">100%<") && text.contains("depth of the needle"), "{text}");
}

#[test]
fn bad_input_is_named() {
    let (folder, model, text) = folder("bad");
    let out = shown(&folder.join("out.csv"));
    let plain = shown(&Tiny::new(None).write(&folder.join("plain")));
    let empty = shown(&folder.join("empty"));
    std::fs::write(&empty, "").unwrap();
    let loss = |more: &[&'static str]| [&["eval", "per-token-loss", "-m", &model, "-f", &text, "-o", &out], more].concat();
    let niah = |more: &[&'static str]| [&["eval", "niah", "-m", &model, "-o", &out], more].concat();
    let usage: [(&[&str], Vec<&str>); 12] = [
        (&["bins", "0"], loss(&["--bins", "0"])),
        (&["bins", "16", "17"], loss(&["--bins", "17", "-c", "16"])),
        (&["windows", "0"], loss(&["--windows", "0"])),
        (&["context", "at most 1", "1000"], loss(&["-c", "1000"])),
        (&["plot", ".svg", "plot.jpg"], loss(&["--plot", "plot.jpg"])),
        (&["trials", "0"], niah(&["--trials", "0"])),
        (&["depths", "101"], niah(&["--depths", "50,101"])),
        (&["lengths", "at least", "20"], niah(&["--lengths", "20"])),
        (&["lengths", "99999999"], niah(&["--lengths", "99999999"])),
        (&["long"], niah(&["--lengths", "long"])),
        (&["plot"], niah(&["--plot", "plot"])),
        (&["file", "empty"], vec!["eval", "niah", "-m", &model, "-o", &out, "-f", &empty, "--lengths", "150"]),
    ];
    for (named, arguments) in usage {
        assert_fails(2, named, &arguments);
    }
    let failed: [(&[&str], Vec<&str>); 4] = [
        (&["tokenizer", "per-token-loss"], vec!["eval", "per-token-loss", "-m", &plain, "-f", &text, "-o", &out]),
        (&["tokenizer", "niah"], vec!["eval", "niah", "-m", &plain, "-o", &out]),
        (&["/nowhere", "read"], vec!["eval", "per-token-loss", "-m", &model, "-f", "/nowhere", "-o", &out]),
        (&["/nowhere/out.csv"], vec!["eval", "niah", "-m", &model, "--lengths", "128", "-o", "/nowhere/out.csv"]),
    ];
    for (named, arguments) in failed {
        assert_fails(1, named, &arguments);
    }
    assert!(!folder.join("out.csv").exists());
}

#[test]
fn the_journal_of_another_run_is_refused_and_a_spoiled_line_is_named() {
    let (folder, model, text) = folder("journal");
    let out = folder.join("out.csv");
    let journal = folder.join("out.csv.journal");
    let loss = ["eval", "per-token-loss", "-m", &model, "-f", &text, "-c", "16", "--bins", "2", "-o", out.to_str().unwrap()];
    std::fs::write(&journal, "{\"command\":\"something else\"}\n").unwrap();
    assert_fails(1, &["out.csv.journal", "something else", "remove"], &loss);
    // The journal that a run of ours writes stays under another name.
    let kept = folder.join("kept");
    std::fs::write(&journal, "").unwrap();
    std::fs::hard_link(&journal, &kept).unwrap();
    stdout_of(&loss);
    std::fs::remove_file(&out).unwrap();
    let whole = std::fs::read_to_string(&kept).unwrap();
    let (header, steps) = whole.split_once('\n').unwrap();
    let n_windows = steps.lines().count();
    assert!(n_windows > 5 && steps.lines().all(|line| line.split(' ').count() == 4), "{whole}");
    for (line, spoiled) in [(2, "1.5 nonsense 2 3"), (3, "1 2 3")] {
        let before = "1 2 3 4\n".repeat(line - 2);
        std::fs::write(&journal, format!("{header}\n{before}{spoiled}\n")).unwrap();
        assert_fails(1, &["out.csv.journal", &format!("line {line}"), spoiled], &loss);
    }
    assert!(!out.exists());
    // Longer than this run makes it, and a line longer than a step's.
    std::fs::write(&journal, format!("{header}\n{}", "1 2 3 4\n".repeat(n_windows * 200))).unwrap();
    assert_fails(1, &["out.csv.journal: length: expected at most"], &loss);
    std::fs::write(&journal, format!("{header}\n1 2 3 {}\n", "4".repeat(2000))).unwrap();
    assert_fails(1, &["out.csv.journal: line 2: expected at most 1312 bytes"], &loss);
    // A journal with a line as long as one may be is gone on with.
    std::fs::write(&journal, format!("{header}\n{}\n", vec!["1".repeat(150); 4].join(" "))).unwrap();
    assert!(kitfox(&loss).status.success());
    // What is in the journal is not computed again, and a line that was cut off is.
    std::fs::write(&journal, format!("{header}\n8000 8000000 8 8\n1.5 2")).unwrap();
    stdout_of(&loss);
    let rows = rows(&out);
    assert!(rows[0][3] > 80.0 && rows[1][3] < 20.0, "{rows:?}");
    assert!(!journal.exists());
}

#[cfg(kitfox_demo)]
mod demo {
    use super::*;

    /// Runs until a step is in the journal, ends the process there, and runs again. Whether it was ended in time.
    fn interrupted(arguments: &[&str], journal: &Path) -> bool {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kitfox"));
        let mut child = command.args(arguments).args(["--device", "cpu"]).stdout(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(120);
        while std::fs::read_to_string(journal).unwrap_or_default().lines().count() < 2 && child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "{arguments:?} does nothing");
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        !child.wait().unwrap().success() && journal.exists()
    }

    #[test]
    fn an_interrupted_run_ends_with_the_same_table() {
        let (folder, _, _) = folder("interrupted");
        let book = shown(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/books/the_time_machine.txt"));
        let loss = ["eval", "per-token-loss", "-f", &book, "-c", "96", "--windows", "3", "--bins", "8", "-o"];
        let niah = ["eval", "niah", "--lengths", "80,96", "--depths", "0,100", "--seed", "7", "-o"];
        for (name, arguments) in [("loss", &loss[..]), ("niah", &niah[..])] {
            let [whole, resumed, journal] =
                [format!("{name}.csv"), format!("{name}2.csv"), format!("{name}2.csv.journal")].map(|name| folder.join(name));
            stdout_of(&[arguments, &[whole.to_str().unwrap()]].concat());
            let again = [arguments, &[resumed.to_str().unwrap()]].concat();
            assert!((0..5).any(|_| interrupted(&again, &journal)), "{name} was never ended in time");
            stdout_of(&again);
            assert_eq!(std::fs::read_to_string(&resumed).unwrap(), std::fs::read_to_string(&whole).unwrap());
        }
        let table = std::fs::read_to_string(folder.join("niah.csv")).unwrap();
        assert_eq!(table.lines().count(), 5);
        assert!(table.lines().nth(4).unwrap().starts_with("96,100,0,"), "{table}");
    }

    #[test]
    fn live_keys_grow_slower_than_the_text() {
        let (folder, model, text) = folder("live");
        let book = shown(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/books/the_time_machine.txt"));
        let [table, plot] = ["live.csv", "live.svg"].map(|name| folder.join(name));
        let outputs = ["-o", table.to_str().unwrap(), "--plot", plot.to_str().unwrap()];
        let line = stdout_of(&[&["eval", "live-keys", "-f", &book, "-c", "700", "--every", "300"][..], &outputs].concat());
        let live = rows(&table);
        assert_eq!(live.iter().map(|row| row[0]).collect::<Vec<_>>(), [300.0, 600.0, 700.0]);
        assert!(live.iter().all(|row| row[1] > 0.0 && row[1] < 1.0 && (row[1] * row[0] - row[2]).abs() < 0.1), "{live:?}");
        assert!(
            live[0][1] > live[1][1] && live[1][1] > live[2][1] && line.contains("of the keys of 700 tokens are live"),
            "{line}"
        );
        assert!(std::fs::read_to_string(&plot).unwrap().contains("nothing forgotten"));
        // Where nothing is forgotten, all of a text's.
        let output =
            kitfox(&[&["eval", "live-keys", "-m", &model, "-f", &text, "-c", "100", "--prune", "off"][..], &outputs].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(rows(&table).iter().map(|row| (row[0], row[1])).collect::<Vec<_>>(), [(64.0, 1.0), (100.0, 1.0)]);
    }

    /// tests/fixtures/books/reference.py computes the same in float64 from the same weights.
    #[test]
    fn perplexity_of_a_book_is_that_of_an_independent_computation() {
        let (folder, _, _) = folder("book");
        let books = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/books");
        let reference: Value = serde_json::from_str(&std::fs::read_to_string(books.join("reference.json")).unwrap()).unwrap();
        let (demo, f16) = (concat!(env!("CARGO_MANIFEST_DIR"), "/www/models/demo.gguf"), shown(&folder.join("f16.gguf")));
        let output =
            Command::new(env!("CARGO_BIN_EXE_kitfox")).args(["convert", demo, "-o", &f16, "--quant", "f16"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let book = shown(&books.join("the_time_machine.txt"));
        for (name, model) in [("q4_0", demo), ("f16", &f16)] {
            // Keys and values in half precision move the mean by a few 1e-5.
            for (kv, bar) in [("f32", 2e-6), ("f16", 1e-4)] {
                let got = stdout_of(&["perplexity", "-m", model, "-f", &book, "--max-tokens", "512", "--kv", kv, "--json"]);
                let got: Value = serde_json::from_str(&got).unwrap();
                assert_eq!(got["tokens"], reference["tokens"]);
                let off = got["nll"].as_f64().unwrap() - reference[name].as_f64().unwrap();
                println!("{name}, kv {kv}: off by {off:.1e} nats");
                assert!(off.abs() < bar, "{name}, kv {kv}: {got}, expected {}", reference[name]);
            }
        }
    }
}
