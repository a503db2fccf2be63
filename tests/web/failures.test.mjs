// Servers that misbehave, files that are none, options that cannot be: a readable message each time, and a page that goes on.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chromium, inPage, openPage } from './browsers.mjs';
import { serveDeep } from './deep.mjs';
import { Faults } from './faults.mjs';
import { startServer } from './server.mjs';

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

const BAD = {
  'models/missing.gguf': /^http: \S+\/models\/missing\.gguf: the server answered 404 Not Found$/,
  'bad/refused.gguf': /^http: .*403 Forbidden$/,
  'bad/page.gguf': /^format: \S+\/bad\/page\.gguf: not a GGUF model file: the server answered with a web page$/,
  'bad/untyped-page.gguf': /^format: .*not a GGUF model file/,
  'bad/other.gguf': /^format: \S+\/bad\/other\.gguf: .*magic.*expected.*GGUF.*got/i,
  'bad/empty.gguf': /^format: \S+\/bad\/empty\.gguf: .*expected/,
  'bad/cut.gguf': /^format: \S+\/bad\/cut\.gguf: .*expected.*got/,
  'bad/broken.gguf': /^network: \S+\/bad\/broken\.gguf: the connection broke at byte \d+/,
};

test('each bad model is told apart, and the next load in the same page works', async () => {
  const { page, complaints } = await openPage(browser, `${server.url}/blank`);
  const run = async (Kitfox, { collect, fails }, paths) => {
    const messages = [];
    for (const path of paths) messages.push(await fails(Kitfox.load(`/${path}`, { device: 'cpu' })));
    messages.push(await fails(Kitfox.load('http://127.0.0.1:1/none.gguf', { device: 'cpu' })));
    messages.push(await fails(Kitfox.load('/models/demo.gguf', { device: 'cpu', wasmUrl: '/missing.wasm' })));
    messages.push(await fails(Kitfox.load('/models/demo.gguf', { device: 'cpu', workerUrl: '/missing.js' })));
    // Length unknown, small pieces.
    const fox = await Kitfox.load('/chunked.gguf', { device: 'cpu' });
    return { messages, tokens: (await collect(fox.generate('The fox', { maxTokens: 3 }))).summary.tokens };
  };
  const { messages, tokens } = await inPage(page, run, Object.keys(BAD));
  const patterns = [...Object.values(BAD), /^network: .*cannot be fetched/, /^worker: \S+\/missing.wasm: the wasm module cannot be loaded/, /^worker: /];
  patterns.forEach((pattern, ix) => assert.match(messages[ix], pattern));
  assert.equal(messages.length, patterns.length);
  assert.equal(tokens, 3);
  assert.deepEqual(complaints, []);
});

test('an abort ends a load that hangs', async () => {
  const { page } = await openPage(browser, `${server.url}/blank`);
  const message = await inPage(page, (Kitfox, { fails }) => {
    const ends = new AbortController();
    setTimeout(() => ends.abort(), 500);
    return fails(Kitfox.load('/bad/stalled.gguf', { device: 'cpu', signal: ends.signal }));
  });
  assert.equal(message, 'aborted: aborted');
});

test('a prompt longer than the context and bad options are refused, and the model goes on', async () => {
  const { page } = await openPage(browser, `${server.url}/blank`);
  const run = async (Kitfox, { collect, fails }) => {
    const fox = await Kitfox.load('/models/demo.gguf', { device: 'cpu', context: 32 });
    const long = await fails(collect(fox.generate('a fox and '.repeat(40))));
    const full = (await collect(fox.generate('The fox', { maxTokens: 1000, seed: 1 }))).summary;
    let bad;
    try {
      fox.generate('a', { topK: -1 });
    } catch ({ code, message }) {
      bad = `${code}: ${message}`;
    }
    return { long, bad, full, context: await fails(Kitfox.load('/models/demo.gguf', { device: 'cpu', context: 1e9 })) };
  };
  const { long, bad, full, context } = await inPage(page, run);
  assert.match(long, /^context-full: .*32/);
  assert.match(bad, /^argument: generate: topK: expected/);
  // The demo model forgets: its text goes on until live keys fill the one page that the context takes, and one more id needs none.
  assert.equal(full.promptTokens + full.tokens, 65);
  assert.equal(full.finish, 'context');
  assert.match(context, /^argument: load: context: expected a whole number from 1 to 262144, got 1000000000$/);
});

