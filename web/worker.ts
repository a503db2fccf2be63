/** The dedicated worker: joins the wasm engine, the download and the page's messages. */

import init, { Engine, Layer, onPanic, type LayerOptions as WasmLayerOptions } from './wasm/kitfox.js';
import { holdLayer, holdModel } from './answers.js';
import { chooseDevice, type Gpu } from './device.js';
import { KitfoxError } from './errors.js';
import type { DeviceChoice } from './options.js';
import type { LoadLayerMessage, LoadMessage } from './protocol.js';
import { serve, type Held, type Port, type Tell } from './serve.js';
import { transfer } from './transfer.js';

let memory: WebAssembly.Memory | undefined;
let loadHeapBytes = 0;
let deviceNote: string | undefined;

let died: (message: string) => void;
const crash = new Promise<never>((_, reject) => {
  died = (message) => reject(new KitfoxError('crashed', `the engine stopped: ${message}`));
});
// A panic inside a future of the engine settles no promise: only the panic hook and the last-resort events of the worker see it.
addEventListener('error', (event) => {
  event.preventDefault();
  died(event.message);
});
addEventListener('unhandledrejection', (event) => {
  event.preventDefault();
  died(event.reason instanceof Error ? event.reason.message : String(event.reason));
});

/** What both kinds of load begin with: the device to ask for, and the instance of the engine. */
async function begin(message: LoadMessage | LoadLayerMessage): Promise<DeviceChoice> {
  const choice = await chooseDevice(message.device, (navigator as { gpu?: Gpu }).gpu);
  deviceNote = choice.note;
  // Bundlers know a file beside a module by this very form.
  const wasm = message.wasmUrl ?? new URL('./wasm/kitfox_bg.wasm', import.meta.url).href;
  try {
    ({ memory } = await init({ module_or_path: wasm }));
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new KitfoxError('worker', `${wasm}: the wasm module cannot be loaded: ${reason}`, { cause });
  }
  onPanic((panic: string) => died(panic));
  return choice.device;
}

async function load(message: LoadMessage | LoadLayerMessage, tell: Tell): Promise<Held> {
  const device = await begin(message);
  const before = memory?.buffer.byteLength ?? 0;
  const held = await (message.type === 'load' ? loadModel(message, device, tell) : loadLayer(message, device));
  loadHeapBytes = (memory?.buffer.byteLength ?? 0) - before;
  return held;
}

async function loadModel(message: LoadMessage, device: DeviceChoice, tell: Tell): Promise<Held> {
  const { type, parts, cache, revalidate = false, retries, wasmUrl, ...asked } = message;
  const options = { ...asked, device };
  const settings = { cache, revalidate, ...(retries === undefined ? {} : { retries }), ...tell };
  const engine = await transfer(parts, settings, (read, length, name, onUpload) => Engine.load(read, length, name, options, onUpload));
  return holdModel(engine, () => completed(engine.info()));
}

async function loadLayer({ from, maxTokens }: LoadLayerMessage, device: DeviceChoice): Promise<Held> {
  const options = { device, maxTokens };
  const layer = await ('weights' in from ? Layer.load(from.weights, options) : readLayer(from, options));
  return holdLayer(layer, () => completed(layer.info()));
}

async function readLayer(from: { url: string } | { bytes: Uint8Array }, options: WasmLayerOptions): Promise<Layer> {
  if ('url' in from) {
    const settings = { cache: 'off', onEvent: () => undefined, onProgress: () => undefined } as const;
    return transfer([from], settings, (read, length, name) => Layer.read(read, length, name, options));
  }
  const { bytes } = from;
  return Layer.read(async (at, n) => bytes.subarray(at, at + n), bytes.length, 'layer', options);
}

/** What the engine knows of itself, and what only this worker knows. */
function completed<I extends { deviceNote?: string }>(known: I): I & { heapBytes: number; loadHeapBytes: number } {
  const note = deviceNote ?? known.deviceNote;
  const heapBytes = memory?.buffer.byteLength ?? 0;
  return { ...known, heapBytes, loadHeapBytes, ...(note === undefined ? {} : { deviceNote: note }) };
}

serve(self as Port, { load, crash });
