// Sessions, scores, the tokenizer and the self-test as a page uses them: each session is as if it were alone, whatever others do.

import assert from 'node:assert/strict';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { chromium, inPage, openPage } from './browsers.mjs';
import { kitfox, native } from './native.mjs';
import { model, root, startServer } from './server.mjs';

const PROMPT = 'The old fox stopped at the edge of the wood, and';

let folder;
// Of this file alone: files run side by side.
let server;
let browser;
let page;
let complaints;
before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'kitfox-sessions-'));
  server = await startServer([['/saved/', folder]]);
  browser = await chromium();
  ({ page, complaints } = await openPage(browser, `${server.url}/blank`));
});
after(async () => {
  await browser?.close();
  await server?.close();
  await rm(folder, { recursive: true, force: true });
});

/** A model of two layers, noise that spells bytes: a software GPU takes long for the demo model's chunks. Its path. */
async function smallModel() {
  const [from, file] = [path.join(folder, 'small'), path.join(folder, 'small.gguf')];
  await cp(path.join(root, 'tests/fixtures/golden/fox_pro'), from, { recursive: true });
  // GPT-2's spelling of the first bytes, which are as many as the model has ids.
  let unprinted = 0x100;
  const spelled = (byte) => ((byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad) ? byte : unprinted++);
  const vocab = Object.fromEntries(Array.from({ length: 199 }, (_, byte) => [String.fromCodePoint(spelled(byte)), byte]));
  const bytes = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
  const tokenizer = { version: '1.0', added_tokens: [], pre_tokenizer: bytes, decoder: bytes, model: { type: 'BPE', vocab, merges: [] } };
  await writeFile(path.join(from, 'tokenizer.json'), JSON.stringify(tokenizer));
  await kitfox('convert', from, '-o', file, '--quant', 'f32');
  return file;
}

/** Goes on natively with the session in a file. */
async function goOn(file, prompt, tokens) {
  const options = ['-m', model, '-p', prompt, '-n', String(tokens), '--temp', '0', '--json', '--device', 'cpu', '-c', '512'];
  return JSON.parse(await kitfox('generate', ...options, '--session', file));
}

test('a session goes on, goes back, forks, is saved and restored, and says what one call would have said', async () => {
  const expected = await native(PROMPT, 12);
  const seen = await inPage(page, async (Kitfox, { collect, fails }, PROMPT) => {
    const fox = await Kitfox.load('/models/demo.gguf', { device: 'cpu', context: 512 });
    const greedy = (n) => ({ temperature: 0, maxTokens: n });
    const ids = async (generation) => (await collect(generation)).ids.join();
    const seen = {};
    const session = await fox.session();
    const tokens = await session.append(PROMPT);
    const mark = await session.mark();
    const early = await session.save();
    seen.marks = [tokens === mark];
    // An answer in two parts, with another text in between.
    const [first] = [await ids(session.generate(greedy(5)))];
    await collect(fox.generate('Something else', greedy(3)));
    seen.inParts = `${first},${await ids(session.generate(greedy(7)))}`;
    await session.rewind(mark);
    const fork = await session.fork();
    seen.rewound = await ids(session.generate(greedy(12)));
    seen.forked = await ids(fork.generate(greedy(12)));
    // Two at once.
    await Promise.all([session.rewind(mark), fork.rewind(mark)]);
    seen.both = await Promise.all([ids(session.generate(greedy(12))), ids(fork.generate(greedy(12)))]);
    fork.dispose();
    seen.disposed = await fails(fork.save());
    const bytes = await session.save();
    await session.restore(early);
    seen.restored = await ids(session.generate(greedy(12)));
    // In another model, from bytes; damaged ones change nothing.
    const other = await Kitfox.load('/models/demo.gguf', { device: 'cpu', context: 256, chunk: 32 });
    const there = await other.session();
    await there.restore(early);
    seen.elsewhere = await ids(there.generate(greedy(12)));
    const damaged = bytes.slice();
    damaged[damaged.length >> 1] ^= 4;
    seen.damaged = (await fails(there.restore(damaged))).slice(0, 6);
    seen.tokens = [await there.append([5]), tokens + 13];
    // Left in the middle: what was taken is kept.
    await session.rewind(mark);
    const taken = [];
    for await (const piece of session.generate(greedy(100))) {
      taken.push(...piece.ids);
      if (taken.length >= 5) break;
    }
    seen.left = `${taken},${await ids(session.generate(greedy(12 - taken.length)))}`;
    // Aborted before, and while, it is read: as before.
    await session.rewind(mark);
    const ends = new AbortController();
    const appended = session.append('The fox ran over the hill and down to the river. '.repeat(20), { signal: ends.signal });
    setTimeout(() => ends.abort(), 1);
    seen.aborted = await fails(appended);
    seen.after = await ids(session.generate(greedy(12)));
    const { sessionBytes, kvBytesLive, tokens: generated } = await fox.stats();
    seen.stats = [sessionBytes === 0, kvBytesLive > 0, generated > 60];
    seen.empty = (await fails((await fox.session()).generate().next())).slice(0, 8);
    fox.dispose();
    other.dispose();
    return seen;
  }, PROMPT);
  const want = expected.ids.join();
  for (const name of ['inParts', 'rewound', 'forked', 'restored', 'elsewhere', 'left', 'after']) assert.equal(seen[name], want, name);
  assert.deepEqual(seen.both, [want, want]);
  assert.deepEqual([...seen.marks, ...seen.stats], [true, true, true, true]);
  assert.equal(seen.tokens[0], seen.tokens[1]);
  assert.equal(seen.damaged, 'format');
  assert.equal(seen.aborted, 'aborted: aborted');
  assert.equal(seen.disposed, 'disposed: the session was disposed');
  assert.equal(seen.empty, 'argument');
  assert.deepEqual(complaints, []);
});

