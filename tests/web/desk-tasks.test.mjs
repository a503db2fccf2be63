// While the model writes, the page's own thread is free: by Chromium's trace no task on it takes 50 ms of the CPU, with a text of many
// pages on the desk, from the press of the button to the end, the typing of a line and a way back included. Nor does any while it is shown
// what is forgotten in as long a text as the model holds.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chromium } from './browsers.mjs';
import { openDesk } from './desk.mjs';
import { startServer } from './server.mjs';

/** Most of the thread's CPU time for one task, in milliseconds. */
const MOST_MS = 50;
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

/** The tasks of the thread that runs the page, longest first, in milliseconds of its CPU. */
function tasksOf(trace, url) {
  const { traceEvents: events } = JSON.parse(new TextDecoder().decode(trace));
  const started = events.find(({ name }) => name === 'TracingStartedInBrowser');
  const frame = started?.args.data.frames.find((frame) => frame.url.startsWith(url));
  const main = events.find(({ name, pid, args }) => name === 'thread_name' && pid === frame?.processId && args.name === 'CrRendererMain');
  assert.ok(main !== undefined, 'the trace has the thread of the page');
  const mine = events.filter(({ pid, tid }) => pid === main.pid && tid === main.tid);
  const tasks = mine.filter(({ name, ph, tdur }) => name === 'RunTask' && ph === 'X' && tdur !== undefined);
  return tasks.map((task) => ({ ms: task.tdur / 1000, within: namesWithin(mine, task) })).sort((a, b) => b.ms - a.ms);
}

/** What a task did, for who has to find out. */
function namesWithin(events, { ts, dur }) {
  const within = events.filter((event) => event.ph === 'X' && event.name !== 'RunTask' && event.ts >= ts && event.ts + (event.dur ?? 0) <= ts + dur);
  return within.filter(({ tdur }) => tdur > 2000).map(({ name, tdur }) => `${name} ${(tdur / 1000).toFixed(1)}`).join(', ');
}

test('no task of the page takes 50 ms of its thread while it writes', async () => {
  const { page, desk, complaints } = await openDesk(browser, server.url);
  await desk.set({ prompt: TEXT, temperature: '0.8', maxTokens: String(TOKENS), seed: '1' });
  await page.tracing.start({ categories: ['-*', 'toplevel', 'devtools.timeline', 'disabled-by-default-devtools.timeline'] });
  await page.click('#go');
  await desk.idle();
  await page.type('#prompt', ' And');
  await page.click('#undo');
  const tasks = tasksOf(await page.tracing.stop(), server.url);
  const written = (await desk.story()).length - TEXT.length;
  assert.ok(written > 300 && tasks.length > TOKENS, `${written} characters, ${tasks.length} tasks`);
  console.log(`${tasks.length} tasks; the longest, in ms: ${tasks.slice(0, 5).map(({ ms, within }) => `${ms.toFixed(1)} (${within})`).join('; ')}`);
  assert.ok(tasks[0].ms < MOST_MS, `${tasks[0].ms} ms: ${tasks[0].within}`);
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
  await page.tracing.start({ categories: ['-*', 'toplevel', 'devtools.timeline', 'disabled-by-default-devtools.timeline'] });
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
  const tasks = tasksOf(await page.tracing.stop(), server.url);
  console.log(`${tasks.length} tasks; the longest, in ms: ${tasks.slice(0, 5).map(({ ms, within }) => `${ms.toFixed(1)} (${within})`).join('; ')}`);
  assert.equal(await page.$$eval('#tokens span span', ({ length }) => length), 4096);
  assert.ok(tasks[0].ms < MOST_MS, `${tasks[0].ms} ms: ${tasks[0].within}`);
  assert.deepEqual(complaints, []);
  await page.close();
});
