//! The GPU executor's promises, on kernels of its own: nothing is created between replays, scratch that shares storage does not
//! alias, dispatches see each other's writes, and what goes wrong is a typed error.

use crate::common;
use kitfox::Error;
use kitfox::format::random::SplitMix64;
use kitfox::gpu::{AdapterPick, Executor, Gpu};
use kitfox::graph::{
    Args, Binding, BindingDecl, BufferId, Dispatch, Elem, Extent, Graph, GraphId, Grid, Kernel, Program, Recorder, Role, Step,
    Variant, cpu,
};
use pollster::block_on;

/// y[i] = 3·a[i] + b[(i + 1) mod n] + add, in wrapping integers.
static MIX: Kernel = Kernel {
    name: "mix",
    wgsl: "// y[i] = 3·a[i] + b[(i + 1) mod n] + add
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
struct Params { n: u32, add: u32 }
@group(0) @binding(8) var<uniform> params: Params;
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let i = id.x;
  if (i < params.n) { y[i] = 3u * a[i] + b[(i + 1u) % params.n] + params.add; }
}
",
    bindings: &[BindingDecl::read("a", Elem::U32), BindingDecl::read("b", Elem::U32), BindingDecl::write("y", Elem::U32)],
    params: &["n", "add"],
    uses_step: false,
    twin: mix,
    cases: Vec::new,
    ..Kernel::PLAIN
};

fn mix(args: &mut Args<'_>) {
    let (n, add) = (args.param("n"), args.param("add") as u32);
    let (a, b, y) = (args.take("a"), args.take("b"), args.take("y"));
    for i in 0..n {
        y[i] = a[i].wrapping_mul(3).wrapping_add(b[(i + 1) % n]).wrapping_add(add);
    }
}

/// x[t] += by·(pos + 1) for each token t, read and written through one binding.
static BUMP: Kernel = Kernel {
    name: "bump",
    wgsl: "// x[t] += by·(pos + 1)
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
#import step
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) id: vec3<u32>) { x[id.x] += BY * (step.pos + 1u); }
",
    bindings: &[BindingDecl::write("x", Elem::U32)],
    params: &[],
    consts: &["BY"],
    twin: bump,
    cases: Vec::new,
    ..Kernel::PLAIN
};

fn bump(args: &mut Args<'_>) {
    let by = args.constant("BY") as u32 * (args.step.pos + 1);
    let tokens = args.groups[0] as usize;
    args.take("x")[..tokens].iter_mut().for_each(|x| *x += by);
}

static BROKEN: Kernel = Kernel { name: "broken", wgsl: "// not a shader\nfn main() -> {", ..BUMP };

fn record_mix(r: &mut Recorder<'_>, [a, b, y]: [Binding; 3], add: u32) {
    let n = y.words as u32;
    r.dispatch(&MIX, Variant::new(), &[a, b, y], &[n, add], Grid::x(Extent::Fixed(n.div_ceil(32))));
}

fn record_bump(r: &mut Recorder<'_>, x: BufferId, by: u32) {
    let x = r.whole(x);
    r.dispatch(&BUMP, Variant::new().constant("BY", by), &[x], &[], Grid::x(Extent::Tokens { per: 1 }));
}

/// A program, its two inputs and its two outputs: two graphs of random dispatches over scratch of random lengths.
fn random_program(seed: u32) -> (Program, [BufferId; 2], [BufferId; 2]) {
    let mut random = SplitMix64(u64::from(seed));
    let mut program = Program::default();
    let n = 40 + random.below(60);
    let inputs = ["a", "b"].map(|name| program.buffer(name, 2 * n, Role::Input));
    let outputs = ["y", "z"].map(|name| program.buffer(name, n, Role::Output));
    let window = |buffer| Binding { buffer, first_word: 0, words: n };
    for output in outputs {
        let mut r = program.record("random");
        let mut written = inputs.to_vec();
        for add in 0..20 + random.below(20) as u32 {
            // Two of the last five, so that most die early and their storage is taken.
            let recent = written.len().min(5);
            let first = random.below(recent);
            let second = (first + 1 + random.below(recent - 1)) % recent;
            let [a, b] = [first, second].map(|back| window(written[written.len() - 1 - back]));
            let y = r.scratch("step", n + random.below(30));
            record_mix(&mut r, [a, b, window(y)], add);
            written.push(y);
        }
        let [.., a, b] = written[..] else { unreachable!("two inputs") };
        record_mix(&mut r, [window(a), window(b), window(output)], seed);
        r.finish();
    }
    (program, inputs, outputs)
}

