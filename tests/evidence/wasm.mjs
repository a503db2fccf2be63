// How quick the CPU device is in wasm: tokens of the demo model a second, in Node and in headless Chromium.
//
//     npm run evidence wasm        (after npm run build)
//
// By the clock, and by the CPU time of the process (what a machine with nothing else to do would show). Results go to wasm.md beside
// this file.

import { readFile, writeFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { main, root, run } from '../../tools/shared.mjs';
import { chromium, inPage, openPage } from '../web/browsers.mjs';
import { startServer } from '../web/server.mjs';

const RUNS = 7;
const TOKENS = 96;
const BAR = 50;

async function inNode() {
  const { Kitfox } = await import(`${root}web/dist/kitfox.js`);
  const fox = await Kitfox.load(new Blob([await readFile(`${root}www/models/demo.gguf`)]), { device: 'cpu' });
  const rows = [];
  for (let n = 0; n <= RUNS; n += 1) {
    const answer = fox.generate('Once upon a time', { maxTokens: TOKENS, seed: n, ignoreEos: true });
    let [tokens, cpu] = [0];
    for await (const { ids } of answer) {
      tokens += ids.length;
      cpu ??= process.cpuUsage();
    }
    const { user, system } = process.cpuUsage(cpu);
    rows.push({ clock: answer.summary.tokensPerSecond, cpu: (tokens - 1) / ((user + system) / 1e6) });
  }
  fox.dispose();
  return rows.slice(1);
}

async function inChromium() {
  const [server, browser] = [await startServer(), await chromium()];
  try {
    const { page } = await openPage(browser, `${server.url}/blank`);
    const write = async (Kitfox, { collect }, { tokens, runs }) => {
      const fox = await Kitfox.load('/models/demo.gguf', { device: 'cpu' });
      const rows = [];
      for (let seed = 0; seed <= runs; seed += 1) {
        const { summary } = await collect(fox.generate('Once upon a time', { maxTokens: tokens, seed, ignoreEos: true }));
        rows.push({ clock: summary.tokensPerSecond, cpu: 1e6 / summary.cpuUsPerToken });
      }
      fox.dispose();
      return rows.slice(1);
    };
    return await inPage(page, write, { tokens: TOKENS, runs: RUNS });
  } finally {
    await browser.close();
    await server.close();
  }
}

await main(async () => {
  const spread = (rows, name) => {
    const sorted = rows.map((row) => row[name]).sort((a, b) => a - b);
    return `${sorted[RUNS >> 1].toFixed(1)} (${sorted[0].toFixed(1)} to ${sorted.at(-1).toFixed(1)})`;
  };
  const [node, page] = [await inNode(), await inChromium()];
  const revision = (await run('git', ['rev-parse', '--short', 'HEAD'], { quiet: true })).trim();
  const report = `# The CPU device in wasm

Demo model (Q4_0 of 34 M weights), ${TOKENS} tokens, one thread, simd128, median and spread of ${RUNS} runs on ${cpus()[0].model}, commit ${revision}: \`npm run evidence wasm\`. Bar: ${BAR} tokens/s.

| | tokens/s by the clock | by CPU time |
|---|---|---|
| Node ${process.versions.node} | ${spread(node, 'clock')} | ${spread(node, 'cpu')} |
| Chromium, the page's worker | ${spread(page, 'clock')} | |
`;
  await writeFile(`${root}tests/evidence/wasm.md`, report);
  console.log(report);
});
