/** The dedicated worker: joins the wasm engine, the download and the page's messages. */

import init, { Engine, keepWith, Layer, onPanic, planModel, type EnginePlan, type LayerOptions as WasmLayerOptions } from './wasm/kitfox.js';
import { Again } from './again.js';
import { holdLayer, holdModel } from './answers.js';
import { list } from './cache.js';
import { chooseDevice, type Gpu } from './device.js';
import { answered, brokenOff, unlessStalled } from './download.js';
import { KitfoxError } from './errors.js';
import { Kept } from './kept.js';
import type { CacheChoice } from './loading.js';
import type { DeviceChoice } from './options.js';
import { probe, type Plan, type PlanMessage } from './plan.js';
import type { FirstMessage, LoadLayerMessage, LoadMessage } from './protocol.js';
import { serve, type Held, type Port, type Tell } from './serve.js';
import { transfer } from './transfer.js';

/** What 32 bits address. */
const MOST_WASM_BYTES = 2 ** 32;

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
async function begin(message: LoadMessage | LoadLayerMessage | PlanMessage): Promise<DeviceChoice> {
  const choice = await chooseDevice(message.device, (navigator as { gpu?: Gpu }).gpu);
  deviceNote = choice.note;
  // Bundlers know a file beside a module by this very form.
  const wasm = message.wasmUrl ?? new URL('./wasm/kitfox_bg.wasm', import.meta.url).href;
  try {
    const response = await answered(fetch, wasm, {});
    const broken = brokenOff(response.clone().body);
    ({ memory } = await Promise.race([init({ module_or_path: response }), broken]));
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new KitfoxError('worker', `${wasm}: the wasm module cannot be loaded: ${reason}`, { cause });
  }
  onPanic((panic: string) => died(panic));
  const kept = choice.device === 'cpu' ? undefined : await Kept.open(globalThis.caches);
  if (kept !== undefined) keepWith((name: string) => kept.recall(name), (name: string, words: string) => kept.remember(name, words));
  return choice.device;
}

async function load(message: FirstMessage, tell: Tell): Promise<Held> {
  if (message.type === 'probe') {
    const found = await probe();
    return { info: () => found, answer: () => Promise.reject(new KitfoxError('worker', 'a probe answers no calls')) };
  }
  const device = await begin(message);
  if (message.type === 'plan') return planned(message, device, tell);
  const before = memory?.buffer.byteLength ?? 0;
  const held = await (message.type === 'load' ? loadModel(message, device, tell) : loadLayer(message, device));
  loadHeapBytes = (memory?.buffer.byteLength ?? 0) - before;
  return held;
}

async function loadModel(message: LoadMessage, device: DeviceChoice, tell: Tell): Promise<Held> {
  const { type, parts, cache, revalidate = false, retries, wasmUrl, ...asked } = message;
  const options = { ...asked, device };
  const settings = { cache, revalidate, ...(retries === undefined ? {} : { retries }), ...tell };
  const again = new Again(parts, settings);
  const engine = await transfer(parts, settings, (read, length, name, onUpload) =>
    Engine.load(again.reader(read), length, name, options, onUpload, () => again.open()),
  );
  again.loaded();
  const { info, answer } = holdModel(engine, () => completed(engine.info()));
  return { info, answer: (call, talk) => answer(call, talk).finally(() => again.close()) };
}

/** Reads a file's header: of the copy in the cache if that is complete and, with `revalidate`, still the server's file; else of the server's. */
async function planned(message: PlanMessage, device: DeviceChoice, tell: Tell): Promise<Held> {
  const { type, parts, cache, revalidate = false, retries, wasmUrl, ...asked } = message;
  const passedOver = new Set<string>();
  const onEvent: Tell['onEvent'] = (event) => {
    if (event.kind === 'restart') passedOver.add(event.url);
    tell.onEvent(event);
  };
  const settings = { revalidate, ...(retries === undefined ? {} : { retries }), ...tell, onEvent };
  const { gpu } = navigator as { gpu?: Gpu };
  // One that is refused, or never comes, is none: the plan is that of the CPU.
  const adapter = device === 'cpu' || gpu === undefined ? null : await unlessStalled(gpu.requestAdapter(), true).catch(() => null);
  const hardware = adapter !== null && adapter !== undefined && adapter.info?.isFallbackAdapter !== true;
  const read = (from: CacheChoice): Promise<EnginePlan> =>
    transfer(parts, { ...settings, cache: from }, (read, length, name) => planModel(read, length, name, { ...asked, device }, hardware), false);
  const plan = await (cache === 'off' ? read('off') : read('only').catch((thrown) => {
    if (cache === 'only' || !(thrown instanceof KitfoxError) || thrown.code !== 'not-cached') throw thrown;
    return read('off');
  }));
  const kept = cache === 'off' ? [] : await list();
  const of = (url: string): number => (passedOver.has(url) ? 0 : (kept.find((file) => file.url === url)?.bytes ?? 0));
  const had = parts.reduce((sum, part) => sum + ('url' in part ? of(part.url) : part.blob.size), 0);
  const told: Plan = {
    ...plan,
    fetchBytes: Math.max(plan.fileBytes - had, 0),
    gpu: device !== 'cpu',
    ...(deviceNote === undefined ? {} : { deviceNote }),
    ...fit(plan, device),
  };
  return { info: () => told, answer: () => Promise.reject(new KitfoxError('worker', 'a plan answers no calls')) };
}

/** Whether it can be loaded, and why not. */
function fit(plan: EnginePlan, device: DeviceChoice): Pick<Plan, 'fits' | 'reason'> {
  if (plan.reason !== undefined) return { fits: false, reason: plan.reason };
  if (device !== 'cpu' || plan.deviceBytes < MOST_WASM_BYTES) return { fits: true };
  return { fits: false, reason: `memory: the model needs ${plan.deviceBytes} bytes on the CPU, and wasm has ${MOST_WASM_BYTES}` };
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
