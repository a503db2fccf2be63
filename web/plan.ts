/** What can be known before a model is loaded: what this browser has, and what a load would take. */

import { chooseDevice, type Gpu } from './device.js';
import { reason, unlessStalled } from './download.js';
import type { LoadMessage } from './protocol.js';

/** What this browser has. */
export interface Probe {
  /** Whether there is a WebGPU adapter. */
  webgpu: boolean;
  /** Whether that adapter is software; `device: 'auto'` passes over it. */
  software: boolean;
  /** Why `device: 'auto'` would take the CPU, if it would. */
  reason?: string;
  /** Who made the adapter and what it is, as far as the browser tells. */
  adapter?: string;
  /** The adapter's limits, by their names in WebGPU. */
  limits: Record<string, number>;
  /** The adapter's optional features. */
  features: string[];
  /** Where model files can be kept, and how many bytes the browser still has for this origin. */
  storage: { privateFiles: boolean; cacheApi: boolean; bytesLeft?: number };
}

/** Options of `Kitfox.probe`. */
export interface ProbeOptions {
  /** Ends the call. */
  signal?: AbortSignal;
  /** In Node, where node-worker.js is, when a bundler has taken the package apart; in a browser no worker is needed for this. */
  workerUrl?: string | URL;
}

/** What a load would take. */
export interface Plan {
  /** Bytes of the file. */
  fileBytes: number;
  /** Bytes of it that are not yet in the cache. */
  fetchBytes: number;
  /** Bytes of weights, state and work space on the device; a GPU adds less than a MB. */
  deviceBytes: number;
  /** Bytes of those for keys and values. */
  kvBytesPool: number;
  /** Whether it would run on the GPU. */
  gpu: boolean;
  /** Why it would not, if that was to be seen. */
  deviceNote?: string;
  /** Whether it can be loaded. WebGPU tells nobody how much memory a device has: a GPU may yet refuse it. */
  fits: boolean;
  /** Why it cannot. */
  reason?: string;
  /** Tokens that memory for keys and values would be set aside for. */
  contextTokens: number;
  /** Prompt tokens that would be read at once, at most. */
  chunkTokens: number;
  /** Size of the vocabulary. */
  vocab: number;
  /** Types of the matrices, that of most bytes first. */
  matrixTypes: string;
  /** Whether the model has a tokenizer: without one it takes ids only, and `generate` and `gates`, whose answers have text, fail with `no-tokenizer`. */
  hasTokenizer: boolean;
}

/** Plans a load: asks as a load does. */
export interface PlanMessage extends Omit<LoadMessage, 'type'> {
  type: 'plan';
}

/** Looks around in the worker. */
export interface ProbeMessage {
  type: 'probe';
}

interface Adapter {
  info?: { vendor?: string; architecture?: string; description?: string; isFallbackAdapter?: boolean };
  limits?: Record<string, unknown>;
  features?: Iterable<string>;
}

/** Nothing at all is there. */
export const nothing = (): Probe => ({ webgpu: false, software: false, limits: {}, features: [], storage: { privateFiles: false, cacheApi: false } });

/** Looks around; whatever is there or not, it does not fail. */
export async function probe(): Promise<Probe> {
  const found = nothing();
  try {
    const gpu = (globalThis.navigator as { gpu?: Gpu } | undefined)?.gpu;
    const { note } = await chooseDevice('auto', gpu);
    if (note !== undefined) found.reason = note;
    const adapter = (await (gpu && unlessStalled(gpu.requestAdapter(), true))) as Adapter | null | undefined;
    if (adapter !== null && adapter !== undefined) describe(found, adapter);
  } catch (thrown) {
    found.reason ??= reason(thrown);
  }
  try {
    found.storage.privateFiles = (await globalThis.navigator?.storage?.getDirectory?.()) !== undefined;
  } catch {
    // There, and refused: in a private window, for example.
  }
  try {
    found.storage.cacheApi = (await globalThis.caches?.has('kitfox')) !== undefined;
    const { quota, usage } = (await globalThis.navigator?.storage?.estimate?.()) ?? {};
    if (quota !== undefined && usage !== undefined) found.storage.bytesLeft = Math.max(quota - usage, 0);
  } catch {
    // The same.
  }
  return found;
}

function describe(found: Probe, { info, limits, features }: Adapter): void {
  found.webgpu = true;
  found.software = info?.isFallbackAdapter === true;
  const name = [info?.vendor, info?.architecture, info?.description].filter((part) => part !== undefined && part !== '').join(' ');
  if (name !== '') found.adapter = name;
  found.features = [...(features ?? [])].sort();
  // The limits are getters of the prototype.
  for (const key in limits) {
    const value = limits[key];
    if (typeof value === 'number') found.limits[key] = value;
  }
}
