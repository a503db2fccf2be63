/**
 * A file on a server as a stream that is read forward, once, and that goes on where a connection broke. The file is never whole in
 * memory: bytes wait in the network's own buffers until they are asked for.
 *
 * Two versions of a file are never mixed. A transfer goes on with `Range` only if the server says by a strong ETag or by
 * `Last-Modified` that the file is still the one that it began with; `If-Range` asks for that on the page's own origin, and in Node.
 * On another one (or where the own address leads to another) that header would need a preflight, so there the answer's version is
 * compared. Whoever checks every piece against a manifest (`checked`) needs no such word.
 *
 * `Range` counts stored bytes: in a file that comes compressed they are not those of the file. There, and where `Range` gives nothing, the
 * file is asked for from its start, and what was had of it is passed over.
 */

import { KitfoxError } from './errors.js';

/** What tells two versions of a file apart, as the server names them. */
export interface Version {
  /** A strong ETag. */
  etag?: string;
  lastModified?: string;
  /** Whether it came compressed. */
  coded?: true;
}

/** How a file is asked for. */
export interface DownloadSettings {
  fetcher?: typeof fetch;
  /** Attempts after the first without a byte in between. Default 4. */
  retries?: number;
  /** First byte that is wanted, of the version `version`. Default 0. */
  from?: number;
  version?: Version;
  /** Length of the file, if it is known. */
  length?: number | undefined;
  /** Whether the caller checks all bytes. */
  checked?: boolean;
  /** Whether what the browser itself has kept of the file is passed over. */
  fresh?: boolean;
  /** Hears of every new attempt: after which error, and in how many milliseconds. */
  onRetry?: (reason: string, waitMs: number) => void;
  /** Hears of bytes as they come. */
  onBytes?: (n: number) => void;
  /** Waits. */
  sleep?: (ms: number) => Promise<void>;
}

/** The file is another one than before, or cannot be shown to be the same: what was read of it is to be thrown away. */
export class StartOver extends KitfoxError {
  constructor(message: string) {
    super('network', message);
  }
}

/** Attempts after the first. */
export const RETRIES = 4;
/** A connection on which nothing comes for so long is taken for broken. */
const STALLED_MS = 60_000;
/** The first wait between two attempts; each is twice the one before, up to the longest, and shortened by up to a half at random. */
const FIRST_WAIT_MS = 500;
/** No wait is longer, and a server that asks for a longer one is not waited for. */
const LONGEST_WAIT_MS = 60_000;

/** An open download. */
export class Download {
  /** Length of the file, if the server told it truthfully. */
  length: number | undefined;
  /** Bytes that it has on the wire, as the server told them: as many as the file, or fewer where it comes compressed. */
  estimate: number | undefined;
  /** The version that is read. */
  version: Version;

  readonly #url: string;
  readonly #settings: DownloadSettings;
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  /** Received and not yet handed out. */
  #chunk: Uint8Array = new Uint8Array(0);
  /** Offset in the file of the first byte of `#chunk`. */
  #at: number;
  /** Bytes still to come that were had before: the server began at the file's start again. */
  #skip = 0;
  /** Attempts that gave no byte, one after the other. */
  #failures = 0;
  /** What the last request asked for, and whether a byte came that was not had before. */
  #asked: Record<string, string> = {};
  #gave = false;
  /** Whether `If-Range` is left out: another host answers, or none did to it. */
  #bare = false;
  /** Whether `Range` is left out: it gave nothing. */
  #plain = false;

  private constructor(url: string, settings: DownloadSettings) {
    this.#url = url;
    this.#settings = settings;
    this.#at = settings.from ?? 0;
    this.version = settings.version ?? {};
    this.length = settings.length;
  }

