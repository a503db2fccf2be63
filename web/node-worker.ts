/**
 * The worker as a thread of Node: what worker.ts takes from a browser's worker is put in place first. Only Node reads this module: no
 * bundler finds it, because place.ts names it in a form that none looks for.
 */

import { blobAt } from './file.js';
import { builtin, node, webgpu, type Threads } from './node.js';

interface Bindings {
  wgslLanguageFeatures: Iterable<string>;
}

await standIn();
await import('./worker.js');

/**
 * Gives a thread what worker.ts takes from a browser's worker: its port, the last-resort events, `fetch` of files, and WebGPU where the
 * npm package `webgpu` is installed.
 */
async function standIn(): Promise<void> {
  const port = builtin<Threads>('node:worker_threads')?.parentPort;
  const process = node();
  if (port === null || port === undefined || process === undefined) throw new Error('node-worker.js runs in a worker thread of Node only');
  const fetched = globalThis.fetch;
  const scope = globalThis as unknown as Record<string, unknown>;
  const listeners: Record<string, (listener: (event: object) => void) => void> = {
    error: (listener) =>
      process.on('uncaughtException', (thrown) => listener({ message: thrown instanceof Error ? thrown.message : String(thrown), preventDefault: () => undefined })),
    unhandledrejection: (listener) => process.on('unhandledRejection', (reason) => listener({ reason, preventDefault: () => undefined })),
  };
  Object.assign(scope, {
    self: globalThis,
    postMessage: (message: unknown, transfer: ArrayBuffer[] = []) => port.postMessage(message, transfer),
    addEventListener: (kind: string, listener: (event: object) => void) => listeners[kind]?.(listener),
    fetch: async (input: string | URL | Request, init?: RequestInit) => {
      const url = new URL(input instanceof Request ? input.url : input);
      if (url.protocol !== 'file:') return fetched(input, init);
      return ofFile(url);
    },
  });
  let onmessage: ((event: { data: unknown }) => void) | null = null;
  // Messages wait in the port until somebody takes them.
  Object.defineProperty(scope, 'onmessage', {
    get: () => onmessage,
    set: (taker: typeof onmessage) => {
      if (onmessage === null && taker !== null) port.on('message', (data: unknown) => onmessage?.({ data }));
      onmessage = taker;
    },
  });
  await addWebGpu(scope);
}

/** A file as a server would answer for it: the wasm module. What is not there is no answer at all. */
async function ofFile(url: URL): Promise<Response> {
  const blob = await blobAt(url.href);
  const type = url.pathname.endsWith('.wasm') ? 'application/wasm' : 'application/octet-stream';
  return new Response(blob.stream(), { headers: { 'content-length': String(blob.size), 'content-type': type } });
}

/** Dawn's bindings, if the program has them. */
async function addWebGpu(scope: Record<string, unknown>): Promise<void> {
  const navigator = (scope['navigator'] ?? {}) as { gpu?: unknown };
  if (navigator.gpu === undefined) {
    const name = 'webgpu'; // an optional package, of which the compiler is not to know
    try {
      const found = (await import(name)) as { create(options: string[]): Bindings; globals: object };
      Object.assign(scope, found.globals);
      const gpu = found.create([]);
      // wgpu asks for a set, and for the class of a worker's global object.
      Object.defineProperty(gpu, 'wgslLanguageFeatures', { value: new Set(gpu.wgslLanguageFeatures) });
      scope['WorkerGlobalScope'] ??= class {
        static [Symbol.hasInstance](value: unknown): boolean {
          return value === globalThis;
        }
      };
      Object.defineProperty(navigator, 'gpu', { value: gpu, configurable: true });
    } catch (thrown) {
      // The CPU does without; what asks for the GPU is told.
      const why = thrown instanceof Error ? thrown.message : String(thrown);
      // Not there, but for a package that lacks one of its own.
      const isMissing = (thrown as { code?: unknown }).code === 'ERR_MODULE_NOT_FOUND' && why.includes("'webgpu'");
      if (!isMissing) webgpu.failure = why;
    }
  }
  if (scope['navigator'] === undefined) Object.defineProperty(scope, 'navigator', { value: navigator, configurable: true });
}