/** Writes on the page, which begins empty. */
const type = (page) => page.type('#prompt', 'Once upon a time');

test('the page tells a failed load in a sentence and works with the next model', async () => {
  const { page, complaints } = await openPage(browser, `${server.url}/?device=cpu&model=models/missing.gguf`);
  await page.waitForFunction(() => !document.getElementById('error').hidden);
  const error = () => page.$eval('#error', ({ hidden, textContent }) => (hidden ? '' : textContent));
  assert.match(await error(), /^The model could not be loaded\. \S+missing\.gguf: the server answered 404 Not Found\.$/);
  await type(page);
  await page.click('#go'); // tries once more
  await page.waitForFunction(() => !document.getElementById('error').hidden && !document.getElementById('go').disabled);
  assert.match(await error(), /404/);

  await page.goto(`${server.url}/?device=cpu`);
  await page.waitForFunction(() => document.getElementById('loading').hidden);
  assert.equal(await error(), '');
  await page.$eval('#topP', (input) => (input.value = '7'));
  await page.click('#go');
  await page.waitForFunction(() => !document.getElementById('error').hidden);
  assert.match(await error(), /topP: expected a number above 0, at most 1, got 7\.$/);
  await page.$eval('#topP', (input) => (input.value = '1'));
  await page.click('#go');
  await page.waitForFunction(() => document.getElementById('output').textContent.length > 200);
  await page.click('#stop');
  await page.waitForFunction(() => /Stopped\.$/.test(document.getElementById('stats').textContent));
  assert.equal(await error(), '');
  assert.deepEqual(complaints, []);
});

test('an address that asks for what there is not is told in a sentence, and the page works', async () => {
  const { page, complaints } = await openPage(browser, `${server.url}/?device=tpu`);
  const error = () => page.$eval('#error', ({ hidden, textContent }) => (hidden ? '' : textContent));
  assert.match(await error(), /the device "tpu"; there are auto, gpu, cpu\. /);
  await type(page);
  await page.$eval('#maxTokens', (input) => (input.value = '3'));
  await page.click('#go');
  await page.waitForFunction(() => /^3 tokens/.test(document.getElementById('stats').textContent));
  assert.equal(await error(), '');
  await page.goto(`${server.url}/?device=cpu&model=http://`);
  await page.waitForFunction(() => !document.getElementById('error').hidden);
  assert.match(await error(), /^The model could not be loaded\. load: url: expected a URL, got "http:\/\/"\.$/);
  assert.deepEqual(complaints, []);
});

test('another device chosen in the middle of a load and of an answer takes the place of the one before', async () => {
  const { page, complaints } = await openPage(browser, `${server.url}/?device=cpu`);
  const choose = (value) => page.select('#device', value);
  const loaded = () => page.waitForFunction(() => document.getElementById('loading').hidden && !document.getElementById('go').disabled);
  for (const value of ['auto', 'cpu', 'auto', 'cpu']) await choose(value);
  await loaded();
  await type(page);
  await page.click('#go');
  await page.waitForFunction(() => document.getElementById('output').textContent.length > 100);
  await choose('auto');
  await loaded();
  assert.match(await page.$eval('#stats', ({ textContent }) => textContent), /Stopped\.$/);
  await page.$eval('#maxTokens', (input) => (input.value = '3'));
  await page.click('#go');
  await page.waitForFunction(() => /^3 tokens/.test(document.getElementById('stats').textContent));
  assert.equal(await page.$eval('#error', ({ hidden }) => hidden), true);
  assert.deepEqual(complaints, []);
});