test('a session saved in the browser goes on natively, and one saved natively goes on in the browser', async () => {
  const MORE = ' Then the hen said';
  const inBrowser = await inPage(page, async (Kitfox, { collect }, { PROMPT, MORE }) => {
    const fox = await Kitfox.load('/models/demo.gguf', { device: 'cpu', context: 512 });
    const session = await fox.session();
    await session.append(PROMPT);
    const first = await collect(session.generate({ temperature: 0, maxTokens: 6 }));
    const bytes = await session.save();
    await session.append(MORE);
    const second = await collect(session.generate({ temperature: 0, maxTokens: 10 }));
    const third = await collect(session.generate({ temperature: 0, maxTokens: 5 }));
    fox.dispose();
    return { bytes: [...bytes].map((byte) => String.fromCharCode(byte)).join(''), first: first.ids, second: second.ids, third: third.ids };
  }, { PROMPT, MORE });
  const [there, here] = [path.join(folder, 'browser.kfxs'), path.join(folder, 'native.kfxs')];
  await writeFile(there, Buffer.from(inBrowser.bytes, 'latin1'));
  assert.deepEqual((await goOn(there, MORE, 10)).ids, inBrowser.second, 'natively');

  assert.deepEqual((await goOn(here, PROMPT, 6)).ids, inBrowser.first);
  const { ids } = await goOn(here, MORE, 10);
  const third = await inPage(page, async (Kitfox, { collect }) => {
    const fox = await Kitfox.load('/models/demo.gguf', { device: 'cpu', context: 256 });
    const session = await fox.session();
    await session.restore(new Uint8Array(await (await fetch('/saved/native.kfxs')).arrayBuffer()));
    const { ids } = await collect(session.generate({ temperature: 0, maxTokens: 5 }));
    fox.dispose();
    return ids;
  });
  assert.deepEqual([ids, third], [inBrowser.second, inBrowser.third], 'in the browser');
  assert.deepEqual(complaints, []);
});

test('a session of another model is refused, and the one that it was to replace is as before', async () => {
  await smallModel();
  const [error, before, after] = await inPage(page, async (Kitfox, { fails }, PROMPT) => {
    const [fox, other] = [await Kitfox.load('/models/demo.gguf', { device: 'cpu', context: 256 }), await Kitfox.load('/saved/small.gguf', { device: 'cpu', context: 256 })];
    const [session, foreign] = [await fox.session(), await other.session()];
    await session.append(PROMPT);
    await foreign.append('The fox');
    const before = (await session.save()).join();
    const error = await fails(session.restore(await foreign.save()));
    const after = (await session.save()).join();
    for (const one of [fox, other]) one.dispose();
    return [error, before, after];
  }, PROMPT);
  assert.match(error, /^format: .*model/);
  assert.ok(before.length > 100);
  assert.equal(after, before);
  assert.deepEqual(complaints, []);
});

