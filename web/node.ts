/**
 * Node's worker threads in the place of a browser's workers. Node's own modules are asked for by name at run time, so that a bundler
 * for browsers finds nothing here to complain of.
 */

// What is used of Node's types: the package's are a browser's.
export interface Emitter {
  on(event: string, listener: (value: never) => void): void;
  postMessage(message: unknown, transfer: ArrayBuffer[]): void;
}
interface Thread extends Emitter {
  terminate(): Promise<number>;
}
export interface Threads {
  Worker: new (script: URL | string, options: { name: string; execArgv: string[] }) => Thread;
  parentPort: Emitter | null;
}
interface NodeProcess {
  versions?: { node?: string };
  getBuiltinModule?(id: string): unknown;
  on(event: 'uncaughtException' | 'unhandledRejection', listener: (thrown: unknown) => void): void;
}

/** Node's process; a browser has none, and what bundlers put in its place names no version of Node. */
export const node = (): NodeProcess | undefined => {
  const { process } = globalThis as { process?: NodeProcess };
  return typeof process?.versions?.node === 'string' ? process : undefined;
};

/** Says so where Node is older than what asks it for its own modules by name. */
export const tooOld = (): string | undefined => {
  const process = node();
  if (process === undefined || process.getBuiltinModule !== undefined) return undefined;
  return `Node ${process.versions?.node} is too old: expected 20.16 or newer (of 22: 22.3 or newer)`;
};

export const builtin = <M>(id: string): M | undefined => node()?.getBuiltinModule?.(id) as M | undefined;

/** What kept a thread from having the WebGPU of the npm package `webgpu`, where that is installed. */
export const webgpu: { failure: string | undefined } = { failure: undefined };

/** Whether workers are to be threads of Node. */
export const inNode = (): boolean => typeof Worker === 'undefined' && node() !== undefined;

/** The URL of a path as the system means it, `#`, `?`, `%` and a drive's letter included; undefined where there is no Node. */
export const fileAt = (path: string): URL | undefined => builtin<{ pathToFileURL(path: string): URL }>('node:url')?.pathToFileURL(path);

/** As much of a browser's worker as the connection uses, made of a thread. */
export class ThreadWorker {
  onmessage: ((event: { data: never }) => void) | null = null;
  onerror: ((event: { message: string; preventDefault(): void }) => void) | null = null;
  readonly #thread: Thread;

  constructor(script: URL | string) {
    const threads = builtin<Threads>('node:worker_threads');
    if (threads === undefined) throw new Error(tooOld() ?? 'Node gives no worker threads');
    // Node's own options are the program's: `--input-type` or `--import` are not for a thread.
    this.#thread = new threads.Worker(script, { name: 'kitfox', execArgv: [] });
    this.#thread.on('message', (data: never) => this.onmessage?.({ data }));
    this.#thread.on('error', ({ message }: Error) => this.onerror?.({ message, preventDefault: () => undefined }));
  }

  postMessage(message: unknown, transfer: ArrayBuffer[] = []): void {
    this.#thread.postMessage(message, transfer);
  }

  terminate(): void {
    void this.#thread.terminate();
  }
}
