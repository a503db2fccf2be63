// Every call of the package ends by its signal: before it, at once behind it, and while the worker is in the middle of it; and what was
// called is usable afterwards. The table must have every method that there is: a new one fails here until it is in it.

import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import test, { afterEach } from 'node:test';
import { holdLayer, holdModel } from '../dist/answers.js';
import * as kitfox from '../dist/kitfox.js';
import { fakeWorkers, methodsOf, promptly } from './workers.mjs';

const { Kitfox, ForgettingAttentionLayer } = kitfox;

/** What the engine gives, each call the last of its kind; a list is one after the other. */
const ANSWERS = {
  tokenize: Uint32Array.of(7),
  tokenizeFor: Uint32Array.of(7),
  detokenize: 'a',
  score: { done: 1, total: 1, ids: Uint32Array.of(7), logprobs: Float32Array.of(-1) },
  checkKernel: { kernel: 'k', cases: 1, nmse: 0, maxAbs: 0, failures: [], done: 1, total: 1 },
  stats: { tokens: 1, seconds: 1, kvBytesLive: 1, sessionBytes: 0 },
  openSession: 1,
  forkSession: 2,
  sessionTokens: 0,
  readSession: { done: 1, total: 1 },
  markSession: 1,
  saveSession: Uint8Array.of(7),
  startGates: { ids: [7], tokens: ['a'], layers: 1, heads: 1, kvHeads: 1 },
  gates: Float32Array.of(-1),
  attention: Float32Array.of(1),
  bench: { done: 1, total: 1, report: '{"adapter":"fake"}' },
  prefill: { done: 1, total: 1 },
  next: { text: 'a', ids: [7], finish: 'length' },
  cost: { kvBytesLive: 1 },
  logits: [Float32Array.of(1, 2, 3), new Float32Array(0)],
  run: Float32Array.of(2),
};

/** An engine whose every step waits at the gate while that is shut. */
let gate;
let entered;
/** What it was asked for. */
let asked = [];
function fakeEngine() {
  const turns = new Map();
  const answer = (name) => async () => {
    asked.push(name);
    entered?.();
    await gate;
    const given = ANSWERS[name];
    if (!Array.isArray(given)) return structuredClone(given);
    turns.set(name, (turns.get(name) ?? -1) + 1);
    return structuredClone(given[turns.get(name) % given.length]);
  };
  return new Proxy({}, { get: (own, name) => own[name] ?? answer(name) });
}

let layer = false;
const workers = fakeWorkers(() => {
  const engine = fakeEngine();
  const info = () => ({ device: 'fake', vocab: 3 });
  return { engine, held: layer ? holdLayer(engine, info) : holdModel(engine, info) };
});
/** Of Node's own, which older ones have not. */
const place = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
const leave = () => (place === undefined ? delete globalThis.navigator : Object.defineProperty(globalThis, 'navigator', place));
afterEach(() => {
  workers.end();
  [gate, entered, asked, layer] = [undefined, undefined, [], false];
  leave();
});

/** A browser that answers nothing that it is asked. */
function hungBrowser() {
  const never = () => new Promise(() => {});
  const value = { gpu: { requestAdapter: never }, storage: { getDirectory: never, persist: never, estimate: never }, locks: { request: never } };
  Object.defineProperty(globalThis, 'navigator', { value, configurable: true });
}

const model = () => Kitfox.load('m');
const session = async () => (await model()).session();
const layerOf = () => ((layer = true), ForgettingAttentionLayer.load('m'));
const none = async () => undefined;
const text = async (generation) => {
  const { value } = await generation.next();
  await generation.return();
  return `${value}`;
};

/**
 * Every call: what it is called on, the call, and who keeps it waiting: the `engine`, a load that has `stalled`, or the `browser`. What it gives
 * is only held against what it gives again.
 */
