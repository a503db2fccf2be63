// Sessions and single values against the real worker loop, with an engine of the test's own: a token is a letter, an answer spells the
// session again.

import assert from 'node:assert/strict';
import test, { afterEach } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { holdModel } from '../dist/answers.js';
import { Kitfox } from '../dist/kitfox.js';
import { fakeWorkers, promptly } from './workers.mjs';

const spell = (ids) => String.fromCharCode(...ids);
const ids = (text) => Uint32Array.from(text, (letter) => letter.charCodeAt(0));

class Engine {
  sessions = new Map();
  opened = 0;

  end() {
    if (this.speaker !== undefined && this.sessions.has(this.speaker)) this.sessions.set(this.speaker, this.sessions.get(this.speaker) + this.said);
    this.speaker = undefined;
  }

  get(session) {
    this.end();
    if (!this.sessions.has(session)) throw Object.assign(new Error(`session: no ${session}`), { code: 'argument' });
    return this.sessions.get(session);
  }

  tokenize = ids;
  detokenize = spell;
  tokenizeFor = (session, text) => ids(text);
  sessionTokens = (session) => this.get(session).length;
  closeSession = (session) => this.sessions.delete(session);

  openSession() {
    this.sessions.set((this.opened += 1), '');
    return this.opened;
  }

  appendToSession(session, tokens) {
    this.sessions.set(session, this.get(session) + spell(tokens));
    this.read = 0;
  }

  async readSession(session) {
    this.busy = true;
    await sleep(5);
    this.busy = false;
    const total = this.get(session).length;
    if (this.sessions.get(session).endsWith('!')) throw Object.assign(new Error('context: too many'), { code: 'context-full' });
    if (this.sessions.get(session).endsWith('?')) {
      this.panic('while reading');
      return new Promise(() => {});
    }
    this.read = Math.min(this.read + 2, total);
    return { done: this.read, total };
  }

  start(prompt, options) {
    this.end();
    [this.prompt, this.options, this.said] = [prompt, options, ''];
  }

  async startInSession(session, options) {
    const prompt = this.get(session);
    [this.prompt, this.options, this.said, this.speaker] = [prompt, options, '', session];
  }

  prefill = async () => ({ done: this.prompt.length, total: this.prompt.length });
  cost = async () => ({ kvBytesLive: 1 });

  async next() {
    await sleep(0);
    const text = this.prompt[this.said.length % this.prompt.length];
    this.said += text;
    return { text, ids: [text.charCodeAt(0)], ...(this.said.length === this.options.maxTokens ? { finish: 'length' } : {}) };
  }

  marks = [];
  markSession = async (session) => {
    this.marks.push(this.get(session).length);
    return this.marks.at(-1);
  };
  unmarkSession = (session, tokens) => {
    this.get(session);
    this.marks = this.marks.filter((mark) => mark !== tokens);
  };
  rewindSession = (session, tokens) => {
    assert.ok(!this.busy, 'another step is under way');
    this.sessions.set(session, this.get(session).slice(0, tokens));
  };
  saveSession = async (session) => Uint8Array.from(ids(this.get(session)));

  async forkSession(session) {
    this.sessions.set((this.opened += 1), this.get(session));
    return this.opened;
  }

  async restoreSession(session, bytes) {
    this.get(session);
    this.sessions.set(session, spell(bytes));
  }

  startScore(tokens) {
    [this.scored, this.at] = [tokens, 0];
  }

  async score() {
    this.at += 1;
    const done = { ids: this.scored, logprobs: Float32Array.from(this.scored, (id) => -id) };
    return { done: this.at, total: 2, ...(this.at === 2 ? done : {}) };
  }

  checkKernel = async (ix) => ({ kernel: `k${ix}`, cases: ix, nmse: 0, maxAbs: 0, failures: ix === 2 ? ['case: off'] : [], done: ix + 1, total: 3 });
  stats = async () => ({ tokens: 6, seconds: 2, kvBytesLive: 5, kvBytesFreed: 4, sessionBytes: 7, checkedDispatches: 0 });
}

