// What npm would publish, and what a user's compiler makes of it.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, readFile, readdir, writeFile } from 'node:fs/promises';
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
  assert.match(await readFile(`${web}README.md`, 'utf8'), /Node 20\.16 or newer of 20, or 22\.3 or newer/);
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

/** The strictest compiler on some files: its complaints, if it has any, fail the test. */
async function compiles(files, cwd, module, resolution) {
  const options = `--noEmit --strict --exactOptionalPropertyTypes --noUncheckedIndexedAccess --verbatimModuleSyntax --skipLibCheck false
    --ignoreConfig --types --target ES2022 --lib ES2022,DOM --module ${module} --moduleResolution ${resolution}`;
  const args = [`${web}../node_modules/.bin/tsc`, ...options.trim().split(/\s+/), ...files];
  args.splice(args.indexOf('--types') + 1, 0, '');
  await exec(process.execPath, args, { cwd }).catch(({ stdout }) => assert.fail(stdout));
}

for (const [module, resolution] of [['ESNext', 'Bundler'], ['NodeNext', 'NodeNext']]) {
  test(`its types hold under the strictest compiler, resolved as by ${resolution}`, async () => {
    await compiles([`${web}test/consumer/app.ts`], web, module, resolution);
  });
}

/** What the programs of the READMEs take from around them. */
const AROUND = `declare const output: Element;
declare const qProj: Float32Array, kProj: Float32Array, vProj: Float32Array, fProj: Float32Array, fBias: Float32Array, outProj: Float32Array;
declare const x: Float32Array;
`;

test('the programs in the READMEs compile', async () => {
  // Under the root, where `kitfox` is this package.
  const folder = path.normalize(`${web}../target/readme`);
  await mkdir(folder, { recursive: true });
  const files = [`${folder}/around.d.ts`];
  await writeFile(files[0], AROUND);
  for (const [name, least] of [['README.md', 1], ['web/README.md', 2]]) {
    const text = await readFile(`${web}../${name}`, 'utf8');
    const programs = [...text.matchAll(/^```ts\n([^]*?)^```$/gm)].map(([, program]) => program);
    assert.ok(programs.length >= least, `${name} has ${programs.length} programs`);
    for (const [ix, program] of programs.entries()) {
      files.push(`${folder}/${name.replaceAll(/\W/g, '_')}_${ix}.ts`);
      await writeFile(files.at(-1), program);
    }
  }
  await compiles(files, folder, 'ESNext', 'Bundler');
});
