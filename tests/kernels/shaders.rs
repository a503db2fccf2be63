//! Ring 1: every shader matches its declaration and WebGPU's default limits. Needs no GPU: naga parses and validates each variant
//! that a case records, and its alternatives on a device that has everything. With `KITFOX_DUMP_SHADERS=FOLDER` the preprocessed
//! variants that browsers could be given are written there, for other compilers.
#![allow(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]

use crate::common::toy::TOY;
use kitfox::gpu::{Compiler, preprocess};
use kitfox::graph::alternatives::{BASE_INVOCATIONS, BASE_WORKGROUP_BYTES};
use kitfox::graph::contract::{PARAMS_BINDING, STEP_BINDING};
use kitfox::graph::{Access, Elem, Features, Kernel, Need, Step, Variant};
use kitfox::kernel::{ALTERNATIVE_KERNELS, KERNELS, SHARED};
use naga::valid::Capabilities;
use naga::{AddressSpace, ScalarKind, StorageAccess, TypeInner};
use std::collections::BTreeSet;
use std::path::Path;

/// WebGPU's default limits (<https://gpuweb.github.io/gpuweb/#limits>).
const STORAGE_BUFFERS: usize = 8;
const WORKGROUP_DEPTH: u32 = 64;

fn all_kernels() -> impl Iterator<Item = &'static Kernel> {
    KERNELS.iter().chain(ALTERNATIVE_KERNELS).copied()
}

/// The distinct variants of a kernel that its cases record, and their alternatives.
fn variants(kernel: &Kernel) -> Vec<Variant> {
    let mut found = Vec::new();
    let everything = Features::everything();
    for case in (kernel.cases)() {
        for dispatch in case.program.graphs.iter().flat_map(|graph| &graph.dispatches) {
            let alternatives = dispatch.alternatives(&everything).into_iter().map(|offer| (offer.kernel.name, offer.variant));
            for (name, variant) in [(dispatch.kernel.name, dispatch.variant.clone())].into_iter().chain(alternatives) {
                if name == kernel.name && !found.contains(&variant) {
                    found.push(variant);
                }
            }
        }
    }
    found
}

/// Everything that is wrong with one variant's text.
fn problems(kernel: &'static Kernel, variant: &Variant, text: &str) -> Vec<String> {
    let module = match naga::front::wgsl::parse_str(text) {
        Ok(module) => module,
        Err(error) => return vec![error.emit_to_string(text)],
    };
    let needs = kernel.needs(variant);
    let flags = naga::valid::ValidationFlags::all();
    if let Err(error) = naga::valid::Validator::new(flags, capabilities(&needs)).validate(&module) {
        return vec![error.emit_to_string(text)];
    }
    let mut problems = Vec::new();
    check_bindings(&module, kernel, variant, &mut problems);
    check_entry(&module, &needs, &mut problems);
    if kernel.wgsl.lines().any(|line| line.trim_start().starts_with("enable ")) {
        problems.push("asks for an optional feature with `enable`: the kernel's `needs` do that".to_owned());
    }
    problems
}

/// What naga may find in a variant with these needs.
fn capabilities(needs: &[Need]) -> Capabilities {
    // WGSL's pack2x16float and unpack2x16float are no option in WebGPU; naga counts them because old OpenGL lacks them.
    let baseline = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    let capability = |need: &Need| match need {
        Need::Subgroups => Capabilities::SUBGROUP | Capabilities::SUBGROUP_BARRIER,
        Need::F16 => Capabilities::SHADER_FLOAT16,
        Need::Coop(_) => Capabilities::COOPERATIVE_MATRIX,
        Need::Invocations(_) | Need::WorkgroupBytes(_) => Capabilities::empty(),
    };
    needs.iter().map(capability).fold(baseline, |all, more| all | more)
}

