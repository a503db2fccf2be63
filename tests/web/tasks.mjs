// The tasks of a page's own thread, by Chromium's trace.

import assert from 'node:assert/strict';

/** Most of the thread's CPU time for one task, in milliseconds. */
const MOST_MS = 50;

/** Begins a trace. */
export function trace(page) {
  return page.tracing.start({ categories: ['-*', 'toplevel', 'devtools.timeline', 'disabled-by-default-devtools.timeline'] });
}

/** Ends it: no task of the page at `url` took 50 ms of its thread. Gives how many there were. */
export async function shortTasks(page, url) {
  const tasks = tasksOf(await page.tracing.stop(), url);
  console.log(`${tasks.length} tasks; the longest, in ms: ${tasks.slice(0, 5).map(({ ms, within }) => `${ms.toFixed(1)} (${within})`).join('; ')}`);
  assert.ok(tasks[0].ms < MOST_MS, `${tasks[0].ms} ms: ${tasks[0].within}`);
  return tasks.length;
}

/** The tasks of the thread that runs the page, longest first, in milliseconds of its CPU. */
function tasksOf(bytes, url) {
  const { traceEvents: events } = JSON.parse(new TextDecoder().decode(bytes));
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
