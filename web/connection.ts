/** The page's end of the protocol: one worker, its calls by number, and what ends them all. */

import { KitfoxError, aborted, fromWire } from './errors.js';
import type { LoadOptions } from './options.js';
import type { FirstMessage, Request, ToPage, ToWorker } from './protocol.js';
import { changesSessions } from './requests.js';

/** What the worker says of a call: all its messages after the load. */
export type CallMessage = Extract<ToPage<unknown>, { call: number }>;

/** Takes what comes for one call; `lost` is the last when the whole connection ends. */
export interface Listener {
  message(message: CallMessage): void;
  lost(error: KitfoxError): void;
}

type What = 'model' | 'layer' | 'plan' | 'probe';

/** The worker says that it has heard of the load; a script that says nothing for so long is none of ours. */
const MUTE_MS = 120_000;

/** A worker with one thing in it: a model, a layer, a plan or what was found there, `I` is what is known of it. */
export class Connection<I> {
  readonly #what: What;
  readonly #worker: Worker;
  readonly #listeners = new Map<number, Listener>();
  #calls = 0;
  #info: I | undefined;
  #onEvent: LoadOptions['onEvent'];
  #lost: KitfoxError | undefined;

  constructor(what: What, worker: Worker) {
    this.#what = what;
    this.#worker = worker;
  }

  /** What is known of it; byte counts are those after the last call. */
  get info(): I {
    if (this.#info === undefined) throw new KitfoxError('worker', `the ${this.#what} is not loaded`);
    return this.#info;
  }

  /** Loads it; on any failure the worker is ended. */
  async load(
    message: FirstMessage,
    { onProgress, onEvent, signal }: Pick<LoadOptions, 'onProgress' | 'onEvent' | 'signal'>,
    transfer: ArrayBuffer[] = [],
  ): Promise<void> {
    let stop = (): void => undefined;
    let mute: ReturnType<typeof setTimeout> | undefined;
    this.#onEvent = onEvent;
    try {
      if (signal?.aborted === true) throw aborted(signal);
      await new Promise<void>((resolve, reject) => {
        stop = () => reject(aborted(signal));
        signal?.addEventListener('abort', stop);
        const silent = (): void => reject(new KitfoxError('worker', `the worker cannot be started: its script said nothing for ${MUTE_MS / 1000} s`));
        // Once more through the event loop: where the page itself was busy, the word may wait there.
        mute = setTimeout(() => (mute = setTimeout(silent, 100)), MUTE_MS);
        this.#worker.onmessage = ({ data }: MessageEvent<ToPage<I>>) => {
          clearTimeout(mute);
          try {
            if (data.type === 'progress') {
              const { type, ...progress } = data;
              onProgress?.(progress);
            } else if (data.type === 'event') onEvent?.(data.event);
            else if (data.type === 'failed' || data.type === 'crashed') reject(fromWire(data.error));
            else if (data.type === 'ready') {
              this.#info = data.info;
              resolve();
            }
          } catch (thrown) {
            reject(thrown); // by the caller's own onProgress or onEvent
          }
        };
        this.#worker.onerror = (event) => {
          event.preventDefault();
          reject(new KitfoxError('worker', `the worker cannot be started: ${event.message ?? 'its script cannot be loaded'}`));
        };
        this.#send(message, transfer);
      });
    } catch (thrown) {
      this.#worker.terminate();
      throw thrown;
    } finally {
      clearTimeout(mute);
      signal?.removeEventListener('abort', stop);
    }
    this.#worker.onmessage = ({ data }: MessageEvent<ToPage<I>>) => this.#receive(data);
    this.#worker.onerror = (event) => {
      event.preventDefault();
      this.#end(new KitfoxError('crashed', `the worker stopped: ${event.message}`));
    };
  }

  /** Starts a call and gives its number. */
  call(request: Request, listener: Listener, transfer: ArrayBuffer[] = []): number {
    if (this.#lost !== undefined) throw this.#lost;
    const call = (this.#calls += 1);
    this.#listeners.set(call, listener);
    this.#send({ ...request, call }, transfer);
    return call;
  }

  /** Makes a call and gives its answer: what `take` makes of one of its messages. What `take` throws ends the call. */
  async ask<T>(request: Request, take: (message: CallMessage) => T | undefined, signal?: AbortSignal, transfer?: ArrayBuffer[]): Promise<T> {
    if (signal?.aborted === true) throw aborted(signal);
    let call: number | undefined;
    let stop = (): void => undefined;
    try {
      return await new Promise<T>((resolve, reject) => {
        const message = (said: CallMessage): void => {
          if (said.type === 'error') {
            return reject(said.error.code === 'aborted' && signal?.aborted === true ? aborted(signal) : fromWire(said.error));
          }
          try {
            const answer = take(said);
            if (answer !== undefined) resolve(answer);
          } catch (thrown) {
            reject(thrown);
          }
        };
        stop = () => {
          if (!changesSessions(request)) reject(aborted(signal));
          else if (call !== undefined) this.#send({ type: 'abort', call });
        };
        call = this.call(request, { message, lost: reject }, transfer);
        signal?.addEventListener('abort', stop);
      });
    } finally {
      signal?.removeEventListener('abort', stop);
      if (call !== undefined) this.close(call);
    }
  }

  /** Makes a call whose end nobody waits for; nothing once the connection has ended. */
  tell(request: Request): void {
    if (this.#lost === undefined) this.call(request, { message: () => undefined, lost: () => undefined });
  }

  /** Whether a call has others in front of it. */
  waits(call: number): boolean {
    return [...this.#listeners.keys()].some((other) => other < call);
  }

  /** Ends a call, if it still runs; nothing more is heard of it. Its session keeps the first `taken` tokens of its answer. */
  close(call: number, taken?: number): void {
    const runs = this.#listeners.delete(call);
    if (this.#lost !== undefined) return;
    if (taken !== undefined) this.#send({ type: 'abort', call, taken });
    else if (runs) this.#send({ type: 'abort', call });
  }

  /** Ends everything. */
  dispose(): void {
    this.#end(new KitfoxError('disposed', `the ${this.#what} was disposed`));
  }

  #receive(message: ToPage<I>): void {
    if (message.type === 'event') this.#onEvent?.(message.event);
    else if (message.type === 'crashed') this.#end(fromWire({ ...message.error, code: 'crashed' }));
    else if ('call' in message) {
      if ('info' in message) this.#info = message.info;
      const listener = this.#listeners.get(message.call);
      if ('info' in message || message.type === 'error') this.#listeners.delete(message.call);
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

  #send(message: ToWorker, transfer: ArrayBuffer[] = []): void {
    this.#worker.postMessage(message, transfer);
  }
}
