/** How a model and a layer answer the calls of a page: step after step of the wasm engine, so that an abort gets in between. */

import { place, room, rowsOf } from './attention.js';
import type { BenchReport } from './bench.js';
import { KitfoxError } from './errors.js';
import type { Gates } from './forgetting.js';
import type { LayerInfo } from './layer-options.js';
import { Marks } from './marks.js';
import type { Info } from './options.js';
import type { Call, EngineOptions } from './protocol.js';
import type { Held, Talk } from './serve.js';
import { answerValue, type ValueEngine } from './value-answers.js';

/** A piece as the engine gives it; `finish` comes with the last. */
export interface EnginePiece {
  text: string;
  ids: ArrayLike<number>;
  logprobs?: ArrayLike<number> | undefined;
  finish?: 'length' | 'eos' | 'stop' | 'context' | undefined;
  stop?: string | undefined;
  kvBytesLive: number;
  kvBytesFreed: number;
}

/** A loaded model: the wasm class `Engine`. A new start drops what the last one left. */
export interface Engine extends ValueEngine {
  start(prompt: string, options: EngineOptions): void | Promise<void>;
  startInSession(session: number, options: EngineOptions): Promise<void>;
  prefill(): Promise<{ done: number; total: number }>;
  next(): Promise<EnginePiece>;
  /** What the text that has ended took. */
  cost(): Promise<{ kvBytesLive: number; kvBytesFreed: number; cpuUsPerToken?: number }>;
  startLogits(ids: Uint32Array, decode: boolean): void | Promise<void>;
  /** Logits after each of the next ids; none at the end. */
  logits(): Promise<Float32Array>;
  startBench(options: BenchRequest): void | Promise<void>;
  /** Begins the gates of a text behind the begin token, or of ids as they are: all but `logF`. */
  startGates(text?: string, ids?: Uint32Array): Omit<Gates, 'logF'> | Promise<Omit<Gates, 'logF'>>;
  /** log f of the next tokens, [layers, heads, n]; none at the end. */
  gates(): Promise<Float32Array>;
  /** The attention weights of the next tokens, begun as their gates: [layers, heads, Σ (i + 1)]; none at the end. */
  attention(): Promise<Float32Array>;
  /** Measures one phase; the report, as JSON, comes with the last. */
  bench(): Promise<{ done: number; total: number; report?: string }>;
}

/** A loaded layer: the wasm class `Layer`. */
export interface LayerEngine {
  run(x: Float32Array): Promise<Float32Array>;
}

/** A model for the loop. */
export function holdModel(engine: Engine, info: () => Info): Held {
  const marks = new Marks();
  const answer = async (call: Call, talk: Talk): Promise<void> => {
    if (call.type === 'generate') await generate(engine, call, talk, info);
    else if (call.type === 'logits') await logits(engine, call, talk, info);
    else if (call.type === 'gates') await gates(engine, call, talk, info);
    else if (call.type === 'attention') await attention(engine, call, talk, info);
    else if (call.type === 'bench') await bench(engine, call, talk, info);
    else await answerValue(engine, marks, call, talk, info);
  };
  return { info, answer };
}

/** A layer for the loop. */
export function holdLayer(engine: LayerEngine, info: () => LayerInfo): Held {
  const answer = async (call: Call, { step, say }: Talk): Promise<void> => {
    if (call.type !== 'run') throw new KitfoxError('worker', `a layer has no ${call.type}`);
    sayValues(call, { say }, await step(() => engine.run(call.x)));
    say({ type: 'computed', call: call.call, info: info() });
  };
  return { info, answer };
}

type Asked<T> = Extract<Call, { type: T }>;
type BenchRequest = Asked<'bench'>['options'];

async function generate(engine: Engine, { call, prompt, options, session }: Asked<'generate'>, talk: Talk, info: () => Info) {
  const { step, say } = talk;
  if (session !== undefined) {
    const before = await step(async () => engine.sessionTokens(session));
    talk.cutBy(session, (taken) => engine.rewindSession(session, before + taken));
  }
  await step(async () => (session === undefined ? engine.start(prompt, options) : engine.startInSession(session, options)));
  for (let more = true; more; ) {
    const { done, total } = await step(() => engine.prefill());
    say({ type: 'prefill', call, done, total });
    more = done < total;
  }
  for (;;) {
    const { text, ids, logprobs, finish, stop, kvBytesLive, kvBytesFreed } = await step(() => engine.next());
    const likely = logprobs === undefined ? {} : { logprobs: Array.from(logprobs) };
    if (text !== '' || ids.length > 0) say({ type: 'piece', call, text, ids: Array.from(ids), kvBytesLive, kvBytesFreed, ...likely });
    if (finish === undefined) continue;
    const cost = await step(() => engine.cost());
    say({ type: 'done', call, ending: { finish, ...(stop === undefined ? {} : { stop }), ...cost }, info: info() });
    return;
  }
}

async function logits(engine: Engine, call: Asked<'logits'>, talk: Talk, info: () => Info) {
  await talk.step(async () => engine.startLogits(call.ids, call.decode));
  for (;;) {
    const rows = await talk.step(() => engine.logits());
    if (rows.length === 0) break;
    sayValues(call, talk, rows);
  }
  talk.say({ type: 'computed', call: call.call, info: info() });
}

async function gates(engine: Engine, { call, text, ids }: Asked<'gates'>, { step, say }: Talk, info: () => Info) {
  const begun = await step(async () => engine.startGates(text, ids));
  const n = begun.ids.length;
  const logF = new Float32Array(begun.layers * begun.heads * n);
  for (let first = 0; first < n; ) {
    const rows = await step(() => engine.gates());
    const part = rows.length / (begun.layers * begun.heads);
    for (let head = 0; head * part < rows.length; head += 1) logF.set(rows.subarray(head * part, (head + 1) * part), head * n + first);
    first += part;
    say({ type: 'measured', call, done: first, total: n });
  }
  say({ type: 'gates', call, gates: { ...begun, logF }, info: info() }, [logF.buffer]);
}

async function attention(engine: Engine, { call, text, ids }: Asked<'attention'>, { step, say }: Talk, info: () => Info) {
  const { tokens, completedBy, layers, heads, ...begun } = await step(async () => engine.startGates(text, ids));
  const all = room({ tokens, completedBy, ids: begun.ids, layers, heads });
  const n = begun.ids.length;
  for (let first = 0; first < n; ) {
    const part = await step(() => engine.attention());
    const rows = rowsOf(all, first, part);
    place(all, first, rows, part);
    first += rows;
    say({ type: 'measured', call, done: first, total: n });
  }
  say({ type: 'attention', call, attention: all, info: info() }, [all.weights.buffer as ArrayBuffer]);
}

async function bench(engine: Engine, { call, options }: Asked<'bench'>, { step, say }: Talk, info: () => Info) {
  await step(async () => engine.startBench(options));
  for (;;) {
    const { done, total, report } = await step(() => engine.bench());
    say({ type: 'measured', call, done, total });
    if (report === undefined) continue;
    say({ type: 'report', call, report: JSON.parse(report) as BenchReport, info: info() });
    return;
  }
}

/** The engine's arrays have buffers of their own: they go over without a copy. */
function sayValues({ call }: Call, { say }: Pick<Talk, 'say'>, values: Float32Array): void {
  say({ type: 'values', call, values }, [values.buffer as ArrayBuffer]);
}