test('pieces tell which keys are live and freed, never too few as live, and a mark that is given up frees what it held', async () => {
  await smallModel();
  const seen = await inPage(page, async (Kitfox, _, PROMPT) => {
    const fox = await Kitfox.load('/saved/small.gguf', { device: 'cpu', context: 1024, prune: 4.5e-5, cache: 'off' });
    const session = await fox.session();
    await session.append(PROMPT.repeat(3));
    const mark = await session.mark();
    const pieces = [];
    const generation = session.generate({ seed: 1, temperature: 2, maxTokens: 700, ignoreEos: true });
    for await (const { kvBytesLive, kvBytesFreed } of generation) pieces.push([kvBytesLive, kvBytesFreed]);
    const { kvBytesLive, kvBytesFreed } = generation.summary;
    const held = (await fox.stats()).kvBytesFreed;
    await session.unmark(mark);
    const after = await fox.stats();
    fox.dispose();
    return { pieces, summary: [kvBytesLive, kvBytesFreed], held, freed: after.kvBytesFreed, live: after.kvBytesLive };
  }, PROMPT);
  const [first, last] = [seen.pieces[0], seen.pieces.at(-1)];
  assert.ok(seen.pieces.every(([live, freed]) => live > 0 && freed >= 0));
  assert.ok(last[1] > first[1], `${first} ${last}: more and more is freed`);
  assert.ok(last[0] >= seen.live && seen.summary[0] === seen.live, JSON.stringify([last, seen.summary, seen.live]));
  assert.deepEqual([seen.summary[1], seen.held], [last[1], last[1]]);
  assert.ok(seen.freed > seen.held, `${seen.freed} bytes are free, ${seen.held} were`);
  assert.deepEqual(complaints, []);
});

test('eight calls at once each give what they give alone', async () => {
  const { alone, together } = await inPage(page, async (Kitfox, { collect }, PROMPT) => {
    const fox = await Kitfox.load('/models/demo.gguf', { device: 'cpu', context: 256 });
    const session = await fox.session();
    await session.append(PROMPT);
    // Texts of their own, and a session's between them.
    const ask = (ix) => (ix === 5 ? session : fox).generate(...(ix === 5 ? [] : [PROMPT.slice(0, 12 + 4 * ix)]), { seed: ix, maxTokens: 8, temperature: 1.5 });
    const [alone, mark] = [[], await session.mark()];
    for (let ix = 0; ix < 8; ix += 1) alone.push((await collect(ask(ix))).ids.join());
    await session.rewind(mark);
    const together = await Promise.all(Array.from({ length: 8 }, async (_, ix) => (await collect(ask(ix))).ids.join()));
    fox.dispose();
    return { alone, together };
  }, PROMPT);
  assert.deepEqual(together, alone);
  assert.equal(new Set(alone).size, 8, 'no two are the same');
  assert.deepEqual(complaints, []);
});

test('on a GPU a session with a biased text in between says what one call says, and how likely that was', async () => {
  const options = ['-p', PROMPT, '-n', '40', '--temp', '0', '--ignore-eos', '--device', 'cpu', '--json', '--logprobs'];
  const expected = JSON.parse(await kitfox('generate', '-m', await smallModel(), ...options));
  const { likely, ...seen } = await inPage(page, async (Kitfox, { collect }, PROMPT) => {
    const fox = await Kitfox.load('/saved/small.gguf', { device: 'gpu', baseline: true, context: 256, cache: 'off' });
    const greedy = (maxTokens, options) => ({ temperature: 0, maxTokens, ignoreEos: true, ...options });
    const session = await fox.session();
    await session.append(PROMPT);
    const { ids } = await collect(session.generate(greedy(30)));
    const biased = await collect(fox.generate('The', greedy(3, { logitBias: { 9: 1e6 } })));
    const likely = [];
    for await (const piece of session.generate(greedy(10, { logprobs: true }))) {
      ids.push(...piece.ids);
      likely.push(...piece.logprobs);
    }
    const { gpu } = fox.info;
    fox.dispose();
    return { gpu, ids, biased: biased.ids, likely };
  }, PROMPT);
  assert.deepEqual(seen, { gpu: true, ids: expected.ids, biased: [9, 9, 9] });
  const off = likely.map((logprob, ix) => Math.abs(logprob - expected.logprobs[30 + ix]));
  assert.ok(off.length === 10 && Math.max(...off) < 1e-3, `${likely} ${expected.logprobs}`);
  assert.deepEqual(complaints, []);
});

