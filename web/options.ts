/**
 * The types that a user writes and reads, and the check of what was written: an unknown name, a wrong type or a value out of
 * range is an `argument` error before anything is sent to the worker.
 */

import { MOST_TOKENS, callback, check, checkValue, flag, isThere, location, number, oneOf, signal, whole, type Check } from './check.js';
import { KitfoxError } from './errors.js';
import { TRANSFER, checkSource, type TransferOptions } from './loading.js';

/** Where the model runs. `auto`: the GPU if there is a hardware adapter, else the CPU, with the reason in `info.deviceNote`. */
export type DeviceChoice = 'auto' | 'gpu' | 'cpu';
/** The check of a `DeviceChoice`. */
export const DEVICE = oneOf('auto', 'gpu', 'cpu');

/** Options of `Kitfox.load`. */
export interface LoadOptions extends TransferOptions {
  /** Ends the load. */
  signal?: AbortSignal;
  /** Default `auto`. A software WebGPU adapter is slower than the CPU device and is used only with `gpu`. */
  device?: DeviceChoice;
  /**
   * Tokens, 1 to 262144, that memory for keys and values is set aside for. Prompt and answer may have as many together, and more
   * where the model forgets keys for good. Default: what the model states (of that as much as
   * 4 GiB of keys and values, or eight times its weights, hold; 4096 at least), else 4096.
   */
  context?: number;
  /** Tokens of the prompt, 1 to 4096, that are read at once. Default: as many as pay on the device. */
  chunk?: number;
  /** Element type of the KV cache. Default `f16`: half the memory, keys and values rounded to 11 bits. */
  kv?: 'f16' | 'f32';
  /**
   * ε, above 0 and below 1 (4.5e-5 is usual): keys that together weigh less than this part of a row's attention are forgotten for
   * good. `off`: none. Default: what the model states.
   */
  prune?: 'off' | number;
  /** What happens when keys that are not forgotten fill the context: the text ends (the default), or the oldest slide away. */
  overflow?: 'error' | 'slide';
  /** Whether the GPU is opened with no more than WebGPU's default limits and no optional feature. Default false. */
  baseline?: boolean;
  /** Whether `logits` can be called without `decode`: costs memory for the logits of a whole chunk. Default false. */
  scores?: boolean;
  /**
   * Whether every dispatch on the GPU is compared with its plain twin as it runs, as by `kitfox generate --check`: a call ends with `gpu` at the
   * first that differs, with `not-finite` at the first number that is none, both with layer and kernel. Slow, to find faults; on the
   * CPU an `argument` error. Default false.
   */
  check?: boolean;
  /** Where kitfox_bg.wasm is, when a bundler does not find it. */
  wasmUrl?: string | URL;
  /** Where worker.js (in Node node-worker.js) is, when a bundler does not find it; same origin as the page. */
  workerUrl?: string | URL;
}

/** What is left of options without those that are `undefined`: the engine has its own defaults. */
export function given<T extends object>(options: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const entries = Object.entries(options).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [K in keyof T]: Exclude<T[K], undefined> };
}

/** How far the reading of the prompt is. */
export interface PrefillProgress {
  /** Prompt tokens read. */
  done: number;
  /** Prompt tokens in all. */
  total: number;
}

/** Options of `generate`. */
export interface GenerateOptions {
  /** Most tokens to generate. Default 256. */
  maxTokens?: number;
  /** 0 always takes the likeliest token. Default 0.8. */
  temperature?: number;
  /** Only the k likeliest tokens are drawn from; 0 = all. Default 40. */
  topK?: number;
  /** Only the likeliest tokens that together have this probability; in (0, 1]. Default 1. */
  topP?: number;
  /** Only tokens at least this fraction as likely as the likeliest; in [0, 1]. Default 0.05. */
  minP?: number;
  /** Above 1, recent tokens become less likely. Default 1.1, and 1 when the temperature is 0. */
  repeatPenalty?: number;
  /** How many of the last tokens, of the prompt too, are recent. Default 64. */
  repeatLastN?: number;
  /** Same seed, device and version: same text. Default: a random one, told in the summary. */
  seed?: number;
  /** Texts that end the answer; they are not part of it. */
  stop?: string | readonly string[];
  /** Whether the answer goes on after the end-of-text token, which then is a token without text. Default false. */
  ignoreEos?: boolean;
  /** Tokens, 1 to 16, that a GPU draws between two reads. The text does not depend on it. Default: as many as pay. */
  inFlight?: number;
  /** By token id, what is added to its logit before all else: finite numbers, 512 ids at most. */
  logitBias?: Readonly<Record<number, number>> | ReadonlyMap<number, number>;
  /** Whether each piece has `logprobs`. On a GPU every token's logits are then read back, which is slower. Default false. */
  logprobs?: boolean;
  /** Ends the call. */
  signal?: AbortSignal;
  /** Called after each chunk of the prompt. */
  onPrefill?: (progress: PrefillProgress) => void;
}

