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
import type { Plan, Probe } from './plan.js';
import type { Abort, Call, FirstMessage, ToPage, ToWorker } from './protocol.js';

/** What a worker holds. */
export interface Held {
  /** What is known of it now. */
  info(): Info | LayerInfo | Plan | Probe;
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
  load(message: FirstMessage, tell: Tell): Promise<Held>;
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
  const server = new Server(port, host);
  port.onmessage = ({ data }) => server.take(data);
}

/** One model (or layer), the calls that wait for it, and the one that it is at. */
class Server {
  readonly #port: Port;
  readonly #host: Host;
  readonly #queue: Queued[] = [];
  #held: Held | undefined;
  #running: Queued | undefined;
  #dead = false;
  /** Of each session its last answer, until something else is asked of that session: what was told of it then stays true. */
  readonly #answers = new Map<number, { call: number; cut: (taken: number) => void }>();
  readonly #cuts: (() => void)[] = [];
  /** Ends what waits for the engine. */
  #fail: ((thrown: unknown) => void) | undefined;
  #crash: unknown;

  constructor(port: Port, host: Host) {
    [this.#port, this.#host] = [port, host];
    host.crash.catch((thrown: unknown) => {
      [this.#dead, this.#crash] = [true, thrown];
      this.#fail?.(thrown);
      this.#say({ type: 'crashed', error: toWire(thrown) });
    });
  }

  take(message: ToWorker): void {
    if (this.#dead) return;
    if (message.type === 'load' || message.type === 'load-layer' || message.type === 'plan' || message.type === 'probe') void this.#load(message);
    else if (message.type === 'abort') this.#abort(message);
    else {
      this.#queue.push({ call: message, aborted: false });
      if (this.#running === undefined) void this.#drain();
    }
  }

  #say(message: ToPage, transfer: ArrayBuffer[] = []): void {
    this.#port.postMessage(message, transfer);
  }

  async #load(message: FirstMessage): Promise<void> {
    this.#say({ type: 'begun' });
    try {
      const tell: Tell = {
        onProgress: (progress) => this.#say({ type: 'progress', ...progress }),
        onEvent: (event) => this.#say({ type: 'event', event }),
      };
      this.#held = await this.#unlessCrashed(() => this.#host.load(message, tell));
      this.#say({ type: 'ready', info: this.#held.info() });
    } catch (thrown) {
      if (!this.#dead) this.#say({ type: 'failed', error: toWire(thrown) });
    }
  }

  /** A reaction on the promise of a crash would stay there for ever, with what the work gave: there is one for all. */
  #unlessCrashed<T>(work: () => Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.#fail = reject;
      if (this.#dead) reject(this.#crash);
      else work().then(resolve, reject);
    }).finally(() => (this.#fail = undefined));
  }

  #abort({ call: number, taken }: Abort): void {
    const waits = this.#queue.findIndex(({ call }) => call.call === number);
    const now = this.#running?.call.call === number ? [this.#running] : [];
    const [found] = waits < 0 ? now : this.#queue.splice(waits, 1);
    // Told at once, however long the step takes: what it does is undone before the next call.
    if (found?.aborted === false) this.#say({ type: 'error', call: number, error: toWire(aborted()) });
    if (found !== undefined) found.aborted = true;
    const answer = [...this.#answers.values()].find(({ call }) => call === number);
    if (taken === undefined || answer === undefined) return;
    this.#cuts.push(() => answer.cut(taken));
    if (this.#running === undefined) void this.#drain();
  }

  async #drain(): Promise<void> {
    for (;;) {
      for (const cut of this.#cuts.splice(0)) this.#attempt(cut);
      const next = this.#dead ? undefined : this.#queue.shift();
      this.#running = next;
      if (next === undefined) return;
      try {
        await this.#run(next);
      } catch (thrown) {
        this.#failed(next, thrown);
      }
    }
  }

  #attempt(cut: () => void): void {
    try {
      if (!this.#dead) cut();
    } catch (thrown) {
      this.#failed(undefined, thrown);
    }
  }

  #failed(queued: Queued | undefined, thrown: unknown): void {
    const error = toWire(thrown);
    // A trap of the engine that its panic hook did not see (out of memory, say) leaves it in an unknown state all the same.
    if (error.code === 'crashed') [this.#dead, this.#crash] = [true, thrown];
    if (this.#dead) this.#say({ type: 'crashed', error });
    else if (queued?.aborted === false) this.#say({ type: 'error', call: queued.call.call, error });
  }

  async #run(queued: Queued): Promise<void> {
    if (this.#held === undefined) throw new KitfoxError('worker', 'a call came before the load had ended');
    const { call } = queued;
    const step = async <T>(work: () => Promise<T>): Promise<T> => {
      await breathe();
      if (queued.aborted) throw aborted();
      return this.#unlessCrashed(work);
    };
    const cutBy = (session: number, cut: (taken: number) => void): void => void this.#answers.set(session, { call: call.call, cut });
    if ('session' in call && call.session !== undefined) this.#answers.delete(call.session);
    this.#say({ type: 'started', call: call.call });
    await this.#held.answer(call, { step, cutBy, say: (message, transfer) => this.#say(message, transfer) });
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
