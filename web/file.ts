/** Files of the user's machine: a `Blob` of the page, and in Node a path. They are read where they are: nothing is kept, and nothing tried twice. */

import { sha256 } from './digest.js';
import { reason } from './download.js';
import { KitfoxError } from './errors.js';
import { MOST_MANIFEST_BYTES, PIECE_BYTES, parseManifest, readManifest, type Manifest } from './manifest.js';
import { builtin } from './node.js';
import type { Wish } from './served.js';

/** Of Node's `fs`. */
interface Files {
  openAsBlob(path: string): Promise<Blob>;
  promises: { stat(path: string): Promise<{ isFile(): boolean; isDirectory(): boolean }>; access(path: string, mode: number): Promise<void> };
  constants: { R_OK: number };
}

/** A piece after the other of a `Blob`, each held against its manifest if there is one. */
export class BlobPart {
  readonly length: number;
  readonly #blob: Blob;
  readonly #name: string;
  readonly #wish: Pick<Wish, 'onBytes' | 'onVerify'>;
  readonly #manifest: Manifest | undefined;
  #ix = 0;

  constructor(blob: Blob, name: string, wish: Pick<Wish, 'onBytes' | 'onVerify'>, manifest?: Manifest) {
    if (manifest !== undefined && manifest.bytes !== blob.size) {
      throw new KitfoxError('integrity', `${name}: expected ${manifest.bytes} bytes by its manifest, got ${blob.size}`);
    }
    [this.#blob, this.#name, this.#wish, this.#manifest] = [blob, name, wish, manifest];
    this.length = blob.size;
  }

  async next(): Promise<Uint8Array> {
    const from = this.#ix * PIECE_BYTES;
    const bytes = await this.#read(from);
    this.#wish.onBytes(bytes.length);
    if (this.#manifest !== undefined && bytes.length > 0) await this.#verify(bytes, this.#manifest.sha256[this.#ix], from);
    this.#ix += 1;
    return bytes;
  }

  /** A browser or Node reads the file only now: it may be gone, or another one. */
  async #read(from: number): Promise<Uint8Array> {
    try {
      return new Uint8Array(await this.#blob.slice(from, from + PIECE_BYTES).arrayBuffer());
    } catch (cause) {
      throw unreadable(`${this.#name}: byte ${from}`, cause);
    }
  }

  async #verify(bytes: Uint8Array, wanted: string | undefined, from: number): Promise<void> {
    this.#wish.onVerify();
    const got = await sha256(bytes);
    if (got !== wanted) throw new KitfoxError('integrity', `${this.#name}: piece ${this.#ix} (from byte ${from}): expected SHA-256 ${wanted ?? 'of none'}, got ${got}`);
  }

  async accept(): Promise<void> {}

  async close(): Promise<void> {}
}

/** Whether an address is that of a file that can be read without a server: in Node. */
export function isFile(url: string): boolean {
  return url.startsWith('file:') && builtin('node:fs') !== undefined;
}

/** Opens a file of the system. */
export async function openFile(url: string, wish: Omit<Wish, 'manifest'>, manifest: Manifest | string | undefined): Promise<BlobPart> {
  const blob = await blobAt(url);
  const { retries } = wish;
  const onRetry = (why: string, waitMs: number): void => wish.onEvent({ kind: 'retry', url, reason: why, waitMs });
  const served = { fresh: true, onRetry, ...(retries === undefined ? {} : { retries }) };
  return new BlobPart(blob, pathOf(url), wish, typeof manifest === 'string' ? await readManifest(manifest, served) : manifest);
}

/** The bytes at a path, read as they are asked for; what is no file or may not be read is an `io` error that says so. */
export async function blobAt(url: string): Promise<Blob> {
  const path = pathOf(url);
  const files = builtin<Files>('node:fs');
  if (files === undefined) throw new KitfoxError('io', `${path}: cannot be read: there is no file system here`);
  try {
    const found = await files.promises.stat(path);
    if (!found.isFile()) throw new Error(found.isDirectory() ? 'it is a directory' : 'it is no regular file');
    await files.promises.access(path, files.constants.R_OK);
    return await files.openAsBlob(path);
  } catch (cause) {
    throw unreadable(path, cause);
  }
}

/** A manifest of the system. */
export async function manifestFile(url: string): Promise<Manifest> {
  const path = pathOf(url);
  const blob = await blobAt(url);
  const bytes = await blob.slice(0, MOST_MANIFEST_BYTES + 1).arrayBuffer().catch((cause) => {
    throw unreadable(path, cause);
  });
  return parseManifest(path, new Uint8Array(bytes));
}

/** As the system writes it. */
function pathOf(url: string): string {
  try {
    return builtin<{ fileURLToPath(url: string): string }>('node:url')?.fileURLToPath(url) ?? url;
  } catch {
    return url; // of another host, say: the system will refuse it
  }
}

/** The system's words without its call and the path, which are said already. */
function unreadable(place: string, cause: unknown): KitfoxError {
  const words = reason(cause);
  const [, code, why = words] = /^(E[A-Z]+): ([^,]+)/.exec(words) ?? [];
  return new KitfoxError('io', `${place}: cannot be read: ${why}${code === undefined ? '' : ` (${code})`}`, { cause });
}
