//! `kitfox inspect gates`: the table is e^D of the numbers, rows of A are rows of a softmax, pictures are what their name says and parse,
//! and what cannot be drawn is refused.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::command::{assert_fails, folder, stdout_of, text};
use crate::common::gpu_expected;
use crate::common::tiny::Tiny;
use crate::common::tokenizers;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Letters that XML has other uses for, a line break and bytes that are no character by themselves.
const PROMPT: &str = "a <b> & \"c\"\n\u{1b}é – the end]]>";

struct Run {
    folder: PathBuf,
    model: String,
}

impl Run {
    fn new(test: &str) -> Self {
        let folder = folder("gates", test);
        let model = text(&Tiny::new(Some(tokenizers::byte_level())).write(&folder.join("model")));
        Self { folder, model }
    }

    /// Writes `file` and gives its bytes.
    fn write(&self, file: &str, prompt: &str, more: &[&str]) -> Vec<u8> {
        let out = text(&self.folder.join(file));
        let gates = ["inspect", "gates", "-m", &self.model, "--device", "cpu", "-p", prompt, "-o", &out];
        assert!(stdout_of(&[&gates[..], more].concat()).starts_with(&format!("{out}: ")));
        std::fs::read(out).unwrap()
    }

    /// log f `[2, T]` of the only layer.
    fn log_f(&self, prompt: &str) -> Vec<Vec<f64>> {
        let bytes = self.write("g.safetensors", prompt, &[]);
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let log_f = file.tensor("log_f").unwrap();
        assert_eq!(log_f.shape()[..2], [1, 2]);
        let values = log_f.data().chunks_exact(4).map(|bytes| f64::from(f32::from_le_bytes(bytes.try_into().unwrap())));
        values.collect::<Vec<_>>().chunks(log_f.shape()[2]).map(<[f64]>::to_vec).collect()
    }

    fn table(&self, prompt: &str, column: &str, more: &[&str]) -> Vec<([usize; 4], f64)> {
        parsed_table(self.write("g.csv", prompt, more), column)
    }
}

/// The lines of a table whose last column has that name.
fn parsed_table(bytes: Vec<u8>, column: &str) -> Vec<([usize; 4], f64)> {
    let table = String::from_utf8(bytes).unwrap();
    let mut lines = table.lines();
    assert_eq!(lines.next().unwrap(), format!("layer,head,i,j,{column}"));
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            assert_eq!(fields.len(), 5, "{line}");
            (std::array::from_fn(|ix| fields[ix].parse().unwrap()), fields[4].parse().unwrap())
        })
        .collect()
}

#[test]
fn the_table_of_f_is_e_to_the_sums_of_the_numbers() {
    let run = Run::new("table_f");
    let log_f = run.log_f(PROMPT);
    let n = log_f[0].len();
    let table = run.table(PROMPT, "f", &[]);
    let keys = (0..2).flat_map(|head| (0..n).flat_map(move |i| (0..=i).map(move |j| [0, head, i, j])));
    assert_eq!(table.iter().map(|(at, _)| *at).collect::<Vec<_>>(), keys.collect::<Vec<_>>());
    for ([_, head, i, j], f) in table {
        let d: f64 = log_f[head][j + 1..=i].iter().sum();
        assert!((f - d.exp()).abs() < 1e-6, "head {head}: F[{i}, {j}] is {f}, not {}", d.exp());
    }
    let chosen = run.table(PROMPT, "f", &["--layer", "0", "--head", "1", "--row", "3"]);
    assert_eq!(chosen.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 1, 2, 3].map(|j| [0, 1, 3, j]));
    assert_eq!(run.table(PROMPT, "f", &["-c", "4"]).len(), 2 * 10, "a text that is cut");
}

#[test]
fn rows_of_a_sum_to_one_and_are_f_where_scores_are_alike() {
    let run = Run::new("table_a");
    let mut sums: HashMap<[usize; 2], f64> = HashMap::new();
    let table = run.table(PROMPT, "a", &["--matrix", "a"]);
    assert!(table.iter().all(|([_, _, i, j], a)| j <= i && (0.0..=1.0).contains(a)));
    table.iter().for_each(|([_, head, i, _], a)| *sums.entry([*head, *i]).or_default() += a);
    assert_eq!(sums.len(), 2 * run.log_f(PROMPT)[0].len());
    assert!(sums.values().all(|sum| (sum - 1.0).abs() < 1e-5), "{sums:?}");
    let row = run.table(PROMPT, "a", &["--matrix", "a", "--row", "5"]);
    assert_eq!(row, table.iter().filter(|(at, _)| at[2] == 5).copied().collect::<Vec<_>>());

    // With queries that are 0 all scores are: A is F, each row divided by its sum.
    let mut alike = Tiny::new(Some(tokenizers::byte_level()));
    let query = alike.tensors.iter_mut().find(|(name, ..)| name.ends_with("q_proj.weight")).unwrap();
    query.2.fill(0.0);
    let run = Run { model: text(&alike.write(&run.folder.join("alike"))), ..run };
    let (a, f) = (run.table("abc abc", "a", &["--matrix", "a"]), run.table("abc abc", "f", &[]));
    for (([_, head, i, j], a), (at, f_ij)) in a.iter().zip(&f) {
        assert_eq!([0, *head, *i, *j], *at);
        let sum: f64 = f.iter().filter(|(at, _)| at[..3] == [0, *head, *i]).map(|(_, f)| f).sum();
        assert!((a - f_ij / sum).abs() < 1e-6, "head {head}: A[{i}, {j}] is {a}, F is {f_ij}");
    }
}

