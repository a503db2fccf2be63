// The desk's view by attention, of a model that runs on the GPU: what is shaded is what the package gives there, and that is what the CPU gives.
// And of a text whose characters have several tokens.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { meanAttention } from '../../web/dist/attention.js';
import { meanForgetting } from '../../web/dist/forgetting.js';
import { chromium, inPage, openPage } from './browsers.mjs';
import { serveDeep } from './deep.mjs';
import { openDesk } from './desk.mjs';

const NAME = 'fox_pro_pruned';
const TEXT = 'The fox: café, "naïve", é.';

// Of this file alone: files run side by side.
let server;
let browser;
/** By device: its gates and attention weights of the text. */
let known;
before(async () => {
  server = await serveDeep(NAME, 2, { bytes: true });
  browser = await chromium();
  const { page } = await openPage(browser, `${server.url}/blank`);
  const run = async (Kitfox, { fails }, { url, text }) => {
    const got = {};
    for (const device of ['gpu', 'cpu']) {
      const fox = await Kitfox.load(url, { device });
      const { logF, u, ...shape } = await fox.gates(text);
      const read = [];
      const { weights, ...same } = await fox.attention(text, { onProgress: ({ done, total }) => read.push([done, total]) });
      const stop = new AbortController();
      const aborted = fails(fox.attention('a'.repeat(300), { signal: stop.signal, onProgress: () => stop.abort() }));
      const whole = await fox.detokenize(shape.ids);
      const after = (await fox.attention(text)).weights.every((weight, ix) => weight === weights[ix]);
      got[device] = { onGpu: fox.info.gpu, shape, same, logF: [...logF], weights: [...weights], read, aborted: await aborted, after, whole };
      fox.dispose();
    }
    return got;
  };
  known = await inPage(page, run, { url: `/deep/${NAME}.gguf`, text: TEXT });
  for (const got of Object.values(known)) {
    got.gates = { ...got.shape, logF: Float32Array.from(got.logF) };
    got.attention = { ...got.same, weights: Float32Array.from(got.weights) };
  }
  await page.close();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

test('attention weights of a GPU are those of the CPU, an abort is heard, and the same come again', () => {
  const { gpu, cpu } = known;
  assert.deepEqual([gpu.onGpu, cpu.onGpu], [true, false]);
  const n = gpu.shape.ids.length;
  for (const got of [gpu, cpu]) {
    assert.deepEqual([got.read, got.aborted.split(':')[0], got.after], [[[n, n]], 'aborted', true]);
    assert.deepEqual([got.same.tokens, got.same.completedBy, got.same.ids], [got.shape.tokens, got.shape.completedBy, got.shape.ids]);
  }
  // As in tests/models/attention.rs, of keys in f16.
  const far = gpu.weights.findIndex((weight, ix) => !(Math.abs(weight - cpu.weights[ix]) < 1e-3));
  assert.equal(far, -1, `weight ${far} is ${gpu.weights[far]}, not ${cpu.weights[far]}`);
  for (let head = 0, at = 0; head < gpu.shape.layers * gpu.shape.heads; head += 1) {
    for (let i = 0; i < n; at += (i += 1)) {
      const sum = gpu.weights.slice(at, at + i + 1).reduce((sum, weight) => sum + weight, 0);
      assert.ok(Math.abs(sum - 1) < 1e-5, `row ${i} of head ${head} sums to ${sum}`);
    }
  }
});

test('a character of several tokens stands at the one that completes it', () => {
  const { tokens, completedBy, ids } = known.cpu.shape;
  assert.equal(tokens.join(''), TEXT);
  assert.equal(known.cpu.whole, TEXT);
  const parts = [...ids.keys()].filter((ix) => completedBy[ix] !== ix);
  assert.deepEqual(parts.map((ix) => [tokens[ix], tokens[completedBy[ix]], completedBy[ix] - ix]), [['', 'é', 1], ['', 'ï', 1], ['', 'é', 1]]);
});

for (const device of ['gpu', 'cpu']) {
  test(`on the ${device} the text is shaded by attention; each token can be looked from, also one that has a part of a character`, async () => {
    const { page, desk, complaints } = await openDesk(browser, server.url, { query: `?device=${device}&model=deep/${NAME}.gguf` });
    const { gates, attention } = known[device];
    const last = gates.ids.length - 1;
    const shown = (row) => [...row].map((part) => part.toFixed(3));
    const shades = async (ix, said) => {
      await page.waitForFunction((ix, said) => {
        const seen = document.getElementById('seen').textContent;
        return seen.includes(`token ${ix + 1} of `) && seen.includes(said) && document.querySelectorAll('#tokens span span')[ix].className === 'here';
      }, {}, ix, said);
      return page.$$eval('#tokens span span', (spans, ix) => spans.slice(0, ix + 1).map(({ style }) => style.getPropertyValue('--f')), ix);
    };
    assert.match(await desk.text('model'), device === 'gpu' ? /on the GPU/ : /on the CPU/);
    await desk.set({ prompt: TEXT });
    await page.click('#look');
    await page.waitForSelector('#reach thead button');
    await page.click('#reach thead button');
    assert.deepEqual(await shades(last, 'the whole model still sees'), shown(meanForgetting(gates, last)));
    assert.equal(await page.$eval('#tokens', ({ textContent }) => textContent), TEXT);
    assert.equal(await desk.text('by-note'), '');
    await page.click('#by label:last-child');
    assert.deepEqual(await shades(last, '% of its attention'), shown(meanAttention(attention, last)));

    // From the last character: the full stop, the é, the part before it.
    const part = gates.completedBy.findLastIndex((by, ix) => by !== ix);
    await page.focus('#tokens');
    for (let ix = last; ix > part; ix -= 1) await page.keyboard.press('ArrowLeft');
    assert.deepEqual(await shades(part, 'a part of é'), shown(meanAttention(attention, part)));
    assert.match(await page.$eval('#tokens', ({ ariaValueText }) => ariaValueText), /^a part of é, /);
    const boxes = await page.$$eval('#tokens span span', (spans, part) => spans.slice(part, part + 2).map((span) => span.getBoundingClientRect().toJSON()), part);
    assert.ok(boxes[0].width > 3 && Math.abs(boxes[0].right - boxes[1].left) < 1, `the part is a strip in front of its character: ${JSON.stringify(boxes)}`);
    await page.hover('#tokens span span:nth-child(3)');
    assert.deepEqual(await shades(2, '% of its attention'), shown(meanAttention(attention, 2)));
    assert.deepEqual(complaints, []);
    await page.close();
  });
}
