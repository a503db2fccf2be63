// `npm test`: every check, in rings from the quickest to the widest, all of them; what failed is told last. Needs only Node to start.
//
//     npm test                    all rings
//     npm test -- tint browsers   only these

import { mkdir, readdir, rm } from 'node:fs/promises';
import { buildPackage, buildPage, buildWasm } from './build-web.mjs';
import { buildDocs } from './docs.mjs';
import { gpuEnvironment, setUp } from './setup.mjs';
import { main, root, run } from './shared.mjs';

const LINTS = ['--', '-D', 'warnings'];

const RINGS = {
  setup: setUp,
  format: () => run('cargo', ['fmt', '--check']),
  lint: async () => {
    await run('cargo', ['clippy', '--release', '--all-targets', ...LINTS]);
    // Nothing else looks at the lock of what is fuzzed.
    await run('cargo', ['fetch', '--locked', '--manifest-path', 'fuzz/Cargo.toml']);
  },
  rust: async () => run('cargo', ['test', '--release', '--no-fail-fast'], { env: await gpuEnvironment() }),
  tint: async () => {
    const folder = `${root}target/shaders`;
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true });
    await run('cargo', ['test', '--release', '--quiet', '--test', 'kernels', 'shaders::'], { env: { KITFOX_DUMP_SHADERS: folder } });
    await run(process.execPath, ['tests/web/tint.mjs', folder]);
  },
  wasm: async () => {
    await buildWasm();
    await run('cargo', ['clippy', '--lib', '--target', 'wasm32-unknown-unknown', '--profile', 'web', ...LINTS]);
  },
  typescript: async () => {
    await buildPackage();
    await nodeTests('web/test');
  },
  docs: buildDocs,
  browsers: async () => {
    await buildPage();
    // With a test, however small: without any, cargo drops the features that only tests ask for and builds every dependency again.
    await run('cargo', ['build', '--release', '--bin', 'kitfox', '--test', 'layers']);
    await nodeTests('tests/web', await gpuEnvironment());
  },
};

/**
 * Two files at a time: what compiles shaders in a browser without a graphics device is one thread. Test files are named: what Node takes
 * a folder for has changed from version to version.
 */
async function nodeTests(folder, env = {}) {
  const names = (await readdir(root + folder)).filter((name) => name.endsWith('.test.mjs')).sort();
  const files = names.map((name) => `${folder}/${name}`);
  await run(process.execPath, ['--test', '--test-reporter=spec', '--test-timeout=600000', '--test-concurrency=2', ...files], { env });
}

await main(async () => {
  const asked = process.argv.slice(2);
  const unknown = asked.filter((name) => !Object.hasOwn(RINGS, name));
  if (unknown.length > 0) throw new Error(`no ring ${unknown.join(', ')}; the rings are ${Object.keys(RINGS).join(', ')}`);
  if (process.env.KITFOX_KERNEL) throw new Error('KITFOX_KERNEL is set: the tests would look at one kernel alone');
  // A build server builds once: what the next build could use again only costs time there.
  if (process.env.CI) process.env.CARGO_INCREMENTAL ??= '0';
  const rows = [];
  const failures = [];
  const rings = Object.keys(RINGS).filter((name) => asked.length === 0 || asked.includes(name));
  for (const name of rings) {
    // What one ring finds hides nothing of the next; only without what is to be installed there is nothing to see.
    if (rows.some(([ring, state]) => ring === 'setup' && state === 'FAILED')) {
      rows.push([name, 'not run', '']);
      continue;
    }
    console.log(`\n=== ${name}`);
    const began = performance.now();
    let state = 'passed';
    try {
      await RINGS[name]();
    } catch (error) {
      state = 'FAILED';
      failures.push(`ring ${name}: ${error.message}`);
    }
    rows.push([name, state, `${((performance.now() - began) / 1000).toFixed(1)} s`]);
  }
  console.log('');
  for (const [name, state, time] of rows) console.log(`${name.padEnd(12)}${state.padEnd(10)}${time.padStart(9)}`);
  if (failures.length > 0) throw new Error(failures.join('\n'));
});
