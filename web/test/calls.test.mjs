// Kitfox against the real worker loop over a message channel, with an engine of the test's own in place of the wasm one.

import assert from 'node:assert/strict';
import test, { afterEach } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { holdModel } from '../dist/answers.js';
import { Kitfox, KitfoxError, attention, forgetting, meanAttention, mostAttentionTokens } from '../dist/kitfox.js';
import { Speller, weight } from './speller.mjs';
import { fakeWorkers, promptly } from './workers.mjs';

const workers = fakeWorkers(() => {
  const engine = new Speller();
  return { engine, held: holdModel(engine, () => ({ device: 'speller', gpu: engine.gpu, vocab: 3, heapBytes: engine.steps })) };
});
const { made } = workers;
afterEach(workers.end);

async function collect(generation) {
  let text = '';
  for await (const piece of generation) text += piece;
  return text;
}

/** After whatever happened, a normal call gives its normal answer. */
async function stillWorks(fox) {
  assert.equal(await promptly(collect(fox.generate('xyz', { maxTokens: 4 }))), 'xyzx');
}

test('a load gives progress and info, with absolute URLs', async () => {
  const [seen, events] = [[], []];
  const fox = await Kitfox.load('m.gguf#here', { onProgress: (p) => seen.push(p), onEvent: (e) => events.push(e), wasmUrl: '/k.wasm', context: 64 });
  const at = (phase, doneBytes) => ({ phase, doneBytes, totalBytes: 2, bytesPerSecond: 5 });
  assert.deepEqual(seen, [at('upload', 1), at('compile', 2)]);
  assert.deepEqual(events, [{ kind: 'uncached', url: 'http://page.example/folder/m.gguf', reason: 'a test' }]);
  assert.equal(fox.info.device, 'speller');
  const { parts, wasmUrl, context, device } = made[0].asked;
  assert.equal(parts.length, 1);
  const [{ url }] = parts;
  assert.deepEqual([url, wasmUrl, context, device], ['http://page.example/folder/m.gguf', 'http://page.example/k.wasm', 64, 'auto']);
  await stillWorks(fox);
  assert.equal(fox.info.heapBytes, 5, 'info is that of the last call');
  fox.dispose();
  assert.ok(made[0].terminated);
});

test('a load that fails, is aborted or panics ends its worker and leaves the next one alone', async () => {
  await assert.rejects(Kitfox.load('missing'), (error) => {
    assert.ok(error instanceof KitfoxError && error.cause instanceof Error);
    return error.code === 'http' && error.message === 'the server answered 404' && error.cause.name === 'TypeError' && error.cause.message === 'of the network';
  });
  await assert.rejects(promptly(Kitfox.load('panics')), { code: 'crashed' });
  await assert.rejects(Kitfox.load('m', { workerUrl: 'absent.js' }), { code: 'worker' });
  const ends = new AbortController();
  const loading = Kitfox.load('stalled', { signal: ends.signal });
  setTimeout(() => ends.abort('enough'), 5);
  await assert.rejects(promptly(loading), { code: 'aborted', cause: 'enough' });
  await assert.rejects(Kitfox.load('m', { signal: AbortSignal.abort() }), { code: 'aborted' });
  const own = new Error('mine');
  const onProgress = () => {
    throw own;
  };
  await assert.rejects(Kitfox.load('m', { onProgress }), own);
  await assert.rejects(Kitfox.load('m', { onEvent: onProgress }), own);
  assert.deepEqual(made.map(({ terminated }) => terminated), [true, true, true, true, true, true]);
  await stillWorks(await Kitfox.load('m'));
});

