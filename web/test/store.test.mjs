// A worker that has ended holds its files a little longer than its locks: who comes next waits for them.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { DiskStore } from '../dist/store.js';

const held = () => Object.assign(new Error('modifications are not allowed'), { name: 'NoModificationAllowedError' });
const place = Object.getOwnPropertyDescriptor(globalThis, 'navigator');

/** How often a file is still held; what was asked for. */
let busy;
let asked;
beforeEach(() => {
  [busy, asked] = [0, []];
  const answer = (name, value) => async () => {
    asked.push(name);
    if ((busy -= 1) >= 0) throw held();
    return value;
  };
  const handle = { read: () => 0, write: (bytes) => bytes.length, truncate() {}, getSize: () => 0, flush() {}, close() {} };
  const folder = { getFileHandle: async () => ({ createSyncAccessHandle: answer('open', handle) }) };
  const models = { getDirectoryHandle: async () => folder, removeEntry: answer('remove') };
  const root = { getDirectoryHandle: async () => models };
  Object.defineProperty(globalThis, 'navigator', { value: { storage: { getDirectory: async () => root } }, configurable: true });
});
afterEach(() => {
  mock.timers.reset();
  if (place === undefined) delete globalThis.navigator;
  else Object.defineProperty(globalThis, 'navigator', place);
});

test('what a worker that ended still holds is waited for, to remove it and to write it', async () => {
  const store = await DiskStore.at('key');
  busy = 3;
  assert.equal(await store.remove(), true);
  assert.deepEqual(asked, Array(4).fill('remove'));
  [busy, asked] = [3, []];
  await store.begin('line\n');
  assert.deepEqual(asked, Array(5).fill('open'), 'three times in vain, then journal and data');
});

test('what is held for ever is an error in the end', async () => {
  const store = await DiskStore.at('key');
  busy = Infinity;
  mock.timers.enable({ apis: ['setTimeout'] });
  const removing = store.remove().catch(({ name }) => name);
  let ended;
  void removing.then((name) => (ended = name));
  for (let turn = 0; ended === undefined; turn += 1) {
    assert.ok(turn < 1000, 'it does not end');
    mock.timers.tick(20);
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal(ended, 'NoModificationAllowedError');
  assert.ok(asked.length > 100);
});
