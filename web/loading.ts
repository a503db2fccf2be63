/** The types of where a model comes from and how it is brought here, and the check of what was written. */

import { checkValue, flag, isThere, location, oneOf, whole, type Check } from './check.js';
import { KitfoxError } from './errors.js';
import { checkManifest, type Manifest } from './manifest.js';

/** One file: on a server, of the user's machine, or its bytes. */
export type LoadPart = string | URL | Blob | ArrayBuffer | Uint8Array;

/** A GGUF file, or the parts that it was cut into, in order (`split -b 1G model.gguf`). */
export type LoadSource = LoadPart | readonly LoadPart[];

/** `auto`: kept on the user's machine where that can be. `off`: neither read nor kept. `only`: no network, so no manifest from a URL and no `revalidate`. */
export type CacheChoice = 'auto' | 'off' | 'only';

/** What happens on the way. `reason` is for people. */
export type LoadEvent =
  /** A complete copy is used, without the network. */
  | { kind: 'cached'; url: string; bytes: number }
  /** Another load, of this tab or another one, transfers the file: its copy is waited for. */
  | { kind: 'waiting'; url: string }
  /** A transfer goes on where one before ended. */
  | { kind: 'resume'; url: string; atByte: number }
  /** An attempt failed; the next follows in `waitMs`. */
  | { kind: 'retry'; url: string; reason: string; waitMs: number }
  /** What was had is thrown away: the file has changed, or the copy is damaged. */
  | { kind: 'restart'; url: string; reason: string }
  /** A complete copy is used that no manifest was held against: the one that was asked for cannot be had. */
  | { kind: 'unchecked'; url: string; reason: string }
  /** The load goes on without keeping the file. */
  | { kind: 'uncached'; url: string; reason: string }
  /** The GPU's device was lost, during the load or any time later: model, sessions and the answer under way are brought back. */
  | { kind: 'recover'; url: string; reason: string };

/** What a load is busy with. */
export type LoadPhase = 'fetch' | 'verify' | 'upload' | 'compile';

/** How far a load is. */
export interface LoadProgress {
  /** What it is busy with. */
  phase: LoadPhase;
  /** Bytes of the model's tensors that are in place. */
  doneBytes: number;
  /** Bytes of all tensors. */
  totalBytes: number;
  /** Bytes of the file that came in a second, from the network or the cache, over the last few. */
  bytesPerSecond: number;
}

/** Options of `Kitfox.load` about the way of the file. */
export interface TransferOptions {
  /** Called as the load goes on. */
  onProgress?: (progress: LoadProgress) => void;
  /** Called when something happens on the way that is no error; `recover` may come as long as the model lives. */
  onEvent?: (event: LoadEvent) => void;
  /** Default `auto`. */
  cache?: CacheChoice;
  /** Whether the server is asked (`HEAD`) if the complete copy is still its file; without an answer the copy is used. Default false. */
  revalidate?: boolean;
  /** Whether the browser is asked not to clear this origin's files by itself. Default false. */
  persist?: boolean;
  /**
   * The file's manifest (`kitfox manifest FILE`), by which each piece is checked: itself, its URL, or `true` for the file's URL with
   * `.manifest.json` behind its path. A complete copy is held against it once, and used `unchecked` where it cannot be had.
   */
  manifest?: true | string | URL | Manifest;
  /** Attempts after the first when a connection breaks or a server is busy, without a byte in between. Default 4. */
  retries?: number;
}

/** How a part goes to the worker. */
export type SentPart = { url: string; manifest?: string | Manifest } | { blob: Blob; name: string };

/** The checks of those options that are not functions. */
export const TRANSFER: Record<Exclude<keyof TransferOptions, 'onProgress' | 'onEvent'>, Check> = {
  cache: oneOf('auto', 'off', 'only'),
  revalidate: flag,
  persist: flag,
  // What a manifest holds is checked with its error's own words.
  manifest: (value) => (value === true || location(value) === undefined || typeof value === 'object' ? undefined : 'true, a URL or a manifest'),
  retries: whole(0, 100),
};

const isBytes = (part: unknown): part is ArrayBuffer | Uint8Array => part instanceof ArrayBuffer || part instanceof Uint8Array;
const isPart = (part: unknown): boolean => (typeof part === 'string' && part !== '') || part instanceof URL || part instanceof Blob || (isBytes(part) && isThere(part));

/** Throws an `argument` error unless this is a source. */
export function checkSource(source: unknown, call = 'load'): void {
  // One word is for most callers: a URL.
  if (!Array.isArray(source)) return checkValue(call, 'url', source, (value) => (isPart(value) ? undefined : 'a URL, a Blob or bytes'));
  checkValue(call, 'url', source, (value) => {
    const parts = [...(value as unknown[])]; // spread: a hole is no part
    return parts.length > 0 && parts.every(isPart) ? undefined : 'a list of parts, at least one, each a URL, a Blob or bytes';
  });
}

/** A source as it goes to the worker: with absolute URLs, and bytes as a `Blob`, which the browser need not hold in memory. */
export function sent(
  call: string,
  source: LoadSource,
  manifest: TransferOptions['manifest'],
  absolute: (call: string, name: string, url: string | URL) => string,
): SentPart[] {
  const list = Array.isArray(source);
  const parts = (list ? source : [source]) as readonly LoadPart[];
  if (list && manifest !== undefined && manifest !== true) throw new KitfoxError('argument', `${call}: manifest: expected true for a list of parts, got one manifest`);
  const urls = new Set<string>();
  return parts.map((part, ix) => {
    if (typeof part !== 'string' && !(part instanceof URL)) {
      if (manifest !== undefined && !list) throw new KitfoxError('argument', `${call}: manifest: expected a URL as the source, got a Blob or bytes`);
      const blob = part instanceof Blob ? part : blobOf(call, part);
      const name = part instanceof Blob && 'name' in part && typeof part.name === 'string' ? part.name : list ? `part ${ix}` : 'bytes';
      return { blob, name };
    }
    const url = new URL(absolute(call, 'url', part));
    url.hash = '';
    // The second transfer of the same file would wait for the first.
    if (urls.has(url.href)) throw new KitfoxError('argument', `${call}: url: expected each part once, got ${url.href} twice`);
    urls.add(url.href);
    return { url: url.href, ...(manifest === undefined ? {} : { manifest: manifestOf(call, url, manifest, absolute) }) };
  });
}

/** Bytes as a `Blob`. Memory that threads share is copied first: a browser refuses it. */
function blobOf(call: string, bytes: ArrayBuffer | Uint8Array): Blob {
  const shared = bytes instanceof Uint8Array && !(bytes.buffer instanceof ArrayBuffer);
  try {
    return new Blob([(shared ? bytes.slice() : bytes) as BlobPart]);
  } catch (cause) {
    throw new KitfoxError('argument', `${call}: url: expected bytes that can be read: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
}

/** A part without what a server would have to be asked for. */
export const unasked = (part: SentPart): SentPart => ('url' in part && typeof part.manifest === 'string' ? { url: part.url } : part);

function manifestOf(
  call: string,
  url: URL,
  manifest: NonNullable<TransferOptions['manifest']>,
  absolute: (call: string, name: string, url: string | URL) => string,
): string | Manifest {
  if (manifest === true) {
    const beside = new URL(url);
    beside.pathname += '.manifest.json';
    return beside.href;
  }
  if (typeof manifest === 'string' || manifest instanceof URL) return absolute(call, 'manifest', manifest);
  return checkManifest(`${call}: manifest`, manifest);
}