test('pieces, return value and summary', async () => {
  const fox = await Kitfox.load('m');
  const prefills = [];
  const generation = fox.generate('abcdef', { maxTokens: 3, seed: 5, onPrefill: (p) => prefills.push(p) });
  assert.equal(generation.summary, undefined);
  const pieces = [];
  let step;
  while (!(step = await generation.next()).done) pieces.push(step.value);
  assert.deepEqual(pieces.map(({ text, ids }) => [text, ...ids]), [['a', 1], ['b', 2], ['c', 3]]);
  assert.equal(`${pieces[1]}`, 'b');
  assert.deepEqual(pieces.map(({ kvBytesLive, kvBytesFreed }) => [kvBytesLive, kvBytesFreed]), [[64, 0], [128, 1], [192, 2]], 'as far as the engine knows');
  assert.deepEqual(prefills, [{ done: 4, total: 6 }, { done: 6, total: 6 }]);
  assert.equal(step.value, generation.summary);
  assert.deepEqual(await generation.return(), { done: true, value: generation.summary }, 'left after its end');
  const { finish, tokens, promptTokens, seed, tokensPerSecond, firstTokenMs } = generation.summary;
  assert.deepEqual({ finish, tokens, promptTokens, seed }, { finish: 'length', tokens: 3, promptTokens: 6, seed: 5 });
  assert.ok(tokensPerSecond > 0 && firstTokenMs >= 0);
  const { kvBytesLive, kvBytesFreed, cpuUsPerToken } = generation.summary;
  assert.deepEqual([kvBytesLive, kvBytesFreed, cpuUsPerToken], [192, 5, 2.5]);
  assert.deepEqual(await generation.next(), { done: true, value: undefined });
});

test('a seed is made up when none is given, and told', async () => {
  const fox = await Kitfox.load('m');
  const seeds = new Set();
  for (let i = 0; i < 3; i += 1) {
    const generation = fox.generate('a', { maxTokens: 1 });
    await collect(generation);
    assert.equal(made[0].engine.options.seed, generation.summary.seed);
    seeds.add(generation.summary.seed);
  }
  assert.ok(seeds.size > 1);
});

test('pieces have the probabilities of their tokens, if they were asked for', async () => {
  const fox = await Kitfox.load('m');
  const pieces = [];
  for await (const { ids, logprobs } of fox.generate('ab', { maxTokens: 2, logprobs: true })) pieces.push([ids, logprobs]);
  assert.deepEqual(pieces, [[[1], [-1]], [[2], [-2]]]);
  const { value } = await fox.generate('ab', { maxTokens: 1 }).next();
  assert.equal(value.logprobs, undefined);
});

test('options that were not given are not sent: the engine has its own defaults', async () => {
  const fox = await Kitfox.load('m');
  await collect(fox.generate('a', { maxTokens: 1, seed: 1, temperature: undefined }));
  assert.deepEqual(made[0].engine.options, { maxTokens: 1, seed: 1, stop: [] });
  const more = { topK: 3, repeatPenalty: 1, repeatLastN: 8, ignoreEos: true, inFlight: 4 };
  await collect(fox.generate('a', { maxTokens: 1, seed: 1, stop: 'x', ...more }));
  assert.deepEqual(made[0].engine.options, { maxTokens: 1, seed: 1, stop: ['x'], ...more });
  for (const logitBias of [{ 7: -1.5, 3: 2 }, new Map([[3, 2], [7, -1.5]])]) {
    await collect(fox.generate('a', { maxTokens: 1, seed: 1, logitBias }));
    const biased = { biasedIds: Uint32Array.of(3, 7), biases: Float32Array.of(2, -1.5) };
    assert.deepEqual(made[0].engine.options, { maxTokens: 1, seed: 1, stop: [], ...biased });
  }

  const load = { chunk: 32, prune: 1e-4, overflow: 'slide', baseline: true, context: 512, device: 'gpu' };
  await Kitfox.load('m', { ...load, kv: undefined, signal: new AbortController().signal, onProgress() {}, workerUrl: 'w.js' });
  assert.deepEqual(made[1].asked, { type: 'load', parts: [{ url: 'http://page.example/folder/m' }], cache: 'auto', ...load });
});

