// What npm would publish, and what a user's compiler makes of it.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile, readdir } from 'node:fs/promises';
import path from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const web = fileURLToPath(new URL('..', import.meta.url));
const exec = promisify(execFile);

/** Of the archive that users fetch. */
const MOST_BYTES = 2_000_000;

async function packed() {
  const { stdout } = await exec('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd: web });
  const [{ files, size }] = JSON.parse(stdout);
  assert.ok(size <= MOST_BYTES, `the package has ${size} bytes`);
  return files.map((file) => file.path);
}

test('the package names the versions of Node that its README and its own refusal name', async () => {
  const { engines } = JSON.parse(await readFile(`${web}package.json`, 'utf8'));
  assert.equal(engines.node, '>=20.16 <21 || >=22.3');
  assert.match(await readFile(`${web}README.md`, 'utf8'), /Node 20\.16 or newer \(22\.3 or newer of 22\)/);
  assert.match(await readFile(`${web}node.ts`, 'utf8'), /expected 20\.16 or newer \(of 22: 22\.3 or newer\)/);
});

test('the package holds what its exports, its modules and a reader ask for, and nothing else', async () => {
  const files = await packed();
  const { exports } = JSON.parse(await readFile(`${web}package.json`, 'utf8'));
  const targets = Object.values(exports).flatMap((target) => (typeof target === 'string' ? target : Object.values(target)));
  for (const file of [...targets.map((target) => path.normalize(target)), 'README.md', 'LICENSE-MIT', 'LICENSE-APACHE']) {
    assert.ok(files.includes(file), `${file} is missing`);
  }
  for (const file of files.filter((name) => /\.(js|d\.ts)$/.test(name))) {
    const text = await readFile(web + file, 'utf8');
    const asked = [...text.matchAll(/(?:from |import\(|import |new URL\()['"](\.[^'"]+)['"]/g)].map(([, to]) => path.join(path.dirname(file), to));
    for (const other of asked) assert.ok(files.includes(other), `${file} asks for ${other}`);
  }
  const sources = new Set(await readdir(web));
  for (const file of files.filter((name) => /^dist\/[^/]+\.js$/.test(name))) {
    assert.ok(sources.has(file.slice('dist/'.length).replace(/js$/, 'ts')), `${file} has no source`);
  }
});

for (const [module, resolution] of [['ESNext', 'Bundler'], ['NodeNext', 'NodeNext']]) {
  test(`its types hold under the strictest compiler, resolved as by ${resolution}`, async () => {
    const options = `--noEmit --strict --exactOptionalPropertyTypes --noUncheckedIndexedAccess --verbatimModuleSyntax --skipLibCheck false
      --ignoreConfig --types --target ES2022 --lib ES2022,DOM --module ${module} --moduleResolution ${resolution}`;
    const args = [`${web}../node_modules/.bin/tsc`, ...options.trim().split(/\s+/), `${web}test/consumer/app.ts`];
    args.splice(args.indexOf('--types') + 1, 0, '');
    await exec(process.execPath, args, { cwd: web }).catch(({ stdout }) => assert.fail(stdout));
  });
}
