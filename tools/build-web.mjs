// Builds what the web needs: the wasm module and its glue, the package's JavaScript, the page.
//
//     web/dist/wasm/   kitfox.js, kitfox_bg.wasm   cargo → bindgen → wasm-opt
//     web/dist/        the npm package             tsc
//     www/dist/        the page                    vite

import { mkdir, readFile, readdir, rename, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { gzipSync } from 'node:zlib';
import { setUpRust } from './setup.mjs';
import { bin, installPackages, main, root, run } from './shared.mjs';

/** The wasm module's budget on the wire. */
const MOST_GZIP_BYTES = 1_200_000;
/** The one wasm build: all browsers that have WebGPU have 128-bit SIMD, and so do those without since 2023. */
const TARGET_FEATURES = '-Ctarget-feature=+simd128';
/** Only small functions are copied into their callers; the kernels' hot ones are marked `inline(always)`. */
const CODEGEN = ['-C', 'llvm-args=-inline-threshold=10'];
/** What rustc may emit for that target; wasm-opt refuses an instruction that it was not told of. */
const FEATURES = ['simd', 'bulk-memory', 'nontrapping-float-to-int', 'sign-ext', 'mutable-globals', 'reference-types', 'multivalue'];

/** Where the sources of libraries are is not for the module to say, and would make it another one on every machine. */
async function remapped() {
  const sources = `${process.env.CARGO_HOME ?? `${homedir()}/.cargo`}/registry/src`;
  const registries = await readdir(sources).catch(() => []);
  return registries.map((name) => `--remap-path-prefix=${sources}/${name}/=`);
}

/** Cargo, bindgen, wasm-opt. */
export async function buildWasm() {
  await setUpRust();
  await installPackages();
  // Whatever the user has set: an incremental build is larger.
  await run('cargo', ['fetch', '--locked']);
  // Separated so that a path may have spaces; with a target named they are not for build scripts.
  const flags = [TARGET_FEATURES, ...(await remapped())].join('\x1f');
  const env = { CARGO_ENCODED_RUSTFLAGS: flags, CARGO_INCREMENTAL: '0' };
  const built = ['--lib', '--crate-type', 'cdylib', '--target', 'wasm32-unknown-unknown', '--profile', 'web'];
  await run('cargo', ['rustc', ...built, '--', ...CODEGEN], { env });
  const out = `${root}web/dist/wasm`;
  await rm(out, { recursive: true, force: true });
  const target = process.env.CARGO_TARGET_DIR ?? `${root}target`;
  await run('cargo', ['run', '--quiet', '-p', 'bindgen', '--', `${target}/wasm32-unknown-unknown/web/kitfox.wasm`, out]);
  const [module, optimized] = [`${out}/kitfox_bg.wasm`, `${out}/optimized.wasm`];
  await bin('wasm-opt', ['-O2', '--shrink-level=1', ...FEATURES.map((name) => `--enable-${name}`), module, '-o', optimized]);
  await rename(optimized, module);
  const bytes = await readFile(module);
  const gzip = gzipSync(bytes, { level: 9 }).length;
  console.log(`wasm: ${bytes.length} bytes, ${gzip} with gzip (at most ${MOST_GZIP_BYTES})`);
  if (gzip > MOST_GZIP_BYTES) throw new Error(`the wasm module has ${gzip} bytes with gzip; its budget is ${MOST_GZIP_BYTES}`);
}

/** The package's TypeScript and the check of the page's; the wasm glue's types are needed, so that comes first. */
export async function buildPackage() {
  // What a module that is no more has left would be packed, too.
  const dist = `${root}web/dist`;
  await mkdir(dist, { recursive: true });
  for (const name of await readdir(dist)) if (name !== 'wasm') await rm(`${dist}/${name}`, { recursive: true });
  await bin('tsc', ['-p', 'web/tsconfig.json']);
  await bin('tsc', ['-p', 'www/tsconfig.json']);
}

/** The page. */
export async function buildPage() {
  await bin('vite', ['build', 'www', '--logLevel', 'warn']);
}

if (process.argv[1] === import.meta.filename) {
  await main(async () => {
    await buildWasm();
    await buildPackage();
    await buildPage();
  });
}
