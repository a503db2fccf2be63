// A program for Node in one file, as a bundler makes it, and run where no package is: the worker and the wasm module are where it says.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { rolldown } from 'rolldown';
import { Kitfox } from '../dist/kitfox.js';

const web = fileURLToPath(new URL('..', import.meta.url));
const model = path.join(web, '../www/models/demo.gguf');

const PROGRAM = `
import { ForgettingAttentionLayer, Kitfox } from 'kitfox';

const workerUrl = new URL('./lib/node-worker.js', import.meta.url);
const wasmUrl = new URL('./lib/kitfox_bg.wasm', import.meta.url);
const model = process.argv[2];
const fails = (call) => call.then(() => 'it did not fail', ({ code, message }) => code + ': ' + message);
const told = { lost: await fails(Kitfox.load(model, { device: 'cpu' })) };
told.probe = await Kitfox.probe({ workerUrl });
told.blind = await Kitfox.probe();
told.wrong = [await fails(Kitfox.probe({ workerUrl: 5 })), await fails(Kitfox.probe({ workerUrl: 'http://' }))];
const fox = await Kitfox.load(model, { device: 'cpu', workerUrl, wasmUrl });
told.ids = [];
for await (const { ids } of fox.generate('The old fox', { temperature: 0, maxTokens: 8 })) told.ids.push(...ids);
fox.dispose();
told.plan = (await Kitfox.plan(model, { device: 'cpu', workerUrl, wasmUrl })).fits;
const layer = await ForgettingAttentionLayer.load(
  { hiddenSize: 4, numHeads: 1, mode: 'encoder', bitnet: false, qProj: new Float32Array(16), kProj: new Float32Array(16), vProj: new Float32Array(16), fProj: new Float32Array(4), outProj: new Float32Array(16) },
  { device: 'cpu', workerUrl, wasmUrl },
);
told.y = [...(await layer.run(new Float32Array(8)))];
layer.dispose();
console.log(JSON.stringify(told));
`;

let folder;
let built;
before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'kitfox-bundled-'));
  const source = path.join(folder, 'source');
  built = path.join(folder, 'built');
  await mkdir(path.join(source, 'node_modules'), { recursive: true });
  await symlink(web, path.join(source, 'node_modules/kitfox'));
  await writeFile(path.join(source, 'main.js'), PROGRAM);
  await writeFile(path.join(source, 'node-worker.js'), "import 'kitfox/node-worker.js';\n");
  const warnings = [];
  for (const [name, to] of [['main.js', built], ['node-worker.js', path.join(built, 'lib')]]) {
    const bundle = await rolldown({ input: path.join(source, name), cwd: source, platform: 'node', onwarn: ({ message }) => warnings.push(message) });
    await bundle.write({ dir: to, format: 'esm', entryFileNames: name, codeSplitting: false });
    await bundle.close();
  }
  assert.deepEqual(warnings, []);
  await copyFile(path.join(web, 'dist/wasm/kitfox_bg.wasm'), path.join(built, 'lib/kitfox_bg.wasm'));
  await writeFile(path.join(built, 'package.json'), '{"type":"module"}');
  await rm(source, { recursive: true });
});
after(() => rm(folder, { recursive: true }));

test('a bundled program for Node runs with its worker and its module beside it', async () => {
  assert.deepEqual((await readdir(built, { recursive: true })).toSorted(), ['lib', 'lib/kitfox_bg.wasm', 'lib/node-worker.js', 'main.js', 'package.json']);
  const { stdout } = await promisify(execFile)(process.execPath, ['main.js', model], { cwd: built, timeout: 300_000 });
  const told = JSON.parse(stdout);

  const fox = await Kitfox.load(model, { device: 'cpu' });
  const ids = [];
  for await (const piece of fox.generate('The old fox', { temperature: 0, maxTokens: 8 })) ids.push(...piece.ids);
  fox.dispose();
  assert.deepEqual([told.ids, told.plan, told.y], [ids, true, Array(8).fill(0)]);

  // The thread found what it looks for; without the address it was not there to look.
  assert.match(told.probe.reason, /^Node has no WebGPU of its own/);
  assert.doesNotMatch(told.probe.reason, /failed/);
  for (const words of [told.lost, told.blind.reason]) assert.match(words, /the worker cannot be started: Cannot find module .*node-worker\.js/);
  assert.match(told.wrong[0], /^argument: probe: workerUrl: expected a string or URL, got 5$/);
  assert.match(told.wrong[1], /^argument: probe: workerUrl: expected a URL, got "http:\/\/"$/);
});
