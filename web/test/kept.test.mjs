import assert from 'node:assert/strict';
import test from 'node:test';
import { Kept } from '../dist/kept.js';

globalThis.location ??= new URL('https://fox.example/page');

/** As much of the Cache API as is used. */
function storage() {
  const held = new Map();
  const cache = {
    keys: async () => [...held.keys()].map((url) => ({ url })),
    match: async (request) => held.get(request.url)?.clone(),
    put: async (url, response) => void held.set(url, response),
    delete: async (url) => held.delete(url),
  };
  return { held, open: async () => cache };
}

const settled = () => new Promise((resolve) => setTimeout(resolve));

test('what a start kept the next one reads, the newest words of a name only', async () => {
  const place = storage();
  const first = await Kept.open(place);
  assert.equal(first.recall('kernels-1.json'), undefined);
  first.remember('kernels-1.json', 'some');
  first.remember('kernels-1.json', 'more');
  assert.equal(first.recall('kernels-1.json'), 'more');
  await settled();
  assert.equal((await Kept.open(place)).recall('kernels-1.json'), 'more');
});

test('names of older versions go', async () => {
  const place = storage();
  const kept = await Kept.open(place);
  for (let ix = 0; ix < 9; ix++) kept.remember(`kernels-${ix}.json`, String(ix));
  await settled();
  assert.equal(place.held.size, 4);
  const next = await Kept.open(place);
  assert.deepEqual([next.recall('kernels-4.json'), next.recall('kernels-8.json')], [undefined, '8']);
});

test('where nothing can be kept there is nothing to ask, and a write that fails later is nobody’s error', async () => {
  assert.equal(await Kept.open(undefined), undefined);
  assert.equal(await Kept.open({ open: () => Promise.reject(new Error('SecurityError')) }), undefined);
  const full = storage();
  const { put } = await full.open();
  assert.ok(put);
  const kept = await Kept.open({ open: async () => ({ ...(await full.open()), put: () => Promise.reject(new Error('QuotaExceededError')) }) });
  kept.remember('kernels-1.json', 'words');
  await settled();
  assert.equal(kept.recall('kernels-1.json'), 'words');
});
