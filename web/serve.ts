/**
 * The worker's side of the protocol, without the worker: one thing that is loaded, one queue. Tests run it in Node with an engine
 * of their own.
 *
 * A call runs to its end before the next begins. Between any two steps of the engine the loop goes through the event loop, so
 * that an abort is seen at once, also where the engine computes on this very thread. An engine that panics is never called again.
 */

import { KitfoxError, aborted, toWire } from './errors.js';
import type { LayerInfo } from './layer-options.js';
import type { LoadEvent, LoadProgress } from './loading.js';
import type { Info } from './options.js';
import type { Plan, PlanMessage } from './plan.js';
import type { Call, LoadLayerMessage, LoadMessage, ToPage, ToWorker } from './protocol.js';

/** What a worker holds. */
export interface Held {
  /** What is known of it now. */
  info(): Info | LayerInfo | Plan;
  /** Answers a call; what ends the answer without an error is its own last message. */
  answer(call: Call, talk: Talk): Promise<void>;
}

/** What an answer has to do with the loop. */
export interface Talk {
  /** Runs one step of the engine: an abort that came in before it ends the call here. */
  step<T>(work: () => Promise<T>): Promise<T>;
  /** Tells the page; the buffers of `transfer` go over without a copy. */
  say(message: ToPage, transfer?: ArrayBuffer[]): void;
}

/** What a load has to say to the page. */
export interface Tell {
  onProgress(progress: LoadProgress): void;
  onEvent(event: LoadEvent): void;
}

/** What the worker gives to the loop. */
export interface Host {
  /** Loads what the message names. */
  load(message: LoadMessage | LoadLayerMessage | PlanMessage, tell: Tell): Promise<Held>;
  /** Rejects when the engine panics: its own promises may never settle then. */
  crash: Promise<never>;
}

/** One end of a message channel. */
export interface Port {
  postMessage(message: ToPage, transfer: ArrayBuffer[]): void;
  onmessage: ((event: { data: ToWorker }) => void) | null;
}

interface Queued {
  call: Call;
  aborted: boolean;
}

/** Answers the page's messages on `port`. */
export function serve(port: Port, host: Host): void {
  const queue: Queued[] = [];
  let held: Held | undefined;
  let running: Queued | undefined;
  let dead = false;

  host.crash.catch((thrown: unknown) => {
    dead = true;
    say({ type: 'crashed', error: toWire(thrown) });
  });

  port.onmessage = ({ data }) => {
    if (dead) return;
    if (data.type === 'load' || data.type === 'load-layer' || data.type === 'plan') void load(data);
    else if (data.type === 'abort') abort(data.call);
    else {
      queue.push({ call: data, aborted: false });
      if (running === undefined) void drain();
    }
  };

  function say(message: ToPage, transfer: ArrayBuffer[] = []): void {
    port.postMessage(message, transfer);
  }

  async function load(message: LoadMessage | LoadLayerMessage | PlanMessage): Promise<void> {
    say({ type: 'begun' });
    try {
      const tell: Tell = { onProgress: (progress) => say({ type: 'progress', ...progress }), onEvent: (event) => say({ type: 'event', event }) };
      held = await Promise.race([host.load(message, tell), host.crash]);
      say({ type: 'ready', info: held.info() });
    } catch (thrown) {
      if (!dead) say({ type: 'failed', error: toWire(thrown) });
    }
  }

  function abort(number: number): void {
    const found = running?.call.call === number ? running : queue.find(({ call }) => call.call === number);
    if (found !== undefined) found.aborted = true;
  }

  async function drain(): Promise<void> {
    for (let next = queue.shift(); next !== undefined && !dead; next = queue.shift()) {
      running = next;
      try {
        await run(next);
      } catch (thrown) {
        const error = toWire(thrown);
        // A trap of the engine that its panic hook did not see (out of memory, say) leaves it in an unknown state all the same.
        if (error.code === 'crashed') dead = true;
        say(dead ? { type: 'crashed', error } : { type: 'error', call: next.call.call, error });
      }
    }
    running = undefined;
  }

  async function run(queued: Queued): Promise<void> {
    if (held === undefined) throw new KitfoxError('worker', 'a call came before the load had ended');
    const step = async <T>(work: () => Promise<T>): Promise<T> => {
      await breathe();
      if (queued.aborted) throw aborted();
      return Promise.race([work(), host.crash]);
    };
    say({ type: 'started', call: queued.call.call });
    await held.answer(queued.call, { step, say });
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