test('tokens and text, and the log-probabilities of a text from its logits', async () => {
  const seen = await inPage(page, async (Kitfox, { fails }, PROMPT) => {
    const fox = await Kitfox.load('/models/demo.gguf', { device: 'cpu', scores: true, context: 256 });
    const ids = await fox.tokenize(PROMPT);
    const text = await fox.detokenize(ids);
    const { logprobs, ids: scored } = await fox.score(PROMPT);
    const { vocab } = fox.info;
    const rows = await fox.logits([0, ...ids]);
    const wanted = [...ids].map((id, ix) => {
      const row = rows.subarray(ix * vocab, (ix + 1) * vocab);
      const best = Math.max(...row);
      return row[id] - best - Math.log(row.reduce((sum, logit) => sum + Math.exp(logit - best), 0));
    });
    const off = Math.max(...wanted.map((value, ix) => Math.abs(value - logprobs[ix])));
    const byIds = await fox.score(ids);
    fox.dispose();
    const slow = await Kitfox.load('/models/demo.gguf', { device: 'cpu', context: 256 });
    const steps = await slow.score(PROMPT);
    const offSteps = Math.max(...wanted.map((value, ix) => Math.abs(value - steps.logprobs[ix])));
    const refused = [await fails(slow.score('')), await fails(slow.tokenize(5)), await fails(slow.detokenize(['a'])), await fails(slow.score([1e6]))];
    slow.dispose();
    const same = (a, b) => [...a].join() === [...b].join();
    return { text, same: same(ids, scored) && same(byIds.logprobs, logprobs), off, offSteps, refused: refused.map((said) => said.split(':')[0]) };
  }, PROMPT);
  assert.equal(seen.text, PROMPT);
  assert.ok(seen.same && seen.off < 1e-3 && seen.offSteps < 1e-2, JSON.stringify(seen));
  assert.deepEqual(seen.refused, Array(4).fill('argument'));
  assert.deepEqual(complaints, []);
});

test('pieces carry the probabilities that a score of the answer has; a bias makes and unmakes a token; what is out of range is named', async () => {
  const seen = await inPage(page, async (Kitfox, { collect, fails }, PROMPT) => {
    const fox = await Kitfox.load('/models/demo.gguf', { device: 'cpu', scores: true, context: 256 });
    const options = { seed: 3, temperature: 1.2, maxTokens: 12, repeatPenalty: 1.5 };
    const plain = await collect(fox.generate(PROMPT, options));
    const [ids, logprobs] = [[], []];
    for await (const piece of fox.generate(PROMPT, { ...options, logprobs: true })) {
      ids.push(...piece.ids);
      logprobs.push(...piece.logprobs);
    }
    const prompt = await fox.tokenize(PROMPT);
    const { logprobs: scored } = await fox.score([...prompt, ...ids]);
    const off = logprobs.map((logprob, ix) => Math.abs(logprob - scored[prompt.length + ix]));
    const made = await collect(fox.generate(PROMPT, { temperature: 0, maxTokens: 3, logitBias: new Map([[9, 1e6]]) }));
    const best = (await collect(fox.generate(PROMPT, { temperature: 0, maxTokens: 1 }))).ids[0];
    const unmade = await collect(fox.generate(PROMPT, { temperature: 0, maxTokens: 1, logitBias: { [best]: -100 } }));
    const beyond = await fails(fox.generate(PROMPT, { logitBias: { [fox.info.vocab]: 1 } }).next());
    const after = (await collect(fox.generate(PROMPT, options))).ids;
    fox.dispose();
    return { plain: plain.ids, ids, after, n: logprobs.length, off: Math.max(...off), made: made.ids, other: unmade.ids[0] !== best, beyond };
  }, PROMPT);
  assert.deepEqual([seen.ids, seen.after], [seen.plain, seen.plain]);
  assert.ok(seen.n === seen.plain.length && seen.off < 1e-3, JSON.stringify(seen));
  assert.deepEqual([seen.made, seen.other], [[9, 9, 9], true]);
  assert.match(seen.beyond, /^argument: logitBias: expected token ids below the vocabulary of 8192, got id 8192$/);
  assert.deepEqual(complaints, []);
});

test('the self-test finds every kernel of the CPU device right, and ends when it is told to', async () => {
  const seen = await inPage(page, async (Kitfox, { collect, fails }) => {
    const fox = await Kitfox.load('/models/demo.gguf', { device: 'cpu', context: 256 });
    const checked = await fox.selfCheck();
    const ends = new AbortController();
    const aborted = await fails(fox.selfCheck({ signal: ends.signal, onProgress: () => ends.abort() }));
    const { ids } = await collect(fox.generate('The fox', { temperature: 0, maxTokens: 2 }));
    fox.dispose();
    return { checked, aborted, n: ids.length };
  });
  assert.ok(seen.checked.ok && seen.checked.kernels.length >= 5, JSON.stringify(seen.checked));
  assert.ok(seen.checked.kernels.every(({ kernel, cases, nmse, maxAbs }) => kernel && cases > 0 && nmse < 1e-3 && maxAbs >= 0));
  assert.deepEqual([seen.aborted, seen.n], ['aborted: aborted', 2]);
  assert.deepEqual(complaints, []);
});
