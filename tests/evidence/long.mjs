// A session that goes on and on: 100,000 tokens through one sequence, and what memory and speed did on the way.
//
//     npm run evidence long [TOKENS] [cpu|gpu]
//
// A tiny model (random weights, two layers, keys forgotten by its own ε) in headless Chromium, on the CPU device unless it is said
// otherwise (a GPU in software takes hours), in one session with room for all of them: what stays flat does so because keys are forgotten. Results go to
// long.md beside this file.

import { writeFile } from 'node:fs/promises';
import { gpuEnvironment } from '../../tools/setup.mjs';
import { main, root, run } from '../../tools/shared.mjs';
import { chromium, inPage, openPage } from '../web/browsers.mjs';
import { serveDeep } from '../web/deep.mjs';
import { heapBytes, table } from '../web/rounds.mjs';

const MODEL = 'fox_pro_pruned';
const PARTS = 10;
/** Most bytes of the wasm heap that a token may leave: its id, in the sequence, in the answer and where they are held twice while they
 * grow. The heap itself grows by whole pieces. */
const BYTES_A_TOKEN = 64;
const PIECE_BYTES = 2 ** 20;
/** Most that the JavaScript of the page, and of the worker with the session, may grow by in all: what the browser compiles of it counts, too. */
const SCRIPT_BYTES = 2 ** 18;

/** How much slower the last tenth of the tokens may be than the first: keys that are forgotten cost nothing. */
const SLOWEST = 0.8;

/** What grows or slows down though it should not. `tokensPerSecond` of a row is a median of its parts. */
function complaintsOf(rows) {
  const [first, last] = [rows[0], rows.at(-1)];
  const tokens = last.there - first.there;
  const script = { pageBytes: SCRIPT_BYTES, workerBytes: SCRIPT_BYTES };
  const most = { deviceBytes: 0, heapBytes: BYTES_A_TOKEN * tokens + PIECE_BYTES, ...script, kvBytesLive: first.kvBytesLive / 2 };
  const grown = Object.entries(most).filter(([name, bytes]) => last[name] - first[name] > bytes);
  const told = grown.map(([name, bytes]) => `${name} grew by ${last[name] - first[name]} bytes in ${tokens} tokens, more than ${bytes}`);
  if (last.tokensPerSecond < SLOWEST * first.tokensPerSecond) told.push(`${last.tokensPerSecond} tokens/s at last, ${first.tokensPerSecond} at first`);
  return told;
}

/** Rows of what was seen after each part of the tokens. */
async function measure(browser, url, device, tokens) {
  const { page, complaints } = await openPage(browser, `${url}/blank`);
  const session = await page.createCDPSession();
  const rows = [];
  await page.exposeFunction('tell', async (row) => {
    const [worker] = page.workers();
    rows.push({ ...row, pageBytes: await heapBytes(session), workerBytes: await heapBytes(worker.client) });
    console.log(device, JSON.stringify(rows.at(-1)));
  });
  await inPage(page, async (Kitfox, _, { device, tokens, parts, name }) => {
    const fox = await Kitfox.load(`/deep/${name}.gguf`, { device, context: tokens + 1024 });
    const session = await fox.session();
    let there = await session.append('The fox said');
    for (let part = 0; part < parts; part += 1) {
      // Five answers, so that one at which the machine did something else does not count.
      const answers = [];
      for (let ix = 0; ix < 5; ix += 1) {
        const answer = session.generate({ maxTokens: Math.ceil(tokens / parts / 5), temperature: 1.2, seed: 5 * part + ix, ignoreEos: true });
        for await (const { ids } of answer) there += ids.length;
        answers.push(answer.summary);
      }
      const speeds = answers.map((summary) => summary.tokensPerSecond).sort((a, b) => a - b);
      const { deviceBytes, heapBytes, sessionBytes } = await fox.stats();
      const { finish, kvBytesLive } = answers.at(-1);
      await globalThis.tell({ there, finish, tokensPerSecond: Math.round(speeds[2]), kvBytesLive, deviceBytes, heapBytes, sessionBytes });
    }
    fox.dispose();
  }, { device, tokens, parts: PARTS, name: MODEL });
  if (complaints.length > 0) throw new Error(complaints.join('\n'));
  await page.close();
  return rows;
}

await main(async () => {
  const [tokens, device] = [Number(process.argv[2] ?? 100_000), process.argv[3] ?? 'cpu'];
  if (!Number.isInteger(tokens) || tokens < PARTS) throw new Error(`TOKENS: expected a whole number from ${PARTS}, got ${process.argv[2]}`);
  if (!['cpu', 'gpu'].includes(device)) throw new Error(`expected cpu or gpu, got ${device}`);
  Object.assign(process.env, await gpuEnvironment());
  await run('cargo', ['build', '--release', '--bin', 'kitfox', '--test', 'layers']);
  const server = await serveDeep(MODEL, 2, { bytes: true });
  const browser = await chromium();
  try {
    const rows = await measure(browser, server.url, device, tokens);
    const grown = complaintsOf(rows);
    if (grown.length > 0) throw new Error(grown.join('; '));
    const head = ['tokens', 'tokens/s', 'live keys and values', 'device', 'wasm heap', "the page's JavaScript", "the worker's JavaScript"];
    const told = rows.map((row) => [row.there, row.tokensPerSecond, row.kvBytesLive, row.deviceBytes, row.heapBytes, row.pageBytes, row.workerBytes]);
    const revision = (await run('git', ['rev-parse', '--short', 'HEAD'], { quiet: true })).trim();
    const report = `# ${tokens} tokens through one session

A tiny model of two layers whose keys are forgotten by its own ε, a context for all tokens, bytes after each tenth, on ${device === 'cpu' ? 'the CPU device (wasm)' : "the GPU (Chromium's SwiftShader)"}: \`npm run evidence long\`, commit ${revision}.
Five answers a tenth, tokens/s the median of them: the last tenth's is at least ${SLOWEST} of the first's.
The device may not grow, live keys and values not by half, the wasm heap by ${BYTES_A_TOKEN} bytes a token and ${PIECE_BYTES >> 20} MiB at most: the host keeps the ids.
The JavaScript of the page and of the worker, after two collections, may grow by ${SCRIPT_BYTES >> 10} KiB each at most.

${table([head, ...told])}
`;
    await writeFile(`${root}tests/evidence/long.md`, report);
    console.log(report);
  } finally {
    await browser.close();
    await server.close();
  }
});
