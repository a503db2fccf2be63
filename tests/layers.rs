//! The arrows of the house go down only, and each platform is named in its one room: read from the sources.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as tests do")]

use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

/// Rooms and the rooms that each may name. `lib` (the map), `web`, `main` and `cli` (the surfaces) may name all below them.
/// `gpu` names `kernel` because a device judges the kernels by their cases before a model uses them, and needs their list for that.
const ARROWS: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("json", &["error"]),
    ("num", &[]),
    ("graph", &["error"]),
    ("kernel", &["num", "graph"]),
    ("model", &["error", "graph", "kernel"]),
    ("gpu", &["error", "graph", "kernel"]),
    ("format", &["error", "json", "num"]),
    ("text", &["error", "json"]),
    ("session", &["error", "num", "graph", "kernel", "model", "gpu", "format", "text"]),
    ("web", &["error", "num", "graph", "kernel", "model", "gpu", "format", "text", "session"]),
    ("cli", &["error", "num", "graph", "kernel", "model", "gpu", "format", "text", "session"]),
    ("main", &["error", "num", "graph", "kernel", "model", "gpu", "format", "text", "session", "cli"]),
    ("lib", &["error", "num", "graph", "kernel", "model", "gpu", "format", "text", "session", "web"]),
];

/// Names of platforms, and the files (by the start of their path under src/) that may name them.
const NAMES: &[(&str, &[&str])] = &[
    ("wgpu", &["gpu/"]),
    ("wasm_bindgen", &["web.rs", "web/"]),
    ("wasm_bindgen_futures", &["web.rs", "web/"]),
    ("js_sys", &["web.rs", "web/"]),
    ("std::fs", &["cli/", "format/source.rs"]),
    ("unsafe", &["gpu/unchecked.rs"]),
];

/// What is wrong with one file, by its path under src/.
fn problems(path: &str, text: &str) -> Vec<String> {
    let code = code_of(text);
    let room = path.split(['/', '.']).next().unwrap_or_default();
    let mut problems = Vec::new();
    match ARROWS.iter().find(|(name, _)| *name == room) {
        None => problems.push(format!("src/{path}: {room} is no room of the house")),
        Some((_, allowed)) => {
            for named in named_rooms(path, &code) {
                let is_room = ARROWS.iter().any(|(name, _)| *name == named);
                if is_room && named != room && !allowed.contains(&&named[..]) {
                    problems.push(format!("src/{path}: {room} names {named}"));
                }
            }
        }
    }
    for (name, rooms) in NAMES {
        let in_list = |(root, item): (&str, &str)| {
            let opening = format!("{root}::{{");
            let mut lists = code.match_indices(&opening).map(|(at, list)| first_words(&code[at + list.len()..]));
            lists.any(|words| words.iter().any(|word| word == item))
        };
        let named = mentions(&code, name) || name.split_once("::").is_some_and(in_list);
        if named && !rooms.iter().any(|start| path.starts_with(start)) {
            problems.push(format!("src/{path}: {name} is named outside {}", rooms.join(", ")));
        }
    }
    problems
}

/// The code without comments and without the insides of strings.
fn code_of(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("'\"'") {
            3
        } else if let Some(hashes) = raw_string(rest) {
            let end = format!("\"{}", "#".repeat(hashes));
            let start = hashes + 2;
            rest[start..].find(&end).map_or(rest.len(), |at| start + at + end.len())
        } else if next == '"' {
            string_end(rest)
        } else {
            code.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        };
        code.push(' ');
        rest = &rest[skip..];
    }
    code
}

/// The number of `#` of a raw string that starts here.
fn raw_string(text: &str) -> Option<usize> {
    let hashes = text.strip_prefix('r')?;
    let quote = hashes.trim_start_matches('#');
    quote.starts_with('"').then_some(hashes.len() - quote.len())
}

fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// First words of all `crate::` paths, `crate::{..}` lists, and `super::` chains that climb to the crate.
fn named_rooms(path: &str, code: &str) -> Vec<String> {
    // Modules between the crate and this file's items: graph/mod.rs and web.rs have 1, graph/cpu.rs has 2.
    let folders = path.matches('/').count();
    let depth = if path.ends_with("mod.rs") { folders } else { folders + 1 };
    let climb = "super::".repeat(depth);
    let mut rooms = Vec::new();
    for root in ["crate::", "kitfox::", &climb] {
        for (at, _) in code.match_indices(root) {
            if code[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':') {
                continue;
            }
            let tail = code[at + root.len()..].trim_start();
            match tail.strip_prefix('{') {
                Some(list) => rooms.extend(first_words(list)),
                None => rooms.push(word(tail)),
            }
        }
    }
    rooms
}

