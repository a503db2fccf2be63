// What is told of an answer at its end, however it ended.

import assert from 'node:assert/strict';
import test, { afterEach } from 'node:test';
import { holdModel } from '../dist/answers.js';
import { Kitfox } from '../dist/kitfox.js';
import { Speller } from './speller.mjs';
import { fakeWorkers, promptly } from './workers.mjs';

const workers = fakeWorkers(() => {
  const engine = new Speller();
  return { engine, held: holdModel(engine, () => ({ device: 'speller' })) };
});
const { made } = workers;
afterEach(workers.end);

test('an answer that never began has its summary, too: ended by its signal before, and left before its first piece', async () => {
  const fox = await Kitfox.load('m');
  const never = { finish: 'aborted', promptTokens: 0, tokens: 0, tokensPerSecond: 0, seed: 5 };
  const ended = fox.generate('abc', { seed: 5, signal: AbortSignal.abort() });
  await assert.rejects(ended.next(), { code: 'aborted' });
  assert.deepEqual(ended.summary, never);
  const left = fox.generate('abc', { seed: 5 });
  assert.deepEqual(await left.return(), { done: true, value: never });
  assert.deepEqual(left.summary, never);
  const failed = fox.generate('bad');
  await assert.rejects(failed.next(), { code: 'context-full' });
  assert.deepEqual([await failed.return(), failed.summary], [{ done: true, value: undefined }, undefined]);
});

test('tokens that come together count for the time of their piece: none is counted for the first', async (t) => {
  const fox = await Kitfox.load('m');
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  let open;
  let shut = new Promise((resolve) => (open = resolve));
  let pieces = 0;
  made[0].engine.next = async () => {
    await shut;
    shut = new Promise((resolve) => (open = resolve));
    pieces += 1;
    return { text: 'abcd', ids: [1, 2, 3, 4], kvBytesLive: 0, kvBytesFreed: 0, ...(pieces === 3 ? { finish: 'length' } : {}) };
  };
  const generation = fox.generate('abc');
  for (let piece = 0; piece < 3; piece += 1) {
    const next = generation.next();
    open();
    assert.equal((await promptly(next)).value.ids.length, 4);
    now += 500;
  }
  await promptly(generation.next());
  // Two pieces of four tokens in a second, after the first.
  assert.deepEqual([generation.summary.tokens, generation.summary.tokensPerSecond], [12, 8]);
});