fn without_sharing(program: &Program) -> Program {
    let mut program = program.clone();
    program.buffers.iter_mut().filter(|buffer| buffer.role == Role::Scratch).for_each(|buffer| buffer.role = Role::State);
    program
}

/// What the outputs hold after both graphs, on the CPU.
fn on_cpu(program: &Program, contents: &[(BufferId, Vec<u32>)], outputs: &[BufferId]) -> Vec<Vec<u32>> {
    let mut executor = cpu::Executor::new(program, false);
    contents.iter().for_each(|(input, words)| executor.write(*input, 0, words));
    program.graphs.iter().for_each(|graph| executor.replay(graph, &Step::default(), true));
    outputs.iter().map(|output| executor.read(*output).to_vec()).collect()
}

#[test]
fn shared_scratch_never_aliases_live_buffers() {
    let gpus = common::gpus();
    for seed in 1..=20 {
        let (program, inputs, outputs) = random_program(seed);
        let words = |input: BufferId| (0..program.get(input).words as u32).map(|ix| ix * ix + seed + input.0).collect();
        let contents = inputs.map(|input| (input, words(input)));
        let want = on_cpu(&without_sharing(&program), &contents, &outputs);
        assert_eq!(on_cpu(&program, &contents, &outputs), want, "seed {seed} on the CPU");
        for gpu in &gpus {
            let executor = block_on(Executor::new(gpu.clone(), &program)).unwrap();
            contents.iter().for_each(|(input, words)| executor.write(*input, 0, words));
            for graph in [GraphId(0), GraphId(1)] {
                executor.replay(graph, &Step::default(), true).unwrap();
            }
            for (output, want) in outputs.iter().zip(&want) {
                assert_eq!(&block_on(executor.read(*output, 0, want.len())).unwrap(), want, "seed {seed} on {:?}", gpu.info());
            }
            let unshared = block_on(Executor::new(gpu.clone(), &without_sharing(&program))).unwrap();
            assert!(executor.bytes() < unshared.bytes(), "seed {seed}: nothing is shared");
        }
    }
}

/// What one graph leaves in scratch, another may overwrite: that would be wrong in silence.
#[test]
#[should_panic(expected = "the scratch buffer x is bound by two graphs")]
fn scratch_of_two_graphs_is_refused() {
    let mut program = Program::default();
    let x = program.buffer("x", 4, Role::Scratch);
    for name in ["one", "two"] {
        let mut r = program.record(name);
        record_bump(&mut r, x, 1);
        r.finish();
    }
    cpu::Executor::new(&program, false);
}

/// One state buffer bumped by 1 a hundred times, then by 1000 for logits only.
fn counter() -> (Program, BufferId, GraphId) {
    let mut program = Program::default();
    let x = program.buffer("x", 8, Role::State);
    let mut r = program.record("count");
    for _ in 0..100 {
        record_bump(&mut r, x, 1);
    }
    r.for_logits();
    record_bump(&mut r, x, 1000);
    let graph = r.finish();
    (program, x, graph)
}

