// `npm run fuzz [TARGET] [SECONDS]`: libFuzzer on the readers of files (fuzz/), all targets for 60 seconds each unless it is said otherwise.
//
// Built with the installed stable compiler: LLVM's coverage instrumentation is asked for by flags that are no nightly's, and no sanitizer is
// (there is no unsafe code to watch; arithmetic is checked). What a run finds interesting stays in target/fuzz/corpus, so that the next one
// goes on from there; inputs that break a promise are kept in target/fuzz/artifacts.
//
// A hang is 2 s of the thread's own time (tests/common/hostile), which does not depend on what else the machine does; libFuzzer's own limit
// is by the clock and only ends what never returns.

import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdir, readdir } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { pathToFileURL } from 'node:url';
import { has, main, root, run } from './shared.mjs';

/** As the Cargo.toml of fuzz/ names them. */
export const TARGETS = [...readFileSync(`${root}fuzz/Cargo.toml`, 'utf8').matchAll(/^\[\[bin\]\]\nname = "(\w+)"$/gm)].map(([, name]) => name);

const FLAGS = [
  '-Cpasses=sancov-module',
  '-Cllvm-args=-sanitizer-coverage-level=4',
  '-Cllvm-args=-sanitizer-coverage-inline-8bit-counters',
  '-Cllvm-args=-sanitizer-coverage-pc-table',
  '-Cllvm-args=-sanitizer-coverage-trace-compares',
];
const LIMITS = ['-timeout=60', '-rss_limit_mb=1024', '-max_len=32768', '-print_final_stats=1', '-verbosity=1'];

const folder = `${root}target/fuzz`;

/** Builds the targets; gives the folder that they are in. */
export async function build() {
  if (!(await has('c++'))) throw new Error('libFuzzer is C++: install a C++ compiler (c++)');
  const triple = /^host: (.*)$/m.exec(await run('rustc', ['-vV'], { quiet: true }))[1];
  // With a target named, the flags are not for build scripts and macros.
  const args = ['build', '--release', '--locked', '--manifest-path', 'fuzz/Cargo.toml', '--target', triple, '--target-dir', 'target/fuzz'];
  await run('cargo', args, { env: { RUSTFLAGS: FLAGS.join(' ') } });
  return `${folder}/${triple}/release`;
}

/** The last match of a pattern's first group, as a number. */
function last(output, pattern) {
  const found = [...output.matchAll(pattern)].at(-1);
  return found === undefined ? 0 : Number(found[1]);
}

/**
 * Runs a target for some seconds.
 * @returns what came of it: executions, seconds, coverage (edges), worst (ms), peak (MB) and, of an input that broke a promise, what it broke
 */
export async function fuzz(programs, target, seconds) {
  const [corpus, artifacts] = [`${folder}/corpus/${target}`, `${folder}/artifacts/${target}/`];
  await mkdir(corpus, { recursive: true });
  await mkdir(artifacts, { recursive: true });
  const args = [corpus, `${root}fuzz/corpus/${target}`, `-max_total_time=${seconds}`, `-artifact_prefix=${artifacts}`, ...LIMITS];
  const before = new Set(await readdir(artifacts));
  const began = performance.now();
  const { code, output } = await new Promise((resolve, reject) => {
    const child = spawn(`${programs}/${target}`, args, { stdio: ['ignore', 'ignore', 'pipe'] });
    let output = '';
    child.stderr.setEncoding('utf8').on('data', (text) => (output += text));
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, output }));
  });
  const inputs = (await readdir(artifacts)).filter((name) => !before.has(name)).map((name) => artifacts + name);
  const result = {
    executions: last(output, /stat::number_of_executed_units: (\d+)/g) || last(output, /^#(\d+)\s/gm),
    seconds: Math.round((performance.now() - began) / 1000),
    coverage: last(output, / cov: (\d+) /g),
    worst: last(output, /kitfox: worst (\d+) us/g) / 1000,
    peak: last(output, /kitfox: worst \d+ us, peak (\d+) KB/g) / 1024,
  };
  if (code === 0) return result;
  const said = /panicked at .*\n(.*)/.exec(output)?.[1] ?? output.trim().split('\n').slice(-8).join('\n');
  const broke = / bytes took \d+ in memory|out-of-memory/.test(output) ? 'memory' : / bytes took |ERROR: libFuzzer: timeout/.test(output) ? 'hang' : 'panic';
  return { ...result, broke, said, inputs };
}

/** One line of what came of it. */
export function told(target, { executions, seconds, coverage, worst, peak, broke, said, inputs }) {
  const numbers = `${executions} executions in ${seconds} s, ${coverage} edges, worst ${worst.toFixed(1)} ms, peak ${peak.toFixed(1)} MB`;
  return `${target.padEnd(12)} ${numbers}${broke === undefined ? '' : `\n  ${broke.toUpperCase()}: ${said}\n  again: PROGRAM ${inputs.join(' ')}`}`;
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  await main(async () => {
    const args = process.argv.slice(2);
    const named = args.filter((arg) => !/^\d+$/.test(arg));
    const seconds = Number(args.find((arg) => /^\d+$/.test(arg)) ?? 60);
    const unknown = named.filter((name) => !TARGETS.includes(name));
    if (unknown.length > 0) throw new Error(`no target ${unknown.join(', ')}; the targets are ${TARGETS.join(', ')}`);
    const programs = await build();
    console.log(`${availableParallelism()} CPUs; programs in ${programs}`);
    const broken = [];
    for (const target of named.length > 0 ? named : TARGETS) {
      const result = await fuzz(programs, target, seconds);
      console.log(told(target, result));
      if (result.broke !== undefined) broken.push(target);
    }
    if (broken.length > 0) throw new Error(`promises are broken: ${broken.join(', ')}`);
  });
}
