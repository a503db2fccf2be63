//! From a shader file to the WGSL of one variant: `#import NAME`, `#ifdef FLAG`, `#ifndef FLAG`, `#else`, `#endif`, and the
//! variant's constants as `const NAME = 5u;` on top. Any other line that starts with `#` is an error, and so is a flag that the
//! kernel does not declare: a misspelt flag must not silently choose the other branch.
//!
//! In front of all stand the `enable` lines of what the variant needs. The compilers differ: naga takes subgroup operations without
//! their line and refuses the line, browsers demand it; only naga knows cooperative matrices.

use crate::error::{Error, Result};
use crate::graph::{Kernel, Need, Variant};
use crate::kernel::SHARED;
use std::fmt::Write;

/// Who reads the WGSL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compiler {
    /// wgpu's own, natively.
    Naga,
    /// A browser's.
    Browser,
}

impl Compiler {
    /// The one behind the devices of this build.
    pub const HERE: Self = if cfg!(target_arch = "wasm32") { Self::Browser } else { Self::Naga };

    fn enable(self, need: Need) -> Option<&'static str> {
        match need {
            Need::F16 => Some("enable f16;\n"),
            Need::Subgroups => (self == Self::Browser).then_some("enable subgroups;\n"),
            Need::Coop(_) => Some("enable wgpu_cooperative_matrix;\n"),
            Need::Invocations(_) | Need::WorkgroupBytes(_) => None,
        }
    }
}

/// The WGSL of one variant of a kernel.
///
/// # Errors
/// [`Error::Gpu`] with file and line, for a directive that is unknown, unpaired or misspelt.
pub fn preprocess(kernel: &Kernel, variant: &Variant, compiler: Compiler) -> Result<String> {
    let mut out = String::new();
    for line in kernel.needs(variant).into_iter().filter_map(|need| compiler.enable(need)) {
        if !out.contains(line) {
            out.push_str(line);
        }
    }
    for (name, value) in &variant.consts {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "const {name} = {value}u;");
    }
    expand(kernel.name, kernel.wgsl, kernel.flags, variant, out)
}

/// Appends the WGSL text of the kernel `name` to `out`, its directives obeyed; `flags` are those that it may ask for.
///
/// # Errors
/// As [`preprocess`].
pub fn expand(name: &str, wgsl: &str, flags: &[&str], variant: &Variant, out: String) -> Result<String> {
    let mut pass = Pass { name, variant, imported: Vec::new(), out };
    pass.file(&format!("shaders/{name}.wgsl"), wgsl, Some(flags))?;
    Ok(pass.out)
}

struct Pass<'a> {
    /// The kernel's.
    name: &'a str,
    variant: &'a Variant,
    imported: Vec<&'static str>,
    out: String,
}

/// Conditions within one another, at most.
const MAX_NESTED: usize = 64;

/// An `#ifdef` that is still open.
struct Open {
    line: usize,
    taken: bool,
    /// Whether all around it are taken.
    live: bool,
    seen_else: bool,
}