test('a device that is destroyed in any phase is back, and what is asked for comes as if it had stayed', async () => {
  const { page, complaints } = await openPage(browser, `${server.url}/blank`);
  await page.exposeFunction('lose', (n) => page.workers()[0].evaluate((n) => self.lose(n), n));
  const run = async (Kitfox, { collect }, url) => {
    const events = [];
    const fox = await Kitfox.load(url, { device: 'gpu', baseline: true, context: 128, workerUrl: '/tests/losing-worker.mjs', onEvent: ({ kind }) => events.push(kind) });
    const session = await fox.session();
    await session.append('The fox said');
    const mark = await session.mark();
    const tell = async () => {
      await session.rewind(mark);
      const { ids } = await collect(session.generate({ maxTokens: 10, seed: 1, temperature: 1, ignoreEos: true }));
      const fork = await session.fork();
      const more = await collect(fork.generate({ maxTokens: 3, temperature: 0, ignoreEos: true }));
      await fork.dispose();
      return [...ids, ...more.ids];
    };
    const [want, got] = [await tell(), []];
    for (const n of [0, 1, 6]) {
      await lose(n);
      got.push(await tell());
    }
    const { recoveries } = fox.info;
    fox.dispose();
    return { want, got, recoveries, recovered: events.filter((kind) => kind === 'recover').length };
  };
  const { want, got, recoveries, recovered } = await inPage(page, run, `/deep/${SMALL}.gguf`);
  assert.equal(want.length, 13);
  for (const ids of got) assert.deepEqual(ids, want);
  assert.deepEqual([recoveries, recovered], [3, 3]);
  assert.deepEqual(complaints, []);
});

test('memory that a GPU refuses, an invalid allocation and a loss, in a load and after it: a typed error or the same answer, and the next call works', async () => {
  const { page, complaints } = await openPage(browser, `${server.url}/blank`);
  await page.exposeFunction('refuse', (n, kind) => page.workers()[0].evaluate((n, kind) => self.refuse(n, kind), n, kind));
  await page.exposeFunction('passed', () => page.workers()[0].evaluate(() => self.passed()));
  const run = async (Kitfox, { collect, fails }, url) => {
    const events = [];
    const load = (query = '') => Kitfox.load(url, { device: 'gpu', baseline: true, context: 128, workerUrl: `/tests/losing-worker.mjs${query}`, onEvent: ({ kind }) => events.push(kind) });
    const call = async (fox) => (await collect(fox.generate('The fox said', { maxTokens: 6, seed: 1, temperature: 1, ignoreEos: true }))).ids.join();
    // What it reads back is more than anything before.
    const save = async (fox) => {
      const session = await fox.session();
      try {
        await session.append('The fox said something long enough');
        return (await session.save()).byteLength;
      } finally {
        await session.dispose();
      }
    };
    const first = await load(); // finds out what the later ones recall
    await refuse(1, 'memory');
    const told = { memory: await fails(save(first)) };
    await refuse(1, 'invalid');
    told.invalid = await fails(save(first));
    told.after = [(await save(first)) > 100, await call(first)];
    first.dispose();
    const fox = await load();
    Object.assign(told, await passed());
    told.want = await call(fox);
    fox.dispose();
    told.loads = [];
    for (const [n, kind] of [[1, 'memory'], [20, 'memory'], [9, 'invalid']]) {
      const said = await load(`?refuse=${n}&kind=${kind}`).then((fox) => fox.dispose(), ({ code }) => code);
      told.loads.push({ n, kind, said });
    }
    told.lost = [];
    for (const n of [20, told.all]) {
      const lost = await load(`?lose=${n}`);
      told.lost.push({ n, ids: await call(lost), recovered: events.filter((kind) => kind === 'recover').length });
      lost.dispose();
    }
    return told;
  };
  const { want, allocations, all, memory, invalid, after, loads, lost } = await inPage(page, run, `/deep/${SMALL}.gguf`);
  assert.ok(allocations > 40 && all > allocations && want.split(',').length === 6);
  assert.match(memory, /^out-of-memory: /);
  assert.match(invalid, /^gpu: /);
  assert.deepEqual(after, [true, want]);
  // What is invalid is tried once more, with every kernel as it was recorded.
  for (const { n, kind, said } of loads) assert.equal(said, kind === 'memory' ? 'out-of-memory' : undefined, `${kind} at allocation ${n} of ${allocations}`);
  for (const { n, ids } of lost) assert.equal(ids, want, `lost at point ${n} of ${all} of a load`);
  assert.ok(lost[0].recovered > 0, 'the load began anew');
  assert.deepEqual(complaints, []);
});

