// Twenty rounds of loading a small model, writing with it and disposing of it, in headless Chromium, on the CPU and on the GPU (SwiftShader).
//
//     npm run evidence rounds
//
// After `npm run build` and `cargo build --release`. Each round has a worker and a device of its own: what it takes is the same in every round, and
// what the browser holds besides does not grow with them. Results go to rounds.md beside this file.

import { writeFile } from 'node:fs/promises';
import { main, root } from '../../tools/shared.mjs';
import { chromium, openPage } from '../web/browsers.mjs';
import { serveDeep } from '../web/deep.mjs';
import { holdings, round } from '../web/rounds.mjs';

const ROUNDS = 20;
const MODEL = 'fox_pro_pruned';
/** Most that the browser's processes may have grown by between the second round and the last: a model's wasm heap alone is more. */
const MOST_GROWN = 40e6;

const row = (cells) => `| ${cells.join(' | ')} |`;
const megabytes = (bytes) => (bytes / 1e6).toFixed(1);

await main(async () => {
  const server = await serveDeep(MODEL, 2, { bytes: true });
  const sections = [];
  try {
    for (const device of ['cpu', 'gpu']) {
      const browser = await chromium();
      const { page } = await openPage(browser, `${server.url}/blank`);
      const [rows, held] = [[], []];
      for (let n = 1; n <= ROUNDS; n += 1) {
        rows.push(await round(page, device, `/deep/${MODEL}.gguf`));
        held.push(await holdings(browser, page));
        console.log(device, n, JSON.stringify({ ...rows.at(-1), ...held.at(-1) }));
      }
      await browser.close();
      const same = (name) => new Set(rows.slice(1).map((one) => one[name])).size === 1;
      const grown = held.at(-1).browser - held[1].browser;
      const wrong = ['ids', 'deviceBytes', 'buffers', 'pipelines'].filter((name) => !same(name));
      if (wrong.length > 0 || grown > MOST_GROWN) throw new Error(`${device}: ${wrong.join(', ')} differ from round to round, or the browser grew by ${megabytes(grown)} MB`);
      const head = ['round', 'bytes on the device', 'buffers made', 'pipelines made', 'wasm heap, MB', "the page's heap, MB", "the browser's processes, MB", 'workers then'];
      const lines = rows.map((one, ix) => row([ix + 1, one.deviceBytes, one.buffers, one.pipelines, megabytes(one.heapBytes), megabytes(held[ix].page), megabytes(held[ix].browser), held[ix].workers]));
      sections.push(`## On the ${device === 'gpu' ? 'GPU (SwiftShader)' : 'CPU'}\n\n${[row(head), row(head.map(() => '---')), ...lines].join('\n')}\n`);
    }
  } finally {
    await server.close();
  }
  const about = `# Twenty models, one after the other

A model of two small layers is loaded, writes two tokens and is disposed of, twenty times in one page of headless Chromium: \`npm run evidence rounds\`. The first
round on the GPU finds out which kernels to use, the others recall it. A worker's end is told a little late, so one may be counted that is gone.
`;
  await writeFile(`${root}tests/evidence/rounds.md`, [about, ...sections].join('\n'));
});
