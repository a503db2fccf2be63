/** A sequence of a model that lasts: text is put behind it, answers become part of it, it goes back, forks, and is saved as bytes. */

import { check, checkValue, isThere, signal, whole, MOST_TOKENS } from './check.js';
import type { Connection } from './connection.js';
import { KitfoxError, aborted } from './errors.js';
import { Generation } from './generation.js';
import { checkAnswer, checkText, type GenerateOptions, type Info } from './options.js';
import { ask } from './requests.js';

/** Options of a call that has no others. */
export interface CallOptions {
  /**
   * Ends the call with `aborted`: what was called stays usable, and a session is as before the call (after an aborted `restore` without its
   * marks: the way back is as ever, and read anew). An `append`, `mark`, `unmark`, `rewind` or `restore` that is done before the abort reaches
   * the worker gives what it gives without: whether it is part of the session is never in doubt.
   */
  signal?: AbortSignal;
}

/** A place in a session: its first so many tokens. */
export type Mark = number;

/**
 * Sessions share the model's weights and its one set of keys and values: the model holds one session at a time. Another's turn costs a
 * copy of the keys and values that are live (`info.kvBytesPool` bytes at most) off the device for the one that leaves, and one onto it;
 * those that wait are in the worker's memory (`stats().sessionBytes`). Calls wait their turn with all others of the model.
 */
export class Session {
  readonly #connection: Connection<Info>;
  readonly #number: number;
  #disposed = false;

  /** @internal */
  constructor(connection: Connection<Info>, number: number) {
    this.#connection = connection;
    this.#number = number;
  }

  /** @internal */
  static async open(connection: Connection<Info>, { signal }: CallOptions): Promise<Session> {
    return Session.#wanted(connection, await ask<number>(connection, { type: 'open-session' }, signal), signal);
  }

  /** What came after its abort is closed again: who aborted may look at no answer. */
  static #wanted(connection: Connection<Info>, number: number, signal: AbortSignal | undefined): Session {
    const session = new Session(connection, number);
    if (signal?.aborted !== true) return session;
    session.dispose();
    throw aborted(signal);
  }

  /**
   * Puts a text (behind the model's begin token if it is the first) or ids (as they are) behind what there is, and reads it. Gives the
   * tokens that there are then.
   *
   * @throws {KitfoxError} `argument`, `context-full`: the session is as before; for a text `no-tokenizer`, `tokenizer`; `device-lost`, `gpu`,
   * `not-finite`, `out-of-memory` of the device; `aborted`, `disposed`, `crashed`.
   */
  async append(text: string | readonly number[] | Uint32Array, options: CallOptions = {}): Promise<number> {
    checkText('append', text);
    const content = typeof text === 'string' ? text : Uint32Array.from(text);
    return this.#ask('append', { type: 'append', session: this.#number, content }, options);
  }

  /**
   * Continues the session, which must not be empty, by an answer that becomes part of it: all of it, or what was taken before the loop
   * was left (all of it, too, if another call of the session has begun since it ended). The summary's `promptTokens` are all tokens in front
   * of it. A stop text ends an answer and is not in its text, but its tokens are in the session, as they are among the pieces' `ids`:
   * `rewind(promptTokens + n)` goes back to the first `n` of them.
   *
   * @throws {KitfoxError} `argument`, `disposed`, at once. What the answer itself can end with, see `Generation.next`.
   */
  generate(options: GenerateOptions = {}): Generation {
    checkAnswer(options);
    this.#here();
    return new Generation(this.#connection, '', options, this.#number);
  }

  /**
   * A place to come back to. Going back is quick, also after other calls had their turn (then from a copy that was saved). Keys and values that
   * are live here are kept for it, also when later tokens have forgotten them; while other calls have their turn, as bytes in memory for each
   * mark ({@link Session.unmark} gives them back).
   *
   * @throws {KitfoxError} `argument`; `device-lost`, `gpu`, `not-finite`, `out-of-memory` of the device; `aborted`, `disposed`, `crashed`.
   */
  async mark(options: CallOptions = {}): Promise<Mark> {
    return this.#ask('mark', { type: 'mark', session: this.#number }, options);
  }

  /**
   * Gives up a mark: what is kept for it alone is freed. Going back there is possible as before, but what follows the mark before it is read anew. Where
   * nothing was marked, or no more, nothing happens: giving up twice is giving up.
   *
   * @throws {KitfoxError} `argument`; `aborted`, `disposed`, `crashed`.
   */
  async unmark(mark: Mark, options: CallOptions = {}): Promise<void> {
    checkValue('unmark', 'mark', mark, whole(0, MOST_TOKENS));
    await this.#ask('unmark', { type: 'unmark', session: this.#number, tokens: mark }, options);
  }

  /**
   * Goes back to a mark (any number of tokens that the session has had since).
   *
   * @throws {KitfoxError} `argument`, also where the session has fewer tokens; `aborted`, `disposed`, `crashed`. What follows may have to be read
   * anew by the next call.
   */
  async rewind(mark: Mark, options: CallOptions = {}): Promise<void> {
    checkValue('rewind', 'mark', mark, whole(0, MOST_TOKENS));
    await this.#ask('rewind', { type: 'rewind', session: this.#number, tokens: mark }, options);
  }

  /**
   * Another session that begins as this one is: a copy of its keys and values.
   *
   * @throws {KitfoxError} `argument`; `device-lost`, `gpu`, `not-finite`, `out-of-memory` of the device; `aborted`, `disposed`, `crashed`.
   */
  async fork(options: CallOptions = {}): Promise<Session> {
    const number = await this.#ask<number>('fork', { type: 'fork', session: this.#number }, options);
    return Session.#wanted(this.#connection, number, options.signal);
  }

  /**
   * Bytes for `restore`, in another page, browser or the native library: without keys that are forgotten for good.
   *
   * @throws {KitfoxError} `argument`; `device-lost`, `gpu`, `not-finite`, `out-of-memory` of the device; `aborted`, `disposed`, `crashed`.
   */
  async save(options: CallOptions = {}): Promise<Uint8Array> {
    return this.#ask('save', { type: 'save', session: this.#number }, options);
  }

  /**
   * Puts a saved session in the place of this one. Bytes of another model, or damaged ones, are a `format` error that changes nothing.
   *
   * @throws {KitfoxError} `argument`, `format`, `context-full`; `device-lost`, `gpu`, `not-finite`, `out-of-memory` of the device; `aborted`,
   * `disposed`, `crashed`.
   */
  async restore(bytes: Uint8Array, options: CallOptions = {}): Promise<void> {
    checkValue('restore', 'bytes', bytes, (value) => (value instanceof Uint8Array && isThere(value) ? undefined : 'a Uint8Array'));
    await this.#ask('restore', { type: 'restore', session: this.#number, bytes: bytes.slice(), undo: options.signal !== undefined }, options);
  }

  /** Frees what is held of it. Calls after it fail with `disposed`. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#connection.tell({ type: 'close-session', session: this.#number });
  }

  async #ask<T>(call: string, request: Parameters<typeof ask>[1], options: CallOptions): Promise<T> {
    check(call, options, { signal });
    this.#here();
    return ask<T>(this.#connection, request, options.signal);
  }

  #here(): void {
    if (this.#disposed) throw new KitfoxError('disposed', 'the session was disposed');
  }
}