const workers = fakeWorkers(() => {
  const engine = new Engine();
  return { engine, held: holdModel(engine, () => ({ deviceBytes: 1, heapBytes: 2, dispatchesPerToken: 3 })) };
});
afterEach(workers.end);

async function said(generation) {
  let text = '';
  for await (const piece of generation) text += piece;
  return text;
}
const textOf = async (session) => spell(await session.save());

test('a session keeps what is appended and answered, goes back, forks and is restored', async () => {
  const fox = await Kitfox.load('m');
  const session = await fox.session();
  assert.equal(await session.append('abc'), 3);
  const mark = await session.mark();
  assert.equal(await said(session.generate({ maxTokens: 4 })), 'abca');
  assert.equal(await said(fox.generate('xy', { maxTokens: 3 })), 'xyx', 'another text in between');
  assert.equal(await session.append(ids('d')), 8);
  const fork = await session.fork();
  await session.rewind(mark);
  assert.deepEqual([await textOf(session), await textOf(fork)], ['abc', 'abcabcad']);
  const bytes = Uint8Array.from(ids('saved'));
  await fork.restore(bytes);
  assert.deepEqual([await textOf(fork), bytes.length], ['saved', 5], 'what is given is copied');
  fork.dispose();
  fork.dispose();
  await assert.rejects(fork.save(), { code: 'disposed' });
  assert.throws(() => fork.generate(), { code: 'disposed' });
  assert.equal(await said(session.generate({ maxTokens: 2 })), 'ab');
});

test('a mark is given up by itself', async () => {
  const fox = await Kitfox.load('m');
  const session = await fox.session();
  const marks = [];
  for (const text of ['ab', 'cd']) {
    await session.append(text);
    marks.push(await session.mark());
  }
  const { engine } = workers.made[0];
  await session.unmark(marks[0]);
  await session.unmark(77);
  assert.deepEqual(engine.marks, [marks[1]]);
  for (const wrong of [-1, 1.5, undefined]) await assert.rejects(session.unmark(wrong), { code: 'argument', message: /^unmark: mark: expected a whole number/ });
  session.dispose();
  await assert.rejects(session.unmark(marks[1]), { code: 'disposed' });
});

test('a way back that is aborted before its turn leads nowhere', async () => {
  const fox = await Kitfox.load('m');
  const session = await fox.session();
  await session.append('abc');
  const ends = new AbortController();
  const [running, back] = [session.append('def'), session.rewind(1, { signal: ends.signal })];
  ends.abort();
  await assert.rejects(back, { code: 'aborted' });
  await running;
  assert.equal(await textOf(session), 'abcdef');
});

test('of an answer that is left, thrown out of or aborted, a session keeps what was taken', async () => {
  const fox = await Kitfox.load('m');
  const session = await fox.session();
  await session.append('abc');
  for await (const piece of session.generate({ maxTokens: 50 })) if (`${piece}` === 'b') break;
  assert.equal(await textOf(session), 'abcab');
  await session.rewind(3);
  await assert.rejects(
    (async () => {
      for await (const piece of session.generate({ maxTokens: 50 })) throw new Error(`${piece}`);
    })(),
    { message: 'a' },
  );
  assert.equal(await textOf(session), 'abca');
  const ends = new AbortController();
  const running = session.generate({ maxTokens: 50, signal: ends.signal });
  await running.next();
  ends.abort();
  await assert.rejects(promptly(running.next()), { code: 'aborted' });
  assert.equal(await textOf(session), 'abcaa');
  assert.equal(await said(session.generate({ maxTokens: 5 })), 'abcaa', 'and goes on');
});

/** Hears what the worker says just before the page does; what it holds back (gives `false` for) comes when the returned function is called. */
function beforePage(hear) {
  const [, port] = workers.made[0].ports;
  const post = port.postMessage.bind(port);
  const held = [];
  port.postMessage = (...message) => (hear(message[0]) === false ? held.push(message) : post(...message));
  return () => held.splice(0).forEach((message) => post(...message));
}

