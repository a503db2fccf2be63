/**
 * The worker's side of the protocol, without the worker: one model, one queue. Tests run it in Node with an engine of their own.
 *
 * A call runs to its end before the next begins. Between any two steps of the engine the loop goes through the event loop, so
 * that an abort is seen at once, also where the engine computes on this very thread. An engine that panics is never called again.
 */

import { KitfoxError, aborted, toWire } from './errors.js';
import type { Info } from './options.js';
import type { EngineOptions, LoadMessage, ToPage, ToWorker } from './protocol.js';

/** A piece as the engine gives it; `finish` comes with the last. */
export interface EnginePiece {
  text: string;
  ids: ArrayLike<number>;
  finish?: 'length' | 'eos' | 'stop' | 'context' | undefined;
  stop?: string | undefined;
}

/** A loaded model: the wasm class `Engine`. A new `start` drops what the last one left. */
export interface Engine {
  start(prompt: string, options: EngineOptions): void;
  prefill(): Promise<{ done: number; total: number }>;
  next(): Promise<EnginePiece>;
}

/** What the worker gives to the loop. */
export interface Host<E extends Engine> {
  /** Loads the model. */
  load(message: LoadMessage, onProgress: (doneBytes: number, totalBytes: number) => void): Promise<E>;
  /** What is known of it now. */
  info(engine: E): Info;
  /** Rejects when the engine panics: its own promises may never settle then. */
  crash: Promise<never>;
}

/** One end of a message channel. */
export interface Port {
  postMessage(message: ToPage): void;
  onmessage: ((event: { data: ToWorker }) => void) | null;
}

interface Call {
  call: number;
  prompt: string;
  options: EngineOptions;
  aborted: boolean;
}

/** Answers the page's messages on `port`. */
export function serve<E extends Engine>(port: Port, host: Host<E>): void {
  const queue: Call[] = [];
  let engine: E | undefined;
  let running: Call | undefined;
  let dead = false;

  host.crash.catch((thrown: unknown) => {
    dead = true;
    port.postMessage({ type: 'crashed', error: toWire(thrown) });
  });

  port.onmessage = ({ data }) => {
    if (dead) return;
    if (data.type === 'load') void load(data);
    else if (data.type === 'abort') abort(data.call);
    else {
      queue.push({ ...data, aborted: false });
      if (running === undefined) void drain();
    }
  };

  async function load(message: LoadMessage): Promise<void> {
    try {
      const progress = (doneBytes: number, totalBytes: number): void => port.postMessage({ type: 'progress', doneBytes, totalBytes });
      engine = await Promise.race([host.load(message, progress), host.crash]);
      port.postMessage({ type: 'ready', info: host.info(engine) });
    } catch (thrown) {
      if (!dead) port.postMessage({ type: 'failed', error: toWire(thrown) });
    }
  }

  function abort(number: number): void {
    const found = running?.call === number ? running : queue.find(({ call }) => call === number);
    if (found !== undefined) found.aborted = true;
  }

  async function drain(): Promise<void> {
    for (let call = queue.shift(); call !== undefined && !dead; call = queue.shift()) {
      running = call;
      try {
        await run(call);
      } catch (thrown) {
        const error = toWire(thrown);
        // A trap of the engine that its panic hook did not see (out of memory, say) leaves it in an unknown state all the same.
        if (error.code === 'crashed') dead = true;
        port.postMessage(dead ? { type: 'crashed', error } : { type: 'error', call: call.call, error });
      }
    }
    running = undefined;
  }

  async function run(call: Call): Promise<void> {
    if (engine === undefined) throw new KitfoxError('worker', 'a call came before the model was loaded');
    const current = engine;
    const step = async <T>(work: () => Promise<T>): Promise<T> => {
      await breathe();
      if (call.aborted) throw aborted();
      return Promise.race([work(), host.crash]);
    };
    port.postMessage({ type: 'started', call: call.call });
    await step(async () => current.start(call.prompt, call.options));
    for (let more = true; more; ) {
      const { done, total } = await step(() => current.prefill());
      port.postMessage({ type: 'prefill', call: call.call, done, total });
      more = done < total;
    }
    for (;;) {
      const { text, ids, finish, stop } = await step(() => current.next());
      if (text !== '' || ids.length > 0) port.postMessage({ type: 'piece', call: call.call, text, ids: Array.from(ids) });
      if (finish === undefined) continue;
      const ending = { finish, ...(stop === undefined ? {} : { stop }), info: host.info(current) };
      port.postMessage({ type: 'done', call: call.call, ending });
      return;
    }
  }
}

/** Lets the messages in that wait: `setTimeout` would take 4 ms a token, a promise would let nothing in. */
function breathe(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(0);
  });
}