test('a measurement tells its phases and gives its report, between other calls; an abort or an error ends it alone', async () => {
  const fox = await Kitfox.load('m');
  const seen = [];
  const [report, text] = await promptly(
    Promise.all([fox.bench({ n: 4, text: 'ab', onProgress: (p) => seen.push(p) }), collect(fox.generate('xy', { maxTokens: 3 }))]),
  );
  assert.deepEqual(report, { adapter: 'speller', floor_ms: null });
  assert.equal(text, 'xyx');
  assert.deepEqual(seen, [1, 2, 3].map((done) => ({ done, total: 3 })));
  assert.deepEqual(made[0].engine.benched, { n: 4, text: 'ab' });

  await assert.rejects(fox.bench({ runs: 0 }), { code: 'argument', message: /^bench: runs: expected/ });
  await assert.rejects(promptly(fox.bench({ context: 1000 })), { code: 'context-full' });
  const ends = new AbortController();
  const aborting = fox.bench({ text: 'slow', signal: ends.signal, onProgress: () => ends.abort() });
  await assert.rejects(promptly(aborting), { code: 'aborted' });
  const own = new Error('mine');
  const onProgress = () => {
    throw own;
  };
  await assert.rejects(promptly(fox.bench({ onProgress })), own);
  await stillWorks(fox);
  const running = promptly(fox.bench({ text: 'slow' }));
  fox.dispose();
  await assert.rejects(running, { code: 'disposed' });
});

test('gates come of a text or of ids, whole and head by head; an error or an abort ends the call alone', async () => {
  const fox = await Kitfox.load('m');
  const [gates, text] = await promptly(Promise.all([fox.gates([5, 6, 7, 8, 1]), collect(fox.generate('xy', { maxTokens: 3 }))]));
  assert.equal(text, 'xyx');
  const { logF, ...shape } = gates;
  assert.deepEqual(shape, { ids: [5, 6, 7, 8, 1], tokens: ['5', '6', '7', '8', '1'], completedBy: [0, 1, 2, 3, 4], layers: 2, heads: 2, kvHeads: 1, prune: 1e-4, u: Float32Array.of(1, 2, 3, 4) });
  assert.deepEqual([...logF], [0, -1, -2, -3].flatMap((value) => Array(5).fill(value)));
  assert.ok(forgetting(gates, 1, 0, 4).every((f, j) => Math.abs(f - Math.exp(-2 * (4 - j))) < 1e-12));
  const read = [];
  assert.deepEqual((await promptly(fox.gates('ab', { onProgress: (progress) => read.push(progress) }))).ids, [0, 0, 1], 'the begin token is in front of a text');
  assert.deepEqual(read, [{ done: 2, total: 3 }, { done: 3, total: 3 }]);
  const own = () => { throw new RangeError('of the listener'); };
  await assert.rejects(promptly(fox.gates('ab', { onProgress: own })), RangeError);
  for (const wrong of ['', [], [1.5], undefined]) await assert.rejects(fox.gates(wrong), { code: 'argument', message: /^gates: / });
  await assert.rejects(fox.gates('a', { onPrefill() {} }), { code: 'argument' });
  await assert.rejects(promptly(fox.gates([9])), { code: 'argument' });
  const ends = new AbortController();
  const slow = fox.gates('slow slow slow', { signal: ends.signal });
  setTimeout(() => ends.abort(), 20);
  await assert.rejects(promptly(slow), { code: 'aborted' });
  await stillWorks(fox);
});