const CALLS = {
  'Kitfox.load': [none, (_, options) => Kitfox.load('m', options), 'stalled', (_, options) => Kitfox.load('stalled', options)],
  'Kitfox.load, kept for good': [none, (_, options) => Kitfox.load('m', { persist: true, ...options }), 'stalled', (_, options) => Kitfox.load('stalled', { persist: true, ...options })],
  'Kitfox.plan': [none, (_, options) => Kitfox.plan('m', options), 'stalled', (_, options) => Kitfox.plan('stalled', options)],
  'Kitfox.probe': [none, (_, options) => Kitfox.probe(options), 'browser'],
  'Kitfox.cached': [none, (_, options) => Kitfox.cached(options), 'browser'],
  'Kitfox.evict': [none, (_, options) => Kitfox.evict('m', options), 'browser'],
  'Kitfox.prototype.generate': [model, (fox, options) => text(fox.generate('a', options)), 'engine'],
  'Kitfox.prototype.logits': [model, (fox, options) => fox.logits([7], options), 'engine'],
  'Kitfox.prototype.tokenize': [model, (fox, options) => fox.tokenize('a', options), 'engine'],
  'Kitfox.prototype.detokenize': [model, (fox, options) => fox.detokenize([7], options), 'engine'],
  'Kitfox.prototype.score': [model, (fox, options) => fox.score('a', options), 'engine'],
  'Kitfox.prototype.session': [model, async (fox, options) => void (await fox.session(options)), 'engine'],
  'Kitfox.prototype.selfCheck': [model, async (fox, options) => (await fox.selfCheck(options)).ok, 'engine', (fox, options) => fox.selfCheck(options)],
  'Kitfox.prototype.stats': [model, (fox, options) => fox.stats(options), 'engine'],
  'Kitfox.prototype.gates': [model, (fox, options) => fox.gates([7], options), 'engine'],
  'Kitfox.prototype.attention': [model, (fox, options) => fox.attention([7], options), 'engine'],
  'Kitfox.prototype.bench': [model, (fox, options) => fox.bench(options), 'engine'],
  'Session.prototype.append': [session, (one, options) => one.append('a', options), 'engine'],
  'Session.prototype.generate': [session, (one, options) => text(one.generate(options)), 'engine'],
  'Session.prototype.mark': [session, (one, options) => one.mark(options), 'engine'],
  'Session.prototype.unmark': [session, (one, options) => one.unmark(1, options), 'engine'],
  'Session.prototype.rewind': [session, (one, options) => one.rewind(0, options), 'engine'],
  'Session.prototype.fork': [session, async (one, options) => void (await one.fork(options)), 'engine'],
  'Session.prototype.save': [session, (one, options) => one.save(options), 'engine'],
  'Session.prototype.restore': [session, (one, options) => one.restore(Uint8Array.of(7), options), 'engine'],
  'ForgettingAttentionLayer.load': [none, (_, options) => (layer = true) && ForgettingAttentionLayer.load('m', options), 'stalled', (_, options) => ForgettingAttentionLayer.load('stalled', options)],
  'ForgettingAttentionLayer.prototype.run': [layerOf, (one, options) => one.run(Float32Array.of(1), options), 'engine'],
};

/** What keeps nobody waiting. */
const AT_ONCE = ['Kitfox.prototype.dispose', 'Session.prototype.dispose', 'ForgettingAttentionLayer.prototype.dispose', 'Session.open'];

test('every method of every class is in the table, and no exported function keeps anybody waiting', async () => {
  const { constructor: Session } = await session();
  const known = Object.keys(CALLS).map((name) => name.split(',')[0]);
  const methods = [Kitfox, Session, ForgettingAttentionLayer].flatMap(methodsOf);
  assert.deepEqual(methods.filter((name) => !known.includes(name) && !AT_ONCE.includes(name)), [], 'give it a signal, and put it into the table');
  assert.deepEqual([...known, ...AT_ONCE].filter((name) => !methods.includes(name)), [], 'there is no such method');
  // A generation has its signal from `generate`; errors are values.
  const others = Object.entries(kitfox).filter(([name]) => !['Kitfox', 'ForgettingAttentionLayer', 'KitfoxError'].includes(name));
  for (const [name, value] of others) {
    assert.equal(typeof value, 'function', name);
    assert.equal(value.constructor.name, 'Function', `${name} is async, and in no table`);
  }
});

