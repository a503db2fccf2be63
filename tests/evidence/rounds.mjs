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
/** Rounds that warm the browser up, and most by which its processes may grow in each one after them: a model that stays takes five times as much. */
const WARM = 8;
const MOST_GROWN = 0.5e6;

const row = (cells) => `| ${cells.join(' | ')} |`;
const megabytes = (bytes) => (bytes / 1e6).toFixed(1);

/** Least squares: by how much the values grow from one to the next. */
function slope(values) {
  const mean = (all) => all.reduce((sum, value) => sum + value, 0) / all.length;
  const [x, y] = [(values.length - 1) / 2, mean(values)];
  return mean(values.map((value, ix) => (ix - x) * (value - y))) / mean(values.map((_, ix) => (ix - x) ** 2));
}

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
      const grown = slope(held.slice(WARM).map(({ browser }) => browser));
      const wrong = ['ids', 'deviceBytes', 'buffers', 'pipelines'].filter((name) => !same(name));
      if (wrong.length > 0 || grown > MOST_GROWN) throw new Error(`${device}: ${wrong.join(', ')} differ from round to round, or the browser grows by ${megabytes(grown)} MB a round`);
      const head = ['round', 'bytes on the device', 'buffers made', 'pipelines made', 'wasm heap, MB', "the page's heap, MB", "the browser's processes, MB", 'workers then'];
      const lines = rows.map((one, ix) => row([ix + 1, one.deviceBytes, one.buffers, one.pipelines, megabytes(one.heapBytes), megabytes(held[ix].page), megabytes(held[ix].browser), held[ix].workers]));
      lines.push(row([`slope a round, from round ${WARM + 1} on`, '', '', '', '', '', (grown / 1e6).toFixed(2), '']));
      sections.push(`## On the ${device === 'gpu' ? 'GPU (SwiftShader)' : 'CPU'}\n\n${[row(head), row(head.map(() => '---')), ...lines].join('\n')}\n`);
    }
  } finally {
    await server.close();
  }
  const about = `# Twenty models, one after the other

A model of two small layers is loaded, writes two tokens and is disposed of, twenty times in one page of headless Chromium: \`npm run evidence rounds\`. The first
round on the GPU finds out which kernels to use, the others recall it. A worker's end is told a little late, so one may be counted that is gone.
From round ${WARM + 1} on the browser's processes may grow by ${MOST_GROWN / 1e6} MB a round at most: a model that stays takes five times as much.
`;
  await writeFile(`${root}tests/evidence/rounds.md`, [about, ...sections].join('\n'));
});