test('attention comes of a text or of ids, row by row; too many tokens are refused with the number that there may be', async () => {
  const fox = await Kitfox.load('m');
  const [all, text] = await promptly(Promise.all([fox.attention([5, 6, 7, 8, 1]), collect(fox.generate('xy', { maxTokens: 3 }))]));
  assert.equal(text, 'xyx');
  const { weights, ...shape } = all;
  assert.deepEqual(shape, { ids: [5, 6, 7, 8, 1], tokens: ['5', '6', '7', '8', '1'], completedBy: [0, 1, 2, 3, 4], layers: 2, heads: 2 });
  assert.equal(weights.length, 4 * 15);
  for (let head = 0; head < 4; head += 1) {
    for (let i = 0; i < 5; i += 1) assert.deepEqual([...attention(all, head >> 1, head & 1, i)], Array.from({ length: i + 1 }, (_, j) => weight(head, i, j)), `head ${head}, row ${i}`);
  }
  assert.deepEqual([...meanAttention(all, 1, 1)], [260, 261]);
  assert.deepEqual([...meanAttention(all, 1)], [160, 161]);
  for (const i of [-2, -1, 0.5, all.ids.length]) assert.throws(() => meanAttention(all, i), { name: 'KitfoxError', code: 'argument' });
  for (const [name, ...where] of [['layer', 2, 0, 0], ['head', 0, 2, 0], ['i', 0, 0, 5]]) {
    assert.throws(() => attention(all, ...where), (error) => error.code === 'argument' && error.message.startsWith(`${name}:`));
  }
  // 2^24 weights: n(n + 1)/2 for each of the heads.
  assert.deepEqual([mostAttentionTokens({ layers: 2, heads: 2 }), mostAttentionTokens({ layers: 8, heads: 8 }), mostAttentionTokens({ layers: 1, heads: 2 ** 25 })], [2895, 723, 1]);
  const read = [];
  await promptly(fox.attention('ab', { onProgress: (progress) => read.push(progress) }));
  assert.deepEqual(read, [{ done: 2, total: 3 }, { done: 3, total: 3 }]);
  await assert.rejects(promptly(fox.attention(Array(2896).fill(1))), { code: 'argument', message: /^attention: text: expected at most 2895 tokens: .* got 2896$/ });
  for (const wrong of ['', [], [1.5], undefined]) await assert.rejects(fox.attention(wrong), { code: 'argument', message: /^attention: / });
  await stillWorks(fox);
  made[0].engine.gpu = true;
  await stillWorks(fox);
  assert.deepEqual((await promptly(fox.attention('ab'))).weights.length, 4 * 6, 'on a GPU as well');
});

test('eight calls at once wait their turn and each gives its own answer', async () => {
  const fox = await Kitfox.load('m');
  const prompts = Array.from({ length: 8 }, (_, i) => `${i}ab${i}`);
  const texts = await promptly(Promise.all(prompts.map((prompt) => collect(fox.generate(prompt, { maxTokens: 9 })))));
  assert.deepEqual(texts, prompts.map((prompt) => prompt.repeat(3).slice(0, 9)));
});

test('leaving the loop ends the call; the model goes on', async () => {
  const fox = await Kitfox.load('m');
  const generation = fox.generate('slow', { maxTokens: 1e6 });
  for await (const piece of generation) if (piece.ids[0] === 2) break;
  assert.equal(generation.summary.finish, 'aborted');
  assert.ok(generation.summary.tokens >= 2);
  await stillWorks(fox);
  await assert.rejects(async () => {
    for await (const piece of fox.generate('slow', { maxTokens: 1e6 })) throw new Error(`mine ${piece}`);
  }, /mine s/);
  await stillWorks(fox);
});

test('an iterator that nobody takes from holds nobody up', async () => {
  const fox = await Kitfox.load('m');
  fox.generate('slow', { maxTokens: 1e6 });
  await fox.generate('slow', { maxTokens: 1e6 }).return();
  await fox.generate('abc', { maxTokens: 5 }).next(); // started, and left to run out
  await stillWorks(fox);
});

test('an answer that waits its turn is left at once, and so is one that reads', async () => {
  const fox = await Kitfox.load('m');
  const running = fox.generate('slow', { maxTokens: 1e6 });
  await running.next();
  const waiting = fox.generate('never', { maxTokens: 2 });
  const [next, behind] = [waiting.next(), waiting.next()];
  await promptly(waiting.return());
  assert.deepEqual([(await next).done, (await behind).done, waiting.summary.finish, waiting.summary.tokens], [true, true, 'aborted', 0]);
  await running.return();
  const prompt = `slow${'x'.repeat(4000)}`;
  const reading = fox.generate(prompt);
  const first = reading.next();
  await promptly(reading.return());
  assert.equal((await first).done, true);
  assert.ok(made[0].engine.read < prompt.length);
  await stillWorks(fox);
  assert.notEqual(made[0].engine.prompt, 'never');
});