fn check_bindings(module: &naga::Module, kernel: &'static Kernel, variant: &Variant, problems: &mut Vec<String>) {
    let mut found = BTreeSet::new();
    for (_, global) in module.global_variables.iter() {
        let Some(binding) = &global.binding else { continue };
        let name = global.name.as_deref().unwrap_or_default();
        let at = format!("binding {} {name}", binding.binding);
        found.insert(binding.binding);
        if binding.group != 0 {
            problems.push(format!("{at}: in group {}", binding.group));
        }
        let ty = &module.types[global.ty].inner;
        let expected = match (global.space, binding.binding) {
            (AddressSpace::Storage { access }, ix) => {
                let declared = kernel.active_indices(variant).find(|(declared, _)| *declared == ix);
                let Some((_, declared)) = declared else {
                    problems.push(format!("{at}: not declared in this variant"));
                    continue;
                };
                if declared.name != name {
                    problems.push(format!("{at}: declared as {}", declared.name));
                }
                let wanted = match declared.access {
                    Access::Read => StorageAccess::LOAD,
                    Access::Write => StorageAccess::LOAD | StorageAccess::STORE,
                };
                if access != wanted {
                    problems.push(format!("{at}: access {access:?}, declared {wanted:?}"));
                }
                if element(module, ty) != Some(declared.elem) {
                    problems.push(format!("{at}: elements {:?}, declared {:?}", element(module, ty), declared.elem));
                }
                continue;
            }
            (AddressSpace::Uniform, PARAMS_BINDING) => ("params", kernel.params),
            (AddressSpace::Uniform, STEP_BINDING) => ("step", &Step::FIELDS[..]),
            (space, _) => {
                problems.push(format!("{at}: in {space:?}"));
                continue;
            }
        };
        let got = words(module, ty);
        if name != expected.0 || got.as_deref() != Some(expected.1) {
            problems.push(format!("{at}: {got:?}, declared {}: {:?}", expected.0, expected.1));
        }
    }
    let mut declared: BTreeSet<_> = kernel.active_indices(variant).map(|(ix, _)| ix).collect();
    declared.extend((!kernel.params.is_empty()).then_some(PARAMS_BINDING));
    declared.extend(kernel.uses_step.then_some(STEP_BINDING));
    if declared != found {
        problems.push(format!("bindings {found:?}, declared {declared:?}"));
    }
    if kernel.active_indices(variant).count() > STORAGE_BUFFERS {
        problems.push(format!("more than {STORAGE_BUFFERS} storage buffers"));
    }
}

fn check_entry(module: &naga::Module, needs: &[Need], problems: &mut Vec<String>) {
    let (mut invocations, mut workgroup_bytes) = (BASE_INVOCATIONS, BASE_WORKGROUP_BYTES);
    for need in needs {
        match need {
            Need::Invocations(n) => invocations = invocations.max(*n),
            Need::WorkgroupBytes(n) => workgroup_bytes = workgroup_bytes.max(*n),
            Need::Subgroups | Need::F16 | Need::Coop(_) => {}
        }
    }
    let [entry] = &module.entry_points[..] else {
        problems.push(format!("{} entry points instead of one", module.entry_points.len()));
        return;
    };
    if entry.name != "main" || entry.stage != naga::ShaderStage::Compute {
        problems.push(format!("entry point {} instead of a compute entry main", entry.name));
    }
    let size = entry.workgroup_size;
    if size.iter().product::<u32>() > invocations || size[2] > WORKGROUP_DEPTH {
        problems.push(format!("workgroup of {size:?}"));
    }
    let shared = module.global_variables.iter().filter(|(_, global)| global.space == AddressSpace::WorkGroup);
    // WebGPU counts each variable in whole 16-byte rows.
    let bytes: u32 = shared.map(|(_, global)| module.types[global.ty].inner.size(module.to_ctx()).next_multiple_of(16)).sum();
    if bytes > workgroup_bytes {
        problems.push(format!("{bytes} bytes of workgroup memory"));
    }
    if !module.overrides.is_empty() {
        problems.push("has overrides: constants are prepended instead".to_owned());
    }
}

