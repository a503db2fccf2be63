//! Shaders as lines.

use super::Edit;

const LINES: [&str; 22] = [
    "#ifdef A",
    "#ifdef B",
    "#ifndef A",
    "#ifndef B // why",
    "#else",
    "#endif",
    "#ifdef C",
    "#import step",
    "#import nothing",
    "#import",
    "#define A 1",
    "#",
    "##",
    "#\tendif",
    "  #endif",
    "# else",
    "#ifdef A B",
    "#ifdefA",
    "//#endif",
    "x #endif",
    "\u{a0}#endif",
    "#endif\r",
];

pub fn edited(seed: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut lines: Vec<String> = String::from_utf8_lossy(seed).lines().map(str::to_owned).collect();
    for edit in edits {
        let at = edit.place(lines.len() + 1);
        let line = edit.pick(&LINES).to_owned();
        match edit.what % 8 {
            0 if at < lines.len() => drop(lines.remove(at)),
            1 if at < lines.len() => lines.insert(at, lines[at].clone()),
            2 if at < lines.len() => {
                let other = edit.number as usize % lines.len();
                lines.swap(at, other);
            }
            3 if at < lines.len() => lines[at] = line,
            // Deep, and closed again.
            4 => {
                let n = edit.number as usize % 100;
                lines.splice(at..at, std::iter::repeat_n("#ifdef A".to_owned(), n));
                lines.extend(std::iter::repeat_n("#endif".to_owned(), n));
            }
            5 => lines.insert(at, format!("{line} {}", "a ".repeat(edit.number as usize % 5000))),
            6 => lines.splice(at..at, ["#ifndef B".to_owned(), line, "#endif".to_owned()]).for_each(drop),
            _ => lines.insert(at, line),
        }
    }
    lines.join("\n").into_bytes()
}