  /**
   * Asks the server for the file. A refusal, silence, or a web page in place of a file is a typed error; `StartOver` when the
   * server has no more the version that is asked for.
   */
  static async open(url: string, settings: DownloadSettings = {}): Promise<Download> {
    const download = new Download(url, settings);
    await download.#connect();
    if (download.#at === 0) await download.#refuseWebPage();
    return download;
  }

  /** The next `n` bytes; fewer at the end of the file. */
  async read(n: number): Promise<Uint8Array> {
    const out = new Uint8Array(n);
    let filled = 0;
    while (filled < n && (await this.#receive())) {
      const part = this.#chunk.subarray(0, n - filled);
      out.set(part, filled);
      filled += part.length;
      this.#chunk = this.#chunk.subarray(part.length);
      this.#at += part.length;
    }
    return out.subarray(0, filled);
  }

  /** Ends the transfer. */
  async close(): Promise<void> {
    // The stream may have failed already: there is nothing left to end then.
    await this.#reader?.cancel().catch(() => undefined);
    this.#reader = undefined;
  }

  /** Makes `#chunk` hold at least one byte; false at the end of the file. */
  async #receive(): Promise<boolean> {
    while (this.#chunk.length === 0) {
      if (this.length !== undefined && this.#at >= this.length) return false;
      if (this.#reader === undefined) await this.#connect();
      try {
        const { done, value } = await unlessStalled(this.#reader?.read());
        if (done) {
          if (this.length === undefined) return false;
          throw new Error(`the server ended it ${this.length - this.#at} bytes too early`);
        }
        this.#take(value);
      } catch (cause) {
        await this.close();
        await this.#again(new KitfoxError('network', `${this.#url}: the connection broke at byte ${this.#at}: ${reason(cause)}`, { cause }));
      }
    }
    return true;
  }

  #take(bytes: Uint8Array): void {
    const had = Math.min(this.#skip, bytes.length);
    // Bytes that were had before are no way forward: a server may break at the same place for ever.
    if (bytes.length > had) {
      this.#failures = 0;
      this.#gave = true;
    }
    this.#settings.onBytes?.(bytes.length - had);
    this.#skip -= had;
    this.#chunk = bytes.subarray(had);
  }

  /** Waits for the next attempt, or gives up. */
  async #again(failure: KitfoxError, asked?: number): Promise<void> {
    const retries = this.#settings.retries ?? RETRIES;
    const barren = this.#asked['range'] !== undefined && !this.#gave;
    // The `Range` may be what fails: there is one more attempt, without it.
    if (this.#failures >= retries && !barren) {
      const after = retries === 0 ? '' : ` (after ${retries} attempts more)`;
      throw new KitfoxError(failure.code, `${failure.message}${after}`, { cause: failure.cause });
    }
    const backoff = Math.min(FIRST_WAIT_MS * 2 ** this.#failures, LONGEST_WAIT_MS) * (1 - Math.random() / 2);
    const waitMs = Math.max(Math.round(backoff), asked ?? 0);
    if (waitMs > LONGEST_WAIT_MS) {
      throw new KitfoxError(failure.code, `${failure.message}; it asks for ${Math.ceil(waitMs / 1000)} s without a request`);
    }
    this.#failures += 1;
    if (barren && this.#failures >= retries) this.#plain = true;
    this.#settings.onRetry?.(failure.message, waitMs);
    await (this.#settings.sleep ?? sleep)(waitMs);
  }

  /** Makes `#reader` begin at byte `#at`. */
  async #connect(): Promise<void> {
    const fetcher = this.#settings.fetcher ?? fetch;
    for (;;) {
      const headers = (this.#asked = this.#headers());
      this.#gave = false;
      let response: Response;
      try {
        // A part is of no use to the browser's own cache, and may be asked for because a part in that cache was wrong.
        const cache = this.#at > 0 || this.#settings.fresh === true ? 'no-store' : 'default';
        response = await answered(fetcher, this.#url, { headers, cache });
      } catch (cause) {
        if (headers['if-range'] !== undefined) {
          this.#bare = true; // a preflight may have failed
          continue;
        }
        await this.#again(new KitfoxError('network', `${this.#url}: cannot be fetched: ${reason(cause)}`, { cause }));
        continue;
      }
      if (response.status === 200 || response.status === 206) return this.#accept(response);
      await response.body?.cancel();
      const refused = response.status < 500 && response.status !== 429 && response.status !== 408;
      if (refused && headers['range'] !== undefined) {
        this.#plain = true; // the start tells whether it is the `Range` or the file, and which file it is
        continue;
      }
      const failure = new KitfoxError('http', `${this.#url}: the server answered ${response.status} ${response.statusText}`.trimEnd());
      if (refused) throw failure;
      await this.#again(failure, retryAfter(response));
    }
  }

  #headers(): Record<string, string> {
    if (this.#at === 0) return {};
    const { etag, lastModified, coded } = this.version;
    if (etag === undefined && lastModified === undefined && this.#settings.checked !== true) {
      throw new StartOver(`${this.#url}: the connection broke at byte ${this.#at}, and the server names no version of the file by which it could go on there`);
    }
    if (coded === true || this.#plain) return {};
    const validator = etag ?? lastModified;
    const { location } = globalThis;
    // Where there is no page, as in Node, no origin is another one.
    const own = location === undefined || new URL(this.#url, location.href).origin === location.origin;
    return { range: `bytes=${this.#at}-`, ...(own && !this.#bare && validator !== undefined ? { 'if-range': validator } : {}) };
  }

  /** Takes an answer if it is the file that was begun, from byte `#at` or from its start. */
  async #accept(response: Response): Promise<void> {
    if (response.body === null) throw new KitfoxError('network', `${this.#url}: the server sent an empty answer`);
    this.#reader = response.body.getReader();
    // Nothing of it is taken yet: an error here leaves what was read before as it is.
    if (isWebPage(response)) await this.#isWebPage();
    const [version, range] = [versionOf(response), contentRange(response)];
    const begins = response.status === 206 ? (range?.start ?? (this.#asked['range'] === undefined ? 0 : this.#at)) : 0;
    if (response.type === 'cors') this.#bare = true;
    const length = response.status === 206 ? range?.length : fileLength(response);
    if (this.#at > 0) {
      const other = begins !== this.#at && begins !== 0 ? `it sent byte ${begins}` : this.#other(response, version, length);
      if (other !== undefined) {
        await this.close();
        throw new StartOver(`${this.#url}: the file has changed on the server, seen at byte ${this.#at}: ${other}`);
      }
    } else {
      if (begins > 0) {
        await this.close();
        throw new KitfoxError('http', `${this.#url}: the server sent bytes from ${begins} on, though all were asked for`);
      }
      if (this.length !== undefined && length !== undefined && length !== this.length) {
        await this.close();
        throw new StartOver(`${this.#url}: the file has changed on the server: expected ${this.length} bytes, got ${length}`);
      }
      this.version = version;
    }
    this.#skip = this.#at - begins;
    const coming = wireLength(response);
    if (coming !== undefined) this.estimate = begins + coming;
    this.length ??= length;
  }

  /** How an answer is seen to be of another file, or not seen to be of this one. */
  #other(response: Response, version: Version, length: number | undefined): string | undefined {
    if (this.length !== undefined && length !== undefined && length !== this.length) return `expected ${this.length} bytes in all, got ${length}`;
    const { etag, lastModified } = this.version;
    const differs = (name: string, mine?: string, its?: string): string | undefined =>
      mine !== undefined && its !== undefined && mine !== its ? `expected ${name} ${mine}, got ${its}` : undefined;
    const other = differs('ETag', etag, version.etag) ?? differs('Last-Modified', lastModified, version.lastModified);
    if (other !== undefined || this.#settings.checked === true) return other;
    const same = (etag !== undefined && etag === version.etag) || (etag === undefined && lastModified === version.lastModified);
    // A part in answer to `If-Range` need not repeat the date: it is the server's word for it. An ETag it must repeat.
    const word = response.status === 206 && this.#asked['if-range'] !== undefined && etag === undefined;
    return same || word ? undefined : 'it names no version';
  }

  async #refuseWebPage(): Promise<void> {
    let begin = '';
    if (await this.#receive()) begin = new TextDecoder('latin1').decode(this.#chunk.subarray(0, 64));
    if (/^(\u00ef\u00bb\u00bf)?\s*<(!doctype|html)/i.test(begin)) await this.#isWebPage();
  }

  async #isWebPage(): Promise<never> {
    await this.close();
    throw new KitfoxError('format', `${this.#url}: not a GGUF model file: the server answered with a web page`);
  }
}

/** Whether an answer says that it is a page for people. */
export function isWebPage({ headers }: Response): boolean {
  return (headers.get('content-type') ?? '').startsWith('text/html');
}

/** The version that an answer names: a weak ETag does not say that the bytes are the same. */
export function versionOf({ headers }: Response): Version {
  const [etag, lastModified] = [headers.get('etag'), headers.get('last-modified')];
  const validators = { ...(etag === null || etag.startsWith('W/') ? {} : { etag }), ...(lastModified === null ? {} : { lastModified }) };
  return headers.has('content-encoding') ? { ...validators, coded: true } : validators;
}

/**
 * `Content-Length` counts the bytes on the wire. It is the file's length unless they are compressed, and whether they are is
 * hidden from other origins; there the length stays unknown, and a file cut short shows at its end.
 */
export function fileLength(response: Response): number | undefined {
  return response.headers.has('content-encoding') || response.type === 'cors' ? undefined : wireLength(response);
}

function wireLength({ headers }: Response): number | undefined {
  const told = headers.get('content-length');
  if (told === null) return undefined;
  const length = Number(told);
  return Number.isSafeInteger(length) && length >= 0 ? length : undefined;
}

/** What a 206 holds; hidden from other origins. */
function contentRange(response: Response): { start: number; length?: number } | undefined {
  const found = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(response.headers.get('content-range') ?? '');
  if (found === null) return undefined;
  const length = Number(found[2]);
  return { start: Number(found[1]), ...(Number.isSafeInteger(length) ? { length } : {}) };
}

/** Milliseconds that the server asks to wait. */
function retryAfter(response: Response): number | undefined {
  const told = response.headers.get('retry-after');
  if (told === null) return undefined;
  const ms = /^\d+$/.test(told.trim()) ? Number(told) * 1000 : Date.parse(told) - Date.now();
  return Number.isFinite(ms) ? Math.max(ms, 0) : undefined;
}

/** The server's answer as far as its headers. A server that takes the request and says nothing is left. */
export async function answered(fetcher: typeof fetch, url: string, init: RequestInit, ms = STALLED_MS): Promise<Response> {
  const ends = new AbortController();
  try {
    return await unlessStalled(fetcher(url, { ...init, signal: ends.signal }), false, ms);
  } catch (cause) {
    ends.abort();
    throw cause;
  }
}

/** Rejects when a body, of which others read the same, ends too early or stops coming; else it is never heard of. */
export async function brokenOff(body: ReadableStream<Uint8Array> | null): Promise<never> {
  const reader = body?.getReader();
  while (reader !== undefined && !(await unlessStalled(reader.read())).done);
  return new Promise(() => undefined);
}

/** Rejects when nothing comes for as long as a connection may be silent. What Node has nothing else to do for, `idle`, it does not stay for. */
export async function unlessStalled<T>(coming: Promise<T> | undefined, idle = false, ms = STALLED_MS): Promise<T> {
  if (coming === undefined) throw new Error('it was closed');
  let timer: ReturnType<typeof setTimeout> | undefined;
  const stalled = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came for ${ms / 1000} s`)), ms);
    if (idle) (timer as { unref?(): void }).unref?.();
  });
  try {
    return await Promise.race([coming, stalled]);
  } finally {
    clearTimeout(timer);
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** The words of anything thrown. */
export function reason(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
