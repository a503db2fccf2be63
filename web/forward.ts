/** Bytes that come in pieces, read at offsets that do not fall: what the engine asks for, out of what arrives. */

/** Bytes that can be asked for a second time, at least. */
const BACK_BYTES = 64 * 1024;

/** A reader over pieces. It holds the piece that is being read, and the end of what came before it. */
export class Forward {
  /** Gives the next piece; an empty one at the end. */
  readonly #next: () => Promise<Uint8Array>;
  /** What is kept, and the piece behind it. */
  #held: Uint8Array[] = [];
  /** Offset of the first byte held. */
  #at = 0;
  #ended = false;

  constructor(next: () => Promise<Uint8Array>) {
    this.#next = next;
  }

  /** The `n` bytes from offset `at`; fewer at the end. Offsets must not fall, except within what was handed out last. */
  async read(at: number, n: number): Promise<Uint8Array> {
    if (at < this.#at) throw new RangeError(`read at ${at}, but what is held begins at ${this.#at}`);
    const out = new Uint8Array(n);
    let filled = 0;
    for (;;) {
      let begin = this.#at;
      for (const piece of this.#held) {
        const from = at + filled - begin;
        if (from >= 0 && from < piece.length) {
          const part = piece.subarray(from, from + n - filled);
          out.set(part, filled);
          filled += part.length;
        }
        begin += piece.length;
      }
      if (filled === n || this.#ended) return out.subarray(0, filled);
      await this.#advance();
    }
  }

  /** Reads to the end. */
  async drain(): Promise<void> {
    while (!this.#ended) await this.#advance();
  }

  async #advance(): Promise<void> {
    const piece = await this.#next();
    if (piece.length === 0) {
      this.#ended = true;
      return;
    }
    const last = this.#held.at(-1) ?? new Uint8Array(0);
    const end = this.#at + this.#held.reduce((sum, { length }) => sum + length, 0);
    // Copies: a view would hold the whole piece.
    const kept = last.length >= BACK_BYTES ? last.slice(last.length - BACK_BYTES) : joined(this.#held).slice(-BACK_BYTES);
    this.#at = end - kept.length;
    this.#held = [kept, piece];
  }
}

function joined(parts: Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}
