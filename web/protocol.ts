/**
 * What page and worker tell each other. The page numbers its calls; every message of a call carries its number. The page
 * starts with one `load`; the worker answers `ready` or `failed`, and from then on takes calls in the order in which they come.
 */

import type { WireError } from './errors.js';
import type { DeviceChoice, FinishReason, Info } from './options.js';

/** Options of a call as the engine takes them: what is absent has the engine's default. */
export interface EngineOptions {
  maxTokens: number;
  temperature?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  repeatPenalty?: number;
  seed: number;
  stop: readonly string[];
}

/** Loads the model: once, first. URLs are absolute: a worker has another base than its page. */
export interface LoadMessage {
  type: 'load';
  url: string;
  wasmUrl?: string;
  device: DeviceChoice;
  context?: number;
}

/** From the page. */
export type ToWorker =
  | LoadMessage
  | { type: 'generate'; call: number; prompt: string; options: EngineOptions }
  | { type: 'abort'; call: number };

/** How a call ended. */
export interface Ending {
  finish: FinishReason;
  stop?: string;
  info: Info;
}

/** From the worker. `failed` and `crashed` are the last message: no call can follow. */
export type ToPage =
  | { type: 'progress'; doneBytes: number; totalBytes: number }
  | { type: 'ready'; info: Info }
  | { type: 'failed'; error: WireError }
  | { type: 'started'; call: number }
  | { type: 'prefill'; call: number; done: number; total: number }
  | { type: 'piece'; call: number; text: string; ids: number[] }
  | { type: 'done'; call: number; ending: Ending }
  | { type: 'error'; call: number; error: WireError }
  | { type: 'crashed'; error: WireError };
