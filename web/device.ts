/**
 * Which device to ask the engine for. Only JavaScript sees `isFallbackAdapter`, the browser's word for an adapter that is
 * software (SwiftShader, lavapipe): slower than the engine's own CPU code, so `auto` passes over it and says so.
 */

import { unlessStalled } from './download.js';
import { KitfoxError } from './errors.js';
import { node, webgpu } from './node.js';
import type { DeviceChoice } from './options.js';

/** What is used here of `navigator.gpu`: TypeScript's DOM library does not have WebGPU in all versions. */
export interface Gpu {
  requestAdapter(): Promise<{ info?: { isFallbackAdapter?: boolean; vendor?: string; architecture?: string } } | null>;
}

/** A device for the engine, and why it is not the GPU if that was to be seen. */
export interface Choice {
  device: DeviceChoice;
  note?: string;
}

/** Turns the user's choice into the engine's. `gpu` without any adapter is a `no-gpu` error. */
export async function chooseDevice(wanted: DeviceChoice, gpu: Gpu | undefined): Promise<Choice> {
  if (wanted === 'cpu') return { device: 'cpu' };
  const lack = await missing(wanted, gpu);
  if (lack === undefined) return { device: wanted };
  if (wanted === 'gpu') throw new KitfoxError('no-gpu', lack);
  return { device: 'cpu', note: lack };
}

/** Why there is none. */
function none(): string {
  if (node() === undefined) return 'this browser has no WebGPU, or the page is not served from a secure (https) address';
  if (webgpu.failure === undefined) return 'Node has no WebGPU of its own, and the npm package webgpu is not installed beside kitfox';
  return `Node has no WebGPU of its own, and the npm package webgpu failed: ${webgpu.failure}`;
}

async function missing(wanted: DeviceChoice, gpu: Gpu | undefined): Promise<string | undefined> {
  const here = node() === undefined ? 'this browser' : 'Node';
  if (gpu === undefined) return none();
  let adapter;
  try {
    adapter = await unlessStalled(gpu.requestAdapter(), true);
  } catch (thrown) {
    // A browser ends its sentence; this one goes on in others.
    const sentence = (thrown instanceof Error ? thrown.message : String(thrown)).replace(/\.$/, '');
    return `${here.replace('this', 'the')} refused a WebGPU adapter: ${sentence}`;
  }
  if (adapter === null) return `${here} has WebGPU but found no graphics adapter for it`;
  if (wanted === 'auto' && adapter.info?.isFallbackAdapter === true) {
    const name = [adapter.info.vendor, adapter.info.architecture].filter(Boolean).join(' ');
    return `the only WebGPU adapter is a software one${name === '' ? '' : ` (${name})`}, slower than the CPU device`;
  }
  return undefined;
}