test('an abort arrives before the start, in prefill, in decode, while waiting, and twice', async () => {
  const fox = await Kitfox.load('m');
  await assert.rejects(collect(fox.generate('abc', { signal: AbortSignal.abort() })), { code: 'aborted' });
  await stillWorks(fox);

  let ends = new AbortController();
  const prompt = `slow${'x'.repeat(400)}`;
  const inPrefill = fox.generate(prompt, { signal: ends.signal, onPrefill: () => ends.abort() });
  await assert.rejects(promptly(collect(inPrefill)), { code: 'aborted' });
  assert.equal(inPrefill.summary.tokens, 0);
  assert.ok(made[0].engine.read < prompt.length);
  await stillWorks(fox);

  ends = new AbortController();
  const inDecode = fox.generate('slow', { signal: ends.signal, maxTokens: 1e6 });
  const first = await inDecode.next();
  assert.equal(first.value.text, 's');
  ends.abort();
  ends.abort();
  await assert.rejects(promptly(inDecode.next()), { code: 'aborted' });
  await stillWorks(fox);

  ends = new AbortController();
  const running = collect(fox.generate('slow', { maxTokens: 12 }));
  const waiting = collect(fox.generate('never', { signal: ends.signal }));
  ends.abort();
  await assert.rejects(promptly(waiting), { code: 'aborted' });
  assert.equal(await running, 'slowslowslow');
  await stillWorks(fox);
  assert.notEqual(made[0].engine.prompt, 'never');
});

test('an abort at the last token ends the call; once the end is taken it changes nothing', async () => {
  const fox = await Kitfox.load('m');
  // The end is on its way, or there and not taken.
  for (const wait of [0, 50]) {
    const ends = new AbortController();
    const atLast = fox.generate('abc', { signal: ends.signal, maxTokens: 3 });
    const pieces = [];
    await assert.rejects(promptly((async () => {
      for await (const { ids } of atLast) {
        pieces.push(...ids);
        if (pieces.length < 3) continue;
        await sleep(wait);
        ends.abort();
      }
    })()), { code: 'aborted' });
    assert.deepEqual(pieces, [1, 2, 3]);
    assert.deepEqual([atLast.summary.finish, atLast.summary.tokens], ['aborted', 3]);
    await stillWorks(fox);
  }
  const ends = new AbortController();
  const ended = fox.generate('abc', { signal: ends.signal, maxTokens: 3 });
  assert.equal(await promptly(collect(ended)), 'abc');
  ends.abort();
  assert.deepEqual(await ended.next(), { done: true, value: undefined });
  assert.equal(ended.summary.finish, 'length');
  await stillWorks(fox);
});

test('a call that fails fails alone', async () => {
  const fox = await Kitfox.load('m');
  const [bad, good] = await Promise.allSettled([collect(fox.generate('bad')), collect(fox.generate('ok', { maxTokens: 2 }))]);
  assert.equal(bad.reason.code, 'context-full');
  assert.match(bad.reason.message, /^context: 9 tokens/);
  assert.equal(good.value, 'ok');
  const own = new Error('mine');
  const onPrefill = () => {
    throw own;
  };
  await assert.rejects(promptly(collect(fox.generate('abc', { onPrefill }))), own);
  assert.throws(() => fox.generate('abc', { topK: -1 }), { code: 'argument' });
  await stillWorks(fox);
});

for (const end of ['trap', 'panic']) {
  test(`a ${end} fails this call, those that wait and those that follow, at once`, async () => {
    const fox = await Kitfox.load('m');
    const calls = [end, 'ab', 'cd'].map((prompt) => promptly(collect(fox.generate(prompt, { maxTokens: 2 }))));
    for (const { status, reason } of await Promise.allSettled(calls)) {
      assert.equal(status, 'rejected');
      assert.equal(reason.code, 'crashed');
    }
    await assert.rejects(promptly(collect(fox.generate('ab'))), { code: 'crashed' });
    assert.ok(made[0].terminated);
    await stillWorks(await Kitfox.load('m'));
  });
}

