// Two hundred texts by one small model in headless Chromium, on the CPU and on the GPU (SwiftShader), and what they leave behind.
//
//     npm run evidence generations
//
// After `npm run build` and `cargo build --release`. Every tenth text what is held is told: buffers that the GPU was asked for and gave back,
// the wasm heap, and the JavaScript of worker and page after a collection. None of it may grow. Results go to generations.md beside this file.

import { writeFile } from 'node:fs/promises';
import { main, root } from '../../tools/shared.mjs';
import { inPage } from '../web/browsers.mjs';
import { heapBytes, sections, slope, table } from '../web/rounds.mjs';

const [TEXTS, STEP] = [200, 10];
const MODEL = 'fox_pro_pruned';
/** Samples that warm up: what the browser compiles of the JavaScript counts as its heap, and levels off. */
const WARM = 10;
/** Most bytes of JavaScript that a text may leave: a text that is kept has more. */
const MOST_BYTES = 100;

/** Writes so many texts with the page's model, with other seeds each time; gives what the worker counted, and the wasm heap. */
const write = async (Kitfox, { collect }, { device, url, n }) => {
  globalThis.fox ??= await Kitfox.load(url, { device, baseline: true, context: 128, ...(device === 'gpu' ? { workerUrl: '/tests/counting-worker.mjs' } : {}) });
  globalThis.counts ??= {};
  globalThis.channel ??= Object.assign(new BroadcastChannel('webgpu-counts'), { onmessage: ({ data }) => (globalThis.counts = data) });
  globalThis.written ??= 0;
  for (let end = globalThis.written + n; globalThis.written < end; globalThis.written += 1) {
    await collect(globalThis.fox.generate('The fox', { seed: globalThis.written, temperature: 1, maxTokens: 4, ignoreEos: true }));
  }
  // The counts come on a channel of their own.
  while (device === 'gpu' && globalThis.counts.createBuffer === undefined) await new Promise((resolve) => setTimeout(resolve, 20));
  const { createBuffer = 0, destroy = 0, createComputePipeline = 0, createBindGroup = 0 } = globalThis.counts;
  return { made: createBuffer, given: destroy, pipelines: createComputePipeline, groups: createBindGroup, wasm: globalThis.fox.info.heapBytes };
};

await main(async () => {
  const told = await sections(MODEL, 2, [['Chromium', 'cpu'], ['Chromium', 'gpu']], async ({ page, device, url }) => {
    const mine = await page.createCDPSession();
    const samples = [];
    for (let text = STEP; text <= TEXTS; text += STEP) {
      const held = await inPage(page, write, { device, url, n: STEP });
      const [worker] = page.workers();
      samples.push({ text, ...held, worker: await heapBytes(worker.client), page: await heapBytes(mine) });
      console.log(device, JSON.stringify(samples.at(-1)));
    }
    const warm = samples.slice(WARM);
    const names = ['made', 'given', 'pipelines', 'groups', 'wasm', 'worker', 'page'];
    const slopes = Object.fromEntries(names.map((name) => [name, slope(warm.map((sample) => sample[name])) / STEP]));
    const grown = names.filter((name) => slopes[name] > (name === 'worker' || name === 'page' ? MOST_BYTES : 0));
    if (grown.length > 0) throw new Error(`${device}: ${grown.map((name) => `${name} grows by ${slopes[name]} a text`).join(', ')}`);
    const head = ['texts', 'buffers made', 'buffers given back', 'pipelines made', 'bind groups made', 'wasm heap, bytes', "the worker's JavaScript, bytes", "the page's JavaScript, bytes"];
    const last = [`slope a text, from text ${warm[0].text} on`, ...names.map((name) => slopes[name].toFixed(name === 'worker' || name === 'page' ? 1 : 0))];
    return table([head, ...samples.map((sample) => [sample.text, ...names.map((name) => sample[name])]), last]);
  });
  const about = `# Two hundred texts by one model

A model of two small layers is loaded once and writes ${TEXTS} texts of four tokens, each with another seed, in one page of headless Chromium: \`npm run evidence
generations\`. Every ${STEP}th text what is held is told; JavaScript after two collections. The first hundred warm up: what the browser compiles of the
JavaScript counts as its heap, and levels off. What is held may not grow in the second hundred, the JavaScript by ${MOST_BYTES} bytes a text at most.
`;
  await writeFile(`${root}tests/evidence/generations.md`, [about, ...told].join('\n'));
});