test('a file that cannot be read when the device is lost is one typed error, and the next call tries again', async () => {
  const faults = new Faults();
  const data = Buffer.from(await (await fetch(`${server.url}/deep/${SMALL}.gguf`)).arrayBuffer());
  const url = faults.set('/f/small.gguf', { data });
  const other = await startServer([], faults.answer);
  try {
    const { page, complaints } = await openPage(browser, `${other.url}/blank`);
    await page.exposeFunction('lose', (n) => page.workers()[0].evaluate((n) => self.lose(n), n));
    const missing = (response) => response.writeHead(404).end();
    const states = { missing: { data, always: missing }, right: { data } };
    await page.exposeFunction('make', (state) => void faults.set(url, states[state]));
    const run = async (Kitfox, { collect, fails }, url) => {
      const fox = await Kitfox.load(url, { device: 'gpu', baseline: true, context: 128, cache: 'off', retries: 0, workerUrl: '/tests/losing-worker.mjs' });
      const call = () => collect(fox.generate('The fox', { maxTokens: 6, seed: 2, ignoreEos: true })).then(({ ids }) => ids.join());
      const told = { want: await call() };
      await lose(0);
      await make('missing');
      told.missing = await fails(call());
      await make('right');
      told.right = await call();
      told.recoveries = fox.info.recoveries;
      fox.dispose();
      return told;
    };
    const told = await inPage(page, run, url);
    assert.match(told.missing, /^device-lost: .*cannot be had again.*small\.gguf.*404/);
    assert.deepEqual([told.right, told.recoveries], [told.want, 1]);
    assert.deepEqual(complaints, []);
  } finally {
    await other.close();
  }
});

test('a layer whose device is destroyed gives the same rows', async () => {
  const { page, complaints } = await openPage(browser, `${server.url}/blank`);
  await page.exposeFunction('lose', (n) => page.workers()[0].evaluate((n) => self.lose(n), n));
  const run = async () => {
    const { ForgettingAttentionLayer } = await import('/kitfox/kitfox.js');
    const layer = await ForgettingAttentionLayer.load('/fixtures/golden_layer/encoder_bitnet.gguf', { device: 'gpu', maxTokens: 8, workerUrl: '/tests/losing-worker.mjs' });
    const x = Float32Array.from({ length: 5 * 64 }, (_, ix) => Math.sin(ix));
    const [want, got] = [[...(await layer.run(x))], []];
    // Between two calls, when the graph is submitted, and when its result is read.
    for (const n of [0, 1, 2]) {
      await lose(n);
      got.push([...(await layer.run(x))]);
    }
    const { recoveries } = layer.info;
    layer.dispose();
    return { want, got, recoveries };
  };
  const { want, got, recoveries } = await inPage(page, run);
  assert.equal(want.length, 5 * 64);
  for (const rows of got) assert.deepEqual(rows, want);
  assert.equal(recoveries, 3);
  assert.deepEqual(complaints, []);
});

test('a GPU process that ends is no end of an answer, or a typed error, and the next call works', async () => {
  const { page, complaints } = await openPage(browser, `${server.url}/blank`);
  const session = await browser.target().createCDPSession();
  await page.exposeFunction('crashGpuProcess', () => session.send('Browser.crashGpuProcess'));
  const run = async (Kitfox, { collect, fails }, url) => {
    const fox = await Kitfox.load(url, { device: 'gpu', baseline: true });
    const call = () => fox.generate('The fox', { maxTokens: 100, seed: 3, ignoreEos: true });
    const want = await collect(call());
    const generation = call();
    const first = await generation.next();
    void crashGpuProcess();
    let message = '';
    let ids = [];
    const done = await fails(collect(generation).then((rest) => (ids = [...first.value.ids, ...rest.ids])));
    if (done !== 'it did not fail') message = done;
    // The word of the loss may come behind the end of a short answer.
    let later = await collect(call());
    while (fox.info.recoveries === 0) later = await collect(call());
    fox.dispose();
    return { want: want.ids, ids, later: later.ids, message };
  };
  const { want, ids, later, message } = await inPage(page, run, `/deep/${SMALL}.gguf`);
  if (message === '') assert.deepEqual(ids, want);
  else assert.match(message, /^device-lost: gpu device lost/);
  assert.deepEqual(later, want);
  assert.deepEqual(complaints, []);
});
