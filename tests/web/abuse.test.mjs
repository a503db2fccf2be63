// A caller without manners: eight calls at once, calls dropped at every point, models loaded and disposed by the dozen, files that
// lie. Each call is as if it were alone, each error typed, and nothing is left behind.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { chromium, firefox, inPage, openPage } from './browsers.mjs';
import { serveDeep } from './deep.mjs';
import { holdings, round } from './rounds.mjs';

const SMALL = 'fox_pro_pruned';

// Of this file alone: files run side by side.
let server;
let browser;
before(async () => {
  server = await serveDeep(SMALL, 2, { bytes: true });
  browser = await chromium();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

async function blank(of = browser) {
  return openPage(of, `${server.url}/blank`);
}

/** The browser tells a worker's end a little later than it is. */
async function workersEnd(page) {
  for (let wait = 0; page.workers().length > 0; wait += 50) {
    assert.ok(wait < 20_000, `${page.workers().length} workers are left`);
    await sleep(50);
  }
}

// A GPU draws several tokens at once, while another call may wait: in software a small model does.
for (const [device, url, options] of [['cpu', '/models/demo.gguf', {}], ['gpu', `/deep/${SMALL}.gguf`, { baseline: true, context: 256 }]]) {
  test(`eight calls at once on the ${device} answer as they do alone`, async () => {
    const { page, complaints } = await blank();
    const run = async (Kitfox, { collect }, { url, options }) => {
      const fox = await Kitfox.load(url, options);
      const call = (seed) => collect(fox.generate(`The fox said ${'again and '.repeat(seed)}`, { seed, maxTokens: 8, temperature: 1 + seed / 8, ignoreEos: true }));
      const told = ({ text, ids, summary: { finish, tokens, promptTokens } }) => ({ text, ids, finish, tokens, promptTokens });
      const [alone, seeds] = [[], [...Array(8).keys()]];
      for (const seed of seeds) alone.push(told(await call(seed)));
      const together = (await Promise.all(seeds.map(call))).map(told);
      const { gpu } = fox.info;
      fox.dispose();
      return { alone, together, gpu };
    };
    const { alone, together, gpu } = await inPage(page, run, { url, options: { device, ...options } });
    assert.equal(gpu, device === 'gpu');
    assert.deepEqual(together, alone);
    assert.deepEqual([...new Set(alone.map(({ tokens }) => tokens))], [8]);
    assert.equal(new Set(alone.map(({ ids }) => ids.join())).size, 8, 'each has its own answer');
    assert.deepEqual(complaints, []);
    await page.close();
  });
}

test('disposed at any point, a call ends with its error and the worker is gone', async () => {
  const { page, complaints } = await blank();
  const messages = await inPage(page, async (Kitfox, { collect, fails }) => {
    const LONG = 'The fox ran over the hill and down to the river. '.repeat(30);
    const load = () => Kitfox.load('/models/demo.gguf', { device: 'cpu', scores: true });
    const messages = {};
    let fox = await load();
    messages.prefill = await fails(collect(fox.generate(LONG, { onPrefill: () => fox.dispose() })));
    fox = await load();
    const running = fox.generate('a');
    await running.next();
    const queued = [collect(fox.generate('b')), fox.logits([1, 2, 3])];
    fox.dispose();
    fox.dispose();
    messages.decode = await fails(collect(running));
    [messages.queued, messages.logits] = await Promise.all(queued.map(fails));
    messages.later = await fails(fox.generate('a').next());
    messages.laterLogits = await fails(fox.logits([1]));
    return messages;
  });
  for (const [at, message] of Object.entries(messages)) assert.equal(message, 'disposed: the model was disposed', at);
  await workersEnd(page);
  assert.deepEqual(complaints, []);
});

test('loops that are left by break, throw and return, and calls of next in parallel, leave the model as it was', async () => {
  const { page, complaints } = await blank();
  const { first, seen } = await inPage(page, async (Kitfox, { collect }) => {
    const fox = await Kitfox.load('/models/demo.gguf', { device: 'cpu' });
    const call = (maxTokens) => fox.generate('The old fox', { temperature: 0, maxTokens });
    const short = async () => (await collect(call(4))).ids.join();
    const [first, seen] = [await short(), []];
    for await (const piece of call(1000)) if (piece.ids.length > 0) break;
    seen.push(await short());
    try {
      for await (const piece of call(1000)) throw new Error(piece.text);
    } catch {
      seen.push(await short());
    }
    const early = call(1000);
    await early.return();
    if (!(await early.next()).done) throw new Error('it went on');
    const late = call(1000);
    const [one, two] = await Promise.all([late.next(), late.next(), late.return()]);
    seen.push(await short(), [...one.value.ids, ...two.value.ids].join() === first.split(',').slice(0, 2).join() ? first : 'mixed up');
    call(5); // never iterated
    seen.push(await short());
    fox.dispose();
    return { first, seen };
  });
  assert.deepEqual(seen, Array(5).fill(first));
  assert.deepEqual(complaints, []);
});

/**
 * Most that the browser's processes may grow by in all rounds, about twice what they do: on the CPU a model's wasm heap of each would be
 * six times that, and a graphics process in software goes up and down by some.
 */
const MOST_GROWN = { cpu: 15e6, gpu: 40e6 };

// A load takes many seconds on a GPU in software: twenty of them there are `npm run evidence rounds`.
for (const [name, device, rounds] of [['Chromium', 'cpu', 20], ['Chromium', 'gpu', 3], ['Firefox', 'cpu', 20]]) {
  test(`${rounds} models in a row, and two at once, on the ${device} of ${name}: workers, memory and what the GPU holds stay flat`, async () => {
    const own = name === 'Firefox' ? await firefox() : browser;
    try {
      const { page, complaints } = await blank(own);
      const play = () => round(page, device, `/deep/${SMALL}.gguf`);
      await play(); // finds out what the later ones recall
      const { heapBytes, ...began } = await play();
      assert.equal(began.buffers > 0 && began.bytes >= began.deviceBytes, device === 'gpu');
      const same = ({ heapBytes: heap, ...again }, which) => {
        assert.deepEqual(again, began, which);
        assert.ok(heap <= heapBytes + 2 ** 16, `${which}: the wasm heap has ${heap} bytes, it had ${heapBytes}`);
      };
      await workersEnd(page);
      const before = await holdings(own, page);
      for (let n = 2; n < rounds; n += 1) same(await play(), `round ${n}`);
      for (const one of await Promise.all([play(), play()])) same(one, 'of two at once');
      await workersEnd(page);
      // What is let go of goes in its own time.
      let grown;
      for (let wait = 0; wait < 60; wait += 1) {
        const after = await holdings(own, page);
        grown = { page: after.page - before.page, browser: after.browser - before.browser };
        if (grown.page < 2 ** 18 && grown.browser < MOST_GROWN[device]) break;
        await sleep(1000);
      }
      console.log(`${name}, ${device}: the page's own heap grew by ${grown.page} bytes, the browser by ${grown.browser}`);
      assert.ok(grown.page < 2 ** 18, `the page's own heap grew by ${grown.page} bytes`);
      assert.ok(grown.browser < MOST_GROWN[device], `the browser grew by ${grown.browser} bytes`);
      assert.deepEqual(complaints, []);
      await page.close();
    } finally {
      if (own !== browser) await own.close();
    }
  });
}

test('files that lie about their sizes are refused by name, with their length known and unknown', async () => {
  const { page, complaints } = await blank();
  const run = async (Kitfox, { fails }, paths) => {
    const messages = {};
    for (const path of paths) messages[path] = await fails(Kitfox.load(path, { device: 'cpu' }));
    return messages;
  };
  const lies = ['tensors', 'keys', 'key', 'text', 'list', 'version', 'kind'];
  const paths = lies.flatMap((lie) => [`/lying/${lie}.gguf`, `/lying/unsized/${lie}.gguf`]);
  for (const [path, message] of Object.entries(await inPage(page, run, paths))) {
    assert.match(message, /^format: \S+\.gguf: .*expected .* got /, path);
    assert.ok(message.includes(path) && message.length < 400, message);
  }
  assert.deepEqual(complaints, []);
});

test('a context that no memory holds is refused, not a crash', async () => {
  const { page, complaints } = await blank();
  const run = async (Kitfox, { fails }) => {
    const messages = [];
    for (const context of [200_000, 400_000, 2 ** 31 - 1]) messages.push(await fails(Kitfox.load('/models/demo.gguf', { device: 'cpu', context }).then((fox) => fox.dispose())));
    return messages;
  };
  const [long, ...beyond] = await inPage(page, run);
  // The keys of a layer are one buffer of 128 MiB at most; more tokens than 262,144 are no context at all.
  assert.match(long, /^out-of-memory: /);
  for (const message of beyond) assert.match(message, /^argument: load: context: expected a whole number from 1 to 262144, got /);
  assert.deepEqual(complaints, []);
});