impl Pass<'_> {
    /// `flags`: those that may be asked for. A shared file serves many kernels and asks for flags that only some of them have.
    fn file(&mut self, path: &str, text: &str, flags: Option<&[&str]>) -> Result<()> {
        let mut open: Vec<Open> = Vec::new();
        for (line, words) in (1..).zip(text.lines()) {
            let fail = |message: String| Err(Error::gpu(format_args!("{path}:{line}"), message));
            let live = open.last().is_none_or(|condition| condition.live && condition.taken);
            let Some(directive) = words.trim_start().strip_prefix('#') else {
                if live {
                    self.out.push_str(words);
                    self.out.push('\n');
                }
                continue;
            };
            let code = directive.split("//").next().unwrap_or_default();
            match code.split_whitespace().take(3).collect::<Vec<_>>()[..] {
                ["import", name] => {
                    if live {
                        self.import(name).or_else(|unknown| match unknown {
                            None => fail(format!("#import {name}: no such file in shaders/shared")),
                            Some(error) => Err(error),
                        })?;
                    }
                }
                [word @ ("ifdef" | "ifndef"), flag] => {
                    if flags.is_some_and(|flags| !flags.contains(&flag)) {
                        return fail(format!("flag {flag} is not declared by the kernel {}", self.name));
                    }
                    if open.len() == MAX_NESTED {
                        return fail(format!("#{word} in {MAX_NESTED} others"));
                    }
                    let taken = self.variant.has(flag) == (word == "ifdef");
                    open.push(Open { line, taken, live, seen_else: false });
                }
                ["else"] => match open.last_mut() {
                    Some(condition) if !condition.seen_else => {
                        condition.taken = !condition.taken;
                        condition.seen_else = true;
                    }
                    _ => return fail("#else without #ifdef".to_owned()),
                },
                ["endif"] => {
                    if open.pop().is_none() {
                        return fail("#endif without #ifdef".to_owned());
                    }
                }
                _ => return fail(format!("unknown directive #{}", directive.trim_end())),
            }
        }
        match open.pop() {
            Some(Open { line, .. }) => Err(Error::gpu(format_args!("{path}:{line}"), "#ifdef without #endif")),
            None => Ok(()),
        }
    }

    /// Appends a shared file once, however often it is asked for. `Err(None)`: there is no such file.
    fn import(&mut self, name: &str) -> Result<(), Option<Error>> {
        let (name, text) = SHARED.iter().find(|(known, _)| *known == name).ok_or(None)?;
        if self.imported.contains(name) {
            return Ok(());
        }
        self.imported.push(name);
        self.file(&format!("shaders/shared/{name}.wgsl"), text, None).map_err(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Alternatives;
    use crate::kernel::glu::GLU;

    fn run(wgsl: &'static str, variant: &Variant) -> Result<String> {
        let kernel = Kernel { name: "test", wgsl, flags: &["A", "B"], ..GLU };
        preprocess(&kernel, variant, Compiler::Naga)
    }

    #[test]
    fn branches_follow_flags_and_nest() {
        let text = "#ifdef A\na\n#ifndef B // no b\nnot b\n#else\nb\n#endif\n#else\nnot a\n#endif\nend\n";
        let variant = Variant::new();
        assert_eq!(run(text, &variant).unwrap(), "not a\nend\n");
        assert_eq!(run(text, &variant.clone().flag("A")).unwrap(), "a\nnot b\nend\n");
        assert_eq!(run(text, &variant.clone().flag("A").flag("B")).unwrap(), "a\nb\nend\n");
        assert_eq!(run(text, &variant.flag("B")).unwrap(), "not a\nend\n");
    }

    #[test]
    fn constants_come_first_and_imports_come_once() {
        let text = run("#import step\n#import step\n", &Variant::new().constant("WG", 64)).unwrap();
        assert!(text.starts_with("const WG = 64u;\n"));
        assert_eq!(text.matches("struct Step").count(), 1);
    }

    #[test]
    fn what_a_variant_needs_is_enabled_first() {
        let needs = &[("A", Need::Subgroups), ("B", Need::F16), ("A", Need::F16), ("B", Need::Invocations(512))];
        let alternatives = Some(Alternatives { needs, of: |_, _| Vec::new() });
        let kernel = Kernel { name: "test", wgsl: "end\n", flags: &["A", "B"], alternatives, ..GLU };
        let text = |variant: Variant, compiler| preprocess(&kernel, &variant.constant("WG", 8), compiler).unwrap();
        let both = Variant::new().flag("A").flag("B");
        assert_eq!(text(Variant::new(), Compiler::Browser), "const WG = 8u;\nend\n");
        assert_eq!(text(both.clone(), Compiler::Naga), "enable f16;\nconst WG = 8u;\nend\n");
        assert_eq!(text(both, Compiler::Browser), "enable subgroups;\nenable f16;\nconst WG = 8u;\nend\n");
    }

    #[test]
    fn mistakes_are_errors_that_name_the_line() {
        let cases = [
            ("x\n#define Y\n", "shaders/test.wgsl:2: unknown directive #define Y"),
            ("#ifdef C\n#endif\n", "shaders/test.wgsl:1: flag C is not declared by the kernel test"),
            ("#ifdef A\n#ifdef B\n#endif\n", "shaders/test.wgsl:1: #ifdef without #endif"),
            ("#else\n", "shaders/test.wgsl:1: #else without #ifdef"),
            ("#ifdef A\n#else\n#else\n#endif\n", "shaders/test.wgsl:3: #else without #ifdef"),
            ("#endif\n", "shaders/test.wgsl:1: #endif without #ifdef"),
            ("\n\n#import nothing\n", "shaders/test.wgsl:3: #import nothing: no such file in shaders/shared"),
        ];
        for (text, message) in cases {
            assert_eq!(run(text, &Variant::new()).unwrap_err().to_string(), format!("gpu: {message}"), "{text:?}");
        }
    }
}
