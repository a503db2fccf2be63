/**
 * A model file as a stream that is read forward, once. The file is never whole in memory: bytes wait in the network's own
 * buffers until the engine asks for them. Going back is possible only as far as the last few bytes that were handed out.
 */

import { KitfoxError } from './errors.js';

/** Bytes that can be asked for a second time. */
const BACK_BYTES = 64 * 1024;

/** An open download. */
export class Download {
  /** Length of the file, if the server told it truthfully. */
  readonly length: number | undefined;
  /** Why reading failed: kept here because the engine passes on only the text of an error. */
  failure: KitfoxError | undefined;

  readonly #url: string;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  /** Received and not yet handed out. */
  #chunk: Uint8Array = new Uint8Array(0);
  /** Offset in the file of the first byte of `#chunk`. */
  #at = 0;
  /** The bytes before `#at`, at most `BACK_BYTES`. */
  #back: Uint8Array = new Uint8Array(0);

  private constructor(url: string, length: number | undefined, reader: ReadableStreamDefaultReader<Uint8Array>) {
    this.#url = url;
    this.length = length;
    this.#reader = reader;
  }

  /** Asks the server for the file. A refusal, silence, or a web page in place of a file is a typed error. */
  static async open(url: string, fetcher: typeof fetch = fetch): Promise<Download> {
    let response: Response;
    try {
      response = await fetcher(url);
    } catch (cause) {
      throw new KitfoxError('network', `${url}: cannot be fetched: ${reason(cause)}`, { cause });
    }
    if (!response.ok) {
      await response.body?.cancel();
      throw new KitfoxError('http', `${url}: the server answered ${response.status} ${response.statusText}`.trimEnd());
    }
    if (response.body === null) throw new KitfoxError('network', `${url}: the server sent an empty answer`);
    const download = new Download(url, fileLength(response), response.body.getReader());
    await download.#refuseWebPage(response.headers.get('content-type') ?? '');
    return download;
  }

  /**
   * The `n` bytes from offset `at`; fewer at the end of the file. Offsets must not fall, except within what was handed out last.
   */
  async read(at: number, n: number): Promise<Uint8Array> {
    const behind = this.#at - at;
    if (behind > this.#back.length) {
      throw new RangeError(`${this.#url}: read at ${at}, but the stream is at ${this.#at} and holds ${this.#back.length} bytes back`);
    }
    try {
      await this.#skipTo(at);
      const out = new Uint8Array(n);
      let filled = 0;
      if (behind > 0) {
        const again = this.#back.subarray(this.#back.length - behind).subarray(0, n);
        out.set(again);
        filled = again.length;
      }
      while (filled < n && (await this.#receive())) {
        const part = this.#chunk.subarray(0, n - filled);
        out.set(part, filled);
        filled += part.length;
        this.#advance(part.length);
      }
      if (behind < n) this.#keep(out.subarray(0, filled));
      return out.subarray(0, filled);
    } catch (cause) {
      this.failure = new KitfoxError('network', `${this.#url}: the connection broke at byte ${this.#at}: ${reason(cause)}`, { cause });
      throw this.failure;
    }
  }

  /** Ends the transfer. */
  async close(): Promise<void> {
    // The stream may have failed already: there is nothing left to end then.
    await this.#reader.cancel().catch(() => undefined);
  }

  /** Makes `#chunk` hold at least one byte; false at the end of the file. */
  async #receive(): Promise<boolean> {
    while (this.#chunk.length === 0) {
      const { done, value } = await this.#reader.read();
      if (done) return false;
      this.#chunk = value;
    }
    return true;
  }

  #advance(n: number): void {
    this.#chunk = this.#chunk.subarray(n);
    this.#at += n;
  }

  async #skipTo(at: number): Promise<void> {
    while (this.#at < at && (await this.#receive())) this.#advance(Math.min(this.#chunk.length, at - this.#at));
  }

  /** `last` ends at `#at`. A copy: a view would hold the whole of what was handed out. */
  #keep(last: Uint8Array): void {
    this.#back = last.slice(Math.max(0, last.length - BACK_BYTES));
  }

  async #refuseWebPage(contentType: string): Promise<void> {
    let begin = '';
    try {
      if (await this.#receive()) begin = new TextDecoder('latin1').decode(this.#chunk.subarray(0, 64));
    } catch (cause) {
      throw new KitfoxError('network', `${this.#url}: the connection broke at byte 0: ${reason(cause)}`, { cause });
    }
    if (contentType.startsWith('text/html') || /^(\u00ef\u00bb\u00bf)?\s*<(!doctype|html)/i.test(begin)) {
      await this.close();
      throw new KitfoxError('format', `${this.#url}: not a GGUF model file: the server answered with a web page`);
    }
  }
}

/**
 * `Content-Length` counts the bytes on the wire. It is the file's length unless they are compressed, and whether they are is
 * hidden from other origins; there the length stays unknown, and a file cut short shows at its end.
 */
function fileLength(response: Response): number | undefined {
  const told = response.headers.get('content-length');
  if (told === null || response.headers.has('content-encoding') || response.type === 'cors') return undefined;
  const length = Number(told);
  return Number.isSafeInteger(length) && length >= 0 ? length : undefined;
}

function reason(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