test('dispose rejects what runs and waits, and may be called twice', async () => {
  const fox = await Kitfox.load('m');
  const calls = ['slow', 'ab'].map((prompt) => promptly(collect(fox.generate(prompt, { maxTokens: 1e6 }))));
  setTimeout(() => (fox.dispose(), fox.dispose()), 20);
  for (const { reason } of await Promise.allSettled(calls)) assert.equal(reason.code, 'disposed');
  await assert.rejects(collect(fox.generate('ab')), { code: 'disposed' });
});

test('logits come in rows, by chunks or token by token, between other calls', async () => {
  const fox = await Kitfox.load('m', { scores: true, kv: 'f32' });
  assert.deepEqual([made[0].asked.scores, made[0].asked.kv], [true, 'f32']);
  const want = Float32Array.from([5, 5, 5, 6, 6, 6, 8, 8, 8]);
  const calls = [fox.logits([5, 6, 8]), collect(fox.generate('ab', { maxTokens: 4 })), fox.logits(Uint32Array.of(5, 6, 8), { decode: true })];
  assert.deepEqual(await promptly(Promise.all(calls)), [want, 'abab', want]);
  assert.equal(made[0].engine.row, 1);

  await assert.rejects(fox.logits([]), { code: 'argument', message: /logits: ids: expected token ids/ });
  await assert.rejects(fox.logits([1.5]), { code: 'argument' });
  await assert.rejects(fox.logits([1], { chunk: 3 }), { code: 'argument', message: /unknown option chunk/ });
  await assert.rejects(promptly(fox.logits([9])), { code: 'argument', message: 'ids: expected less, got id 9' });
  await assert.rejects(fox.logits([1], { signal: AbortSignal.abort() }), { code: 'aborted' });
  const ends = new AbortController();
  const long = fox.logits(Array(1000).fill(7), { signal: ends.signal });
  setTimeout(() => ends.abort(), 40);
  await assert.rejects(promptly(long), { code: 'aborted' });
  await stillWorks(fox);

  const waiting = promptly(fox.logits([7, 7, 7]));
  fox.dispose();
  await assert.rejects(waiting, { code: 'disposed', message: 'the model was disposed' });
});

test('what is no URL is an argument error that names it, before any worker is started', async () => {
  const before = made.length;
  for (const options of [{ url: 'http://' }, { url: 'http://[' }, { wasmUrl: '//' }, { workerUrl: 'https://:x' }]) {
    const { url = 'good', ...rest } = options;
    const [[name, written]] = Object.entries(options);
    for (const call of ['load', 'plan']) {
      await assert.rejects(Kitfox[call](url, rest), { name: 'KitfoxError', code: 'argument', message: `${call}: ${name}: expected a URL, got "${written}"` });
    }
  }
  await assert.rejects(Kitfox.evict('http://'), { code: 'argument', message: 'evict: url: expected a URL, got "http://"' });
  const wrong = [[5, {}], ['m', { contxt: 1 }], ['m', { manifest: {} }], [['m', 'm'], {}], [['m', 'n'], { manifest: 'x' }], [new Blob([]), { manifest: true }]];
  for (const [source, options] of wrong) {
    for (const call of ['load', 'plan']) await assert.rejects(Kitfox[call](source, options), ({ message }) => message.startsWith(`${call}: `));
  }
  assert.equal(made.length, before);
});

