// The built page and the package in both browsers: they load the demo model onto WebGPU and write what the native program writes.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { chromium, firefox, inPage, openPage, refusal, until } from './browsers.mjs';
import { native } from './native.mjs';
import { startServer } from './server.mjs';
import { shortTasks, trace } from './tasks.mjs';

const PROMPT = 'The old fox stopped at the edge of the wood, and';
const TOKENS = 20;
/** In the answer, after a few tokens. */
const STOP = ' he';
/** More than one chunk of the prompt, so that there is a between to abort in. */
const LONG = 'The fox ran over the hill and down to the river. '.repeat(30);
/** A file of 20 MB goes through the wasm heap in pieces; its weights must not stay there, nor half of them. */
const MOST_HEAP_GROWTH = 12 * 1024 * 1024;

/** The browser's own sentence, with one full stop. */
const REFUSED = /^Running on the CPU: the browser refused a WebGPU adapter: .*[^.]\.$/;

let server;
let expected;
before(async () => {
  server = await startServer();
  expected = await native(PROMPT, TOKENS);
  assert.equal(expected.ids.length, TOKENS);
  assert.ok(expected.text.includes(STOP));
});
after(() => server.close());

/** The page, as a person would use it; `traced`: its thread is watched as it writes. */
async function usePage(browser, device, traced = false) {
  const { page, complaints } = await openPage(browser, `${server.url}/?device=${device}`);
  await until(page, () => document.getElementById('loading').hidden);
  const text = (id) => page.$eval(`#${id}`, (element) => (element.hidden ? '' : element.textContent));
  assert.equal(await text('error'), '');
  await page.$eval('#settings', (settings) => (settings.open = true));
  for (const [id, value] of Object.entries({ prompt: PROMPT, temperature: '0', maxTokens: String(TOKENS) })) {
    await page.$eval(`#${id}`, (input, value) => (input.value = value), value);
  }
  if (traced) await trace(page);
  await page.click('#go');
  await until(page, () => document.getElementById('stop').disabled && document.getElementById('stats').textContent !== '');
  if (traced) await shortTasks(page, server.url);
  assert.equal(await text('output'), PROMPT + expected.text);
  assert.match(await text('stats'), new RegExp(`^${TOKENS} tokens, [\\d.]+ tokens/s, first after [\\d.]+ s`));
  assert.equal(await text('error'), '');
  assert.deepEqual(complaints, []);
  const seen = { about: await text('model'), notice: await text('notice') };
  await page.close();
  return seen;
}

/** The package without the page: loads once, then everything that a call can meet. */
function usePackage(Kitfox, { collect, fails }, { device, PROMPT, LONG, TOKENS, STOP }) {
  const run = async () => {
    const progress = [];
    const fox = await Kitfox.load('/models/demo.gguf', { device, chunk: 64, onProgress: (p) => progress.push(p) });
    const greedy = (options) => ({ temperature: 0, maxTokens: TOKENS, ...options });
    const short = async () => (await collect(fox.generate(PROMPT, greedy({ maxTokens: 4 })))).ids;

    const whole = await collect(fox.generate(PROMPT, greedy()));
    let ends = new AbortController();
    const inPrefill = fox.generate(LONG, greedy({ signal: ends.signal, onPrefill: () => ends.abort() }));
    const prefill = [await fails(collect(inPrefill)), inPrefill.summary.tokens, ...(await short())];

    ends = new AbortController();
    const inDecode = fox.generate(PROMPT, greedy({ signal: ends.signal, maxTokens: 2000, inFlight: 4 }));
    await inDecode.next();
    ends.abort();
    const decode = [await fails(inDecode.next()), ...(await short())];

    for await (const piece of fox.generate(PROMPT, greedy({ maxTokens: 2000, inFlight: 4 }))) if (piece.ids.length > 0) break;
    const both = await Promise.all([short(), collect(fox.generate(PROMPT, greedy({ stop: [STOP] })))]);
    const { info } = fox;
    fox.dispose();
    return { progress, whole, prefill, decode, both, info };
  };
  return run();
}