/// The element type of a runtime-sized array.
fn element(module: &naga::Module, ty: &TypeInner) -> Option<Elem> {
    let TypeInner::Array { base, size: naga::ArraySize::Dynamic, .. } = ty else { return None };
    let (size, scalar) = match &module.types[*base].inner {
        TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => (1, scalar),
        TypeInner::Vector { size, scalar } => (*size as u8, scalar),
        _ => return None,
    };
    match (scalar.kind, scalar.width, size) {
        (ScalarKind::Float, 4, 1) => Some(Elem::F32),
        (ScalarKind::Float, 4, 4) => Some(Elem::F32x4),
        (ScalarKind::Uint, 4, 1) => Some(Elem::U32),
        (ScalarKind::Uint, 4, 2) => Some(Elem::U32x2),
        (ScalarKind::Uint, 4, 4) => Some(Elem::U32x4),
        _ => None,
    }
}

/// The names of a struct's members, when each is one 32-bit number behind the last.
fn words<'m>(module: &'m naga::Module, ty: &'m TypeInner) -> Option<Vec<&'m str>> {
    let TypeInner::Struct { members, .. } = ty else { return None };
    let word = |(ix, member): (u32, &'m naga::StructMember)| {
        let TypeInner::Scalar(scalar) = &module.types[member.ty].inner else { return None };
        let number = matches!(scalar.kind, ScalarKind::Float | ScalarKind::Uint | ScalarKind::Sint) && scalar.width == 4;
        (number && member.offset == 4 * ix).then_some(member.name.as_deref()?)
    };
    (0..).zip(members).map(word).collect()
}