#[test]
fn dispatches_see_each_other_and_follow_the_step() {
    for gpu in common::gpus() {
        let (program, x, graph) = counter();
        let executor = block_on(Executor::new(gpu, &program)).unwrap();
        assert_eq!(block_on(executor.read(x, 0, 8)).unwrap(), [0; 8], "state starts as zeros");
        executor.replay(graph, &Step { n_tokens: 3, ..Step::default() }, false).unwrap();
        assert_eq!(block_on(executor.read(x, 0, 8)).unwrap(), [100, 100, 100, 0, 0, 0, 0, 0]);
        executor.replay(graph, &Step { n_tokens: 2, pos: 1, ..Step::default() }, true).unwrap();
        assert_eq!(block_on(executor.read(x, 0, 4)).unwrap(), [2300, 2300, 100, 0]);
        executor.replay_range(graph, 98..101, &Step { n_tokens: 8, ..Step::default() }).unwrap();
        assert_eq!(block_on(executor.read(x, 1, 7)).unwrap(), [3302, 1102, 1002, 1002, 1002, 1002, 1002]);
    }
}

#[test]
fn nothing_is_created_between_replays() {
    for gpu in common::gpus() {
        let (mut program, x, graph) = counter();
        let logits = program.buffer("logits", 8, Role::Output);
        let executor = block_on(Executor::new(gpu, &program)).unwrap();
        let step = Step { n_tokens: 1, ..Step::default() };
        let round = || {
            executor.replay(graph, &step, true).unwrap();
            block_on(executor.read(logits, 0, 8)).unwrap();
            executor.counters()
        };
        let first = round();
        let bytes = executor.bytes();
        for rounds in 1..=3 {
            let later = round();
            assert_eq!((later.buffers, later.bind_groups, later.pipelines), (first.buffers, first.bind_groups, first.pipelines));
            assert_eq!(later.dispatches, first.dispatches + rounds * 101);
            assert_eq!(later.writes, first.writes + rounds, "one write a replay");
            assert_eq!(later.submits, first.submits + rounds * 2, "one submit a replay, one a read");
        }
        assert_eq!(executor.bytes(), bytes);
        assert_eq!(first.bind_groups, 101);
        assert_eq!(first.pipelines, 2, "one a kernel and variant");
        assert_eq!(first.buffers, 5, "x, logits, step, params, read-back");
        block_on(executor.read(x, 0, 8)).unwrap();
        assert_eq!(executor.counters().buffers, first.buffers, "a read no longer than the largest output");
    }
}

#[test]
fn several_reads_may_be_under_way_and_some_forgotten() {
    for gpu in common::gpus() {
        let (program, x, graph) = counter();
        let executor = block_on(Executor::new(gpu, &program)).unwrap();
        let step = Step { n_tokens: 1, ..Step::default() };
        let mut reads = Vec::new();
        for _ in 0..4 {
            executor.replay(graph, &step, false).unwrap();
            drop(executor.read(x, 0, 2));
            reads.push(executor.read(x, 0, 1));
        }
        // Awaited out of order: each has what the buffer held when it was queued.
        for (ix, read) in reads.into_iter().enumerate().rev() {
            assert_eq!(block_on(read).unwrap(), [100 * (ix as u32 + 1)]);
        }
        assert_eq!(block_on(executor.read(x, 8, 0)).unwrap(), Vec::<u32>::new());
        block_on(executor.gpu().settle()).unwrap();
    }
}

#[test]
fn windows_start_where_the_graph_says() {
    for gpu in common::gpus() {
        let mut program = Program::default();
        let a = program.buffer("a", 192, Role::Input);
        let b = program.buffer("b", 64, Role::Input);
        let y = program.buffer("y", 192, Role::State);
        let mut r = program.record("windows");
        let at = |buffer, first_word| Binding { buffer, first_word, words: 64 };
        record_mix(&mut r, [at(a, 128), at(b, 0), at(y, 64)], 7);
        let graph = r.finish();
        let executor = block_on(Executor::new(gpu, &program)).unwrap();
        executor.write(a, 130, &[5]);
        executor.write(b, 1, &[11]);
        executor.replay(graph, &Step::default(), true).unwrap();
        let mut want = vec![0; 192];
        want[64..128].fill(7);
        want[66] = 22;
        want[64] = 18;
        assert_eq!(block_on(executor.read(y, 0, 192)).unwrap(), want);
    }
}