test('what is queued behind an answer that is left goes behind what was taken of it', async () => {
  const fox = await Kitfox.load('m');
  const session = await fox.session();
  await session.append('abc');
  const left = session.generate({ maxTokens: 1e6 });
  await left.next();
  const [appended, answer] = [session.append('d'), session.generate({ maxTokens: 2 })];
  const next = answer.next();
  await left.return();
  assert.equal(await promptly(appended), 5);
  assert.equal((await next).value.text + (await said(answer)), 'ab');
  assert.equal(answer.summary.promptTokens, 5);
  assert.equal(await textOf(session), 'abcadab');
});

for (const maxTokens of [3, 1e6]) {
  test(`of an answer of ${maxTokens} tokens that is aborted while its pieces wait unread, a session keeps nothing`, async () => {
    const fox = await Kitfox.load('m');
    const session = await fox.session();
    await session.append('abc');
    const { engine } = workers.made[0];
    let n = 0;
    let many;
    const written = new Promise((resolve) => (many = resolve));
    const deliver = beforePage(({ type }) => {
      if (type === 'piece' && (n += 1) === 3) many();
      return type !== 'prefill' && type !== 'piece' && type !== 'done';
    });
    const ends = new AbortController();
    const first = session.generate({ maxTokens, signal: ends.signal }).next();
    first.catch(() => undefined);
    await written;
    ends.abort();
    deliver();
    await assert.rejects(promptly(first), { code: 'aborted' });
    assert.ok(engine.said.length >= 3);
    assert.equal(await textOf(session), 'abc');
  });
}

test('an answer is cut after its end as long as nothing else was asked of its session, and never within a step', async () => {
  const fox = await Kitfox.load('m');
  const [session, other] = [await fox.session(), await fox.session()];
  const { engine } = workers.made[0];
  const begun = async (text) => {
    await session.rewind(0);
    await session.append(text);
    const answer = session.generate({ maxTokens: 3 });
    await answer.next();
    await fox.stats(); // behind its end
    return answer;
  };
  let answer = await begun('abc');
  const reading = other.append('x'.repeat(9));
  await new Promise((inside) => (engine.readSession = (...of) => (inside(), Engine.prototype.readSession.apply(engine, of))));
  await answer.return();
  assert.deepEqual([await reading, await textOf(session)], [9, 'abca']);
  answer = await begun('abc');
  assert.equal(await session.append('d'), 7);
  await answer.return();
  assert.equal(await textOf(session), 'abcabcd', 'what was told stays true');
  answer = await begun('abc');
  session.dispose();
  await answer.return();
  assert.equal(await promptly(other.append('y')), 10);
  assert.equal(engine.sessions.size, 1);
});

/** What changes a session or makes one, and what can be seen of it: `aborted` is as before, and everything else as if it had not been aborted. */
const CHANGES = {
  append: (session, options) => session.append('def', options),
  rewind: (session, options) => session.rewind(1, options),
  restore: (session, options) => session.restore(Uint8Array.of(120, 121), options),
  fork: (session, options) => session.fork(options),
  session: (session, options, fox) => fox.session(options),
};
for (const [name, change] of Object.entries(CHANGES)) {
  test(`an abort of ${name}, whenever it comes, says what is so`, async () => {
    for (const moment of ['in its last step', 'before its answer is heard']) {
      const fox = await Kitfox.load('m');
      const session = await fox.session();
      await session.append('abc');
      const { engine } = workers.made.at(-1);
      const seen = async () => [await textOf(session), engine.sessions.size];
      const before = await seen();
      await change(session, {}, fox);
      const after = await seen();
      await session.restore(Uint8Array.from(ids('abc')));
      for (const number of [...engine.sessions.keys()].slice(1)) engine.closeSession(number);

      const ends = new AbortController();
      if (moment.startsWith('before')) beforePage(({ type }) => void (type === 'value' && ends.abort('enough')));
      else {
        const method = { append: 'readSession', rewind: 'rewindSession', restore: 'restoreSession', fork: 'forkSession', session: 'openSession' }[name];
        const work = engine[method].bind(engine);
        engine[method] = (...given) => {
          const done = work(...given);
          if (name !== 'append') ends.abort('enough');
          if (name === 'rewind' || name === 'session') return done; // at once: nothing can come in between
          return done.then(async (value) => {
            if (name !== 'append' || value.done === value.total) {
              ends.abort('enough');
              await sleep(5);
            }
            return value;
          });
        };
      }
      const got = await promptly(change(session, { signal: ends.signal }, fox).then(() => 'done', ({ code, cause }) => [code, cause]));
      assert.ok(ends.signal.aborted);
      if (got === 'done' && !['fork', 'session'].includes(name)) assert.deepEqual(await seen(), after, moment);
      else assert.deepEqual([got, await seen()], [['aborted', 'enough'], before], moment);
      workers.end();
    }
  });
}

