/**
 * A file on a server, piece by piece: out of the cache as far as it is there, else downloaded, checked, and put there. Complete and found
 * right, it is read without the network. One transfer of a file at a time, across tabs: who comes second waits and then reads the cache.
 */

import { Entry, lock, lockIfFree, noRoom } from './cache.js';
import { sha256 } from './digest.js';
import { Download, StartOver, answered, fileLength, isWebPage, reason, versionOf, type DownloadSettings, type Version } from './download.js';
import { KitfoxError } from './errors.js';
import { PIECE_BYTES, readManifest, type Manifest } from './manifest.js';
import type { CacheChoice, LoadEvent } from './loading.js';

/** How a file is wanted. */
export interface Wish {
  cache: CacheChoice;
  /** What its pieces are held against: a manifest, or where one is. */
  manifest?: Manifest | string;
  /** Whether the server is asked if a complete copy is still the file that it has. */
  revalidate: boolean;
  retries?: number;
  /** Whether the browser's own cache is passed over. */
  fresh: boolean;
  onEvent: (event: LoadEvent) => void;
  /** Hears of bytes as they come, and of a piece being checked. */
  onBytes: (n: number) => void;
  onVerify: () => void;
}

const EMPTY = new Uint8Array(0);
/** How long a server is waited for that is only asked whether it has another version: what is here can be used meanwhile. */
const PATIENCE_MS = 3000;

/** An open file. */
export class ServedFile {
  readonly name: string;
  length: number | undefined;

  readonly #wish: Wish;
  #entry: Entry | undefined;
  /** Whether new pieces are put into the cache. */
  #keeps = false;
  /** Lets go of the lock of who writes, while it is held. */
  #release: (() => void) | undefined;
  #manifest: Manifest | undefined;
  #download: Download | undefined;
  /** Pieces that are read from the cache, from the first. */
  #cached = 0;
  /** The next piece. */
  #ix = 0;
  #bytes = 0;
  #refetched = -1;
  /** What the server says that it has; `null` when it says nothing of use. Asked once, for both looks at the cache. */
  #server: { version: Version; length: number | undefined } | null | undefined;
  /** Why the copy is passed over, told once. */
  #passedOver = '';

  private constructor(url: string, wish: Wish) {
    this.name = url;
    this.#wish = wish;
  }

  /** Finds it in the cache or asks the server for it. `StartOver`, now or while it is read: open it anew. */
  static async open(url: string, wish: Wish): Promise<ServedFile> {
    const file = new ServedFile(url, wish);
    try {
      await file.#begin();
      return file;
    } catch (thrown) {
      await file.close();
      throw thrown;
    }
  }

  /** The next piece; an empty one at the end. */
  async next(): Promise<Uint8Array> {
    const bytes = this.#ix < this.#cached ? await this.#kept() : await this.#fetched();
    if (bytes.length > 0) this.#ix += 1;
    this.#bytes += bytes.length;
    return bytes;
  }

  /** All of it was read and is a model: from now on the copy is used without the network. */
  async accept(): Promise<void> {
    if (this.#entry === undefined || !this.#keeps) return;
    try {
      await this.#entry.publish(this.#bytes, this.#manifest !== undefined);
    } catch (thrown) {
      this.#uncached(reason(thrown));
    }
  }

  /** Ends the transfer. What is in the cache stays for the next load, unless the file was `refused`. */
  async close(refused = false): Promise<void> {
    await this.#download?.close();
    const entry = this.#entry;
    this.#entry = this.#download = undefined;
    try {
      if (refused && entry !== undefined && entry.journal?.complete === undefined) await entry.remove();
      else await entry?.close();
    } catch {
      // What a store cannot let go of, the end of the worker does.
    }
    this.#unlock();
  }

  #unlock(): void {
    this.#release?.();
    this.#release = undefined;
  }