/// Keys are f16 on both, and their sums in another order: as in `tests/models/attention.rs`.
#[test]
fn the_table_of_a_on_a_gpu_is_that_of_the_cpu() {
    if !gpu_expected() {
        return;
    }
    let run = Run::new("table_gpu");
    let on_cpu = run.table(PROMPT, "a", &["--matrix", "a"]);
    let out = text(&run.folder.join("gpu.csv"));
    let gates = ["inspect", "gates", "-m", &run.model, "--matrix", "a", "--device", "gpu", "-p", PROMPT, "-o", &out];
    assert!(!stdout_of(&gates).contains("device cpu"));
    let table = parsed_table(std::fs::read(out).unwrap(), "a");
    assert_eq!(table.len(), on_cpu.len());
    for ((at, got), (want_at, want)) in table.iter().zip(&on_cpu) {
        assert_eq!(at, want_at);
        assert!((got - want).abs() < 1e-3, "A{at:?} is {got}, not {want}");
    }
}

/// Width and height of the picture's root, after its elements and images were looked at.
fn parsed(svg: &[u8]) -> [u32; 2] {
    let svg = std::str::from_utf8(svg).unwrap();
    let document = roxmltree::Document::parse(svg).map_err(|error| format!("{error}: {svg}")).unwrap();
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        let name = node.tag_name().name();
        assert!(["svg", "g", "title", "rect", "polyline", "text", "image"].contains(&name), "{name}");
        let data = node.attributes().filter(|attribute| attribute.name().ends_with("href"));
        assert!(data.into_iter().all(|href| href.value().starts_with("data:image/png;base64,")));
    }
    ["width", "height"].map(|name| document.root_element().attribute(name).unwrap().parse().unwrap())
}

/// Width and height of a picture that decodes and has several colours.
fn decoded(png: &[u8]) -> [u32; 2] {
    let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    let colors: std::collections::HashSet<&[u8]> = bytes.chunks_exact(3).collect();
    assert!(colors.len() > 8, "{} colours", colors.len());
    [info.width, info.height]
}

#[test]
fn pictures_parse_and_decode_whatever_the_text() {
    let run = Run::new("pictures");
    let long = "It was a bright cold day in April, and the clocks were striking thirteen. ".repeat(28);
    for prompt in [PROMPT, "x", &long] {
        for more in [&[][..], &["--layer", "0"], &["--layer", "0", "--head", "1"], &["--row", "0"], &["--matrix", "a"]] {
            let (svg, png) = (run.write("g.svg", prompt, more), run.write("g.png", prompt, more));
            assert_eq!(parsed(&svg), decoded(&png), "{more:?}: both formats have one size");
        }
    }
    let svg = String::from_utf8(run.write("g.svg", PROMPT, &["--layer", "0", "--head", "0"])).unwrap();
    for what in ["&lt;", "¶", "<title>F [2 ", "effective context", "key j across", "»", "é", "–"] {
        assert!(svg.contains(what), "no {what}: {svg}");
    }
    let svg = String::from_utf8(run.write("g.svg", &long, &[])).unwrap();
    for what in ["Effective context", "Live pages of 64 keys", "a cell is the largest of", "... from token"] {
        assert!(svg.contains(what), "no {what}");
    }
}

#[test]
fn what_cannot_be_shown_is_refused_by_name() {
    let run = Run::new("refused");
    let long = run.folder.join("long");
    std::fs::write(&long, "word ".repeat(2000)).unwrap();
    let long = text(&long);
    let gates = |file: &str, more: &[&'static str]| {
        let out = text(&run.folder.join(file));
        let mut all: Vec<String> = ["inspect", "gates", "-m", &run.model].map(str::to_owned).into();
        all.extend(more.iter().map(|more| (*more).to_owned()));
        all.extend(["-o".to_owned(), out]);
        all
    };
    let cases: [(&[&str], Vec<String>); 8] = [
        (&["output", ".svg", "g.jpg"], gates("g.jpg", &["-p", "a"])),
        (&["layer", "0 to 0", "1"], gates("g.svg", &["-p", "a", "--layer", "1"])),
        (&["head", "0 to 1", "2"], gates("g.csv", &["-p", "a", "--layer", "0", "--head", "2"])),
        (&["--layer"], gates("g.svg", &["-p", "a", "--head", "0"])),
        (&["row", "0 to 1", "2"], gates("g.svg", &["-p", "a", "--row", "2"])),
        (&["matrix", ".csv", "safetensors"], gates("g.safetensors", &["-p", "a", "--matrix", "a"])),
        (&["matrix", "q"], gates("g.svg", &["-p", "a", "--matrix", "q"])),
        (&["output", "16777216", "--row"], {
            let mut all = gates("g.csv", &["-f"]);
            all.insert(5, long);
            all
        }),
    ];
    for (named, arguments) in cases {
        assert_fails(2, named, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    }
    assert!(!Path::new(&run.folder.join("g.svg")).exists());
}
