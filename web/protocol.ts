/**
 * What page and worker tell each other. The page numbers its calls; every message of a call carries its number. The page
 * starts with one `load`, `load-layer`, `plan` or `probe`; the worker answers `begun` at once, then `ready` or `failed`, and from then on takes calls in the
 * order in which they come.
 */

import type { Attention } from './attention.js';
import type { BenchOptions, BenchReport } from './bench.js';
import type { WireError } from './errors.js';
import type { Gates } from './forgetting.js';
import type { LayerInfo, LayerWeights } from './layer-options.js';
import type { CacheChoice, LoadEvent, LoadProgress, SentPart, TransferOptions } from './loading.js';
import type { DeviceChoice, GenerateOptions, Info, LoadOptions, Summary } from './options.js';
import type { ValueRequest } from './requests.js';
import type { Plan, PlanMessage, Probe, ProbeMessage } from './plan.js';

/** What the page does by itself, or gives to the engine in another form. */
type Converted = 'maxTokens' | 'seed' | 'stop' | 'logitBias' | 'signal' | 'onPrefill';

/** Options of a call as the engine takes them: what is absent has the engine's default. */
export interface EngineOptions extends Omit<GenerateOptions, Converted> {
  maxTokens: number;
  seed: number;
  stop: readonly string[];
  /** Ids, and what is added to the logit of each. */
  biasedIds?: Uint32Array;
  biases?: Float32Array;
}

/** Loads the model: once, first. URLs are absolute: a worker has another base than its page. */
export interface LoadMessage extends Omit<LoadOptions, keyof TransferOptions | 'signal' | 'wasmUrl' | 'workerUrl'> {
  type: 'load';
  parts: readonly SentPart[];
  cache: CacheChoice;
  revalidate?: boolean;
  retries?: number;
  wasmUrl?: string;
  device: DeviceChoice;
}

/** Loads a layer: once, first. It comes from a URL, the bytes of a file, or plain matrices. */
export interface LoadLayerMessage {
  type: 'load-layer';
  from: { url: string } | { bytes: Uint8Array } | { weights: LayerWeights };
  wasmUrl?: string;
  device: DeviceChoice;
  maxTokens?: number;
}

/** The first message of a page: what the worker is for. */
export type FirstMessage = LoadMessage | LoadLayerMessage | PlanMessage | ProbeMessage;

/** What can be asked of a model (`generate`, behind a prompt or a session, `logits`, `gates`, `attention`, `bench`, single values) and of a layer (`run`). */
export type Request =
  | ValueRequest
  | { type: 'generate'; prompt: string; options: EngineOptions; session?: number }
  | { type: 'logits'; ids: Uint32Array; decode: boolean }
  | { type: 'gates'; text?: string; ids?: Uint32Array }
  | { type: 'attention'; text?: string; ids?: Uint32Array }
  | { type: 'bench'; options: Omit<BenchOptions, 'signal' | 'onProgress'> }
  | { type: 'run'; x: Float32Array };

/** A request with its number. */
export type Call = Request & { call: number };

/** Ends a call, if it has not ended. Of an answer that is left its session keeps the first `taken` tokens. */
export interface Abort {
  type: 'abort';
  call: number;
  taken?: number;
}

/** From the page. */
export type ToWorker = FirstMessage | Call | Abort;

/** How an answer of text ended, and what it took. */
export interface Ending extends Pick<Summary, 'finish' | 'stop' | 'kvBytesLive' | 'kvBytesFreed' | 'cpuUsPerToken'> {}

/**
 * From the worker; `I` is what is known of the model or the layer. An answer of text is pieces and `done`, an answer of numbers
 * `values` and `computed`, one of gates or attention `measured` and `gates` or `attention`, a measurement `measured` and `report`, one value `value`.
 * `failed` and `crashed` are the last message: no call can follow.
 */
export type ToPage<I = Info | LayerInfo | Plan | Probe> =
  | { type: 'begun' }
  | ({ type: 'progress' } & LoadProgress)
  | { type: 'event'; event: LoadEvent }
  | { type: 'ready'; info: I }
  | { type: 'failed'; error: WireError }
  | { type: 'started'; call: number }
  | { type: 'prefill'; call: number; done: number; total: number }
  | { type: 'piece'; call: number; text: string; ids: number[]; logprobs?: number[]; kvBytesLive: number; kvBytesFreed: number }
  | { type: 'done'; call: number; ending: Ending; info: I }
  | { type: 'values'; call: number; values: Float32Array }
  | { type: 'computed'; call: number; info: I }
  | { type: 'gates'; call: number; gates: Gates; info: I }
  | { type: 'attention'; call: number; attention: Attention; info: I }
  | { type: 'measured'; call: number; done: number; total: number }
  | { type: 'report'; call: number; report: BenchReport; info: I }
  | { type: 'value'; call: number; value: unknown; info: I }
  | { type: 'error'; call: number; error: WireError }
  | { type: 'crashed'; error: WireError };