#[test]
fn every_variant_matches_its_declaration_and_the_default_limits() {
    let mut failures = Vec::new();
    for kernel in all_kernels() {
        for variant in variants(kernel) {
            let found = match preprocess(kernel, &variant, Compiler::Naga) {
                Ok(text) => problems(kernel, &variant, &text),
                Err(error) => vec![error.to_string()],
            };
            failures.extend(found.into_iter().map(|problem| format!("{} [{variant}]: {problem}", kernel.name)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn cases_cover_every_flag_on_and_off_every_binding_and_every_constant() {
    let mut failures = Vec::new();
    for kernel in all_kernels() {
        let variants = variants(kernel);
        for flag in kernel.flags {
            // One that multiplies f16 is not for weights beyond it.
            let narrow = kernel.name == "matmul_coop" && ["W_F32", "W_BF16"].contains(flag);
            if !narrow && !variants.iter().any(|variant| variant.has(flag)) {
                failures.push(format!("{}: no case has the flag {flag}", kernel.name));
            }
            // A kernel that only stands for another always has the flags of what it needs.
            let always = kernel.alternatives.is_some_and(|own| own.needs.iter().any(|(needing, _)| needing == flag))
                && ALTERNATIVE_KERNELS.iter().any(|known| known.name == kernel.name);
            if !always && variants.iter().all(|variant| variant.has(flag)) {
                failures.push(format!("{}: all cases have the flag {flag}", kernel.name));
            }
        }
        for binding in kernel.bindings {
            let bound = |variant| kernel.active_bindings(variant).any(|active| active.name == binding.name);
            if !variants.iter().any(bound) {
                failures.push(format!("{}: no case binds {}", kernel.name, binding.name));
            }
            for flag in binding.only_if.iter().filter(|flag| !kernel.flags.contains(flag)) {
                failures.push(format!("{}: {} depends on the undeclared flag {flag}", kernel.name, binding.name));
            }
        }
        if variants.is_empty() {
            failures.push(format!("{}: no case records it", kernel.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_shader_file_is_registered_and_starts_with_a_comment() {
    let stems = |folder: &str| -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let wgsl = paths.filter(|path| path.extension().is_some_and(|extension| extension == "wgsl"));
        wgsl.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    let registered: BTreeSet<String> = all_kernels().map(|kernel| kernel.name.to_owned()).collect();
    let unlike: Vec<_> = stems("shaders").symmetric_difference(&registered).cloned().collect();
    assert!(unlike.is_empty(), "in shaders/ or in kernel::KERNELS (or ALTERNATIVE_KERNELS), but not in both: {unlike:?}");
    assert_eq!(stems("shaders/shared"), SHARED.iter().map(|(name, _)| (*name).to_owned()).collect());
    let texts: Vec<&str> = all_kernels().map(|kernel| kernel.wgsl).chain(SHARED.iter().map(|(_, text)| *text)).collect();
    for (name, _) in SHARED {
        let import = format!("#import {name}");
        assert!(texts.iter().any(|text| text.lines().any(|line| line == import)), "no shader imports shared/{name}.wgsl");
    }
    let shared = SHARED.iter().map(|(name, _)| format!("shared/{name}"));
    for name in all_kernels().map(|kernel| kernel.name.to_owned()).chain(shared) {
        assert!(file(&name).starts_with("// "), "{name}.wgsl does not open with a comment that says what it computes");
    }
}

/// A shader as it was written.
fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("shaders/{name}.wgsl"))).unwrap()
}

#[test]
fn names_are_unique_and_each_kernel_has_its_own_file() {
    let mut names = BTreeSet::new();
    for kernel in all_kernels() {
        assert!(names.insert(kernel.name), "{} is registered twice", kernel.name);
    }
    let shared = SHARED.iter().map(|(name, text)| (format!("shared/{name}"), *text));
    for (name, text) in all_kernels().map(|kernel| (kernel.name.to_owned(), kernel.wgsl)).chain(shared) {
        let file = file(&name);
        let code = file.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code).trim());
        assert!(code.eq(text.lines()), "{name} is not its file's text, line by line, without comments and indentation");
    }
}

#[test]
fn dumps_every_variant_when_asked() {
    let Some(folder) = std::env::var_os("KITFOX_DUMP_SHADERS") else { return };
    std::fs::create_dir_all(&folder).unwrap();
    for kernel in all_kernels() {
        let native = |variant: &Variant| kernel.needs(variant).iter().any(|need| matches!(need, Need::Coop(_)));
        for (ix, variant) in variants(kernel).iter().enumerate().filter(|(_, variant)| !native(variant)) {
            let text = preprocess(kernel, variant, Compiler::Browser).unwrap();
            let needs = kernel.needs(variant);
            let beyond = if needs.is_empty() { String::new() } else { format!("// beyond the baseline: {needs:?}\n") };
            let text = format!("{beyond}// {} [{variant}]\n{text}", kernel.name);
            std::fs::write(Path::new(&folder).join(format!("{}.{ix}.wgsl", kernel.name)), text).unwrap();
        }
    }
}

/// The test of the test: a shader that breaks each rule is caught.
#[test]
fn a_wrong_shader_is_caught() {
    let text = preprocess(&TOY, &variants(&TOY)[0], Compiler::Naga).unwrap();
    assert_eq!(problems(&TOY, &Variant::new(), &text), Vec::<String>::new());
    let breakages = [
        ("binding(1)", "binding(2)", "not declared in this variant"),
        ("read_write> y", "read> y", "not permitted"),
        ("<storage, read> a", "<storage, read_write> a", "access"),
        ("a: array<f32>", "a: array<f32, 8>", "elements"),
        ("{ width: u32 }", "{ width: u32, more: u32 }", "binding 8 params"),
        ("workgroup_size(64)", "workgroup_size(512)", "workgroup of"),
        ("workgroup_size(64)", "workgroup_size(1, 1, 65)", "workgroup of"),
        ("@compute", "var<workgroup> t: array<f32, 4097>;\n@compute", "bytes of workgroup memory"),
        ("pad: u32", "pad1: u32", "binding 9 step"),
        ("fn main", "fn other", "instead of a compute entry main"),
        ("@compute", "override o = 1;\n@compute", "has overrides"),
    ];
    for (from, to, expected) in breakages {
        let broken = text.replacen(from, to, 1);
        assert_ne!(broken, text, "{from}");
        let found = problems(&TOY, &Variant::new(), &broken).join("\n");
        assert!(found.contains(expected), "{from} -> {to}: {found}");
    }
}
