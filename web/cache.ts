/**
 * Model files kept on the user's machine. Each has its pieces, and a journal: one line that says which file and version it is, then a
 * SHA-256 for each piece that is whole, at last a line that it is complete, and another once a manifest agreed. A piece is in place before its line is
 * written, a line that is cut ends the journal, and every piece is held against its line when it is read: what a crash leaves is resumed or thrown
 * away, never believed.
 *
 * OPFS where there is one (`DiskStore`), else the Cache API (`ResponseStore`). Both exist on secure pages only.
 */

import { sha256 } from './digest.js';
import { reason, type Version } from './download.js';
import { KitfoxError, aborted, unlessAborted } from './errors.js';
import { PIECE_BYTES } from './manifest.js';
import { DiskStore, ResponseStore, type Store } from './store.js';

/** What the journal says. */
export interface Journal {
  url: string;
  version: Version;
  /** Length of the file, if the server told it. */
  length?: number;
  /** SHA-256 of the pieces that are in place, from the first. */
  hashes: string[];
  /** Length of the file, once it is complete, and whether it was held against a manifest. */
  complete?: { bytes: number; checked: boolean };
}

/** One file's place in the cache. */
export class Entry {
  readonly #store: Store;
  readonly url: string;
  journal: Journal | undefined;

  private constructor(url: string, store: Store) {
    this.url = url;
    this.#store = store;
  }

  /** Finds the place of a URL; `undefined` with its reason where nothing can be kept. */
  static async open(url: string): Promise<Entry | { unavailable: string }> {
    if (globalThis.crypto?.subtle === undefined) return { unavailable: 'the page is not served from a secure (https) address' };
    const reasons = [];
    for (const kind of [DiskStore, ResponseStore]) {
      try {
        const entry = new Entry(url, await kind.at(await keyOf(url)));
        await entry.look();
        return entry;
      } catch (thrown) {
        reasons.push(reason(thrown));
      }
    }
    return { unavailable: reasons.join('; ') };
  }

  /** The name of the lock that the one who writes holds. */
  async lockName(): Promise<string> {
    return `kitfox ${await keyOf(this.url)}`;
  }

