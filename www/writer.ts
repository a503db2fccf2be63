/**
 * A model at the desk: its one session is held in step with the text. Of a text that was changed only what is behind the change is read
 * anew, and only when the model is asked to go on.
 */

import { type GenerateOptions, type Kitfox, type Mark, type Piece, type Session, type Summary } from 'kitfox';
import { commonStart } from './draft.js';

/** Most characters that are read between two words on how far it is; places in between are places to go back to. */
const SLICE = 2000;

/** A place where characters and tokens both end. */
interface Stop {
  chars: number;
  tokens: number;
  /** The ids since the stop before, if the model wrote them: a token may end within a character. */
  ids?: readonly number[];
}

/** Who hears of an answer. */
export interface Listener {
  /** How much of the text is read, from 0 to 1. */
  read(part: number): void;
  /** More of it; its text has the line ends of a text area. */
  piece(piece: { readonly text: string; readonly ids: readonly number[]; readonly memory: Memory }): void;
  /** It has ended, or was stopped. */
  end(summary: Summary): void;
}

/** What a text takes of the device's memory. */
export interface Memory {
  /** Bytes of keys and values that the next token looks at. */
  readonly live: number;
  /** Bytes of those that were freed because they are forgotten. */
  readonly freed: number;
}

export class Writer {
  readonly #fox: Kitfox;
  #session: Session | undefined;
  /** What the session has read. */
  #held = '';
  #stops: Stop[] = [{ chars: 0, tokens: 0 }];
  /** Tokens of the session; undefined after a call that did not come to its end. */
  #tokens: number | undefined = 0;
  /** The session's marks by the characters before them. */
  #marks = new Map<number, Mark>();

  constructor(fox: Kitfox) {
    this.#fox = fox;
  }

  /** Continues the text. The options' signal ends it with an `aborted` error; the session holds then what the listener has. */
  async write(text: string, options: GenerateOptions, listener: Listener): Promise<void> {
    const session = await this.#read(text, options.signal, listener);
    const generation = session.generate(options);
    let tokens = this.#last().tokens;
    let ids: number[] = [];
    this.#tokens = undefined;
    try {
      for await (const piece of generation) {
        const text = lineEnds(piece.text);
        tokens += piece.ids.length;
        ids.push(...piece.ids);
        if (text !== '') {
          this.#held += text;
          this.#stops.push({ chars: this.#held.length, tokens, ids });
          ids = [];
        }
        listener.piece({ text, ids: piece.ids, memory: memoryOf(piece) });
      }
      this.#tokens = tokens;
    } finally {
      if (generation.summary !== undefined) listener.end(generation.summary);
    }
  }

  /** Keeps the pages of the text as it is, so that the way back to here is short. */
  async mark(text: string, signal: AbortSignal, listener: Pick<Listener, 'read'>): Promise<void> {
    const session = await this.#read(text, signal, listener);
    this.#marks.set(text.length, await session.mark({ signal }));
  }

  /** Gives up the mark behind so many characters: what is kept for it alone is freed. */
  async release(chars: number, signal: AbortSignal): Promise<void> {
    const mark = this.#marks.get(chars);
    if (mark !== undefined) await this.#session?.unmark(mark, { signal });
    this.#marks.delete(chars);
  }

  /** What the text takes of memory. */
  async memory(): Promise<Memory> {
    return memoryOf(await this.#fox.stats());
  }

  /** Makes the session hold this text. */
  async #read(text: string, signal: AbortSignal | undefined, listener: Pick<Listener, 'read'>): Promise<Session> {
    const call = signal === undefined ? {} : { signal };
    const session = (this.#session ??= await this.#fox.session(call));
    const stop = await this.#backTo(commonStart(this.#held, text));
    if (stop.tokens !== this.#tokens) await session.rewind(stop.tokens);
    this.#held = text.slice(0, stop.chars);
    let { tokens } = stop;
    for (const part of slices(text.slice(stop.chars))) {
      listener.read(this.#held.length / text.length);
      this.#tokens = undefined;
      tokens = await session.append(part, call);
      this.#held += part;
      this.#stops.push({ chars: this.#held.length, tokens });
    }
    this.#tokens = tokens;
    return session;
  }

  /** Drops the stops behind so many characters, and those that are within a character of the model's. */
  async #backTo(chars: number): Promise<Stop> {
    while (this.#last().chars > chars) this.#stops.pop();
    for (;;) {
      const last = this.#last();
      if (last.ids === undefined || this.#tokens === last.tokens) return last;
      const start = this.#stops.findLast(({ ids }) => ids === undefined) ?? last;
      const ids = this.#stops.slice(this.#stops.indexOf(start) + 1).flatMap(({ ids }) => ids ?? []);
      if (lineEnds(await this.#fox.detokenize(ids)) === this.#held.slice(start.chars, last.chars)) return last;
      this.#stops.pop();
    }
  }

  #last(): Stop {
    return this.#stops.at(-1) ?? { chars: 0, tokens: 0 };
  }
}

function memoryOf({ kvBytesLive, kvBytesFreed }: Pick<Piece, 'kvBytesLive' | 'kvBytesFreed'>): Memory {
  return { live: kvBytesLive, freed: kvBytesFreed };
}

/** A text area has one kind of line end, whatever is put into it. */
function lineEnds(text: string): string {
  return text.replace(/\r\n?/g, '\n');
}

/** A long text in parts, each ending before the space of a word: there a tokenizer of words ends a token in any case. */
function* slices(text: string): Iterable<string> {
  let at = 0;
  while (text.length - at > SLICE) {
    const word = /\S \S/g;
    word.lastIndex = at + SLICE;
    const found = word.exec(text);
    if (found === null) break;
    yield text.slice(at, found.index + 1);
    at = found.index + 1;
  }
  if (at < text.length) yield text.slice(at);
}
