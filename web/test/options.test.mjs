import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import test from 'node:test';
import { runInNewContext } from 'node:vm';
import { checkBench } from '../dist/bench.js';
import { MOST_BIASES, MOST_CHUNK, MOST_CONTEXT, MOST_IN_FLIGHT, MOST_TEXT, checkGates, checkGenerate, checkLoad, checkLogits, checkText, checkTokenize } from '../dist/options.js';

const refuses = (call, pattern) => assert.throws(call, (error) => error.code === 'argument' && pattern.test(error.message));

test('good options pass', () => {
  checkLoad('m.gguf', {});
  checkLoad(new URL('https://a.example/m.gguf'), { device: 'cpu', context: 512, onProgress() {}, signal: new AbortController().signal });
  checkLoad('m.gguf', { device: undefined, wasmUrl: 'k.wasm', workerUrl: new URL('https://a.example/w.js') });
  checkLoad('m.gguf', { kv: 'f32', scores: true });
  checkLoad('m.gguf', { prune: 'off', overflow: 'slide', chunk: MOST_CHUNK, baseline: true });
  checkLoad('m.gguf', { prune: 4.5e-5, overflow: 'error', chunk: 1, baseline: undefined });
  checkLoad(new Blob(['x']), { cache: 'only', revalidate: true, persist: false, manifest: true, retries: 0, onEvent() {} });
  for (const source of [new ArrayBuffer(4), Uint8Array.of(1), ['a', 'b'], [new Blob([]), new URL('https://a.example/m')]]) checkLoad(source, {});
  checkGenerate('a', { inFlight: MOST_IN_FLIGHT, ignoreEos: true, repeatLastN: 0 });
  checkBench({});
  checkBench({ context: 2, n: 1, runs: 1, inFlight: 1, floor: false, text: 'a', signal: new AbortController().signal, onProgress() {} });
  checkGenerate('a', {});
  checkGenerate('a', { maxTokens: 1, temperature: 0, topK: 0, topP: 1, minP: 0, repeatPenalty: 1, seed: 0, stop: 'x', onPrefill() {} });
  checkLogits([0, 5, 2 ** 32 - 1], { decode: true });
  checkLogits(Uint32Array.of(1), {});
  for (const logitBias of [{}, { 5: -100, 0: 2.5 }, new Map([[7, 0]]), Object.assign(Object.create(null), { 7: 1 }), runInNewContext('({ 7: 1 })')]) checkGenerate('a', { logitBias, logprobs: true });
  checkGenerate('a', { stop: [], seed: Number.MAX_SAFE_INTEGER, minP: 1, topP: 1e-6, temperature: undefined });
});