/** Options of `logits`. */
export interface LogitsOptions {
  /** Feed token by token through the graph that generates, in place of whole chunks: slower, and needs no `scores`. Default false. */
  decode?: boolean;
  /** Ends the call. */
  signal?: AbortSignal;
}

/** Options of `gates` and `attention`. */
export interface GatesOptions {
  /** Ends the call. */
  signal?: AbortSignal;
  /** Called after each chunk of the text with the tokens read. */
  onProgress?: (progress: PrefillProgress) => void;
}

/** Why an answer ended: `maxTokens` reached, end-of-text token, a stop text, the context full, or the caller's wish. */
export type FinishReason = 'length' | 'eos' | 'stop' | 'context' | 'aborted';

/** What is known of an answer at its end. */
export interface Summary {
  /** Why it ended. */
  finish: FinishReason;
  /** The stop text that ended it. */
  stop?: string;
  /** Tokens of the prompt, the model's begin token included. */
  promptTokens: number;
  /** Tokens generated. */
  tokens: number;
  /** From the start of the call's turn to its first token; absent when there was none. */
  firstTokenMs?: number;
  /** Tokens after those of the first piece (a GPU gives several at once), by the time since it; 0 where all came in one. */
  tokensPerSecond: number;
  /** The seed that was used. */
  seed: number;
  /** Bytes of keys and values that a next token could look at; absent after an abort. */
  kvBytesLive?: number;
  /** Bytes of those that were freed because they are forgotten for good; absent after an abort. */
  kvBytesFreed?: number;
  /**
   * Microseconds of the worker's thread a token after the prompt, by the browser's clock: on a GPU what a token costs beyond the
   * GPU's own work. Absent after an abort, and without tokens.
   */
  cpuUsPerToken?: number;
}

/** What is known of a loaded model. */
export interface Info {
  /** Name of the device, as its driver gives it. */
  device: string;
  /** Why `auto` did not take the GPU. */
  deviceNote?: string;
  /** What the GPU's device has beyond WebGPU's baseline, for people: `subgroups of 32, f16`; empty on the CPU. */
  deviceFeatures: string;
  /** Whether the model runs on the GPU. */
  gpu: boolean;
  /** What was passed over on this device or with this model, and why: for people. */
  notes: readonly string[];
  /** Tokens that memory for keys and values is set aside for. */
  contextTokens: number;
  /** Prompt tokens that are read at once, at most: on a GPU their number follows measured time, so that a submit stays short. */
  chunkTokens: number;
  /** Size of the vocabulary. */
  vocab: number;
  /** ε in force: keys that together weigh less than this part of a row's attention are forgotten for good. Absent: none are. */
  prune?: number;
  /** Dispatches that one generated token costs. */
  dispatchesPerToken: number;
  /** Bytes of weights, state and work space on the device. */
  deviceBytes: number;
  /** Bytes of those for keys and values, live or free. */
  kvBytesPool: number;
  /** How often the GPU's device was lost and everything on it brought back since the load. */
  recoveries: number;
  /** Bytes of the wasm heap, which never shrinks. */
  heapBytes: number;
  /** By how much of that loading made it grow. */
  loadHeapBytes: number;
}

/** Largest `chunk`: the engine's (a test compares them with its source). */
export const MOST_CHUNK = 4096;
/** The same of `context`. */
export const MOST_CONTEXT = 2 ** 18;
/** The same of `inFlight`. */
export const MOST_IN_FLIGHT = 16;
/** The same of ids in `logitBias`. */
export const MOST_BIASES = 512;

const LOAD: Record<keyof LoadOptions, Check> = {
  onProgress: callback,
  onEvent: callback,
  ...TRANSFER,
  signal,
  device: DEVICE,
  context: whole(1, MOST_CONTEXT),
  chunk: whole(1, MOST_CHUNK),
  kv: oneOf('f16', 'f32'),
  prune: (value) =>
    value === 'off' || (typeof value === 'number' && value > 0 && value < 1) ? undefined : "'off' or a number above 0, below 1",
  overflow: oneOf('error', 'slide'),
  baseline: flag,
  scores: flag,
  check: flag,
  wasmUrl: location,
  workerUrl: location,
};

/** The engine's numbers have 32 bits: what they make infinite, or zero without being it, is none of theirs. */
const inFloat = (n: number): boolean => Number.isFinite(Math.fround(n)) && (n === 0 || Math.fround(n) !== 0);

const isFinite32 = (n: unknown): boolean => typeof n === 'number' && Number.isFinite(Math.fround(n));

/** Ids and biases of an object or a map. */
export function biases(value: NonNullable<GenerateOptions['logitBias']>): (readonly [number, number])[] {
  if (value instanceof Map) return [...value];
  return Object.entries(value).map(([token, bias]) => [/^(0|[1-9]\d*)$/.test(token) ? Number(token) : NaN, bias as number] as const);
}

