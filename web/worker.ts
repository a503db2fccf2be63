/** The dedicated worker: joins the wasm engine, the download and the page's messages. */

import init, { Engine as WasmEngine, onPanic } from './wasm/kitfox.js';
import { chooseDevice, type Gpu } from './device.js';
import { Download } from './download.js';
import { KitfoxError } from './errors.js';
import type { Info } from './options.js';
import type { LoadMessage } from './protocol.js';
import { serve, type Port } from './serve.js';

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

async function load(message: LoadMessage, onProgress: (doneBytes: number, totalBytes: number) => void): Promise<WasmEngine> {
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
  const before = memory.buffer.byteLength;
  const download = await Download.open(message.url);
  try {
    const read = (at: number, n: number): Promise<Uint8Array> => download.read(at, n);
    const options = { device: choice.device, context: message.context };
    const engine = await WasmEngine.load(read, download.length, message.url, options, onProgress);
    loadHeapBytes = memory.buffer.byteLength - before;
    return engine;
  } catch (thrown) {
    throw download.failure ?? thrown;
  } finally {
    await download.close();
  }
}

function info(engine: WasmEngine): Info {
  const known = engine.info();
  const note = deviceNote ?? known.deviceNote;
  return {
    device: known.device,
    gpu: known.gpu,
    contextTokens: known.contextTokens,
    chunkTokens: known.chunkTokens,
    vocab: known.vocab,
    deviceBytes: known.deviceBytes,
    heapBytes: memory?.buffer.byteLength ?? 0,
    loadHeapBytes,
    ...(note === undefined ? {} : { deviceNote: note }),
  };
}

serve(self as Port, { load, info, crash });
