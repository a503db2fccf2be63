/** Where the package's files are. */

import { KitfoxError } from './errors.js';
import { ThreadWorker, fileAt, inNode, tooOld } from './node.js';

/** Where this module is; a bundler takes only the very form `new URL('…', import.meta.url)` for a file to pack. */
const here = import.meta.url;

/** Starts the worker: the package's own beside this file, unless the caller has it elsewhere. */
export function startWorker(call: string, url: string | URL | undefined): Worker {
  const elsewhere = url === undefined ? undefined : absolute(call, 'workerUrl', url);
  try {
    if (inNode()) return new ThreadWorker(new URL(elsewhere ?? './node-worker.js', here)) as unknown as Worker;
    if (elsewhere !== undefined) return new Worker(elsewhere, { type: 'module', name: 'kitfox' });
    // Bundlers know a worker by this very form.
    return new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name: 'kitfox' });
  } catch (cause) {
    // Another origin, a policy of the page, or no browser at all.
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new KitfoxError('worker', `the worker cannot be started: ${reason}`, { cause });
  }
}

/** What is no path: two letters at least, since Windows' drives have one. */
const WITH_SCHEME = /^([a-z][a-z0-9+.-]+:\/\/|(blob|data|file):)/i;

/** A URL as the page means it, in Node also a path; `name` is the argument of `call` that holds it. */
export function absolute(call: string, name: string, url: string | URL): string {
  try {
    const base = globalThis.document?.baseURI ?? globalThis.location?.href;
    const path = base === undefined && typeof url === 'string' && !WITH_SCHEME.test(url) ? fileAt(url) : undefined;
    return (path ?? new URL(url, base)).href;
  } catch (cause) {
    const old = tooOld();
    if (old !== undefined) throw new KitfoxError('worker', `the worker cannot be started: ${old}`, { cause });
    throw new KitfoxError('argument', `${call}: ${name}: expected a URL, got ${JSON.stringify(url)}`, { cause });
  }
}