fn word(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

/// First word of each element of `a::{b, c}, d}`, at the outermost level.
fn first_words(list: &str) -> Vec<String> {
    let (mut level, mut words, mut at_start) = (0, Vec::new(), true);
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => level += 1,
            '}' if level == 0 => break,
            '}' => level -= 1,
            ',' if level == 0 => at_start = true,
            letter if at_start && letter.is_alphabetic() => {
                words.push(word(&list[at..]));
                at_start = false;
            }
            _ => {}
        }
    }
    words
}

/// Whether a path or word occurs, not as a part of a longer word.
fn mentions(code: &str, name: &str) -> bool {
    let in_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.match_indices(name).any(|(at, _)| !code[..at].ends_with(in_word) && !code[at + name.len()..].starts_with(in_word))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn arrows_go_down_and_platforms_stay_in_their_rooms() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    for path in sources(&src) {
        let name = path.strip_prefix(&src).unwrap().to_str().unwrap().replace('\\', "/");
        found.extend(problems(&name, &read_to_string(&path).unwrap()));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_module_says_what_is_here() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for path in sources(&src) {
        let text = read_to_string(&path).unwrap();
        assert!(text.starts_with("//! "), "{} does not open with //!", path.display());
    }
    let unchecked = src.join("gpu/unchecked.rs");
    assert!(!unchecked.exists() || read_to_string(unchecked).unwrap().lines().count() <= 80, "gpu/unchecked.rs grows");
}

/// The tests that tests/README.md names are there.
#[test]
fn every_report_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scripts = ["tests/web", "web/test"].into_iter().flat_map(|folder| read_dir(root.join(folder)).unwrap());
    let scripts = scripts.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|kind| kind == "mjs"));
    let all: String = sources(&root.join("tests")).into_iter().chain(scripts).map(|path| read_to_string(path).unwrap()).collect();
    let table = read_to_string(root.join("tests/README.md")).unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| report")).collect();
    assert_eq!(rows.len(), 22);
    for row in rows {
        let tests = row.rsplit('|').nth(1).unwrap().split('`').skip(1).step_by(2);
        assert!(tests.clone().count() > 0, "{row}");
        for test in tests {
            let is_there = if test.contains(' ') {
                all.contains(test)
            } else {
                all.contains(&format!("fn {test}()")) || all.contains(&format!("fn {test}(\n"))
            };
            assert!(is_there, "there is no test {test}");
        }
    }
}

/// The test of the test: each rule catches what breaks it, and lets pass what only looks like it.
#[test]
fn a_wrong_arrow_is_caught() {
    let wrong = [
        ("graph/mod.rs", "use crate::kernel::KERNELS;", "graph names kernel"),
        ("kernel/mod.rs", "fn f() { crate::gpu::open() }", "kernel names gpu"),
        ("model/fox.rs", "use crate::{error::{Error, Result}, gpu};", "model names gpu"),
        ("model/fox.rs", "use super::super::gpu;", "model names gpu"),
        ("model/mod.rs", "use super::gpu;", "model names gpu"),
        ("num/mod.rs", "use crate::graph::Step;", "num names graph"),
        ("kernel/x.rs", "let d: wgpu::Device;", "wgpu is named outside gpu/"),
        ("session/mod.rs", "use std::fs;", "std::fs is named outside"),
        ("session/mod.rs", "use std::{collections::HashMap, fs};", "std::fs is named outside"),
        ("session/mod.rs", "fn f() { let a = \"\\\"\"; unsafe { g() } }", "unsafe is named outside"),
        ("gpu/mod.rs", "use js_sys::Array;", "js_sys is named outside"),
        ("kitchen/mod.rs", "", "kitchen is no room"),
    ];
    for (path, text, expected) in wrong {
        let found = problems(path, text).join("\n");
        assert!(found.contains(expected), "{path}: {text}: {found}");
    }
    let right = [
        ("graph/cpu.rs", "use super::liveness; use crate::graph::Step; // no wgpu here"),
        ("kernel/x.rs", "/* unsafe */ const A: &str = \"wgpu\"; const B: &str = r#\"std::fs \"unsafe\" \"#; fn unsafely() {}"),
        ("gpu/mod.rs", "use crate::{error::Error, graph::{Step, kernel}}; let q = '\"'; use wgpu::Device;"),
        ("session/load.rs", "use crate::gpu::Gpu; use crate::model::Config; use crate::format::Source;"),
        ("main.rs", "mod cli; use kitfox::session::Model;"),
    ];
    for (path, text) in right {
        assert_eq!(problems(path, text), Vec::<String>::new(), "{path}: {text}");
    }
}
