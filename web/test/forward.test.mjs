import assert from 'node:assert/strict';
import test from 'node:test';
import { Forward } from '../dist/forward.js';

const bytes = Uint8Array.from({ length: 300_000 }, (_, i) => (i * 31 + (i >> 8)) & 0xff);

function pieces(part) {
  let at = 0;
  return async () => bytes.slice(at, (at += part));
}

for (const part of [1000, 65_536, 100_000, 1_000_000]) {
  test(`reads forward, over gaps and to the end, from pieces of ${part}`, async () => {
    const forward = new Forward(pieces(part));
    let at = 0;
    for (const [skip, n] of [[0, 4], [0, 100], [7, 70_000], [5000, 1], [0, 100_000], [1, 65_537]]) {
      at += skip;
      assert.deepEqual(await forward.read(at, n), bytes.slice(at, at + n));
      at += n;
    }
    assert.deepEqual(await forward.read(at, 1e6), bytes.slice(at), 'a read past the end gives what there is');
    assert.equal((await forward.read(bytes.length, 10)).length, 0);
    assert.equal((await forward.read(bytes.length + 5, 10)).length, 0);
  });
}

for (const part of [5000, 100_000]) test(`what was read last can be read again, and not more, from pieces of ${part}`, async () => {
  const forward = new Forward(pieces(part));
  await forward.read(0, 100_000);
  assert.deepEqual(await forward.read(99_000, 500), bytes.slice(99_000, 99_500));
  assert.deepEqual(await forward.read(99_900, 5_000), bytes.slice(99_900, 104_900), 'across the edge');
  await forward.read(104_900, 10_000);
  assert.deepEqual(await forward.read(52_000, 70_000), bytes.slice(52_000, 122_000), 'the last 64 KiB of what came before');
  await assert.rejects(forward.read(0, 4), RangeError);
});

test('drained, it has taken every piece', async () => {
  let taken = 0;
  const next = pieces(70_000);
  const forward = new Forward(async () => {
    const piece = await next();
    taken += piece.length;
    return piece;
  });
  await forward.read(0, 10);
  await forward.drain();
  assert.equal(taken, bytes.length);
});

test('a piece that fails is asked for again by the next read', async () => {
  let fails = true;
  const next = pieces(50_000);
  const forward = new Forward(() => (fails ? Promise.reject(new Error('gone')) : next()));
  await assert.rejects(forward.read(0, 10), /gone/);
  fails = false;
  assert.deepEqual(await forward.read(0, 60_000), bytes.slice(0, 60_000));
});
