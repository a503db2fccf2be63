// What gates mean, on cases that can be computed by hand.

import assert from 'node:assert/strict';
import test from 'node:test';
import { effectiveContext, forgetting, livePages, meanForgetting } from '../dist/forgetting.js';

const HALF = Math.log(0.5);

/** A layer of three heads: one forgets half of everything at each token, one nothing, one all. And a layer that forgets nothing. */
const gates = {
  tokens: ['a', 'b', 'c', 'd'],
  ids: [1, 2, 3, 4],
  layers: 2,
  heads: 3,
  logF: Float32Array.from([[HALF, HALF, HALF, HALF], [0, 0, 0, 0], [-16384, -16384, -16384, -16384], Array(12).fill(0)].flat()),
};

const near = (got, want) => got.length === want.length && want.every((value, ix) => Math.abs(got[ix] - value) < 1e-7);

test('what is left of a token is the product of the gates behind it', () => {
  assert.ok(near(forgetting(gates, 0, 0, 3), [0.125, 0.25, 0.5, 1]));
  assert.ok(near(forgetting(gates, 0, 1, 2), [1, 1, 1]));
  assert.ok(near(forgetting(gates, 0, 2, 3), [0, 0, 0, 1]));
  assert.ok(near(forgetting({ ...gates, window: 2 }, 0, 1, 3), [0, 0, 1, 1]));
  assert.ok(near(meanForgetting(gates, 1, 0), [(0.5 + 1 + 0) / 3, 1]));
  assert.ok(near(meanForgetting(gates, 1), [(1.5 + 3) / 6, 1]));
});

test('the effective context is the mean row sum', () => {
  const want = [(1 + 1.5 + 1.75 + 1.875) / 4, 2.5, 1];
  assert.ok(near(want.map((_, head) => effectiveContext(gates, 0, head)), want));
});

test('only the last 64 rows count', () => {
  const n = 164;
  const logF = Float32Array.from({ length: n }, (_, t) => (t < 100 ? -50 : 0));
  const long = { tokens: Array(n).fill(''), ids: Array(n).fill(0), layers: 1, heads: 1, logF };
  assert.ok(near([effectiveContext(long, 0, 0)], [(2 + 65) / 2]));
});

test('a page dies when its last key has faded by τ and all keys to there, for each head that shares it, or when the window has left it', () => {
  const n = 400;
  const logF = Float32Array.from({ length: 2 * n }, (_, ix) => (ix < n ? HALF : 0));
  const two = { tokens: Array(n).fill(''), ids: Array(n).fill(0), layers: 1, heads: 2, kvHeads: 2, logF, u: Float32Array.of(2, 2), prune: Math.exp(-10) };
  const all = Array.from({ length: n }, (_, t) => Math.ceil((t + 1) / 64));
  // f = 1/2: G is 2 at the end of a page, so a page is dead Λ = 4 + 10 + ln 2 = 14.7 behind its end: after 22 tokens.
  const dead = (t) => [0, 1, 2, 3, 4, 5].filter((page) => t >= (page + 1) * 64 - 1 + 22).length;
  assert.deepEqual([...livePages(two, 0, 0)], all.map((pages, t) => pages - dead(t)));
  assert.deepEqual([...livePages(two, 0, 1)], all, 'it forgets nothing');
  assert.deepEqual([...livePages({ ...two, kvHeads: 1 }, 0, 0)], all, 'a page that two heads share lives as long as one needs it');
  assert.deepEqual([...livePages({ ...two, prune: undefined }, 0, 0)], all, 'nothing is pruned');
  assert.deepEqual([...livePages({ ...two, u: undefined }, 0, 0)], all, 'nothing bounds the scores');
  // The next of 130 tokens sees the last 99 of them.
  const windowed = livePages({ ...two, window: 100 }, 0, 1);
  assert.deepEqual([...windowed.subarray(128, 131), ...windowed.subarray(162, 164)], [3, 3, 3, 2, 2]);
  for (const [name, ...place] of [['layer', 1, 0], ['kvHead', 0, 2]]) {
    assert.throws(() => livePages(two, ...place), (error) => error.code === 'argument' && error.message.startsWith(`${name}:`));
  }
});

test('places that are not there are refused by name', () => {
  for (const [name, ...place] of [['layer', 2, 0, 0], ['head', 0, 3, 0], ['i', 0, 0, 4], ['i', 0, 0, -1], ['i', 0, 0, 0.5]]) {
    assert.throws(() => forgetting(gates, ...place), (error) => error.code === 'argument' && error.message.startsWith(`${name}:`));
  }
  for (const i of [-2, -1, 4, 0.5, NaN, 1e15, undefined]) {
    for (const layer of [undefined, 0]) {
      assert.throws(() => meanForgetting(gates, i, layer), (error) => error.code === 'argument' && error.message.startsWith('i: expected a whole number from 0 to 3'));
    }
  }
});
