/** What `Kitfox.bench` takes and gives, and the check of it. */

import { MOST_TOKENS, callback, check, flag, signal, whole, type Check } from './check.js';
import { MOST_IN_FLIGHT, text } from './options.js';

/** How far a measurement is. */
export interface BenchProgress {
  /** Phases that are done: a reading of the prompt, a writing behind it, a part of the floor. */
  done: number;
  /** Phases in all. */
  total: number;
}

/** Options of `bench`. */
export interface BenchOptions {
  /** Tokens of the prompt, at least 2: decoding starts behind them. Default 1024. */
  context?: number;
  /** Tokens to generate in a run. Default 128. */
  n?: number;
  /** Timed runs, after one that warms up. Default 5. */
  runs?: number;
  /** Tokens, 1 to 16, that a GPU draws between two reads. Default: as many as pay. */
  inFlight?: number;
  /** Whether a GPU's floor is measured, too: takes 256 MiB of its memory and some seconds, on a software adapter a minute. Default true. */
  floor?: boolean;
  /** What the prompt says, again and again. Default: seeded token ids, which are no text. */
  text?: string;
  /** Ends the call after the phase that runs. */
  signal?: AbortSignal;
  /** Called after each phase. */
  onProgress?: (progress: BenchProgress) => void;
}

/**
 * What `bench` gives, under the names that `kitfox bench --json` has, so that one script reads both. Rates are medians of the timed
 * runs, spreads the slowest and quickest of them. What only a GPU has, its floor and its start, is `null` on the CPU or where it is not measured.
 */
export interface BenchReport {
  /** Name of the device, as its driver gives it. */
  adapter: string;
  /** What it runs on. */
  backend: 'webgpu' | 'cpu';
  /** Width, layers, heads, vocabulary. */
  shape: [number, number, number, number];
  /** Element types of the model's matrices, that of most bytes first. */
  quant: string;
  /** Tokens of the prompt. */
  context: number;
  /** Tokens of it that were read at once, at most. */
  chunk: number;
  /** Tokens of the prompt, but for the last, that are read in a second. */
  prefill_tokens_per_s: number;
  /** The same of the slowest and of the quickest run. */
  prefill_spread: [number, number];
  /** Tokens that are written in a second. */
  decode_tokens_per_s: number;
  /** The same of the slowest and of the quickest run. */
  decode_spread: [number, number];
  /** Milliseconds of a token. */
  decode_ms: number;
  /** Tokens that were under way at once in the end. */
  in_flight: number;
  /** Dispatches that a token costs. */
  dispatches_per_token: number;
  /** Best rate of a copy, bytes read and written, in 10⁹ bytes a second. */
  copy_gb_s: number | null;
  /** Bytes of that copy. */
  copy_bytes: number | null;
  /** Microseconds of a dispatch that does next to nothing and depends on the one before. */
  dispatch_us: number | null;
  /** Milliseconds that a token takes at best: `bytes_per_token` at `copy_gb_s`, and the dispatches at `dispatch_us`. */
  floor_ms: number | null;
  /** The floor as a part of `decode_ms`. */
  floor_fraction: number | null;
  /** Bytes of weights and live keys and values that a token reads. */
  bytes_per_token: number;
  /** Live keys as a part of all, after the prompt. */
  live_kv_fraction: number;
  /** ln ε in force: keys that together weigh less are forgotten for good. `null`: none are. */
  log_pruning_tolerance: number | null;
  /** Bytes of weights, state and work space on the device. */
  peak_device_bytes: number;
  /** Microseconds of the worker's thread a token, by the browser's clock: on a GPU beyond the GPU's own work. */
  cpu_us_per_token: number;
  /** Milliseconds that the load spent on comparing kernels with their twins. */
  startup_check_ms: number | null;
  /** Milliseconds that it spent on timing kernels. */
  startup_tune_ms: number | null;
}

const BENCH: Record<keyof BenchOptions, Check> = {
  context: whole(2, MOST_TOKENS),
  n: whole(1, MOST_TOKENS),
  runs: whole(1, 1000),
  inFlight: whole(1, MOST_IN_FLIGHT),
  floor: flag,
  text: text('a text, not empty'),
  signal,
  onProgress: callback,
};

/** Throws an `argument` error unless these are options for `bench`. */
export function checkBench(options: unknown): void {
  check('bench', options, BENCH);
}