#[test]
fn what_does_not_fit_is_named() {
    for gpu in common::gpus() {
        let mut program = Program::default();
        program.buffer("a large one", (256 << 20) / 4 + 1, Role::Weight);
        let error = block_on(Executor::new(gpu.clone(), &program)).err().unwrap();
        assert!(matches!(&error, Error::OutOfMemory { what, bytes: 268_435_460, .. } if what == "a large one"), "{error}");

        let mut program = Program::default();
        let buffer = program.buffer("a wide one", (200 << 20) / 4, Role::Weight);
        let dispatch = Dispatch {
            kernel: &BUMP,
            variant: Variant::new().constant("BY", 1),
            bindings: vec![Binding { buffer, first_word: 0, words: (129 << 20) / 4 }],
            params: Vec::new(),
            grid: Grid::x(Extent::Fixed(1)),
            only_for_logits: false,
        };
        program.graphs.push(Graph { name: "wide".to_owned(), dispatches: vec![dispatch] });
        let error = block_on(Executor::new(gpu.clone(), &program)).err().unwrap();
        assert!(matches!(&error, Error::OutOfMemory { what, bytes: 135_266_304, .. } if what == "a wide one"), "{error}");

        let (program, _, graph) = counter();
        let executor = block_on(Executor::new(gpu, &program)).unwrap();
        let error = executor.replay(graph, &Step { n_tokens: 70_000, ..Step::default() }, true).unwrap_err();
        assert!(matches!(&error, Error::Argument { option, .. } if option == "step"), "{error}");
    }
}

#[test]
fn a_refused_shader_is_named() {
    for gpu in common::gpus() {
        let mut program = Program::default();
        let x = program.buffer("x", 8, Role::State);
        let mut r = program.record("broken");
        let x = r.whole(x);
        r.dispatch(&BROKEN, Variant::new().constant("BY", 1), &[x], &[], Grid::x(Extent::Fixed(1)));
        r.finish();
        let error = block_on(Executor::new(gpu, &program)).err().unwrap();
        assert!(matches!(&error, Error::Gpu { place, .. } if place == "pipeline broken BY=1"), "{error}");
    }
}

#[test]
fn a_lost_device_is_told_by_every_later_call() {
    for gpu in common::gpus() {
        let (program, x, graph) = counter();
        let executor = block_on(Executor::new(gpu.clone(), &program)).unwrap();
        let step = Step { n_tokens: 1, ..Step::default() };
        executor.replay(graph, &step, true).unwrap();
        gpu.destroy();
        for _ in 0..2 {
            let error = block_on(executor.read(x, 0, 1)).unwrap_err();
            assert!(matches!(error, Error::DeviceLost(_)), "{error}");
            let error = executor.replay(graph, &step, true).unwrap_err();
            assert!(matches!(error, Error::DeviceLost(_)), "{error}");
        }
        assert!(matches!(block_on(gpu.settle()), Err(Error::DeviceLost(_))));
        let error = block_on(Executor::new(gpu, &program)).err().unwrap();
        assert!(matches!(error, Error::DeviceLost(_)), "{error}");
    }
}

#[test]
fn an_adapter_that_is_not_there_is_an_error_that_names_those_that_are() {
    let gpus = common::gpus();
    let error = block_on(Gpu::open(AdapterPick::Named("no such adapter".to_owned()))).unwrap_err();
    assert!(matches!(error, Error::NoGpu(_)), "{error}");
    for gpu in &gpus {
        assert!(error.to_string().contains(&gpu.info().name), "{error}");
    }
    match block_on(Gpu::open(AdapterPick::HardwareOnly)) {
        Ok(gpu) => assert!(!gpu.info().software),
        Err(error) => {
            assert!(gpus.iter().all(|gpu| gpu.info().software), "{error}");
            assert!(matches!(error, Error::NoGpu(_)), "{error}");
        }
    }
}
