/** The types of a layer that a user writes and reads, and the check of what was written. Sizes are the engine's to check. */

import { MOST_TOKENS, check, checkValue, flag, floats, isThere, location, oneOf, signal, whole, type Check } from './check.js';
import { DEVICE, type DeviceChoice } from './options.js';

/** Which keys a token sees: all of them (`encoder`), or its own and earlier ones (`decoder`). */
export type LayerMode = 'encoder' | 'decoder';

/** A layer's matrices as they come from training, row by row, [out, in], and what they do not say. */
export interface LayerWeights {
  /** d: width of a token. */
  hiddenSize: number;
  /** Heads; they divide `hiddenSize` into widths that are multiples of 4, at most 128. */
  numHeads: number;
  /** Which keys a token sees. */
  mode: LayerMode;
  /** BitNet b1.58: matrices rounded to −1, 0, 1 (2 bits a weight) times one scale, activations to 8 bits. */
  bitnet: boolean;
  /** Queries: [d, d]. */
  qProj: Float32Array;
  /** Keys: [d, d]. */
  kProj: Float32Array;
  /** Values: [d, d]. */
  vProj: Float32Array;
  /** Forget gate: [numHeads, d]. */
  fProj: Float32Array;
  /** Its bias: [numHeads]. Default zeros. */
  fBias?: Float32Array;
  /** Of the heads' outputs: [d, d]. */
  outProj: Float32Array;
}

/** Options of `ForgettingAttentionLayer.load`. */
export interface LayerOptions {
  /** Ends the load. */
  signal?: AbortSignal;
  /** Default `auto`, as for a model. */
  device?: DeviceChoice;
  /** Tokens of a sequence at most, for which memory is set aside. Default 1024. */
  maxTokens?: number;
  /** Where kitfox_bg.wasm is, when a bundler does not find it. */
  wasmUrl?: string | URL;
  /** Where worker.js (in Node node-worker.js) is, when a bundler does not find it; same origin as the page. */
  workerUrl?: string | URL;
}

/** Options of `run`. */
export interface RunOptions {
  /** Ends the call. */
  signal?: AbortSignal;
}

/** What is known of a loaded layer. */
export interface LayerInfo {
  /** Name of the device, as its driver gives it. */
  device: string;
  /** Why `auto` did not take the GPU. */
  deviceNote?: string;
  /** Whether the layer runs on the GPU. */
  gpu: boolean;
  /** d: width of a token. */
  hiddenSize: number;
  /** Heads. */
  numHeads: number;
  /** Which keys a token sees. */
  mode: LayerMode;
  /** Whether its matrices are those of BitNet b1.58. */
  bitnet: boolean;
  /** Tokens of a sequence at most. */
  maxTokens: number;
  /** Bytes on the device: weights and work space. */
  deviceBytes: number;
  /** Bytes of the five matrices on the device. */
  matrixBytes: number;
  /** How often the GPU's device was lost and everything brought back. */
  recoveries: number;
  /** Bytes of the wasm heap, which never shrinks. */
  heapBytes: number;
  /** By how much of that loading made it grow. */
  loadHeapBytes: number;
}

const LOAD: Record<keyof LayerOptions, Check> = {
  signal,
  device: DEVICE,
  maxTokens: whole(1, MOST_TOKENS),
  wasmUrl: location,
  workerUrl: location,
};

const WEIGHTS: Record<keyof LayerWeights, Check> = {
  hiddenSize: whole(1, 2 ** 31 - 1),
  numHeads: whole(1, 2 ** 31 - 1),
  mode: oneOf('encoder', 'decoder'),
  bitnet: flag,
  qProj: floats,
  kProj: floats,
  vProj: floats,
  fProj: floats,
  fBias: floats,
  outProj: floats,
};
const NEEDED = Object.keys(WEIGHTS).filter((name) => name !== 'fBias');

/** Throws an `argument` error unless these are matrices, a file's bytes or a URL, and options. */
export function checkLayer(from: unknown, options: unknown): void {
  if (typeof from === 'string' || from instanceof URL) checkValue('load', 'url', from, from === '' ? () => 'a URL' : location);
  else if (isBytes(from)) checkValue('load', 'bytes', from, (value) => (isThere(value as typeof from) ? undefined : "a file's bytes"));
  else check('load', from, WEIGHTS, NEEDED, "weights, a file's bytes, or a URL");
  check('load', options, LOAD);
}

/** Throws an `argument` error unless these are numbers and options for `run`. */
export function checkRun(x: unknown, options: unknown): void {
  checkValue('run', 'x', x, floats);
  check('run', options, { signal });
}

/** Whether these are the bytes of a file. */
export function isBytes(from: unknown): from is Uint8Array | ArrayBuffer {
  return from instanceof Uint8Array || from instanceof ArrayBuffer;
}
