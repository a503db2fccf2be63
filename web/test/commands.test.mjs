// What texts and scripts tell people to run is there: a test program that was moved would be missed by its reader only.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readFile, readdir } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';

const root = fileURLToPath(new URL('../../', import.meta.url));
const inFolder = async (folder) => (await readdir(root + folder)).filter((name) => /\.(mjs|py|md)$/.test(name)).map((name) => `${folder}/${name}`);
const files = [
  ...(await inFolder('.')),
  ...(await inFolder('web')),
  ...(await inFolder('tests/evidence')),
  ...(await inFolder('tools')),
];
const texts = await Promise.all(files.map(async (name) => [name, await readFile(root + name, 'utf8')]));

/** What `pattern` (with one group) finds in them: pairs of a file and what it names. */
const named = (pattern) => texts.flatMap(([file, text]) => [...text.matchAll(pattern)].map(([, name]) => [file, name]));

test('test programs, npm scripts and evidence that texts and tools name are there', async () => {
  const { scripts } = JSON.parse(await readFile(`${root}package.json`, 'utf8'));
  const programs = named(/(?<!node )--test'?,? '?([a-z_]+)/g);
  assert.ok(programs.length > 3, 'the pattern finds some');
  for (const [file, name] of programs) {
    assert.ok(existsSync(`${root}tests/${name}.rs`) || existsSync(`${root}tests/${name}/main.rs`), `${file}: no test program ${name}`);
  }
  for (const [file, name] of named(/npm run ([a-z]+)/g)) assert.ok(scripts[name] !== undefined, `${file}: no script ${name}`);
  for (const [file, name] of named(/npm run evidence ([a-z_]+)/g)) {
    assert.ok(existsSync(`${root}tests/evidence/${name}.mjs`), `${file}: no evidence ${name}`);
  }
  for (const [file, name] of named(/node --test ([\w/.]+)/g)) assert.ok(existsSync(root + name), `${file}: no ${name}`);
});

test('files and folders that texts name are there', () => {
  const paths = named(/`((?:src|shaders|tests|web|www|tools|fuzz|docs|examples|\.ci)\/[\w./-]+)`/g).filter(([, path]) => !/NAME|\bdist\b/.test(path));
  assert.ok(paths.length > 30, 'the pattern finds some');
  for (const [file, path] of paths) assert.ok(existsSync(root + path), `${file}: no ${path}`);
});

test('no file is longer than one sitting, and a kernel not than one look', async () => {
  const kernels = (await readdir(`${root}src/kernel`)).filter((name) => name.endsWith('.rs'));
  assert.ok(kernels.length > 20, 'they are found');
  for (const name of kernels) {
    const lines = (await readFile(`${root}src/kernel/${name}`, 'utf8')).split('\n').length - 1;
    assert.ok(lines <= 200, `src/kernel/${name} has ${lines} lines`);
  }
  const kinds = /\.(rs|wgsl|ts|jsx|mjs|js|css|html)$/;
  const skipped = /(^|\/)(node_modules|dist|target|corpus)\//;
  for (const folder of ['src', 'shaders', 'web', 'www', 'tools', 'tests', 'fuzz', 'examples'].filter((folder) => existsSync(root + folder))) {
    const names = (await readdir(root + folder, { recursive: true })).filter((name) => kinds.test(name) && !skipped.test(name));
    assert.ok(names.length > 0, `${folder}: some are found`);
    for (const name of names) {
      const lines = (await readFile(`${root}${folder}/${name}`, 'utf8')).split('\n').length - 1;
      assert.ok(lines <= (name.endsWith('.wgsl') ? 200 : 500), `${folder}/${name} has ${lines} lines`);
    }
  }
});
