// While the model writes, the page's own thread is free: by Chromium's trace no task on it takes 50 ms of the CPU, with a text of many
// pages on the desk, from the press of the button to the end, the typing of a line and a way back included. Nor does any while it is shown
// what is forgotten in as long a text as the model holds.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chromium } from './browsers.mjs';
import { openDesk } from './desk.mjs';
import { startServer } from './server.mjs';
import { shortTasks, trace } from './tasks.mjs';

const TOKENS = 100;
/** Some pages that are quickly read: of long words. */
const TEXT = `${'something everything understanding '.repeat(8)}\n\n`.repeat(20);

// Of this file alone: files run side by side.
let server;
let browser;
before(async () => {
  server = await startServer();
  browser = await chromium();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

test('no task of the page takes 50 ms of its thread while it writes', async () => {
  const { page, desk, complaints } = await openDesk(browser, server.url);
  await desk.set({ prompt: TEXT, temperature: '0.8', maxTokens: String(TOKENS), seed: '1' });
  await trace(page);
  await page.click('#go');
  await desk.idle();
  assert.match(await desk.text('memory'), /^[\d.]+ MB of memory, [\d.]+ MB freed$/, 'so long a text has forgotten some');
  await page.type('#prompt', ' And');
  await page.click('#undo');
  const tasks = await shortTasks(page, server.url);
  const written = (await desk.story()).length - TEXT.length;
  assert.ok(written > 300 && tasks > TOKENS, `${written} characters, ${tasks} tasks`);
  assert.deepEqual(complaints, []);
  await page.close();
});

/** Gates of `n` tokens in place of those of a short text, which the engine reads at once. */
function lengthenGates(n) {
  const [layers, heads] = [8, 8];
  const logF = new Float32Array(layers * heads * n).map((_, ix) => -0.3 / (1 + ((ix * 7919) % 101)) - 0.001);
  const tokens = Array.from({ length: n }, (_, ix) => (ix === 0 ? '' : ix % 150 === 0 ? '\n' : [' something', ' of', ' the', 'fox'][ix % 4]));
  const gates = { layers, heads, tokens, completedBy: tokens.map((_, ix) => ix), ids: tokens.map(() => 1), logF };
  const { set } = Object.getOwnPropertyDescriptor(Worker.prototype, 'onmessage');
  Object.defineProperty(Worker.prototype, 'onmessage', {
    set(listener) {
      set.call(this, (event) => listener(event.data?.type === 'gates' ? { data: { ...event.data, gates } } : event));
    },
  });
}

test('no task of the page takes 50 ms of its thread while it shows what is forgotten in 4,096 tokens', async () => {
  const { page, desk, complaints } = await openDesk(browser, server.url, { prepare: (page) => page.evaluateOnNewDocument(lengthenGates, 4096) });
  await desk.set({ prompt: 'The old fox' });
  await trace(page);
  await page.click('#look');
  const filled = () => document.querySelectorAll('#reach td button').length > 0 && [...document.querySelectorAll('#reach td button')].every(({ textContent }) => textContent !== '');
  await page.waitForFunction(filled);
  for (const key of ['ArrowLeft', 'ArrowUp', 'PageUp', 'Home', 'End', 'ArrowLeft']) {
    await page.keyboard.press(key);
    await page.waitForFunction(() => document.getElementById('seen').textContent.includes(`token ${document.getElementById('tokens').ariaValueNow} of`));
  }
  await page.click('#reach tbody tr:nth-child(3) td:nth-child(3) button');
  await page.hover('#tokens');
  await page.waitForFunction(() => document.getElementById('seen').textContent.includes('layer 2'));
  await shortTasks(page, server.url);
  assert.equal(await page.$$eval('#tokens span span', ({ length }) => length), 4096);
  assert.deepEqual(complaints, []);
  await page.close();
});
