// Rounds of loading a model, writing with it and disposing of it, one after the other, and what is left of them.

import { readFile, readdir } from 'node:fs/promises';
import { chromium, firefox, inPage, openPage } from './browsers.mjs';
import { serveDeep } from './deep.mjs';

/** One round: what was written, and what it took; of the GPU the buffers that live at its end and their bytes, and the pipelines that were made, counted in the worker. */
export function round(page, device, url) {
  const play = async (Kitfox, { collect }, { device, url }) => {
    const channel = device === 'gpu' ? new BroadcastChannel('webgpu-counts') : undefined;
    const told = channel && new Promise((resolve) => (channel.onmessage = ({ data }) => resolve(data)));
    const fox = await Kitfox.load(url, { device, baseline: true, context: 256, ...(device === 'gpu' ? { workerUrl: '/tests/counting-worker.mjs' } : {}) });
    const { ids } = await collect(fox.generate('The fox', { temperature: 0, maxTokens: 2 }));
    const { createBuffer: made = 0, liveBuffers: buffers = 0, liveBytes: bytes = 0, createComputePipeline: pipelines = 0 } = (await told) ?? {};
    channel?.close();
    fox.dispose();
    const { heapBytes, deviceBytes } = fox.info;
    return { ids: ids.join(), deviceBytes, made, buffers, bytes, pipelines, heapBytes };
  };
  return inPage(page, play, { device, url });
}

const BROWSERS = { Chromium: chromium, Firefox: firefox };

/**
 * Runs `work` in a blank page of each browser and device, given the browser, its name, the page, the device and the address of a small model of so
 * many layers; gives what each gave, as a section of a report.
 */
export async function sections(model, layers, on, work) {
  const server = await serveDeep(model, layers, { bytes: true });
  const told = [];
  try {
    for (const [name, device] of on) {
      const browser = await BROWSERS[name]();
      try {
        const { page } = await openPage(browser, `${server.url}/blank`);
        const where = `${device === 'gpu' ? 'GPU (SwiftShader)' : 'CPU'} of ${name}`;
        told.push(`## On the ${where}\n\n${await work({ browser, page, device, name, url: `/deep/${model}.gguf` })}\n`);
      } finally {
        await browser.close();
      }
    }
  } finally {
    await server.close();
  }
  return told;
}

const row = (cells) => `| ${cells.join(' | ')} |`;

/** Rows of cells as a table; the first is its head. */
export const table = ([head, ...rows]) => [row(head), row(head.map(() => '---')), ...rows.map(row)].join('\n');

/** Least squares: by how much values grow from one to the next. */
export function slope(values) {
  const [x, y] = [(values.length - 1) / 2, values.reduce((sum, value) => sum + value, 0) / values.length];
  const sums = values.map((value, ix) => [(ix - x) * (value - y), (ix - x) ** 2]);
  return sums.reduce((sum, [product]) => sum + product, 0) / sums.reduce((sum, [, square]) => sum + square, 0);
}

/** The JavaScript of a page or a worker of Chromium, in bytes, after a collection: a second one takes what the first let go. */
export async function heapBytes(session) {
  for (let n = 0; n < 2; n += 1) await session.send('HeapProfiler.collectGarbage');
  return (await session.send('Runtime.getHeapUsage')).usedSize;
}

/** What is held besides: the page's own JavaScript (in Chromium), and the browser's processes where they can be asked (Linux). */
export async function holdings(browser, page) {
  // Firefox's first process keeps for whoever drives it what every answer of the network held: pages and workers are in the others.
  if ((await browser.version()).startsWith('firefox')) return { page: 0, browser: await resident(browser.process().pid, true), workers: page.workers().length };
  const session = await page.createCDPSession();
  const bytes = await heapBytes(session);
  await session.detach();
  return { page: bytes, browser: await resident(browser.process().pid), workers: page.workers().length };
}

/** Bytes of a process and those below it, or of these alone. */
async function resident(root, below = false) {
  let bytes = 0;
  const processes = [root];
  for (let pid; (pid = processes.pop()) !== undefined; ) {
    const read = (name) => readFile(`/proc/${pid}/${name}`, 'utf8').catch(() => '');
    for (const thread of await readdir(`/proc/${pid}/task`).catch(() => [])) processes.push(...(await read(`task/${thread}/children`)).trim().split(' ').filter(Boolean));
    if (!(below && pid === root)) bytes += 1024 * Number(/^RssAnon:\s+(\d+) kB/m.exec(await read('status'))?.[1] ?? 0);
  }
  return bytes;
}
