// What gates mean, on cases that can be computed by hand.

import assert from 'node:assert/strict';
import test from 'node:test';
import { effectiveContext, forgetting, meanForgetting } from '../dist/forgetting.js';

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
