// While the model writes, the page's own thread is free: by Chromium's trace no task on it takes 50 ms of the CPU, with a text of many
// pages on the desk, from the press of the button to the end, the typing of a line and a way back included.

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