/** Whether a value is an object literal, of whatever window, or one without a prototype. */
function isPlain(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || (Object.getPrototypeOf(prototype) === null && Object.prototype.toString.call(value) === '[object Object]');
}

const GENERATE: Record<keyof GenerateOptions, Check> = {
  maxTokens: whole(1, MOST_TOKENS),
  temperature: number('a finite number, at least 0', (n) => inFloat(n) && n >= 0),
  topK: whole(0, MOST_TOKENS),
  topP: number('a number above 0, at most 1', (n) => inFloat(n) && n > 0 && n <= 1),
  minP: number('a number from 0 to 1', (n) => n >= 0 && n <= 1),
  repeatPenalty: number('a finite number above 0', (n) => inFloat(n) && n > 0),
  repeatLastN: whole(0, MOST_TOKENS),
  seed: whole(0, Number.MAX_SAFE_INTEGER),
  stop: (value) => {
    const texts: unknown[] = Array.isArray(value) ? [...value] : [value]; // spread: a hole is no text
    return texts.every((text) => typeof text === 'string' && text !== '') ? undefined : 'a text or a list of texts, none empty';
  },
  ignoreEos: flag,
  inFlight: whole(1, MOST_IN_FLIGHT),
  logitBias: (value) => {
    const pairs = value instanceof Map || isPlain(value) ? biases(value as NonNullable<GenerateOptions['logitBias']>) : undefined;
    const right = pairs?.length !== undefined && pairs.length <= MOST_BIASES && pairs.every(([token, bias]) => id(token) && isFinite32(bias));
    return right ? undefined : `finite numbers by token id (an object's keys in decimal), at most ${MOST_BIASES}`;
  },
  logprobs: flag,
  signal,
  onPrefill: callback,
};

const LOGITS: Record<keyof LogitsOptions, Check> = { decode: flag, signal };
const GATES: Record<keyof GatesOptions, Check> = { signal, onProgress: callback };

/** Bytes of a text at most, as of the command line's: tokenizing takes 120 times as much. The engine counts them; a character has one at least. */
export const MOST_TEXT = 8 * 2 ** 20;
/** A text, as `expected` says, of so many characters at most. */
export const text = (expected: string): Check => (value) => {
  if (typeof value !== 'string' || value === '') return expected;
  return value.length <= MOST_TEXT ? undefined : `a text of at most ${MOST_TEXT} bytes`;
};
const id = (value: unknown): boolean => Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 32;
const ids: Check = (value) => {
  // Spread: a hole is no id.
  const right = (value instanceof Uint32Array && isThere(value)) || (Array.isArray(value) && [...value].every(id));
  return right && value.length > 0 ? undefined : 'token ids (whole numbers, at least one)';
};

/** Throws an `argument` error unless these are a source and options for `Kitfox.load` or `plan`. */
export function checkLoad(source: unknown, options: unknown, call = 'load'): void {
  checkSource(source, call);
  check(call, options, LOAD);
  const { device, check: watched } = options as LoadOptions;
  if (watched === true && device === 'cpu') {
    throw new KitfoxError('argument', `${call}: check: expected a GPU, whose dispatches are compared with their twins, got device 'cpu'`);
  }
}

/** Throws an `argument` error unless these are options for an answer. */
export function checkAnswer(options: unknown): void {
  check('generate', options, GENERATE);
}

/** Throws an `argument` error unless these are a prompt and options for `generate`. */
export function checkGenerate(prompt: unknown, options: unknown): void {
  checkValue('generate', 'prompt', prompt, text('a text, not empty'));
  checkAnswer(options);
}

/** Throws an `argument` error unless this is a text, not empty, or ids. */
export function checkText(call: string, value: unknown): void {
  if (typeof value === 'string') checkValue(call, 'text', value, text('a text, not empty'));
  else checkValue(call, 'text', value, (value) => (ids(value) === undefined ? undefined : 'a text, or token ids (whole numbers, at least one)'));
}

/** Throws an `argument` error unless this is a text, perhaps an empty one. */
export function checkTokenize(value: unknown): void {
  if (value !== '') checkValue('tokenize', 'text', value, text('a text'));
}

/** Throws an `argument` error unless these are ids, perhaps none. */
export function checkIds(call: string, value: unknown): void {
  const none = value instanceof Uint32Array ? value.length === 0 && isThere(value) : Array.isArray(value) && value.length === 0;
  if (!none) checkValue(call, 'ids', value, ids);
}

/** Throws an `argument` error unless these are ids and options for `logits`. */
export function checkLogits(value: unknown, options: unknown): void {
  checkValue('logits', 'ids', value, ids);
  check('logits', options, LOGITS);
}

/** Throws an `argument` error unless these are a text or ids, and options for `gates` or `attention`. */
export function checkGates(call: 'gates' | 'attention', value: unknown, options: unknown): void {
  if (typeof value === 'string') checkValue(call, 'text', value, text('a text, not empty'));
  else checkValue(call, 'ids', value, ids);
  check(call, options, GATES);
}
