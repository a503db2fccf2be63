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
import type { Abort, Call, LoadLayerMessage, LoadMessage, ToPage, ToWorker } from './protocol.js';

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
  /** Says how this answer, which becomes part of a session, is cut to its first so many tokens if it is left. */
  cutBy(session: number, cut: (taken: number) => void): void;
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
  /** Of each session its last answer, until something else is asked of that session: what was told of it then stays true. */
  const answers = new Map<number, { call: number; cut: (taken: number) => void }>();
  const cuts: (() => void)[] = [];
  /** Ends what waits for the engine. */
  let fail: ((thrown: unknown) => void) | undefined;
  let crash: unknown;

  host.crash.catch((thrown: unknown) => {
    [dead, crash] = [true, thrown];
    fail?.(thrown);
    say({ type: 'crashed', error: toWire(thrown) });
  });

  port.onmessage = ({ data }) => {
    if (dead) return;
    if (data.type === 'load' || data.type === 'load-layer' || data.type === 'plan') void load(data);
    else if (data.type === 'abort') abort(data);
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
      held = await unlessCrashed(() => host.load(message, tell));
      say({ type: 'ready', info: held.info() });
    } catch (thrown) {
      if (!dead) say({ type: 'failed', error: toWire(thrown) });
    }
  }

  /** A reaction on the promise of a crash would stay there for ever, with what the work gave: there is one for all. */
  function unlessCrashed<T>(work: () => Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      fail = reject;
      if (dead) reject(crash);
      else work().then(resolve, reject);
    }).finally(() => (fail = undefined));
  }

  function abort({ call: number, taken }: Abort): void {
    const waits = queue.findIndex(({ call }) => call.call === number);
    const [found] = waits < 0 ? (running?.call.call === number ? [running] : []) : queue.splice(waits, 1);
    // Told at once, however long the step takes: what it does is undone before the next call.
    if (found?.aborted === false) say({ type: 'error', call: number, error: toWire(aborted()) });
    if (found !== undefined) found.aborted = true;
    const answer = [...answers.values()].find(({ call }) => call === number);
    if (taken === undefined || answer === undefined) return;
    cuts.push(() => answer.cut(taken));
    if (running === undefined) void drain();
  }

  async function drain(): Promise<void> {
    for (;;) {
      for (const cut of cuts.splice(0)) attempt(cut);
      const next = dead ? undefined : queue.shift();
      running = next;
      if (next === undefined) return;
      try {
        await run(next);
      } catch (thrown) {
        failed(next, thrown);
      }
    }
  }

  function attempt(cut: () => void): void {
    try {
      if (!dead) cut();
    } catch (thrown) {
      failed(undefined, thrown);
    }
  }

  function failed(queued: Queued | undefined, thrown: unknown): void {
    const error = toWire(thrown);
    // A trap of the engine that its panic hook did not see (out of memory, say) leaves it in an unknown state all the same.
    if (error.code === 'crashed') [dead, crash] = [true, thrown];
    if (dead) say({ type: 'crashed', error });
    else if (queued?.aborted === false) say({ type: 'error', call: queued.call.call, error });
  }

  async function run(queued: Queued): Promise<void> {
    if (held === undefined) throw new KitfoxError('worker', 'a call came before the load had ended');
    const { call } = queued;
    const step = async <T>(work: () => Promise<T>): Promise<T> => {
      await breathe();
      if (queued.aborted) throw aborted();
      return unlessCrashed(work);
    };
    const cutBy = (session: number, cut: (taken: number) => void): void => void answers.set(session, { call: call.call, cut });
    if ('session' in call && call.session !== undefined) answers.delete(call.session);
    say({ type: 'started', call: call.call });
    await held.answer(call, { step, cutBy, say });
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
