/**
 * What the engine found out about this machine's GPU at a start (which kernels agree with their twins, which are quickest), kept by the
 * origin for the next start: a few kilobytes of text under a name that changes with adapter, browser features and shaders.
 */

import { reason } from './download.js';

/** The Cache API's name for them; the models' is another. */
const CACHE = 'kitfox-start-up';
/** Names kept at once: a machine has few adapters, and the names of an older version are of no use. */
const MOST = 4;

/** Read whole before the engine starts, because it asks within a call. */
export class Kept {
  readonly #cache: Cache;
  readonly #words = new Map<string, string>();

  private constructor(cache: Cache) {
    this.#cache = cache;
  }

  /** All that is kept; undefined where a page may keep nothing (not https, private windows, storage refused). */
  static async open(storage: CacheStorage | undefined): Promise<Kept | undefined> {
    try {
      if (storage === undefined) return undefined;
      const kept = new Kept(await storage.open(CACHE));
      for (const request of await kept.#cache.keys()) {
        const response = await kept.#cache.match(request);
        if (response !== undefined) kept.#words.set(nameOf(request.url), await response.text());
      }
      return kept;
    } catch (thrown) {
      console.debug(`kitfox: what a start finds out is not kept: ${reason(thrown)}`);
      return undefined;
    }
  }

  recall(name: string): string | undefined {
    return this.#words.get(name);
  }

  /** Kept at once for this worker, and soon for the next. */
  remember(name: string, words: string): void {
    this.#words.delete(name);
    this.#words.set(name, words);
    const older = [...this.#words.keys()].slice(0, -MOST);
    for (const old of older) this.#words.delete(old);
    const writes = [this.#cache.put(addressOf(name), new Response(words)), ...older.map((old) => this.#cache.delete(addressOf(old)))];
    // Storage that fills up or is withdrawn costs the next start its time, nothing else.
    for (const write of writes) write.catch((thrown: unknown) => console.debug(`kitfox: ${name} is not kept: ${reason(thrown)}`));
  }
}

/** The Cache API wants an address; nothing is ever fetched from this one. */
const addressOf = (name: string): string => new URL(`/${CACHE}/${encodeURIComponent(name)}`, location.origin).href;

const nameOf = (address: string): string => decodeURIComponent(address.slice(address.lastIndexOf('/') + 1));