for (const [name, [on, call, waitsFor, waiting = call]] of Object.entries(CALLS)) {
  test(`${name} ends by its signal, and is usable afterwards`, async () => {
    const it = await on();
    const before = await call(it, {});
    const isAborted = { name: 'KitfoxError', code: 'aborted', cause: 'enough' };

    const n = asked.length;
    const made = workers.made.length;
    await assert.rejects(promptly(waiting(it, { signal: AbortSignal.abort('enough') })), isAborted, 'aborted before it is called');
    assert.deepEqual([asked.length, workers.made.length], [n, made], 'nothing is done then');

    let ends = new AbortController();
    const behind = waiting(it, { signal: ends.signal });
    ends.abort('enough');
    await assert.rejects(promptly(behind), isAborted, 'aborted at once');

    ends = new AbortController();
    let open;
    if (waitsFor === 'browser') hungBrowser();
    if (waitsFor === 'engine') gate = new Promise((resolve) => (open = resolve));
    const inside = waitsFor === 'engine' ? new Promise((resolve) => (entered = resolve)) : new Promise((resolve) => setTimeout(resolve, 5));
    const running = waiting(it, { signal: ends.signal });
    running.catch(() => undefined);
    await inside;
    ends.abort('enough');
    await assert.rejects(promptly(running), isAborted, 'aborted in the middle');
    leave();
    gate = undefined;
    open?.();

    await assert.rejects(async () => call(it, { signal: 'soon' }), { code: 'argument', message: /signal: expected an AbortSignal, got "soon"/ });
    await assert.rejects(async () => call(it, { sginal: ends.signal }), { code: 'argument', message: /unknown option sginal/ });
    // A signal that is never used is let go of.
    const quiet = new AbortController();
    const after = await promptly(call(it, { signal: quiet.signal }));
    if (!(after instanceof Kitfox || after instanceof ForgettingAttentionLayer)) assert.deepEqual(after, before);
    assert.deepEqual(getEventListeners(quiet.signal, 'abort'), []);
    quiet.abort();
    it?.dispose?.();
  });
}

test('a browser that asks its user whether files may stay holds no load up', async () => {
  let asked = 0;
  Object.defineProperty(globalThis, 'navigator', { value: { storage: { persist: () => ((asked += 1), new Promise(() => {})) } }, configurable: true });
  (await promptly(Kitfox.load('m', { persist: true }))).dispose();
  assert.equal(asked, 1);
});

test('a session that was opened for a caller who has gone is closed again', async () => {
  const fox = await model();
  for (const [open, steps] of [[(options) => fox.session(options), 'openSession'], [async (options) => (await fox.session()).fork(options), 'forkSession']]) {
    asked = [];
    const ends = new AbortController();
    let go;
    const inside = new Promise((resolve) => (entered = () => asked.at(-1) === steps && ((gate ??= new Promise((open) => (go = open))), resolve())));
    const opening = open({ signal: ends.signal });
    opening.catch(() => undefined);
    await inside;
    ends.abort();
    await assert.rejects(promptly(opening), { code: 'aborted' });
    [gate, entered] = [undefined, undefined];
    go();
    await promptly(fox.tokenize('a')); // behind it in the queue
    assert.equal(asked.filter((name) => name === 'closeSession').length, 1, steps);
  }
});

test('the removal of a file waits for its transfer no longer than its signal says, and nothing is removed then', async () => {
  const removed = [];
  const journal = '{"kitfox":1,"pieceBytes":4194304,"url":"http://page.example/folder/m","version":{}}\n';
  const file = (text) => ({ kind: 'file', getFile: async () => new Blob([text]) });
  const folder = { kind: 'directory', name: 'key', getFileHandle: async () => file(journal), getDirectoryHandle: async () => folder, removeEntry: async (name) => removed.push(name), values: async function* () { yield folder; } };
  const locks = { request: (name, { signal }) => new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason))) };
  Object.defineProperty(globalThis, 'navigator', { value: { storage: { getDirectory: async () => folder }, locks }, configurable: true });
  assert.deepEqual((await Kitfox.cached()).map(({ url }) => url), ['http://page.example/folder/m']);
  const ends = new AbortController();
  const evicting = Kitfox.evict('m', { signal: ends.signal });
  setTimeout(() => ends.abort('enough'), 5);
  await assert.rejects(promptly(evicting), { code: 'aborted', cause: 'enough' });
  assert.deepEqual(removed, []);
});
