// What a token costs beside the GPU's own work: nothing is created for it, and the worker's thread is done with it in less than a
// millisecond. SwiftShader computes in the GPU process, so the worker's thread has none of that; and what the thread does depends on
// the dispatches, not on their size, so a model of many small layers (and of pages that die) stands for a large one.

import assert from 'node:assert/strict';
import { readFile, readdir } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { chromium, inPage, openPage } from './browsers.mjs';
import { serveDeep } from './deep.mjs';

/** As many as the page's model has. */
const LAYERS = 8;
const NAME = 'fox_pro_pruned';
/** Most of the worker's thread on a token, in microseconds. */
const MOST_CPU_US = 1000;
const TOKENS = 160;
/** Of which the time is taken. */
const MEASURED = 16;
const RUNS = 3;

// Of this file alone: files run side by side.
let server;
let browser;
before(async () => {
  server = await serveDeep(NAME, LAYERS);
  browser = await chromium();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

test('for a text of 160 tokens nothing is created, and each is six dispatches a layer and two', async () => {
  const { page, complaints } = await openPage(browser, `${server.url}/blank`);
  const run = async (Kitfox, { fails }, { url, n }) => {
    const [counts, channel, ends] = [[], new BroadcastChannel('webgpu-counts'), new AbortController()];
    channel.onmessage = ({ data }) => counts.push(data);
    const fox = await Kitfox.load(url, { device: 'gpu', context: 1024, workerUrl: '/tests/counting-worker.mjs' });
    // The very first text is enough, and what is made late is seen in it.
    const onProgress = ({ done }) => done === 2 && ends.abort();
    const ended = await fails(fox.bench({ context: 8, n, inFlight: 4, floor: false, signal: ends.signal, onProgress }));
    await new Promise((resolve) => setTimeout(resolve, 200)); // the channel is not in step with the messages
    fox.dispose();
    return { counts, ended, info: fox.info };
  };
  const { counts, ended, info } = await inPage(page, run, { url: `/deep/${NAME}.gguf`, n: TOKENS });
  assert.equal(ended, 'aborted: aborted');
  assert.equal(info.dispatchesPerToken, 6 * LAYERS + 2);
  assert.ok(info.prune > 0, 'pages of this model die: the host looks which');
  assert.ok(counts.length >= 2, 'the prompt was read, the text written');
  const made = Object.fromEntries(Object.keys(counts[1]).map((name) => [name, counts[1][name] - (counts[0][name] ?? 0)]));
  console.log(`${TOKENS} tokens: ${JSON.stringify(made)}`);
  for (const [name, calls] of Object.entries(made)) {
    if (name.startsWith('create') && name !== 'createCommandEncoder') assert.equal(calls, 0, name);
  }
  // Beside the tokens (of which the first is only drawn) the prompt's last, read by the graph of prompts.
  const dispatches = (TOKENS - 1) * info.dispatchesPerToken;
  assert.ok(made.dispatchWorkgroups >= dispatches && made.dispatchWorkgroups <= dispatches + 20 * LAYERS, `${made.dispatchWorkgroups} dispatches`);
  // A pass for a batch of four, one more where a batch goes on in the next page, and those of the prompt's last and of the first draw.
  const passes = TOKENS / 4;
  assert.ok(made.beginComputePass >= passes && made.beginComputePass <= passes + TOKENS / 64 + 4, `${made.beginComputePass} passes`);
  // One encoder reads a batch of four, and one looks at dead pages once in 64 tokens.
  assert.ok(made.createCommandEncoder <= made.beginComputePass + TOKENS / 4 + TOKENS / 64 + 1, `${made.createCommandEncoder} encoders`);
  assert.equal(made.mapAsync, made.createCommandEncoder - made.beginComputePass);
  assert.deepEqual(complaints, []);
  await page.close();
});

/** Nanoseconds that the worker threads below a process have run, as Linux counts them. */
async function workerTime(pid) {
  const processes = [pid];
  let sum = 0;
  for (let process; (process = processes.pop()) !== undefined; ) {
    for (const thread of await readdir(`/proc/${process}/task`).catch(() => [])) {
      const read = (name) => readFile(`/proc/${process}/task/${thread}/${name}`, 'utf8').catch(() => '');
      processes.push(...(await read('children')).trim().split(' ').filter(Boolean).map(Number));
      if ((await read('comm')).startsWith('DedicatedWorker')) sum += Number((await read('schedstat')).split(' ')[0]);
    }
  }
  return sum;
}

test('a token takes the worker less than a millisecond beyond the GPU', async () => {
  const { page, complaints } = await openPage(browser, `${server.url}/blank`);
  const load = async (Kitfox, _, url) => {
    globalThis.fox = await Kitfox.load(url, { device: 'gpu', context: 1024 });
  };
  await inPage(page, load, `/deep/${NAME}.gguf`);
  const bench = (n) => inPage(page, (Kitfox, _, n) => globalThis.fox.bench({ context: 8, n, runs: 1, floor: false }), n);
  const thread = async (n) => {
    const start = await workerTime(browser.process().pid);
    const { cpu_us_per_token: clock, decode_tokens_per_s: rate } = await bench(n);
    return { us: ((await workerTime(browser.process().pid)) - start) / 1000, clock, rate };
  };
  await thread(8);
  const runs = [];
  for (let run = 0; run < RUNS; run += 1) {
    const [short, long] = [await thread(8), await thread(8 + MEASURED)];
    // What a call costs once is in both; each writes twice, to warm up and to be timed.
    runs.push({ ...long, thread: (long.us - short.us) / (2 * MEASURED) });
  }
  // The quickest run: whatever else the machine does only adds.
  const least = (name) => Math.min(...runs.map((run) => run[name]));
  console.log(
    `a token: ${least('thread').toFixed(0)} µs of the worker's thread, ${least('clock').toFixed(0)} µs by the page's clock, ${Math.max(...runs.map(({ rate }) => rate)).toFixed(1)} tokens/s`,
  );
  // The page's clock also counts what other programs take from the thread: it stands in where threads cannot be asked.
  const cost = least(process.platform === 'linux' ? 'thread' : 'clock');
  assert.ok(cost > 0 && cost <= MOST_CPU_US, `${cost} µs`);
  assert.deepEqual(complaints, []);
  await page.close();
});