  async #begin(): Promise<void> {
    if (this.#wish.cache !== 'off') await this.#look();
    if (this.#entry?.journal?.complete !== undefined) return;
    if (this.#wish.cache === 'only') throw new KitfoxError('not-cached', `${this.name}: no complete copy is in the cache, and cache is 'only'`);
    this.#manifest ??= await this.#readManifest();
    await this.#goOn();
    if (this.#download === undefined) await this.#start();
    const [known, got] = [this.#manifest?.bytes, this.#download?.length];
    if (known !== undefined && got !== undefined && known !== got) throw new KitfoxError('integrity', `${this.name}: expected ${known} bytes by its manifest, got ${got}`);
    this.length = known ?? this.#download?.length ?? this.#entry?.journal?.length;
    // What another origin's file has on the wire is no length to rely on, but less room than that is certainly too little.
    const bytes = this.length ?? this.#download?.estimate;
    if (this.#keeps && bytes !== undefined) await this.#makeRoom(bytes - this.#cached * PIECE_BYTES);
  }

  /** Finds the file's place in the cache; waits for a transfer that is under way. */
  async #look(): Promise<void> {
    const entry = await Entry.open(this.name);
    if ('unavailable' in entry) return this.#uncached(entry.unavailable);
    this.#entry = entry;
    if ((await this.#isComplete(entry)) || this.#wish.cache === 'only') return;
    this.#release = await this.#turn(await entry.lockName());
    await entry.look();
    if (await this.#isComplete(entry)) this.#unlock();
  }

  async #turn(name: string): Promise<() => void> {
    const free = await lockIfFree(name);
    if (free !== undefined) return free;
    this.#wish.onEvent({ kind: 'waiting', url: this.name });
    return lock(name);
  }

  /** Whether there is a complete copy, as the caller wants it; then it is what will be read. */
  async #isComplete(entry: Entry): Promise<boolean> {
    const { journal } = entry;
    if (journal?.complete === undefined) return false;
    const { manifest } = this.#wish;
    if (manifest !== undefined && (typeof manifest === 'object' || !journal.complete.checked)) {
      const its = (this.#manifest ??= await this.#readManifest(0).catch((thrown: unknown) => this.#unchecked(thrown)));
      if (its !== undefined) {
        if (its.bytes !== journal.complete.bytes || !agrees(journal.hashes, its)) return this.#outdated(entry, 'it is not the file of the manifest');
        await entry.confirm();
      }
    }
    const other = this.#wish.revalidate ? await this.#other(entry) : undefined;
    if (other !== undefined) return this.#outdated(entry, other);
    this.length = journal.complete.bytes;
    this.#cached = journal.hashes.length;
    this.#wish.onEvent({ kind: 'cached', url: this.name, bytes: this.length });
    return true;
  }

  /** Where the manifest cannot be had the copy is used all the same, as it would be without one; the next load asks again. */
  #unchecked(thrown: unknown): undefined {
    this.#wish.onEvent({ kind: 'unchecked', url: this.name, reason: reason(thrown) });
  }

  #outdated(entry: Entry, why: string): false {
    entry.journal = undefined;
    if (this.#passedOver === why) return false;
    this.#passedOver = why;
    this.#wish.onEvent({ kind: 'restart', url: this.name, reason: `${this.name}: the copy in the cache is passed over: ${why}` });
    return false;
  }

  /** How the server's file differs from the copy. A server that does not answer has no word in it. */
  async #other(entry: Entry): Promise<string | undefined> {
    if (this.#server === undefined) this.#server = await this.#asked();
    if (this.#server === null) return undefined;
    const { version = {}, complete } = entry.journal ?? {};
    const { version: now, length } = this.#server;
    if (length !== undefined && length !== complete?.bytes) return `the server's file has ${length} bytes, it has ${complete?.bytes}`;
    const same = (mine?: string, its?: string): boolean => mine === undefined || its === undefined || mine === its;
    return same(version.etag, now.etag) && same(version.lastModified, now.lastModified) ? undefined : 'the server has another version';
  }

  async #asked(): Promise<{ version: Version; length: number | undefined } | null> {
    const response = await answered(fetch, this.name, { method: 'HEAD', cache: 'no-store' }, PATIENCE_MS).catch(() => undefined);
    // A network that wants one to sign in answers with its page whatever is asked for; and no model has no bytes.
    if (response?.ok !== true || isWebPage(response)) return null;
    const length = fileLength(response);
    return length === 0 ? null : { version: versionOf(response), length };
  }

  async #readManifest(retries = this.#wish.retries): Promise<Manifest | undefined> {
    const { manifest } = this.#wish;
    if (typeof manifest !== 'string') return manifest;
    return readManifest(manifest, { ...this.#settings(true), ...(retries === undefined ? {} : { retries }) });
  }

  /** Goes on with what is in the cache, if that is still the server's file. */
  async #goOn(): Promise<void> {
    const { journal } = this.#entry ?? {};
    const manifest = this.#manifest;
    if (this.#entry === undefined || journal === undefined || journal.hashes.length === 0) return;
    const { version, hashes } = journal;
    const known = version.etag !== undefined || version.lastModified !== undefined;
    if (manifest === undefined ? !known : !agrees(hashes, manifest)) return;
    const from = hashes.length * PIECE_BYTES;
    const length = manifest?.bytes ?? journal.length;
    try {
      // All pieces may be there, and only the last line be missing.
      if (length === undefined || from < length) {
        this.#download = await Download.open(this.name, { ...this.#settings(true), from, version, length });
      }
      await this.#entry.resume();
    } catch (thrown) {
      if (thrown instanceof StartOver) return this.#wish.onEvent({ kind: 'restart', url: this.name, reason: thrown.message });
      if (thrown instanceof KitfoxError) throw thrown;
      await this.#download?.close();
      this.#download = undefined;
      return this.#uncached(reason(thrown));
    }
    [this.#keeps, this.#cached] = [true, hashes.length];
    this.#wish.onEvent({ kind: 'resume', url: this.name, atByte: Math.min(from, length ?? from) });
    if (this.#download === undefined) this.length = length;
  }

  /** Begins at the start of the file. */
  async #start(): Promise<void> {
    if (this.#cached > 0) return;
    this.#download = await Download.open(this.name, this.#settings(this.#wish.fresh));
    try {
      await this.#entry?.begin(this.#download.version, this.#download.length);
      this.#keeps = this.#entry !== undefined;
    } catch (thrown) {
      this.#uncached(reason(thrown));
    }
  }

  async #makeRoom(bytes: number): Promise<void> {
    const lack = await noRoom(bytes);
    if (lack === undefined) return;
    this.#keeps = false;
    this.#wish.onEvent({ kind: 'uncached', url: this.name, reason: lack });
  }

  #settings(fresh: boolean): DownloadSettings {
    const onRetry = (why: string, waitMs: number): void => this.#wish.onEvent({ kind: 'retry', url: this.name, reason: why, waitMs });
    const { retries, onBytes } = this.#wish;
    return { fresh, checked: this.#manifest !== undefined, onRetry, onBytes, ...(retries === undefined ? {} : { retries }) };
  }

  /** A piece of the cache. */
  async #kept(): Promise<Uint8Array> {
    this.#wish.onVerify();
    const bytes = await this.#entry?.piece(this.#ix);
    if (bytes !== undefined) {
      this.#wish.onBytes(bytes.length);
      return bytes;
    }
    if (this.#entry !== undefined) await this.#discard(this.#entry).catch(() => undefined);
    throw new StartOver(`${this.name}: piece ${this.#ix} of the copy in the cache is damaged`);
  }

  /** Removes the copy whose piece is damaged. Who reads holds no lock: another tab may have put a sound copy in its place meanwhile. */
  async #discard(entry: Entry): Promise<void> {
    if (this.#release !== undefined) return entry.remove();
    const release = await lockIfFree(await entry.lockName());
    // Whoever holds it puts another copy in this one's place: to wait for that would be to wait for a whole transfer.
    if (release === undefined) return;
    try {
      await entry.close(); // of the file that was there when it was opened
      await entry.look();
      const told = entry.journal?.hashes[this.#ix] !== undefined;
      if (told && (await entry.piece(this.#ix)) === undefined) await entry.remove();
    } finally {
      release();
    }
  }

  /** A piece of the server, checked and put into the cache. */
  async #fetched(): Promise<Uint8Array> {
    const bytes = (await this.#download?.read(PIECE_BYTES)) ?? EMPTY;
    if (bytes.length === 0) {
      if (this.#manifest !== undefined && this.#bytes !== this.#manifest.bytes) {
        throw new KitfoxError('integrity', `${this.name}: expected ${this.#manifest.bytes} bytes by its manifest, got ${this.#bytes}`);
      }
      return bytes;
    }
    if (this.#manifest === undefined && !this.#keeps) return bytes;
    this.#wish.onVerify();
    const hash = await sha256(bytes);
    const wanted = this.#manifest?.sha256[this.#ix];
    if (this.#manifest !== undefined && hash !== wanted) return this.#refetch(wanted, hash);
    if (this.#keeps) {
      await this.#entry?.add(bytes, hash).catch((thrown: unknown) => this.#uncached(reason(thrown)));
    }
    return bytes;
  }

  /** Asks once more for a piece that is not the manifest's. */
  async #refetch(wanted: string | undefined, got: string): Promise<Uint8Array> {
    const from = this.#ix * PIECE_BYTES;
    const message = `${this.name}: piece ${this.#ix} (from byte ${from}): expected SHA-256 ${wanted ?? 'of none'}, got ${got}`;
    if (this.#refetched === this.#ix || wanted === undefined) throw new KitfoxError('integrity', message);
    this.#refetched = this.#ix;
    this.#wish.onEvent({ kind: 'retry', url: this.name, reason: message, waitMs: 0 });
    const version = this.#download?.version ?? {};
    await this.#download?.close();
    this.#download = await Download.open(this.name, { ...this.#settings(true), from, version, length: this.#manifest?.bytes });
    return this.#fetched();
  }

  /** Goes on without the cache. What is in it can still be read. */
  #uncached(why: string): void {
    this.#keeps = false;
    this.#wish.onEvent({ kind: 'uncached', url: this.name, reason: why });
  }
}

const agrees = (hashes: readonly string[], manifest: Manifest): boolean => hashes.every((hash, ix) => hash === manifest.sha256[ix]);
