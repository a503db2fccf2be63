// The worker's loop by itself.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { serve } from '../dist/serve.js';

test('a step leaves nothing behind at what tells of a panic', async () => {
  const crash = new Promise(() => {});
  let reactions = 0;
  const then = crash.then.bind(crash);
  crash.then = (...heard) => {
    reactions += 1;
    return then(...heard);
  };
  const said = [];
  let heard;
  const port = { onmessage: null, postMessage: (message) => (said.push(message), heard?.()) };
  const answer = async ({ call, n }, { step, say }) => {
    let sum = 0;
    for (let ix = 0; ix < n; ix += 1) sum += await step(async () => ix);
    say({ type: 'value', call, value: sum });
  };
  serve(port, { load: async () => ({ info: () => ({}), answer }), crash });
  const until = (type) => new Promise((resolve) => (heard = () => said.at(-1).type === type && resolve(said.at(-1))));
  const ready = until('ready');
  port.onmessage({ data: { type: 'load' } });
  await ready;
  const before = reactions;
  const value = until('value');
  port.onmessage({ data: { type: 'any', call: 1, n: 100 } });
  assert.equal((await value).value, 4950);
  assert.equal(reactions, before);
});

test('a panic between two steps ends the call: the engine is not called again', async () => {
  let panic;
  const crash = new Promise((_, reject) => (panic = reject));
  let steps = 0;
  let ended;
  const end = new Promise((resolve) => (ended = resolve));
  const answer = async (call, { step }) => {
    try {
      for (;;) {
        await step(async () => (steps += 1));
        if (steps === 2) panic(Object.assign(new Error('index out of bounds'), { code: 'crashed' }));
        if (steps > 9) throw new Error('it was called again');
      }
    } catch (thrown) {
      ended(thrown);
      throw thrown;
    }
  };
  const said = [];
  let heard;
  const ready = new Promise((resolve) => (heard = resolve));
  const port = { onmessage: null, postMessage: (message) => (said.push(message.type), message.type === 'ready' && heard()) };
  serve(port, { load: async () => ({ info: () => ({}), answer }), crash });
  port.onmessage({ data: { type: 'load' } });
  await ready;
  port.onmessage({ data: { type: 'any', call: 1 } });
  port.onmessage({ data: { type: 'any', call: 2 } });
  assert.equal((await end).message, 'index out of bounds');
  assert.equal(steps, 2);
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(said.filter((type) => type !== 'crashed'), ['begun', 'ready', 'started'], 'nor does the next call begin');
  assert.ok(said.includes('crashed'));
});
