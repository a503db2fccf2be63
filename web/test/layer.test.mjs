// ForgettingAttentionLayer against the real worker loop, with an engine that doubles its input.

import assert from 'node:assert/strict';
import test, { afterEach } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { holdLayer } from '../dist/answers.js';
import { ForgettingAttentionLayer } from '../dist/kitfox.js';
import { fakeWorkers, promptly } from './workers.mjs';

class Doubler {
  runs = 0;

  async run(x) {
    this.runs += 1;
    if (x[0] === 13) throw Object.assign(new Error('x: expected [T, 2]'), { code: 'argument' });
    if (x[0] === 99) throw new WebAssembly.RuntimeError('unreachable');
    await sleep(5);
    return x.map((value) => 2 * value);
  }
}

const workers = fakeWorkers(() => {
  const engine = new Doubler();
  return { engine, held: holdLayer(engine, () => ({ device: 'doubler', heapBytes: engine.runs })) };
});
const { made } = workers;
afterEach(workers.end);

const matrix = (n) => Float32Array.from({ length: n }, (_, ix) => ix);
const weights = () => ({
  hiddenSize: 4,
  numHeads: 1,
  mode: 'encoder',
  bitnet: false,
  qProj: matrix(16),
  kProj: matrix(16),
  vProj: matrix(16),
  fProj: matrix(4),
  outProj: matrix(16),
});
const refuses = (call, pattern) => assert.rejects(call, (error) => error.code === 'argument' && pattern.test(error.message));

test('matrices, bytes and URLs reach the worker, and stay the caller’s own', async () => {
  const given = { ...weights(), fBias: matrix(8).subarray(3, 4) };
  await ForgettingAttentionLayer.load(given, { device: 'cpu', maxTokens: 7 });
  const { from, device, maxTokens } = made[0].asked;
  assert.deepEqual([device, maxTokens, from.weights], ['cpu', 7, { ...given, fBias: Float32Array.of(3) }]);
  assert.equal(from.weights.fBias.buffer.byteLength, 4, 'the view, without the buffer behind it');
  assert.equal(given.qProj.length, 16);

  const bytes = Uint8Array.of(1, 2, 3);
  for (const file of [bytes, bytes.buffer]) await ForgettingAttentionLayer.load(file);
  assert.deepEqual(made.slice(1, 3).map(({ asked }) => asked.from), [{ bytes }, { bytes }]);
  assert.equal(bytes.length, 3);
  await ForgettingAttentionLayer.load('layer.gguf');
  assert.deepEqual(made[3].asked.from, { url: 'http://page.example/folder/layer.gguf' });
  assert.equal(made[3].asked.device, 'auto');
});

test('calls wait their turn; one that fails fails alone', async () => {
  const layer = await ForgettingAttentionLayer.load(weights());
  assert.equal(layer.info.device, 'doubler');
  const x = matrix(8);
  const views = [x.subarray(0, 4), Float32Array.of(13), x.subarray(4)];
  const [first, bad, second] = await promptly(Promise.allSettled(views.map((view) => layer.run(view))));
  assert.deepEqual([first.value, second.value], [Float32Array.of(0, 2, 4, 6), Float32Array.of(8, 10, 12, 14)]);
  assert.deepEqual([bad.reason.code, bad.reason.message], ['argument', 'x: expected [T, 2]']);
  assert.equal(x.length, 8);
  assert.equal(layer.info.heapBytes, 3, 'info is that of the last call');
  assert.deepEqual(await layer.run(new Float32Array(0)), new Float32Array(0));

  const ends = new AbortController();
  const aborted = layer.run(x, { signal: ends.signal });
  ends.abort('enough');
  await assert.rejects(promptly(aborted), { code: 'aborted', cause: 'enough' });
  await assert.rejects(layer.run(x, { signal: AbortSignal.abort() }), { code: 'aborted' });
  assert.deepEqual(await promptly(layer.run(Float32Array.of(4))), Float32Array.of(8));
  const running = promptly(layer.run(x));
  layer.dispose();
  await assert.rejects(running, { code: 'disposed', message: 'the layer was disposed' });
  assert.ok(made[0].terminated);
});

test('a trap ends the layer and the calls that wait', async () => {
  const layer = await ForgettingAttentionLayer.load(weights());
  const calls = [99, 1].map((value) => promptly(layer.run(Float32Array.of(value))));
  for (const { reason } of await Promise.allSettled(calls)) assert.equal(reason.code, 'crashed');
  await assert.rejects(layer.run(Float32Array.of(1)), { code: 'crashed' });
});

test('a load that fails ends its worker', async () => {
  await assert.rejects(ForgettingAttentionLayer.load('missing'), { code: 'http' });
  await assert.rejects(ForgettingAttentionLayer.load('m', { workerUrl: 'absent.js' }), { code: 'worker' });
  const ends = new AbortController();
  const loading = ForgettingAttentionLayer.load('stalled', { signal: ends.signal });
  ends.abort();
  await assert.rejects(promptly(loading), { code: 'aborted' });
  assert.deepEqual(made.map(({ terminated }) => terminated), [true, true, true]);
});

test('what is no layer, no option and no input is refused by name', async () => {
  const load = (changed, options) => ForgettingAttentionLayer.load({ ...weights(), ...changed }, options);
  await refuses(load({ qProj: [1, 2] }), /load: qProj: expected a Float32Array, got \[1,2\]/);
  await refuses(load({ outProj: undefined }), /load: outProj: expected a Float32Array, got undefined/);
  await refuses(load({ mode: 'both' }), /load: mode: expected 'encoder' or 'decoder', got "both"/);
  await refuses(load({ bitnet: 1 }), /load: bitnet: expected true or false/);
  await refuses(load({ hiddenSize: 0 }), /load: hiddenSize: expected a whole number/);
  await refuses(load({ numHeads: 1.5 }), /load: numHeads: expected a whole number/);
  await refuses(load({ gProj: matrix(4) }), /load: unknown option gProj \(known: hiddenSize, /);
  await refuses(load({}, { maxTokens: 0 }), /load: maxTokens: expected a whole number/);
  await refuses(load({}, { context: 5 }), /load: unknown option context/);
  for (const from of [undefined, null, 5]) {
    await refuses(ForgettingAttentionLayer.load(from), /load: expected an object of weights, a file's bytes, or a URL, got/);
  }
  await refuses(ForgettingAttentionLayer.load(''), /load: url: expected a URL/);
  const layer = await load({});
  for (const x of [[1, 2], undefined, new Float64Array(2)]) await refuses(layer.run(x), /run: x: expected a Float32Array/);
  await refuses(layer.run(matrix(4), { timeout: 1 }), /run: unknown option timeout/);
});
