/** How a model answers what is asked for one value (requests.ts), step after step of the wasm engine. */

import { KitfoxError, toWire } from './errors.js';
import type { Info } from './options.js';
import type { Call } from './protocol.js';
import type { CheckedKernel, ValueRequest } from './requests.js';
import type { Talk } from './serve.js';

/** What the wasm class `Engine` has for it. */
export interface ValueEngine {
  tokenize(text: string): Uint32Array;
  detokenize(ids: Uint32Array): string;
  startScore(ids: Uint32Array): void | Promise<void>;
  /** Scores the next ids; all of them come with the last. */
  score(): Promise<{ done: number; total: number; ids?: Uint32Array; logprobs?: Float32Array }>;
  checkKernel(ix: number): Promise<CheckedKernel & { done: number; total: number }>;
  stats(): Promise<{ tokens: number; seconds: number; kvBytesLive: number; kvBytesFreed: number; sessionBytes: number; checkedDispatches: number }>;
  openSession(): number;
  closeSession(session: number): void;
  sessionTokens(session: number): number;
  /** The ids of a text that is put behind a session. */
  tokenizeFor(session: number, text: string): Uint32Array;
  appendToSession(session: number, ids: Uint32Array): void;
  /** Reads a chunk of what was put behind. */
  readSession(session: number): Promise<{ done: number; total: number }>;
  markSession(session: number): Promise<number>;
  unmarkSession(session: number, tokens: number): void;
  rewindSession(session: number, tokens: number): void;
  forkSession(session: number): Promise<number>;
  saveSession(session: number): Promise<Uint8Array>;
  restoreSession(session: number, bytes: Uint8Array): Promise<void>;
}

/** Answers, or refuses what no model has. */
export async function answerValue(engine: ValueEngine, call: Call, talk: Talk, info: () => Info): Promise<void> {
  const value = await valueOf(engine, call as ValueRequest & { call: number }, talk, info);
  const transfer = value instanceof Uint8Array ? [value.buffer as ArrayBuffer] : [];
  talk.say({ type: 'value', call: call.call, value, info: info() }, transfer);
}

async function valueOf(engine: ValueEngine, call: ValueRequest & { call: number }, talk: Talk, info: () => Info): Promise<unknown> {
  const { step } = talk;
  switch (call.type) {
    case 'tokenize':
      return step(async () => engine.tokenize(call.text));
    case 'detokenize':
      return step(async () => engine.detokenize(call.ids));
    case 'score':
      return score(engine, call.content, talk);
    case 'self-check':
      return selfCheck(engine, call.call, talk);
    case 'stats': {
      const { seconds, ...counted } = await step(() => engine.stats());
      const { deviceBytes, heapBytes, dispatchesPerToken } = info();
      return { ...counted, tokensPerSecond: seconds > 0 ? counted.tokens / seconds : 0, deviceBytes, heapBytes, dispatchesPerToken };
    }
    case 'open-session':
      return opened(engine, talk, async () => engine.openSession());
    case 'close-session':
      return engine.closeSession(call.session);
    case 'append':
      return append(engine, call.session, call.content, talk);
    case 'mark':
      return step(() => engine.markSession(call.session));
    case 'unmark':
      return step(async () => engine.unmarkSession(call.session, call.tokens));
    case 'rewind':
      return step(async () => engine.rewindSession(call.session, call.tokens));
    case 'fork':
      return opened(engine, talk, () => engine.forkSession(call.session));
    case 'save':
      return step(() => engine.saveSession(call.session));
    case 'restore':
      return restore(engine, call, talk);
    default:
      throw new KitfoxError('worker', `a model has no ${(call as Call).type}`);
  }
}

/** A session whose caller has gone meanwhile is closed again: nobody else knows its number. */
async function opened(engine: ValueEngine, { step }: Talk, open: () => Promise<number>): Promise<number> {
  const session = await step(open);
  try {
    await heard(step);
    return session;
  } catch (thrown) {
    if (toWire(thrown).code !== 'crashed') engine.closeSession(session);
    throw thrown;
  }
}

async function score(engine: ValueEngine, content: string | Uint32Array, { step }: Talk) {
  await step(async () => engine.startScore(typeof content === 'string' ? engine.tokenize(content) : content));
  for (;;) {
    const { ids, logprobs } = await step(() => engine.score());
    if (ids !== undefined && logprobs !== undefined) return { ids, logprobs };
  }
}

async function selfCheck(engine: ValueEngine, call: number, { step, say }: Talk) {
  const kernels: CheckedKernel[] = [];
  for (let ix = 0; ; ix += 1) {
    const { done, total, ...kernel } = await step(() => engine.checkKernel(ix));
    say({ type: 'measured', call, done, total });
    if (kernel.cases > 0) kernels.push(kernel);
    if (done === total) return { ok: kernels.every(({ failures }) => failures.length === 0), kernels };
  }
}

async function append(engine: ValueEngine, session: number, content: string | Uint32Array, { step }: Talk): Promise<number> {
  const before = await step(async () => engine.sessionTokens(session));
  try {
    engine.appendToSession(session, typeof content === 'string' ? engine.tokenizeFor(session, content) : content);
    for (;;) {
      const { done, total } = await step(() => engine.readSession(session));
      if (done < total) continue;
      await heard(step);
      return total;
    }
  } catch (thrown) {
    // An engine that has panicked is never called again.
    if (toWire(thrown).code !== 'crashed') engine.rewindSession(session, before);
    throw thrown;
  }
}

async function restore(engine: ValueEngine, { session, bytes, undo }: Extract<ValueRequest, { type: 'restore' }>, { step }: Talk): Promise<void> {
  const tokens = await step(async () => engine.sessionTokens(session));
  const before = undo && tokens > 0 ? await step(() => engine.saveSession(session)) : undefined;
  await step(() => engine.restoreSession(session, bytes));
  try {
    await heard(step);
  } catch (thrown) {
    if (toWire(thrown).code !== 'crashed') {
      if (before === undefined) engine.rewindSession(session, 0);
      else await engine.restoreSession(session, before);
    }
    throw thrown;
  }
}

/** What was done counts only if no abort came in meanwhile: the caller was told that it did not. */
async function heard(step: Talk['step']): Promise<void> {
  await step(async () => undefined);
}
