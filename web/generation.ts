/** One answer as it comes: an async iterator of pieces whose return value is the summary. */

import type { CallMessage, Connection } from './connection.js';
import { KitfoxError, aborted, fromWire } from './errors.js';
import { biases, given, type GenerateOptions, type Info, type Summary } from './options.js';
import type { Ending } from './protocol.js';

/** The next text of an answer: whole characters, without the text of a stop. It may be empty while characters are incomplete. */
export class Piece {
  /** The characters that are whole now. */
  readonly text: string;
  /** The tokens behind it. */
  readonly ids: readonly number[];
  /** With the option `logprobs`: ln of the probability of each, by the model's own logits, before any other option counts. */
  readonly logprobs: readonly number[] | undefined;
  /**
   * Bytes of keys and values that a next token could look at, as far as the engine knows without asking the device: exact once in 64
   * tokens on the CPU; on a GPU what is forgotten counts some hundreds of tokens later.
   */
  readonly kvBytesLive: number;
  /** Bytes of those that were freed so far, because they are forgotten for good. */
  readonly kvBytesFreed: number;

  /** @internal */
  constructor({ text, ids, logprobs, kvBytesLive, kvBytesFreed }: Omit<Piece, 'toString'>) {
    this.text = text;
    this.ids = ids;
    this.logprobs = logprobs;
    this.kvBytesLive = kvBytesLive;
    this.kvBytesFreed = kvBytesFreed;
  }

  /** The text. */
  toString(): string {
    return this.text;
  }
}

/** A running call. Iterate it once. */
export class Generation implements AsyncIterableIterator<Piece, Summary | undefined, void> {
  readonly #pieces: AsyncGenerator<Piece, Summary, void>;
  readonly #meter: Meter;
  #begun = false;
  #summary: Summary | undefined;
  /** Ends what waits for a message. */
  readonly #leaving: Leaving = { now: () => undefined };

