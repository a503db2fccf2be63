/** The dedicated worker: joins the wasm engine, the download and the page's messages. */

import init, { Engine, Layer, onPanic, type LayerOptions as WasmLayerOptions, type OnProgress, type Read } from './wasm/kitfox.js';
import { holdLayer, holdModel } from './answers.js';
import { chooseDevice, type Gpu } from './device.js';
import { Download } from './download.js';
import { KitfoxError } from './errors.js';
import type { DeviceChoice } from './options.js';
import type { LoadLayerMessage, LoadMessage } from './protocol.js';
import { serve, type Held, type Port } from './serve.js';

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

/** Hands the engine a file as it is downloaded. */
async function streamed<T>(url: string, use: (read: Read, length: number | undefined) => Promise<T>): Promise<T> {
  const download = await Download.open(url);
  try {
    return await use((at, n) => download.read(at, n), download.length);
  } catch (thrown) {
    throw download.failure ?? thrown;
  } finally {
    await download.close();
  }
}

async function load(message: LoadMessage | LoadLayerMessage, onProgress: OnProgress): Promise<Held> {
  const device = await begin(message);
  const before = memory?.buffer.byteLength ?? 0;
  const held = await (message.type === 'load' ? loadModel(message, device, onProgress) : loadLayer(message, device));
  loadHeapBytes = (memory?.buffer.byteLength ?? 0) - before;
  return held;
}

async function loadModel(message: LoadMessage, device: DeviceChoice, onProgress: OnProgress): Promise<Held> {
  const { type, url, wasmUrl, ...asked } = message;
  const options = { ...asked, device };
  const engine = await streamed(url, (read, length) => Engine.load(read, length, url, options, onProgress));
  return holdModel(engine, () => completed(engine.info()));
}

async function loadLayer({ from, maxTokens }: LoadLayerMessage, device: DeviceChoice): Promise<Held> {
  const options = { device, maxTokens };
  const layer = await ('weights' in from ? Layer.load(from.weights, options) : readLayer(from, options));
  return holdLayer(layer, () => completed(layer.info()));
}

async function readLayer(from: { url: string } | { bytes: Uint8Array }, options: WasmLayerOptions): Promise<Layer> {
  if ('url' in from) return streamed(from.url, (read, length) => Layer.read(read, length, from.url, options));
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
