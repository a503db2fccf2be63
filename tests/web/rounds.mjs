// Rounds of loading a model, writing with it and disposing of it, one after the other, and what is left of them.

import { readFile, readdir } from 'node:fs/promises';
import { inPage } from './browsers.mjs';

/** One round: what was written, and what it took; of the GPU the calls that make buffers and pipelines, counted in the worker. */
export function round(page, device, url) {
  const play = async (Kitfox, { collect }, { device, url }) => {
    const channel = device === 'gpu' ? new BroadcastChannel('webgpu-counts') : undefined;
    const told = channel && new Promise((resolve) => (channel.onmessage = ({ data }) => resolve(data)));
    const fox = await Kitfox.load(url, { device, baseline: true, context: 256, ...(device === 'gpu' ? { workerUrl: '/tests/counting-worker.mjs' } : {}) });
    const { ids } = await collect(fox.generate('The fox', { temperature: 0, maxTokens: 2 }));
    const { createBuffer: buffers = 0, createComputePipeline: pipelines = 0 } = (await told) ?? {};
    channel?.close();
    fox.dispose();
    const { heapBytes, deviceBytes } = fox.info;
    return { ids: ids.join(), deviceBytes, buffers, pipelines, heapBytes };
  };
  return inPage(page, play, { device, url });
}

/** What is held besides: the page's own JavaScript, and the browser's processes where they can be asked (Linux). */
export async function holdings(browser, page) {
  const session = await page.createCDPSession();
  await session.send('HeapProfiler.collectGarbage');
  const { usedSize } = await session.send('Runtime.getHeapUsage');
  await session.detach();
  return { page: usedSize, browser: await resident(browser.process().pid), workers: page.workers().length };
}

/** Bytes of a process and those below it. */
async function resident(root) {
  let bytes = 0;
  const processes = [root];
  for (let pid; (pid = processes.pop()) !== undefined; ) {
    const read = (name) => readFile(`/proc/${pid}/${name}`, 'utf8').catch(() => '');
    for (const thread of await readdir(`/proc/${pid}/task`).catch(() => [])) processes.push(...(await read(`task/${thread}/children`)).trim().split(' ').filter(Boolean));
    bytes += 1024 * Number(/^RssAnon:\s+(\d+) kB/m.exec(await read('status'))?.[1] ?? 0);
  }
  return bytes;
}
