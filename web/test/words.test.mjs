// The engine's errors in the package's words. The command line has the same engine, and its flags have other names: none of them reaches a page.
// The real engine, on the CPU of Node, is given what the package's own checks would never let through.

import assert from 'node:assert/strict';
import { readFile, readdir } from 'node:fs/promises';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import { ForgettingAttentionLayer, Kitfox } from '../dist/kitfox.js';

const read = (place) => readFile(new URL(place, import.meta.url), 'utf8');
const model = fileURLToPath(new URL('../../www/models/demo.gguf', import.meta.url));
const settings = { cache: 'off', device: 'cpu' };
const source = { ...settings, type: 'load', parts: [{ url: pathToFileURL(model).href }] };

/** A worker of the package without the package in front of it. */
class Bare {
  #worker = new Worker(new URL('../dist/node-worker.js', import.meta.url), { execArgv: [] });
  #calls = 0;

  /** Sends a message, and gives the one that ends it. */
  tell(message) {
    return new Promise((resolve) => {
      const heard = (said) => {
        if (!['ready', 'failed', 'done', 'value', 'computed', 'report', 'gates', 'error', 'crashed'].includes(said.type)) return;
        this.#worker.off('message', heard);
        resolve(said);
      };
      this.#worker.on('message', heard);
      this.#worker.postMessage(message);
    });
  }

