// Two tabs and one copy: who reads it holds no lock, and may find it damaged, or replaced by another tab meanwhile.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { Entry, lock } from '../dist/cache.js';
import { sha256 } from '../dist/digest.js';
import { StartOver } from '../dist/download.js';
import { PIECE_BYTES } from '../dist/manifest.js';
import { ServedFile } from '../dist/served.js';

const ADDRESS = 'http://page.example/m.gguf';
const wish = { cache: 'auto', revalidate: false, fresh: false, onEvent() {}, onBytes() {}, onVerify() {} };
const pieces = [new Uint8Array(PIECE_BYTES).fill(7), new Uint8Array(100).fill(8)];
const missing = () => Object.assign(new Error('there is none'), { name: 'NotFoundError' });

/** A file of the private file system: whoever has asked for it sees it as it was then, or not at all. */
class Stored {
  bytes = new Uint8Array(0);
  changes = 0;

  getFile = async () => {
    const { bytes, changes } = this;
    const read = (part) => (this.changes === changes ? part : Promise.reject(new DOMException('it has changed', 'NotReadableError')));
    return { text: async () => read(new TextDecoder().decode(bytes)), slice: (from, to) => ({ arrayBuffer: async () => read(bytes.slice(from, to).buffer) }) };
  };

  createSyncAccessHandle = async () => {
    const set = (bytes) => ([this.bytes, this.changes] = [bytes, this.changes + 1]);
    return {
      read: (into, { at }) => (into.set(this.bytes.subarray(at, at + into.length)), into.length),
      write: (from, { at }) => {
        const grown = new Uint8Array(Math.max(this.bytes.length, at + from.length));
        grown.set(this.bytes);
        grown.set(from, at);
        set(grown);
        return from.length;
      },
      truncate: (length) => set(this.bytes.slice(0, length)),
      getSize: () => this.bytes.length,
      flush() {},
      close() {},
    };
  };
}

class Folder {
  kind = 'directory';
  has = new Map();

  getDirectoryHandle = async (name, options) => this.#get(name, options, Folder);
  getFileHandle = async (name, options) => this.#get(name, options, Stored);

  #get(name, options, Kind) {
    if (!this.has.has(name) && options?.create !== true) throw missing();
    if (!this.has.has(name)) this.has.set(name, new Kind());
    return this.has.get(name);
  }

  removeEntry = async (name) => {
    if (!this.has.has(name)) throw missing();
    for (const file of this.has.get(name).has.values()) file.changes += 1;
    this.has.delete(name);
  };
}

const place = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
let root;
let holding;
beforeEach(() => {
  [root, holding] = [new Folder(), 0];
  let last = Promise.resolve();
  const locks = {
    request: (name, { ifAvailable = false }, held) => {
      if (ifAvailable && holding > 0) return Promise.resolve(held(null));
      holding += 1;
      const turn = last.then(() => held({ name })).finally(() => (holding -= 1));
      last = turn.catch(() => undefined);
      return turn;
    },
  };
  Object.defineProperty(globalThis, 'navigator', { value: { storage: { getDirectory: async () => root }, locks }, configurable: true });
});
afterEach(() => (place === undefined ? delete globalThis.navigator : Object.defineProperty(globalThis, 'navigator', place)));

/** Puts a complete copy in place, as a tab that downloads it. */
async function put(entry) {
  await entry.begin({ etag: '"one"' }, undefined);
  for (const piece of pieces) await entry.add(piece, await sha256(piece));
  await entry.publish(PIECE_BYTES + 100, false);
  await entry.close();
}
const complete = async () => (await Entry.open(ADDRESS)).journal?.complete !== undefined;
const data = () => [...root.has.get('kitfox').has.values()][0].has.get('data');

/** A tab that has read the first piece of a complete copy. */
async function reader() {
  await put(await Entry.open(ADDRESS));
  const file = await ServedFile.open(ADDRESS, wish);
  assert.equal((await file.next()).length, PIECE_BYTES);
  return file;
}

test('a copy that is damaged is removed', async () => {
  const file = await reader();
  data().bytes[PIECE_BYTES + 5] ^= 1;
  await assert.rejects(file.next(), StartOver);
  assert.equal(await complete(), false);
  await file.close();
});

test('a copy that another tab has put in its place meanwhile stays', async () => {
  const file = await reader();
  const other = await Entry.open(ADDRESS);
  await other.remove();
  await put(other);
  await assert.rejects(file.next(), StartOver);
  assert.equal(await complete(), true);
  await file.close();
});

test('a transfer of another tab is waited for, and told', async () => {
  const told = [];
  const other = await Entry.open(ADDRESS);
  const release = await lock(await other.lockName());
  const opening = ServedFile.open(ADDRESS, { ...wish, onEvent: (event) => told.push(event.kind) });
  while (told.length === 0) await new Promise((resolve) => setImmediate(resolve));
  await put(other);
  release();
  const file = await opening;
  assert.deepEqual(told, ['waiting', 'cached']);
  assert.equal((await file.next()).length, PIECE_BYTES);
  await file.close();
});

test('a server that says nothing is not waited for where there is a copy', async () => {
  await put(await Entry.open(ADDRESS));
  const { fetch } = globalThis;
  try {
    globalThis.fetch = (_, { signal }) => new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    const began = performance.now();
    const file = await ServedFile.open(ADDRESS, { ...wish, revalidate: true });
    assert.ok(performance.now() - began < 30_000);
    assert.equal((await file.next()).length, PIECE_BYTES);
    await file.close();
  } finally {
    globalThis.fetch = fetch;
  }
});

test('a copy that another tab is writing is left alone, and not waited for', async () => {
  const file = await reader();
  const other = await Entry.open(ADDRESS);
  const release = await lock(await other.lockName());
  await other.remove();
  await assert.rejects(file.next(), StartOver);
  await put(other);
  release();
  assert.equal(await complete(), true);
  await file.close();
  (await lock(await other.lockName()))();
});
