// Files of the system, in Node: what cannot be read is an `io` error with its path and the reason, at once, and without a word of servers;
// what can be read is held against its manifest.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { ForgettingAttentionLayer, Kitfox } from '../dist/kitfox.js';
import { PIECE_BYTES } from '../dist/manifest.js';
import { ModelSource } from '../dist/source.js';

const model = fileURLToPath(new URL('../../www/models/demo.gguf', import.meta.url));

let folder;
let head;
before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'kitfox-files-'));
  await mkdir(path.join(folder, 'folder.gguf'));
  head = path.join(folder, 'head.gguf');
  await writeFile(head, (await readFile(model)).subarray(0, 1000));
  await writeFile(path.join(folder, 'what? 50%#1.gguf'), await readFile(model));
  await writeFile(path.join(folder, 'wrong.json'), '{"version":1');
});
after(() => rm(folder, { recursive: true }));

/** Of the error of a call: quick, and of the file. */
async function refused(call, code, place, why) {
  const events = [];
  const began = performance.now();
  const error = await call((event) => events.push(event)).then(() => assert.fail('it did not fail'), (error) => error);
  assert.equal(error.code, code, error.message);
  assert.ok(error.message.includes(place), error.message);
  assert.match(error.message, why);
  assert.doesNotMatch(error.message, /server|connection|network|fetch|http|attempt|404|file:\/\//i);
  assert.deepEqual(events.filter(({ kind }) => kind === 'retry' || kind === 'restart'), []);
  assert.ok(performance.now() - began < 30_000, 'it was not tried again');
}

/** Each place of a name, in a load, a plan and where a layer has it. */
const PLACES = {
  load: (name) => (onEvent) => Kitfox.load(name, { device: 'cpu', onEvent }),
  'load, without retries': (name) => (onEvent) => Kitfox.load(name, { device: 'cpu', retries: 0, cache: 'off', onEvent }),
  'load, from the cache only': (name) => (onEvent) => Kitfox.load(name, { device: 'cpu', cache: 'only', onEvent }),
  plan: (name) => (onEvent) => Kitfox.plan(name, { device: 'cpu', onEvent }),
  'a list of parts': (name) => (onEvent) => Kitfox.load([name, head], { device: 'cpu', onEvent }),
  'a later part': (name) => (onEvent) => Kitfox.load([head, name], { device: 'cpu', onEvent }),
  'a later part of a plan': (name) => (onEvent) => Kitfox.plan([head, name], { device: 'cpu', onEvent }),
  manifest: (name) => (onEvent) => Kitfox.load(model, { device: 'cpu', manifest: name, onEvent }),
  'manifest of a plan': (name) => (onEvent) => Kitfox.plan(model, { device: 'cpu', manifest: name, onEvent }),
  'manifest of a served file': (name) => (onEvent) => Kitfox.load('https://a.invalid/m.gguf', { device: 'cpu', manifest: name, onEvent }),
  layer: (name) => () => ForgettingAttentionLayer.load(name, { device: 'cpu' }),
};

for (const [place, call] of Object.entries(PLACES)) {
  test(`${place}: a file that is not there, and a folder, are io errors`, async () => {
    const absent = path.join(folder, 'absent.gguf');
    const directory = path.join(folder, 'folder.gguf');
    await refused(call(absent), 'io', absent, /: cannot be read: no such file or directory \(ENOENT\)$/);
    await refused(call(pathToFileURL(absent)), 'io', absent, /ENOENT/);
    await refused(call(directory), 'io', directory, /: cannot be read: it is a directory$/);
    await refused(call('/dev/null'), 'io', '/dev/null', /: cannot be read: it is no regular file$/);
  });
}

test('a name is relative to where the program runs, and said whole', async () => {
  await refused(() => Kitfox.load('nope #1%.gguf', { device: 'cpu' }), 'io', path.resolve('nope #1%.gguf'), /ENOENT/);
  await refused(() => Kitfox.load(head, { device: 'cpu', manifest: true }), 'io', `${head}.manifest.json`, /ENOENT/);
  await refused(() => Kitfox.load(head, { device: 'cpu', manifest: path.join(folder, 'wrong.json') }), 'format', path.join(folder, 'wrong.json'), /text: expected JSON/);
});

test('a wasm module that is not there is named with the reason', async () => {
  const absent = path.join(folder, 'absent.wasm');
  await assert.rejects(Kitfox.load(head, { device: 'cpu', wasmUrl: absent }), (error) => {
    assert.equal(error.code, 'worker');
    assert.match(error.message, /the wasm module cannot be loaded: .*absent\.wasm: cannot be read: no such file or directory \(ENOENT\)$/);
    return true;
  });
});

const wish = { cache: 'auto', revalidate: false, fresh: false, onEvent: assert.fail, onBytes() {}, onVerify() {} };
const url = (name) => pathToFileURL(name).href;

test('a file that its user may not read, and one that changes or goes as it is read, are io errors', async (t) => {
  const fs = process.getBuiltinModule('node:fs');
  const denied = Object.assign(new Error(`EACCES: permission denied, access '${model}'`), { code: 'EACCES' });
  const modules = { 'node:fs': { ...fs, promises: { ...fs.promises, access: () => Promise.reject(denied) } }, 'node:url': { fileURLToPath } };
  const mocked = t.mock.method(process, 'getBuiltinModule', (id) => modules[id]);
  await assert.rejects(ModelSource.open([{ url: url(model) }], wish), { code: 'io', message: `${model}: cannot be read: permission denied (EACCES)` });
  mocked.mock.restore();

  const changing = path.join(folder, 'changing.gguf');
  await writeFile(changing, Buffer.alloc(PIECE_BYTES + 10));
  for (const make of [() => ({ url: url(changing) }), async () => ({ blob: await fs.openAsBlob(changing), name: 'mine.gguf' })]) {
    const part = await make();
    const source = await ModelSource.open([part], wish);
    assert.equal((await source.read(0, 4)).length, 4);
    await truncate(changing, PIECE_BYTES);
    await assert.rejects(source.read(PIECE_BYTES, 4), { code: 'io', message: new RegExp(`${part.name ?? 'changing.gguf'}: byte ${PIECE_BYTES}: cannot be read: `) });
    await writeFile(changing, Buffer.alloc(PIECE_BYTES + 10));
  }
});

test('a file is held against its manifest, piece by piece', async () => {
  const data = await readFile(model);
  const hash = (bytes) => createHash('sha256').update(bytes).digest('hex');
  const pieces = Array.from({ length: Math.ceil(data.length / PIECE_BYTES) }, (_, ix) => data.subarray(ix * PIECE_BYTES, (ix + 1) * PIECE_BYTES));
  const manifest = { version: 1, file: 'm.gguf', bytes: data.length, piece_bytes: PIECE_BYTES, sha256: pieces.map(hash), whole: hash(data) };
  const name = path.join(folder, 'what? 50%#1.gguf');
  const beside = `${name}.manifest.json`;
  for (const [change, code, why] of [
    [{}],
    [{ sha256: manifest.sha256.with(1, '0'.repeat(64)) }, 'integrity', /piece 1 \(from byte 4194304\): expected SHA-256 0{64}, got [0-9a-f]{64}$/],
    [{ bytes: data.length - 1 }, 'integrity', /expected \d+ bytes by its manifest, got \d+$/],
    [{ version: 2 }, 'format', /manifest\.json: version: expected 1, got 2$/],
  ]) {
    await writeFile(beside, JSON.stringify({ ...manifest, ...change }));
    const phases = new Set();
    const load = (onEvent) => Kitfox.load(name, { device: 'cpu', context: 64, manifest: true, onEvent, onProgress: ({ phase }) => phases.add(phase) });
    if (code !== undefined) await refused(load, code, name, why);
    else {
      (await load(assert.fail)).dispose();
      assert.ok(phases.has('verify'));
    }
  }
});