  ask(request) {
    return this.tell({ ...request, call: (this.#calls += 1) });
  }

  end() {
    return this.#worker.terminate();
  }
}

let bare;
before(async () => {
  bare = new Bare();
  assert.equal((await bare.tell({ ...source, context: 64 })).type, 'ready');
});
after(() => bare?.end());

async function loading(message) {
  const other = new Bare();
  try {
    return await other.tell(message);
  } finally {
    await other.end();
  }
}

/** No flag, no verb of the command line, and no name as a flag or a Rust field has it in front. */
function inItsWords(error, code, option) {
  assert.deepEqual([error?.code, error?.message.split(':')[0]], [code, option], error?.message);
  assert.doesNotMatch(error.message, /(^|[\s(`'"])--?[a-z]|kitfox [a-z]+|directory|^\w+[-_]/);
}

/** Options of `generate` that the engine refuses, by what it is given; null: it takes whatever the package lets through. */
const GENERATE = {
  maxTokens: null,
  temperature: [{ temperature: -1 }, { temperature: NaN }],
  topK: null,
  topP: [{ topP: 0 }, { topP: 2 }],
  minP: [{ minP: 2 }],
  repeatPenalty: [{ repeatPenalty: 0 }],
  repeatLastN: null,
  seed: null,
  stop: [{ stop: [''] }],
  ignoreEos: null,
  inFlight: [{ inFlight: 0 }, { inFlight: 17 }],
  logitBias: [
    { biasedIds: Uint32Array.of(1e6), biases: Float32Array.of(1) },
    { biasedIds: Uint32Array.of(7, 7), biases: Float32Array.of(1, 1) },
    { biasedIds: Uint32Array.of(7), biases: Float32Array.of(NaN) },
    { biasedIds: Uint32Array.from({ length: 513 }, (_, ix) => ix), biases: new Float32Array(513) },
  ],
  logprobs: null,
  signal: null,
  onPrefill: null,
};

/** The same of `load`. */
const LOAD = {
  context: [{ context: 0 }, { context: 2 ** 20 }, { context: 1, overflow: 'slide' }],
  chunk: [{ chunk: 0 }, { chunk: 2 ** 20 }],
  kv: [{ kv: 'f64' }],
  prune: [{ prune: 2 }, { prune: 'on' }],
  overflow: [{ overflow: 'drop' }],
  check: [{ check: true }],
  ...Object.fromEntries(['device', 'baseline', 'scores', 'wasmUrl', 'workerUrl', 'signal', 'onProgress', 'onEvent', 'cache', 'revalidate', 'persist', 'manifest', 'retries'].map((name) => [name, null])),
};

/** The same of `bench`. */
const BENCH = { context: [{ context: 1 }], n: [{ n: 0 }], runs: [{ runs: 0 }], inFlight: [{ inFlight: 17 }], text: [{ text: 'a'.repeat(2 ** 24 + 1) }], floor: null, signal: null, onProgress: null };

test('the tables have every option', async () => {
  const [options, transfer, bench] = await Promise.all(['../options.ts', '../loading.ts', '../bench.ts'].map(read));
  const fieldsOf = (text, name) => [...new RegExp(`interface ${name} [^{]*\\{([^]*?)\\n\\}`).exec(text)[1].matchAll(/^ {2}(\w+)\??:/gm)].map(([, field]) => field);
  assert.deepEqual(Object.keys(GENERATE).toSorted(), fieldsOf(options, 'GenerateOptions').toSorted());
  assert.deepEqual(Object.keys(LOAD).toSorted(), [...fieldsOf(options, 'LoadOptions'), ...fieldsOf(transfer, 'TransferOptions')].toSorted());
  assert.deepEqual(Object.keys(BENCH).toSorted(), fieldsOf(bench, 'BenchOptions').toSorted());
});

const engine = { maxTokens: 1, seed: 1, stop: [] };
for (const [type, table, call] of [
  ['generate', GENERATE, (bad) => bare.ask({ type: 'generate', prompt: 'a', options: { ...engine, ...bad } })],
  ['load', LOAD, (bad) => loading({ ...source, ...bad })],
  ['bench', BENCH, (bad) => bare.ask({ type: 'bench', options: bad })],
]) {
  test(`what the engine refuses of ${type} it names as the package does`, async () => {
    for (const [option, bad] of Object.entries(table)) {
      for (const one of bad ?? []) inItsWords((await call(one)).error, 'argument', option);
    }
    if (type !== 'load') assert.equal((await bare.ask({ type: 'generate', prompt: 'a', options: engine })).type, 'done', 'and it goes on');
  });
}

test('a layer, a context that is full and a file that is no model are told without flags', async () => {
  inItsWords((await bare.ask({ type: 'generate', prompt: 'a '.repeat(200), options: engine })).error, 'context-full', 'context');
  const small = { hiddenSize: 4, numHeads: 1, mode: 'encoder', bitnet: false, ...Object.fromEntries(['qProj', 'kProj', 'vProj', 'outProj'].map((name) => [name, new Float32Array(16)])), fProj: new Float32Array(4) };
  for (const [option, weights] of [['hiddenSize', { ...small, hiddenSize: 2 ** 30 }], ['numHeads', { ...small, numHeads: 3 }], ['qProj', { ...small, qProj: new Float32Array(3) }]]) {
    await assert.rejects(ForgettingAttentionLayer.load(weights, { device: 'cpu' }), (error) => (inItsWords(error, 'argument', option), true));
  }
  const photo = Kitfox.load(Uint8Array.of(0xff, 0xd8, 0xff, 0xe0, ...Array(100).fill(7)), { device: 'cpu' });
  await assert.rejects(photo, (error) => (inItsWords(error, 'format', 'bytes'), /magic: expected "GGUF" \(a GGUF file\), got /.test(error.message)));
});

/** The engine's sources that a page runs, without their tests and comments. */
async function sources() {
  const root = fileURLToPath(new URL('../../src/', import.meta.url));
  const names = (await readdir(root, { recursive: true })).filter((name) => /\.rs$/.test(name) && !/^(cli|main\.rs|web\/words\.rs)|tests?\.rs$/.test(name));
  return Promise.all(names.map(async (name) => [name, (await readFile(path.join(root, name), 'utf8')).split('#[cfg(test)]')[0].replace(/\/\/.*/g, '')]));
}

test('every flag and verb in the engine has its words for a page', async () => {
  const known = [...(await read('../../src/web/words.rs')).matchAll(/^ {4}\("([^"]+)", "/gm)].map(([, flag]) => flag);
  assert.ok(known.length > 3);
  const left = [];
  for (const [name, text] of await sources()) {
    for (const [literal] of text.matchAll(/"(?:[^"\\]|\\.)*"/g)) {
      const said = known.reduce((rest, flag) => rest.replaceAll(flag, ''), literal);
      if (/ /.test(said) && /(^|[\s("`])(--[a-z]|-[a-z]\b|kitfox [a-z])/.test(said)) left.push(`${name}: ${said}`);
    }
  }
  assert.deepEqual(left, [], 'give it its words in src/web/words.rs');
});

test('every name with a hyphen in an error of the engine is an option of the package, its hyphens aside', async () => {
  const options = new Set([GENERATE, LOAD, BENCH].flatMap(Object.keys));
  const found = [];
  for (const [, text] of await sources()) found.push(...[...text.matchAll(/(?:argument|check_ids|within)\(\s*"([a-z]+(?:-[a-z]+)+)"/g)].map(([, name]) => name));
  assert.ok(found.includes('logit-bias') && found.includes('top-p') && found.includes('in-flight'), found.join());
  for (const name of found) assert.ok(options.has(name.replace(/-(\w)/g, (_, letter) => letter.toUpperCase())), name);
});
