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
