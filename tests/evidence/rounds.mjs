// Twenty rounds of loading a small model, writing with it and disposing of it: in headless Chromium on the CPU and on the GPU (SwiftShader), in
// Firefox on the CPU.
//
//     npm run evidence rounds
//
// After `npm run build` and `cargo build --release`. Each round has a worker and a device of its own: what it takes is the same in every round, and
// what the browser holds besides does not grow with them. Results go to rounds.md beside this file.

import { writeFile } from 'node:fs/promises';
import { main, root } from '../../tools/shared.mjs';
import { holdings, round, sections, table } from '../web/rounds.mjs';

const ROUNDS = 20;
const MODEL = 'fox_pro_pruned';
/** Most bytes that the browser's processes may have grown by between the second round and the last: on the CPU the wasm heaps of all rounds have six times that. */
const MOST_GROWN = { cpu: 15e6, gpu: 40e6 };

const megabytes = (bytes) => (bytes / 1e6).toFixed(1);

await main(async () => {
  const on = [['Chromium', 'cpu'], ['Chromium', 'gpu'], ['Firefox', 'cpu']];
  const told = await sections(MODEL, 2, on, async ({ browser, page, device, name, url }) => {
    const [rows, held] = [[], []];
    for (let n = 1; n <= ROUNDS; n += 1) {
      rows.push(await round(page, device, url));
      held.push(await holdings(browser, page));
      console.log(name, device, n, JSON.stringify({ ...rows.at(-1), ...held.at(-1) }));
    }
    const grown = held.at(-1).browser - held[1].browser;
    const wrong = Object.keys(rows[0]).filter((one) => new Set(rows.slice(1).map((row) => row[one])).size > 1);
    if (wrong.length > 0 || grown > MOST_GROWN[device]) throw new Error(`${name}, ${device}: ${wrong.join(', ')} differ from round to round, or the browser grew by ${megabytes(grown)} MB`);
    const head = ['round', 'bytes on the device', 'live buffers', 'their bytes', 'pipelines made', 'wasm heap, MB', "the page's heap, MB", "the browser's processes, MB", 'workers then'];
    const heap = (bytes) => (name === 'Firefox' ? '' : megabytes(bytes));
    return table([head, ...rows.map((one, ix) => [ix + 1, one.deviceBytes, one.buffers, one.bytes, one.pipelines, megabytes(one.heapBytes), heap(held[ix].page), megabytes(held[ix].browser), held[ix].workers])]);
  });
  const about = `# Twenty models, one after the other

A model of two small layers is loaded, writes two tokens and is disposed of, twenty times in one page: \`npm run evidence rounds\`. Buffers are those that the GPU was asked
for, less those that were destroyed, at the end of the text. The first round on the GPU finds out which kernels to use, the others recall it. A worker's end is told a
little late, so one may be counted that is gone. Of Firefox the processes of pages are counted: its first one keeps for whoever drives it what every answer of the network held.
`;
  await writeFile(`${root}tests/evidence/rounds.md`, [about, ...told].join('\n'));
});