  /** Reads the journal anew. */
  async look(): Promise<void> {
    const journal = parse(await this.#store.journal());
    this.journal = journal?.url === this.url ? journal : undefined;
  }

  /** Empties the place and begins a file of this version. */
  async begin(version: Version, length: number | undefined): Promise<void> {
    this.journal = { url: this.url, version, ...(length === undefined ? {} : { length }), hashes: [] };
    await this.#store.begin(written(this.journal));
  }

  /** Goes on with what the journal has: anything else is cut off. */
  async resume(): Promise<void> {
    if (this.journal !== undefined) await this.#store.resume(written(this.journal));
  }

  /** Piece `ix`; `undefined` when it is not what was put there. */
  async piece(ix: number): Promise<Uint8Array | undefined> {
    try {
      const bytes = await this.#store.piece(ix);
      return (await sha256(bytes)) === this.journal?.hashes[ix] ? bytes : undefined;
    } catch {
      return undefined; // evicted meanwhile, by the browser or another tab
    }
  }

  /** Puts the next piece in place. */
  async add(bytes: Uint8Array, hash: string): Promise<void> {
    const ix = this.journal?.hashes.length ?? 0;
    await this.#store.put(ix, bytes, `${hash}\n`);
    this.journal?.hashes.push(hash);
  }

  /** The file is whole and was found right: from now on it is used without the network. */
  async publish(bytes: number, checked: boolean): Promise<void> {
    if (this.journal === undefined) return;
    this.journal.complete = { bytes, checked };
    await this.#store.log(`complete ${JSON.stringify(this.journal.complete)}\n`);
  }

  /** The complete copy agrees with its manifest: the next load need not ask for that. */
  async confirm(): Promise<void> {
    if (this.journal?.complete === undefined || this.journal.complete.checked) return;
    try {
      await this.publish(this.journal.complete.bytes, true);
    } catch {
      // Held by another tab, or there is no room for a line: the next load compares again.
    }
    await this.#store.close();
  }

  /** Empties the place. */
  async remove(): Promise<void> {
    this.journal = undefined;
    await this.#store.remove();
  }

  /** Lets go of the files. */
  async close(): Promise<void> {
    await this.#store.close();
  }
}

/** The file's name in the store. */
async function keyOf(url: string): Promise<string> {
  return (await sha256(new TextEncoder().encode(url))).slice(0, 32);
}

/** A journal that is not complete, as text. */
function written({ hashes, ...head }: Journal): string {
  return [JSON.stringify({ kitfox: 1, pieceBytes: PIECE_BYTES, ...head }), ...hashes, ''].join('\n');
}

/** Reads a journal up to the first line that is none; `undefined` when not even the first is. */
export function parse(text: string): Journal | undefined {
  // What follows the last newline was cut.
  const [first, ...lines] = text.split('\n').slice(0, -1);
  let head: { kitfox?: unknown; pieceBytes?: unknown; url?: unknown; version?: unknown; length?: unknown } | null;
  try {
    head = JSON.parse(first ?? '');
  } catch {
    return undefined;
  }
  if (head?.kitfox !== 1 || head.pieceBytes !== PIECE_BYTES || typeof head.url !== 'string') return undefined;
  if (typeof head.version !== 'object' || head.version === null) return undefined;
  const journal: Journal = { url: head.url, version: { ...head.version }, hashes: [] };
  if (typeof head.length === 'number') journal.length = head.length;
  for (const line of lines) {
    if (journal.complete === undefined && /^[0-9a-f]{64}$/.test(line)) journal.hashes.push(line);
    else {
      const found = /^complete \{"bytes":(\d+),"checked":(true|false)\}$/.exec(line);
      const bytes = Number(found?.[1]);
      const right = found !== null && Math.ceil(bytes / PIECE_BYTES) === journal.hashes.length;
      if (!right) break;
      journal.complete = { bytes, checked: found[2] === 'true' };
    }
  }
  return journal;
}

/** A model file that is kept. */
export interface CachedFile {
  /** Where it came from, without a fragment. */
  url: string;
  /** Bytes that are kept. */
  bytes: number;
  /** Whether it is all there: then it loads without the network. */
  complete: boolean;
}

/** All files that are kept. */
export async function list(): Promise<CachedFile[]> {
  const files: CachedFile[] = [];
  for (const kind of [DiskStore, ResponseStore]) {
    // Where this kind of store does not exist nothing is kept in it.
    for (const text of await kind.journals().catch(() => [])) {
      const journal = parse(text);
      if (journal === undefined) continue;
      const bytes = journal.complete?.bytes ?? journal.hashes.length * PIECE_BYTES;
      files.push({ url: journal.url, bytes, complete: journal.complete !== undefined });
    }
  }
  return files;
}

/**
 * Removes a file, after a transfer of it that is under way; false when there was none. Its journal need not be readable. The signal counts
 * until the removal begins.
 */
export async function evict(url: string, signal?: AbortSignal): Promise<boolean> {
  const key = await keyOf(url);
  const stores = async (): Promise<unknown> => Promise.all([DiskStore, ResponseStore].map((kind) => kind.at(key).catch(() => undefined)));
  // A browser that does not answer is left here, where nothing is removed yet.
  await unlessAborted(signal, stores);
  const release = await lock(`kitfox ${key}`, signal);
  try {
    let found = false;
    for (const kind of [DiskStore, ResponseStore]) {
      const store = await kind.at(key).catch(() => undefined);
      if ((await store?.remove()) === true) found = true;
    }
    return found;
  } catch (cause) {
    throw new KitfoxError('io', `${url}: cannot be removed from the cache: ${reason(cause)}`, { cause });
  } finally {
    release();
  }
}

/** Waits for a lock of the origin and gives what lets go of it. Where there are no locks it is had at once. The signal ends the wait. */
export async function lock(name: string, signal?: AbortSignal): Promise<() => void> {
  if (signal?.aborted === true) throw aborted(signal);
  const locks = globalThis.navigator?.locks;
  if (locks === undefined) return () => undefined;
  let release = (): void => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  await new Promise<void>((resolve, reject) => {
    locks
      .request(name, signal === undefined ? {} : { signal }, () => {
        resolve();
        return held;
      })
      .catch((thrown) => reject(signal?.aborted === true ? aborted(signal) : thrown));
  });
  return release;
}

/** The same where nobody holds it; `undefined` where somebody does. */
export async function lockIfFree(name: string): Promise<(() => void) | undefined> {
  const locks = globalThis.navigator?.locks;
  if (locks === undefined) return () => undefined;
  return new Promise((resolve, reject) => {
    locks
      .request(name, { ifAvailable: true }, (lock) => {
        if (lock !== null) return new Promise<void>((release) => resolve(release));
        resolve(undefined);
        return undefined;
      })
      .catch(reject);
  });
}

/** Why `bytes` more will not fit, if that is known. */
export async function noRoom(bytes: number): Promise<string | undefined> {
  const { quota, usage } = (await globalThis.navigator?.storage?.estimate?.().catch(() => undefined)) ?? {};
  if (quota === undefined || usage === undefined || quota - usage >= bytes) return undefined;
  return `the browser's quota: ${bytes} bytes are needed, ${Math.max(quota - usage, 0)} are available`;
}