  /** @internal */
  constructor(connection: Connection<Info>, prompt: string, options: GenerateOptions, session?: number) {
    this.#meter = new Meter(options.seed ?? randomSeed());
    const tell = (summary: Summary): void => void (this.#summary = summary);
    this.#pieces = run(connection, { prompt, session }, options, this.#meter, tell, this.#leaving);
  }

  /** Known at the end, and after an abort or an early end of the loop, also of one that never began; `undefined` before, and after an error. */
  get summary(): Summary | undefined {
    return this.#summary;
  }

  /**
   * The next piece; at the end the summary, and `undefined` when it is asked again.
   *
   * @throws {KitfoxError} `aborted` by the signal; `context-full` where the prompt does not fit; `no-tokenizer`, `tokenizer`, `argument` (a token
   * id that the model has not); `gpu`, `not-finite`, `out-of-memory`, `device-lost` of the device; `crashed`, `disposed`.
   */
  next(): Promise<IteratorResult<Piece, Summary | undefined>> {
    this.#begun = true;
    return this.#pieces.next();
  }

  /**
   * Ends the answer: called by a `for await` that is left early. Each `next()` from before gets its piece first, unless it waits for other
   * calls or for more of the prompt: then it is done, too. Gives the summary; `undefined` after an error. Never throws.
   */
  async return(): Promise<IteratorReturnResult<Summary | undefined>> {
    // A generator that never ran ends without a word of its own.
    if (!this.#begun) this.#summary ??= this.#meter.summary({ finish: 'aborted' });
    this.#leaving.now();
    await this.#pieces.return(undefined as never);
    return { done: true, value: this.#summary };
  }

  /** Itself. */
  [Symbol.asyncIterator](): this {
    return this;
  }
}

interface Leaving {
  now: () => void;
}

async function* run(
  connection: Connection<Info>,
  { prompt, session }: { prompt: string; session: number | undefined },
  options: GenerateOptions,
  meter: Meter,
  tell: (summary: Summary) => void,
  leaving: Leaving,
): AsyncGenerator<Piece, Summary, void> {
  const { signal } = options;
  if (signal?.aborted === true) {
    tell(meter.summary({ finish: 'aborted' }));
    throw aborted(signal);
  }
  const inbox = new Inbox(meter, options.onPrefill);
  const behind = session === undefined ? {} : { session };
  const call = connection.call({ type: 'generate', prompt, options: engineOptions(options, meter.seed), ...behind }, {
    message: (message) => inbox.put(message),
    lost: (error) => inbox.fail(error),
  });
  leaving.now = () => inbox.leave(connection.waits(call));
  const stop = (): void => inbox.fail(aborted(signal));
  signal?.addEventListener('abort', stop);
  let taken = 0;
  try {
    for (;;) {
      const message = await inbox.take();
      if (message === undefined) return meter.summary({ finish: 'aborted' });
      if (message.type === 'piece') {
        taken += message.ids.length;
        yield new Piece({ logprobs: undefined, ...message });
      } else {
        const summary = meter.summary(message.ending);
        tell(summary);
        return summary;
      }
    }
  } finally {
    // Ended by the caller, through the signal or by leaving the loop.
    const left = inbox.error === undefined && !inbox.over;
    if (left || (inbox.error instanceof KitfoxError && inbox.error.code === 'aborted')) tell(meter.summary({ finish: 'aborted' }));
    signal?.removeEventListener('abort', stop);
    // A session keeps of an answer what its caller has taken: the engine may have gone on.
    connection.close(call, session === undefined || inbox.over ? undefined : taken);
  }
}

function engineOptions({ signal, onPrefill, stop = [], logitBias, ...options }: GenerateOptions, seed: number) {
  const pairs = logitBias === undefined ? [] : biases(logitBias);
  const biased = { biasedIds: Uint32Array.from(pairs, ([id]) => id), biases: Float32Array.from(pairs, ([, bias]) => bias) };
  const texts = typeof stop === 'string' ? [stop] : [...stop];
  return { maxTokens: 256, ...given(options), seed, stop: texts, ...(pairs.length === 0 ? {} : biased) };
}

function randomSeed(): number {
  return crypto.getRandomValues(new Uint32Array(1))[0] ?? 0;
}

type Delivered = Extract<CallMessage, { type: 'piece' | 'done' }>;

/** Messages that wait for the loop to take them. An error goes before what still waits. */
class Inbox {
  error: unknown;
  /** Whether the end was taken. */
  over = false;
  readonly #waiting: Delivered[] = [];
  /** Nothing is taken any more, or will not be while the prompt is read. */
  #left: 'not' | 'unless-soon' | 'now' = 'not';
  /** More of the prompt is to be read. */
  #reading = false;
  #wake: (() => void) | undefined;
  readonly #meter: Meter;
  readonly #onPrefill: GenerateOptions['onPrefill'];

  constructor(meter: Meter, onPrefill: GenerateOptions['onPrefill']) {
    this.#meter = meter;
    this.#onPrefill = onPrefill;
  }

  put(message: CallMessage): void {
    this.#meter.note(message);
    if (message.type === 'error') this.fail(fromWire(message.error));
    else if (message.type === 'prefill') this.#prefill(message.done, message.total);
    else if (message.type === 'piece' || message.type === 'done') {
      this.#waiting.push(message);
      this.#wake?.();
    }
  }

  fail(error: unknown): void {
    this.error ??= error;
    this.#wake?.();
  }

  /** Nothing more is taken: from now on if that would take long. */
  leave(waits: boolean): void {
    this.#left = waits || this.#reading ? 'now' : 'unless-soon';
    this.#wake?.();
  }

  #prefill(done: number, total: number): void {
    this.#reading = done < total;
    if (this.#left === 'unless-soon') this.leave(false);
    try {
      this.#onPrefill?.({ done, total });
    } catch (thrown) {
      this.fail(thrown); // the caller's own
    }
  }

  /** The next message; none once the answer was left. */
  async take(): Promise<Delivered | undefined> {
    for (;;) {
      if (this.error !== undefined) throw this.error;
      if (this.#left === 'now') return undefined;
      const message = this.#waiting.shift();
      if (message !== undefined) {
        this.over = message.type === 'done';
        return message;
      }
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }
}

/** Counts and times a call as its messages come in, however late they are taken. */
class Meter {
  readonly seed: number;
  #started = 0;
  #first = 0;
  /** Tokens of the first piece: they come at once, however long each took. */
  #together = 0;
  #last = 0;
  #tokens = 0;
  /** Known once some of the prompt is read. */
  promptTokens = 0;

  constructor(seed: number) {
    this.seed = seed;
  }

  note(message: CallMessage): void {
    const now = performance.now();
    if (message.type === 'started') this.#started = now;
    else if (message.type === 'prefill') this.promptTokens = message.total;
    else if (message.type === 'piece' && message.ids.length > 0) {
      if (this.#tokens === 0) [this.#first, this.#together] = [now, message.ids.length];
      this.#tokens += message.ids.length;
      this.#last = now;
    }
  }

  summary(ending: Ending): Summary {
    const seconds = (this.#last - this.#first) / 1000;
    return {
      ...ending,
      promptTokens: this.promptTokens,
      tokens: this.#tokens,
      tokensPerSecond: seconds > 0 ? (this.#tokens - this.#together) / seconds : 0,
      seed: this.seed,
      ...(this.#tokens > 0 ? { firstTokenMs: this.#first - this.#started } : {}),
    };
  }
}
