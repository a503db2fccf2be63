// Memory that is gone: an array whose buffer was handed to another thread, or shrunk away under its view. Every call that takes bytes,
// floats or ids says so by an `argument` error and sends nothing. The table must have every function that there is: a new one fails here
// until it is in it, or among those that take no memory.

import assert from 'node:assert/strict';
import test, { afterEach } from 'node:test';
import { holdLayer, holdModel } from '../dist/answers.js';
import * as kitfox from '../dist/kitfox.js';
import { fakeWorkers, methodsOf } from './workers.mjs';

const { Kitfox, ForgettingAttentionLayer } = kitfox;

/** Calls that reached an engine. */
let asked = [];
let layer = false;
const workers = fakeWorkers(() => {
  const answer = (name) => async () => (asked.push(name), 1);
  const engine = new Proxy({}, { get: (own, name) => own[name] ?? answer(name) });
  const info = () => ({ device: 'fake', vocab: 3 });
  return { engine, held: layer ? holdLayer(engine, info) : holdModel(engine, info) };
});
afterEach(() => {
  workers.end();
  [asked, layer] = [[], false];
});

const detached = (memory) => (structuredClone(memory, { transfer: [memory.buffer ?? memory] }), memory);
/** Of two elements, on a buffer that has one left. */
function shrunk(Of) {
  const n = Of.BYTES_PER_ELEMENT;
  const buffer = new ArrayBuffer(3 * n, { maxByteLength: 3 * n });
  const view = new Of(buffer, n, 2);
  buffer.resize(n);
  return view;
}
const BYTES = [() => detached(new Uint8Array(4)), () => shrunk(Uint8Array)];
const FILES = [...BYTES, () => detached(new ArrayBuffer(4))];
const FLOATS = [() => detached(new Float32Array(4)), () => shrunk(Float32Array)];
const IDS = [() => detached(new Uint32Array(4)), () => shrunk(Uint32Array)];

const floats = (n) => new Float32Array(n);
const weights = () => ({ hiddenSize: 4, numHeads: 1, mode: 'encoder', bitnet: false, qProj: floats(16), kProj: floats(16), vProj: floats(16), fProj: floats(4), fBias: floats(1), outProj: floats(16) });
const gates = () => ({ ids: [7], tokens: ['a'], completedBy: [0], layers: 1, heads: 1, kvHeads: 1, prune: 1e-4, logF: floats(1), u: floats(1) });
const pays = (weights) => ({ ids: [7], tokens: ['a'], completedBy: [0], layers: 1, heads: 1, weights });

const none = async () => undefined;
const model = () => Kitfox.load('m');
const session = async () => (await model()).session();
const layerOf = () => ((layer = true), ForgettingAttentionLayer.load('m'));

/** Of each function what it is called on, and for each place of its arguments the memory that it takes, and the call. */
const TAKES = {
  'Kitfox.load': [none, [FILES, (_, file) => Kitfox.load(file)], [FILES, (_, file) => Kitfox.load(['a', file])]],
  'Kitfox.plan': [none, [FILES, (_, file) => Kitfox.plan(file)], [FILES, (_, file) => Kitfox.plan(['a', file])]],
  'Kitfox.prototype.logits': [model, [IDS, (fox, ids) => fox.logits(ids)]],
  'Kitfox.prototype.detokenize': [model, [IDS, (fox, ids) => fox.detokenize(ids)]],
  'Kitfox.prototype.score': [model, [IDS, (fox, ids) => fox.score(ids)]],
  'Kitfox.prototype.gates': [model, [IDS, (fox, ids) => fox.gates(ids)]],
  'Kitfox.prototype.attention': [model, [IDS, (fox, ids) => fox.attention(ids)]],
  'Session.prototype.append': [session, [IDS, (one, ids) => one.append(ids)]],
  'Session.prototype.restore': [session, [BYTES, (one, bytes) => one.restore(bytes)]],
  'ForgettingAttentionLayer.load': [
    none,
    [FILES, (_, file) => ForgettingAttentionLayer.load(file)],
    ...Object.entries(weights())
      .filter(([, value]) => value instanceof Float32Array)
      .map(([name]) => [FLOATS, (_, matrix) => ForgettingAttentionLayer.load({ ...weights(), [name]: matrix })]),
  ],
  'ForgettingAttentionLayer.prototype.run': [layerOf, [FLOATS, (one, x) => one.run(x)]],
  forgetting: [none, [FLOATS, (_, logF) => kitfox.forgetting({ ...gates(), logF }, 0, 0, 0)]],
  meanForgetting: [none, [FLOATS, (_, logF) => kitfox.meanForgetting({ ...gates(), logF }, 0)]],
  effectiveContext: [none, [FLOATS, (_, logF) => kitfox.effectiveContext({ ...gates(), logF }, 0, 0)]],
  livePages: [none, [FLOATS, (_, logF) => kitfox.livePages({ ...gates(), logF }, 0, 0)], [FLOATS, (_, u) => kitfox.livePages({ ...gates(), u }, 0, 0)]],
  attention: [none, [FLOATS, (_, weights) => kitfox.attention(pays(weights), 0, 0, 0)]],
  meanAttention: [none, [FLOATS, (_, weights) => kitfox.meanAttention(pays(weights), 0)]],
};

/** Those that take texts, numbers and options only. */
const TAKES_NONE = [
  ...['probe', 'cached', 'evict', 'prototype.generate', 'prototype.tokenize', 'prototype.session', 'prototype.selfCheck', 'prototype.stats', 'prototype.bench', 'prototype.dispose'].map((name) => `Kitfox.${name}`),
  ...['open', 'prototype.generate', 'prototype.mark', 'prototype.unmark', 'prototype.rewind', 'prototype.fork', 'prototype.save', 'prototype.dispose'].map((name) => `Session.${name}`),
  'ForgettingAttentionLayer.prototype.dispose',
  'mostAttentionTokens',
  'KitfoxError',
];

test('every function that is exported is in the table, or takes no memory', async () => {
  const { constructor: Session } = await session();
  const classes = [Kitfox, Session, ForgettingAttentionLayer];
  const functions = [...classes.flatMap(methodsOf), ...Object.keys(kitfox).filter((name) => !classes.includes(kitfox[name]))];
  assert.deepEqual(functions.toSorted(), [...Object.keys(TAKES), ...TAKES_NONE].toSorted());
});

for (const [name, [on, ...places]] of Object.entries(TAKES)) {
  test(`${name} refuses memory that is gone`, async () => {
    const it = await on();
    for (const [kinds, call] of places) {
      for (const make of kinds) {
        const [n, made] = [asked.length, workers.made.length];
        const refused = (error) => error instanceof kitfox.KitfoxError && error.code === 'argument' && /\w+: expected .*\[object \w+\] whose memory is gone/.test(error.message);
        await assert.rejects(async () => call(it, make()), refused, `${call}`);
        assert.deepEqual([asked.length, workers.made.length], [n, made], 'nothing is sent');
      }
    }
  });
}