function checkPackage(name, { progress, whole, prefill, decode, both, info }, gpu) {
  assert.deepEqual(whole.ids, expected.ids);
  assert.equal(whole.text, expected.text);
  assert.deepEqual([whole.summary.finish, whole.summary.tokens], ['length', TOKENS]);
  assert.equal(whole.summary.promptTokens, expected.prompt_ids.length);

  const first = expected.ids.slice(0, 4);
  assert.deepEqual(prefill, ['aborted: aborted', 0, ...first], 'an abort in prefill, then a normal call');
  assert.deepEqual(decode, ['aborted: aborted', ...first], 'an abort in decode, then a normal call');
  assert.deepEqual(both[0], first, 'a loop that was left, then two calls at once');
  const [stopped] = expected.text.split(STOP);
  assert.deepEqual([both[1].text, both[1].summary.finish, both[1].summary.stop], [stopped, 'stop', STOP]);

  assert.ok(progress.length > 3);
  for (const [ix, { doneBytes, totalBytes }] of progress.entries()) {
    assert.equal(totalBytes, progress[0].totalBytes);
    assert.ok(doneBytes >= (progress[ix - 1]?.doneBytes ?? 0) && doneBytes <= totalBytes);
  }
  assert.equal(progress.at(-1).doneBytes, progress[0].totalBytes);
  assert.equal(info.gpu, gpu);
  // wgpu cannot name subgroups: Chromium has them by way of the host, Firefox not at all, but f16.
  const wanted = { chromium: /^subgroups of \d+/, firefox: /^f16/ }[name];
  assert.match(info.deviceFeatures, gpu ? wanted : /^$/);
  assert.ok(info.contextTokens > 0 && info.vocab > 0 && info.deviceBytes > 20e6 && info.heapBytes > 0);
  if (gpu) assert.ok(info.loadHeapBytes <= MOST_HEAP_GROWTH, `the heap grew by ${info.loadHeapBytes} bytes`);
}

for (const [name, launch] of Object.entries({ chromium, firefox })) {
  describe(name, () => {
    let browser;
    let refused;
    before(async () => {
      browser = await launch();
      refused = await refusal(browser, `${server.url}/blank`);
      assert.ok(refused === undefined || name === 'firefox', refused);
    });
    after(() => browser?.close());

    test('the page writes the native text on the GPU, and in Chromium no task takes 50 ms of its thread meanwhile', async (t) => {
      if (refused !== undefined) return t.skip(refused);
      const { about, notice } = await usePage(browser, 'gpu', name === 'chromium');
      assert.match(about, /on the GPU/);
      assert.equal(notice, '');
    });

    test('the page passes over a software adapter or a refusal, says so, and writes the same on the CPU', async () => {
      const { about, notice } = await usePage(browser, 'auto');
      assert.match(about, /on the CPU/);
      assert.match(notice, refused === undefined ? /^Running on the CPU: the only WebGPU adapter is a software one/ : REFUSED);
    });

    for (const device of ['gpu', 'cpu']) {
      test(`the package: tokens, aborts, early ends and turns on the ${device}`, async (t) => {
        if (device === 'gpu' && refused !== undefined) return t.skip(refused);
        const { page, complaints } = await openPage(browser, `${server.url}/blank`);
        checkPackage(name, await inPage(page, usePackage, { device, PROMPT, LONG, TOKENS, STOP }), device === 'gpu');
        assert.deepEqual(complaints, []);
        await page.close();
      });
    }

    test('a refused adapter is an error of its own', async (t) => {
      if (refused === undefined) return t.skip('this browser gives its adapter');
      const { page } = await openPage(browser, `${server.url}/blank`);
      const message = await inPage(page, (Kitfox, { fails }) => fails(Kitfox.load('/models/demo.gguf', { device: 'gpu' })));
      assert.match(message, /^no-gpu: the browser refused a WebGPU adapter: .*[^.]$/);
      await page.close();
    });
  });
}

test('without WebGPU the page says so in a sentence and works', async () => {
  const browser = await chromium({ webgpu: false });
  try {
    const { notice } = await usePage(browser, 'auto');
    assert.match(notice, /^Running on the CPU: this browser has .*\.$/);
    const { page } = await openPage(browser, `${server.url}/blank`);
    const message = await inPage(page, (Kitfox, { fails }) => fails(Kitfox.load('/models/demo.gguf', { device: 'gpu' })));
    assert.match(message, /^no-gpu: this browser/);
  } finally {
    await browser.close();
  }
});