test('what cannot be appended, or is aborted meanwhile, is not part of the session', async () => {
  const fox = await Kitfox.load('m');
  const session = await fox.session();
  await session.append('ab');
  await assert.rejects(session.append('cd!'), { code: 'context-full' });
  const ends = new AbortController();
  const long = session.append('x'.repeat(1000), { signal: ends.signal });
  setTimeout(() => ends.abort(), 20);
  await assert.rejects(promptly(long), { code: 'aborted' });
  assert.equal(await textOf(session), 'ab');
  await assert.rejects(promptly(session.append('?')), { code: 'crashed', message: /while reading/ });
});

test('tokens, text, scores, the self-test and what was counted', async () => {
  const fox = await Kitfox.load('m');
  assert.deepEqual(await fox.tokenize('ab'), Uint32Array.of(97, 98));
  assert.equal(await fox.detokenize([97, 98]), 'ab');
  assert.equal(await fox.detokenize([]), '');
  assert.deepEqual(await fox.score('ab'), { ids: Uint32Array.of(97, 98), logprobs: Float32Array.of(-97, -98) });
  const steps = [];
  const { ok, kernels } = await fox.selfCheck({ onProgress: ({ done, total }) => steps.push(`${done}/${total}`) });
  assert.deepEqual([ok, kernels.map(({ kernel }) => kernel), steps], [false, ['k1', 'k2'], ['1/3', '2/3', '3/3']]);
  const counted = { tokens: 6, tokensPerSecond: 3, kvBytesLive: 5, kvBytesFreed: 4, sessionBytes: 7, checkedDispatches: 0, deviceBytes: 1, heapBytes: 2, dispatchesPerToken: 3 };
  assert.deepEqual(await fox.stats(), counted);
  const ends = new AbortController();
  await assert.rejects(fox.selfCheck({ signal: ends.signal, onProgress: () => ends.abort() }), { code: 'aborted' });
});

test('bad arguments are refused by name before anything is sent', async () => {
  const fox = await Kitfox.load('m');
  const session = await fox.session();
  const bad = [
    [fox.tokenize(5), /tokenize: text/],
    [fox.detokenize(['a']), /detokenize: ids/],
    [fox.score(''), /score: text/],
    [fox.score([]), /score: text/],
    [fox.session({ sginal: 1 }), /unknown option sginal/],
    [fox.selfCheck({ onProgress: 1 }), /onProgress/],
    [session.append(''), /append: text/],
    [session.append([-1]), /append: text/],
    [session.rewind(-1), /rewind: mark/],
    [session.restore('bytes'), /restore: bytes: expected a Uint8Array/],
    [session.save({ signal: {} }), /signal/],
  ];
  for (const [call, message] of bad) await assert.rejects(call, { code: 'argument', message });
  assert.throws(() => session.generate({ maxTokens: 0 }), { code: 'argument' });
});