test('a worker that the browser refuses, or a place without workers, is a worker error', async () => {
  const { Worker } = globalThis;
  const { getBuiltinModule } = process;
  const { location } = globalThis;
  const versions = Object.getOwnPropertyDescriptor(process, 'versions');
  try {
    globalThis.Worker = class {
      constructor() {
        throw new DOMException('not of this origin', 'SecurityError');
      }
    };
    await assert.rejects(Kitfox.load('good'), { name: 'KitfoxError', code: 'worker', message: /cannot be started: not of this origin/ });
    // A Node of before its modules could be asked for by name.
    delete globalThis.Worker;
    process.getBuiltinModule = undefined;
    const old = { name: 'KitfoxError', code: 'worker', message: `the worker cannot be started: Node ${process.versions.node} is too old: expected 20.16 or newer (of 22: 22.3 or newer)` };
    await assert.rejects(Kitfox.load('good'), old);
    delete globalThis.location;
    await assert.rejects(Kitfox.load('a path.gguf'), old);
    globalThis.location = location;
    // What is neither a browser nor Node.
    Object.defineProperty(process, 'versions', { value: {}, configurable: true });
    await assert.rejects(Kitfox.load('good'), { name: 'KitfoxError', code: 'worker', message: /cannot be started: Worker is not defined/ });
  } finally {
    globalThis.Worker = Worker;
    process.getBuiltinModule = getBuiltinModule;
    globalThis.location = location;
    Object.defineProperty(process, 'versions', versions);
  }
});

test("under cache: 'only' nothing is sent that a server would have to be asked for", async () => {
  const manifest = { version: 1, file: 'm', bytes: 5, piece_bytes: 4 * 2 ** 20, sha256: ['0'.repeat(64)], whole: '0'.repeat(64) };
  const asked = async (options) => {
    await Kitfox.load('m.gguf', options);
    return made.at(-1).asked;
  };
  const url = 'http://page.example/folder/m.gguf';
  const only = await asked({ cache: 'only', manifest: true, revalidate: true });
  assert.deepEqual([only.parts, only.revalidate], [[{ url }], false]);
  assert.deepEqual((await asked({ cache: 'only', manifest })).parts, [{ url, manifest }]);
  const auto = await asked({ manifest: true, revalidate: true });
  assert.deepEqual([auto.parts, auto.revalidate], [[{ url, manifest: `${url}.manifest.json` }], true]);
});

test('bytes that threads share are copied, and bytes that cannot be read are an argument error', async () => {
  const shared = new Uint8Array(new SharedArrayBuffer(4));
  shared.set([71, 71, 85, 70]);
  const { Blob: Whole } = globalThis;
  // As in a browser: what is shared, or was given away, is refused.
  globalThis.Blob = class extends Whole {
    constructor(parts) {
      for (const part of parts) {
        if (ArrayBuffer.isView(part) && part.buffer instanceof SharedArrayBuffer) throw new TypeError('The provided ArrayBufferView value must not be shared.');
        if (part.length === 7) throw new TypeError('it is detached');
      }
      super(parts);
    }
  };
  try {
    await Kitfox.load(shared.subarray(1));
    assert.equal(await made.at(-1).asked.parts[0].blob.text(), 'GUF');
    await assert.rejects(Kitfox.load(new Uint8Array(7)), (error) => error instanceof KitfoxError && error.code === 'argument' && /^load: url: expected bytes that can be read: it is detached/.test(error.message));
  } finally {
    globalThis.Blob = Whole;
  }
});

test('a worker script that is none of kitfox says nothing, and the load ends', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const loading = Kitfox.load('m.gguf', { workerUrl: 'mute.js' });
  const failed = assert.rejects(loading, ({ code, message }) => code === 'worker' && /^the worker cannot be started: its script said nothing for 120 s/.test(message));
  t.mock.timers.tick(120_000);
  t.mock.timers.tick(100);
  await failed;
  assert.equal(made.at(-1).terminated, true);
});

test('a load that takes longer than a worker may be silent goes on', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const ends = new AbortController();
  const loading = Kitfox.load('stalled', { signal: ends.signal });
  let over = false;
  const failed = loading.catch(({ code }) => ((over = true), code));
  const worker = made.at(-1);
  const { onmessage } = worker;
  await new Promise((resolve) => {
    worker.onmessage = (event) => {
      onmessage(event);
      if (event.data.type === 'begun') resolve();
    };
  });
  t.mock.timers.tick(600_000);
  t.mock.timers.tick(600_000);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(over, false);
  ends.abort();
  assert.equal(await failed, 'aborted');
});
