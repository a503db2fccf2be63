/** The page's end of the protocol: one worker, its calls by number, and what ends them all. */

import { KitfoxError, aborted } from './errors.js';
import type { Info, LoadOptions } from './options.js';
import type { LoadMessage, ToPage, ToWorker } from './protocol.js';

/** What the worker says of a call: all its messages after the load. */
export type CallMessage = Extract<ToPage, { call: number }>;

/** Takes what comes for one call; `lost` is the last when the whole connection ends. */
export interface Listener {
  message(message: CallMessage): void;
  lost(error: KitfoxError): void;
}

/** A worker with a model in it. */
export class Connection {
  readonly #worker: Worker;
  readonly #listeners = new Map<number, Listener>();
  #calls = 0;
  #info: Info | undefined;
  #lost: KitfoxError | undefined;

  constructor(worker: Worker) {
    this.#worker = worker;
  }

  /** What is known of the model. */
  get info(): Info {
    if (this.#info === undefined) throw new KitfoxError('worker', 'the model is not loaded');
    return this.#info;
  }

  /** Loads the model; on any failure the worker is ended. */
  async load(message: LoadMessage, { onProgress, signal }: LoadOptions): Promise<void> {
    let stop = (): void => undefined;
    try {
      await new Promise<void>((resolve, reject) => {
        stop = () => reject(aborted(signal));
        signal?.addEventListener('abort', stop);
        this.#worker.onmessage = ({ data }: MessageEvent<ToPage>) => {
          try {
            if (data.type === 'progress') onProgress?.({ doneBytes: data.doneBytes, totalBytes: data.totalBytes });
            else if (data.type === 'failed' || data.type === 'crashed') reject(new KitfoxError(data.error.code, data.error.message));
            else if (data.type === 'ready') {
              this.#info = data.info;
              resolve();
            }
          } catch (thrown) {
            reject(thrown); // by the caller's own onProgress
          }
        };
        this.#worker.onerror = (event) => {
          event.preventDefault();
          reject(new KitfoxError('worker', `the worker cannot be started: ${event.message ?? 'its script cannot be loaded'}`));
        };
        this.#send(message);
      });
    } catch (thrown) {
      this.#worker.terminate();
      throw thrown;
    } finally {
      signal?.removeEventListener('abort', stop);
    }
    this.#worker.onmessage = ({ data }: MessageEvent<ToPage>) => this.#receive(data);
    this.#worker.onerror = (event) => {
      event.preventDefault();
      this.#end(new KitfoxError('crashed', `the worker stopped: ${event.message}`));
    };
  }

  /** Starts a call and gives its number. */
  call(prompt: string, options: Extract<ToWorker, { type: 'generate' }>['options'], listener: Listener): number {
    if (this.#lost !== undefined) throw this.#lost;
    const call = (this.#calls += 1);
    this.#listeners.set(call, listener);
    this.#send({ type: 'generate', call, prompt, options });
    return call;
  }

  /** Ends a call, if it still runs; nothing more is heard of it. */
  close(call: number): void {
    if (this.#listeners.delete(call)) this.#send({ type: 'abort', call });
  }

  /** Ends everything. */
  dispose(): void {
    this.#end(new KitfoxError('disposed', 'the model was disposed'));
  }

  #receive(message: ToPage): void {
    if (message.type === 'crashed') this.#end(new KitfoxError('crashed', message.error.message));
    else if ('call' in message) {
      if (message.type === 'done') this.#info = message.ending.info;
      const listener = this.#listeners.get(message.call);
      if (message.type === 'done' || message.type === 'error') this.#listeners.delete(message.call);
      listener?.message(message);
    }
  }

  #end(error: KitfoxError): void {
    if (this.#lost !== undefined) return;
    this.#lost = error;
    this.#worker.terminate();
    for (const listener of this.#listeners.values()) listener.lost(error);
    this.#listeners.clear();
  }

  #send(message: ToWorker): void {
    this.#worker.postMessage(message);
  }
}
