/**
 * What `kitfox manifest` writes: the SHA-256 of a model file in pieces, so that each piece can be checked as it arrives. Where a manifest
 * comes from is what makes it worth trusting: the page's own text, or its own server for a file that lies on another.
 */

import { Download, StartOver, reason, type DownloadSettings } from './download.js';
import { KitfoxError } from './errors.js';

/** Bytes of a piece, but for the last. */
export const PIECE_BYTES = 4 * 2 ** 20;

/** A manifest, as `kitfox manifest` writes it. */
export interface Manifest {
  /** Of the format. */
  version: 1;
  /** Name of the file. */
  file: string;
  /** Its length. */
  bytes: number;
  /** Bytes of a piece, but for the last: 4 MiB. */
  piece_bytes: number;
  /** Of each piece, in hexadecimal. */
  sha256: readonly string[];
  /** Of the whole file, for other tools. */
  whole: string;
}

/** No manifest is longer: that of a file of 500 GB has 8 MB. */
export const MOST_MANIFEST_BYTES = 16 * 2 ** 20;

/** Downloads a manifest. */
export async function readManifest(url: string, settings: DownloadSettings): Promise<Manifest> {
  const download = await Download.open(url, settings);
  let bytes: Uint8Array;
  try {
    bytes = await download.read(Math.min(download.length ?? MOST_MANIFEST_BYTES, MOST_MANIFEST_BYTES) + 1);
  } catch (thrown) {
    // It is short: another attempt is the next load's.
    throw thrown instanceof StartOver ? new KitfoxError('network', thrown.message, { cause: thrown }) : thrown;
  } finally {
    await download.close();
  }
  return parseManifest(url, bytes);
}

/** A manifest out of the bytes of its file, of which the first `MOST_MANIFEST_BYTES` and one more are enough. */
export function parseManifest(name: string, bytes: Uint8Array): Manifest {
  if (bytes.length > MOST_MANIFEST_BYTES) throw wrong(name, 'length', `at most ${MOST_MANIFEST_BYTES} bytes`, 'more');
  try {
    return checkManifest(name, JSON.parse(new TextDecoder().decode(bytes)));
  } catch (cause) {
    throw cause instanceof KitfoxError ? cause : wrong(name, 'text', 'JSON', reason(cause));
  }
}

/** Gives the value as a manifest, or throws a `format` error that names what is wrong; `name` is what it came from. */
export function checkManifest(name: string, value: unknown): Manifest {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw wrong(name, 'manifest', 'an object', typeof value);
  const { version, file, bytes, piece_bytes, sha256, whole } = value as { [K in keyof Manifest]?: unknown };
  if (version !== 1) throw wrong(name, 'version', '1', version);
  if (typeof file !== 'string') throw wrong(name, 'file', 'a name', file);
  if (typeof bytes !== 'number' || !Number.isSafeInteger(bytes) || bytes < 1) throw wrong(name, 'bytes', 'a whole number above 0', bytes);
  if (piece_bytes !== PIECE_BYTES) throw wrong(name, 'piece_bytes', String(PIECE_BYTES), piece_bytes);
  const n = Math.ceil(bytes / PIECE_BYTES);
  if (!Array.isArray(sha256)) throw wrong(name, 'sha256', 'a list', typeof sha256);
  if (sha256.length !== n) throw wrong(name, 'sha256', `${n} pieces of ${bytes} bytes`, sha256.length);
  const ix = sha256.findIndex((hash) => !isHash(hash));
  if (ix >= 0) throw wrong(name, `sha256[${ix}]`, '64 hexadecimal digits', sha256[ix]);
  if (!isHash(whole)) throw wrong(name, 'whole', '64 hexadecimal digits', whole);
  return { version, file, bytes, piece_bytes, sha256: [...(sha256 as string[])], whole };
}

const isHash = (value: unknown): value is string => typeof value === 'string' && /^[0-9a-f]{64}$/.test(value);

function wrong(name: string, place: string, expected: string, got: unknown): KitfoxError {
  const shown = typeof got === 'object' && got !== null ? 'an object' : String(got).slice(0, 80);
  return new KitfoxError('format', `${name}: ${place}: expected ${expected}, got ${shown}`);
}