test('bad load options are refused by name', () => {
  refuses(() => checkLoad(undefined, {}), /load: url: .*undefined/);
  refuses(() => checkLoad('', {}), /load: url/);
  for (const source of [[], [''], ['a', , 'b'], [1], {}, null, 5, [['a']]]) refuses(() => checkLoad(source, {}), /load: url: expected a (URL|list of parts)/);
  for (const cache of ['on', true, null]) refuses(() => checkLoad('m', { cache }), /cache: expected 'auto', 'off' or 'only'/);
  for (const manifest of [false, 1]) refuses(() => checkLoad('m', { manifest }), /manifest: expected true, a URL or a manifest/);
  for (const retries of [-1, 0.5, 101, '4']) refuses(() => checkLoad('m', { retries }), /retries: expected a whole number from 0 to 100/);
  refuses(() => checkLoad('m', { onEvent: 1 }), /onEvent: expected a function/);
  refuses(() => checkLoad('m', null), /object of options, got null/);
  refuses(() => checkLoad('m', { contxt: 1 }), /unknown option contxt \(known: onProgress, .*context/);
  refuses(() => checkLoad('m', { toString: 1 }), /unknown option toString/);
  for (const device of ['webgpu', 1, null]) refuses(() => checkLoad('m', { device }), /device: expected 'auto', 'gpu' or 'cpu'/);
  for (const context of [1, MOST_CONTEXT]) checkLoad('m', { context });
  for (const context of [0, MOST_CONTEXT + 1, 2 ** 31 - 1, 1.5, NaN, '512', -1]) refuses(() => checkLoad('m', { context }), /context: expected a whole number/);
  refuses(() => checkLoad('m', { onProgress: 1 }), /onProgress: expected a function, got 1/);
  for (const kv of ['f64', 16]) refuses(() => checkLoad('m', { kv }), /kv: expected 'f16' or 'f32'/);
  for (const prune of [0, 1, -0.1, NaN, 'on', '4e-5', null, true]) {
    refuses(() => checkLoad('m', { prune }), /load: prune: expected 'off' or a number above 0, below 1, got/);
  }
  for (const overflow of ['drop', true, null]) refuses(() => checkLoad('m', { overflow }), /load: overflow: expected 'error' or 'slide'/);
  for (const chunk of [0, 4097, 1.5, '64']) refuses(() => checkLoad('m', { chunk }), /load: chunk: expected a whole number from 1 to 4096/);
  for (const baseline of [1, 'true', null]) refuses(() => checkLoad('m', { baseline }), /load: baseline: expected true or false/);
  for (const device of [undefined, 'auto', 'gpu']) checkLoad('m', { device, check: true });
  checkLoad('m', { device: 'cpu', check: false });
  refuses(() => checkLoad('m', { device: 'cpu', check: true }), /load: check: expected a GPU, .*got device 'cpu'/);
  refuses(() => checkLoad('m', { scores: 'yes' }), /scores: expected true or false/);
  refuses(() => checkLoad('m', { signal: {} }), /signal: expected an AbortSignal/);
});

test('bad generate options are refused by name', () => {
  const long = 'a'.repeat(MOST_TEXT);
  for (const check of [(text) => checkGenerate(text, {}), (text) => checkText('score', text), (text) => checkGates('gates', text, {}), checkTokenize]) {
    check(long);
    refuses(() => check(`${long}a`), /(prompt|text): expected a text of at most 8388608 bytes, got .{1,99}$/);
  }
  checkTokenize('');
  for (const prompt of ['', undefined, 3]) refuses(() => checkGenerate(prompt, {}), /prompt: expected a text/);
  const bad = {
    maxTokens: [0, -1, 1.5, Infinity, '5', null],
    temperature: [-1, NaN, Infinity, Number.MAX_VALUE, 5e-324, '0.8'],
    topK: [-1, 0.5],
    topP: [0, 5e-324, 1.01, NaN],
    minP: [-0.1, 1.1],
    repeatPenalty: [0, -1, 1e39, 5e-324, Infinity],
    seed: [-1, 0.5, 2 ** 53, 1n],
    stop: ['', ['a', ''], [1], 5, null],
    onPrefill: ['x'],
    repeatLastN: [-1, 0.5],
    ignoreEos: [1, 'no'],
    inFlight: [0, 17, 2.5, '8'],
    logitBias: [null, [1], 5, { a: 1 }, { '': 1 }, { '-1': 1 }, { 1.5: 1 }, { 1: NaN }, { 1: 1e39 }, { 1: '2' }, new Map([['1', 2]]), Uint8Array.of(1),
      new Set([[1, 2]]), new Date(), Promise.resolve(), /x/, new Blob([]), Object.create({ 1: 2 }), { '0x10': 1 }, { ' 7 ': 1 }, { '1e1': 1 }, { '007': 1 }, { '+1': 1 }],
    logprobs: [1, 'yes'],
  };
  for (const [name, values] of Object.entries(bad)) {
    for (const value of values) refuses(() => checkGenerate('a', { [name]: value }), new RegExp(`generate: ${name}: expected`));
  }
  refuses(() => checkGenerate('a', { top_k: 1 }), /unknown option top_k/);
});

test('an option that is inherited or hidden would be left behind, and is refused by name', () => {
  for (const options of [Object.create({ maxTokens: 3 }), Object.create({ signal: 5 }), Object.defineProperty({}, 'maxTokens', { value: 3 }), new (class { get topK() { return 1; } })()]) {
    refuses(() => checkGenerate('a', options), /^generate: (maxTokens|signal|topK): expected a property of the options themselves/);
  }
  refuses(() => checkLoad('m', Object.create({ cache: 'only' })), /^load: cache: expected a property of the options themselves/);
  checkGenerate('a', Object.create(null, { maxTokens: { value: 3, enumerable: true } }));
  checkGenerate('a', Object.create({ other: 1, maxTokens: undefined }));
});

test('bad bench options are refused by name', () => {
  const bad = { context: [1, 1.5], n: [0], runs: [0, 1001], inFlight: [0, 17], floor: [1], text: ['', 5], signal: [{}], onProgress: [1] };
  for (const [name, values] of Object.entries(bad)) {
    for (const value of values) refuses(() => checkBench({ [name]: value }), new RegExp(`^bench: ${name}: expected`));
  }
  refuses(() => checkBench({ device: 'gpu' }), /bench: unknown option device/);
});

test('ranges are those of the engine', async () => {
  const constant = async (file, name) => {
    const source = await readFile(new URL(`../../src/${file}`, import.meta.url), 'utf8');
    const [, base, shift = 0] = new RegExp(`const ${name}: usize = (\\d+)(?: << (\\d+))?;`).exec(source) ?? [];
    return Number(base) * 2 ** Number(shift);
  };
  assert.equal(MOST_CHUNK, await constant('session/memory.rs', 'MAX_CHUNK'));
  assert.equal(MOST_CONTEXT, await constant('session/load.rs', 'MAX_CONTEXT'));
  assert.equal(MOST_IN_FLIGHT, await constant('session/draw.rs', 'MAX_IN_FLIGHT'));
  assert.equal(MOST_BIASES, await constant('kernel/sample/options.rs', 'MAX_BIASES'));
  assert.equal(MOST_TEXT, await constant('session/limits.rs', 'MAX_WASM_TEXT'));
});

test('every option of `kitfox generate` is one here, or the README says why not', async () => {
  const read = (path) => readFile(new URL(path, import.meta.url), 'utf8');
  const [generate, shared, readme] = await Promise.all(['../../src/cli/generate.rs', '../../src/cli/mod.rs', '../README.md'].map(read));
  const its = /struct ModelArguments \{([^]*?)\n\}/.exec(shared)[1];
  const fields = [...`${generate}${its}`.matchAll(/#\[arg\([^\]]*\blong\b[^]*?\)\]\n\s*(?:pub )?(\w+): /g)].map(([, name]) => name);
  assert.ok(fields.length > 20 && fields.includes('check') && fields.includes('device'), fields.join());
  const named = { temp: 'temperature', tokens: 'maxTokens', model: 'source', prompt: 'prompt' };
  const camel = (name) => named[name] ?? name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
  const [, lacks] = /\n## What the command line has([^]*?)\n## /.exec(readme);
  const words = new Set([...readme.replace(lacks, '').matchAll(/`([^`\n]+)`/g)].flatMap(([, code]) => code.split(/\W+/)));
  for (const name of fields) {
    assert.ok(words.has(camel(name)) || lacks.includes(`--${name.replaceAll('_', '-')}`), `--${name}`);
  }
});

test('what is no token id is refused by name', () => {
  for (const ids of [[], new Uint32Array(0), [-1], [1.5], [2 ** 32], ['1'], 'a', undefined, Int32Array.of(1)]) {
    refuses(() => checkLogits(ids, {}), /logits: ids: expected token ids \(whole numbers, at least one\)/);
  }
  refuses(() => checkLogits([1], { decode: 1 }), /logits: decode: expected true or false/);
});

test('whatever is given in place of options, the error is typed, short, and names it', () => {
  const bare = Object.create(null);
  const round = [];
  round.push(round);
  const hostile = {
    get toString() {
      throw new Error('never called');
    },
  };
  for (const value of [[], [1], 'x', 5, 1n, Symbol('s'), () => 1]) refuses(() => checkGenerate('a', value), /expected an object of options/);
  const odd = [bare, round, hostile, [1n], [Symbol('s')], [bare], new Array(3), new Array(1e6).fill('x'), 'y'.repeat(1e6), class {}, new Proxy({}, {})];
  for (const value of odd) {
    for (const call of [() => checkGenerate('a', { temperature: value }), () => checkLogits(value, {}), () => checkGenerate('a', { signal: value })]) {
      refuses(call, /^(generate|logits): \w+: expected .{1,300}$/);
    }
  }
  refuses(() => checkGenerate('a', { stop: ['x', , 'y'] }), /stop: expected/);
  refuses(() => checkLogits([1, , 2], {}), /ids: expected/);
});
