// A load onto the GPU that its caller ends while weights go up or kernels are made: the next load is as the one before, answers the same, and
// holds as much as if there had been none. (On the CPU, and in the phases before these: loading.test.mjs.)

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { chromium, inPage, openPage } from './browsers.mjs';
import { serveDeep } from './deep.mjs';

/** A small model, on which a GPU in software takes seconds. */
const SMALL = 'fox_pro_pruned';
const PROMPT = 'The old fox';
const TOKENS = 8;
/** Where a load is ended: in which phase, and from which part of the bytes on. */
const ENDS = {
  'as weights go up': { phase: 'upload', from: 0.5 },
  'as kernels are made': { phase: 'compile', from: 1 },
};

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

/** Loads, answers, and tells what is held: by the engine's own count, and by that of every buffer that was made and not destroyed. */
async function normal(Kitfox, { collect }, { url, PROMPT, TOKENS }) {
  const counted = new BroadcastChannel('webgpu-counts');
  const told = new Promise((resolve) => (counted.onmessage = ({ data }) => resolve(data)));
  const fox = await Kitfox.load(url, { device: 'gpu', baseline: true, context: 64, workerUrl: '/tests/counting-worker.mjs' });
  const { ids } = await collect(fox.generate(PROMPT, { temperature: 0, maxTokens: TOKENS }));
  const { liveBuffers, liveBytes } = await told;
  counted.close();
  const { deviceBytes, sessionBytes, kvBytesLive, tokens } = await fox.stats();
  const { gpu, recoveries } = fox.info;
  fox.dispose();
  return { ids, gpu, recoveries, deviceBytes, sessionBytes, kvBytesLive, tokens, liveBuffers, liveBytes };
}

/** Ends a load where it is said, and tells how it ended and in which phase it was. */
async function ended(Kitfox, { fails }, { url, phase, from }) {
  const [ends, seen] = [new AbortController(), []];
  const onProgress = ({ phase: now, doneBytes, totalBytes }) => {
    seen.push(now);
    if (now === phase && doneBytes >= from * totalBytes) ends.abort();
  };
  const error = await fails(Kitfox.load(url, { device: 'gpu', baseline: true, context: 64, signal: ends.signal, onProgress, workerUrl: '/tests/counting-worker.mjs' }));
  return { error, last: seen.at(-1) };
}

test('a load onto the GPU that is aborted as it uploads or compiles leaves nothing behind', async (t) => {
  const { page, complaints } = await openPage(browser, `${server.url}/blank`);
  const url = `/deep/${SMALL}.gguf`;
  const onCpu = async (Kitfox, { collect }, { url, PROMPT, TOKENS }) => {
    const fox = await Kitfox.load(url, { device: 'cpu', context: 64 });
    const { ids } = await collect(fox.generate(PROMPT, { temperature: 0, maxTokens: TOKENS }));
    fox.dispose();
    return ids;
  };
  const ids = await inPage(page, onCpu, { url, PROMPT, TOKENS });
  assert.equal(ids.length, TOKENS);
  // A machine's first load, ended as it begins to look for its kernels; what it has not found out the next one does.
  const first = await inPage(page, ended, { url, ...ENDS['as kernels are made'] });
  assert.deepEqual(first, { error: 'aborted: aborted', last: 'compile' });
  const before = await inPage(page, normal, { url, PROMPT, TOKENS });
  assert.deepEqual([before.ids, before.gpu, before.recoveries, before.sessionBytes], [ids, true, 0, 0]);
  assert.ok(before.liveBuffers > 0 && before.liveBytes >= before.deviceBytes, JSON.stringify(before));
  for (const [name, where] of Object.entries(ENDS)) {
    const began = Date.now();
    assert.deepEqual(await inPage(page, ended, { url, ...where }), { error: 'aborted: aborted', last: where.phase }, name);
    assert.deepEqual(await inPage(page, normal, { url, PROMPT, TOKENS }), before, name);
    t.diagnostic(`${name}: ${Date.now() - began} ms`);
  }
  // The browser tells a worker's end a little later than it is.
  for (let wait = 0; page.workers().length > 0; wait += 50) {
    assert.ok(wait < 20_000, `${page.workers().length} workers are left`);
    await sleep(50);
  }
  assert.deepEqual(complaints, []);
});
