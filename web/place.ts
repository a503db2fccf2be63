/** Where the package's files are. */

/** Starts the worker: the package's own beside this file, unless the caller has it elsewhere. */
export function startWorker(url: string | URL | undefined): Worker {
  if (url !== undefined) return new Worker(absolute(url), { type: 'module', name: 'kitfox' });
  // Bundlers know a worker by this very form.
  return new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name: 'kitfox' });
}

/** A URL as the page means it. */
export function absolute(url: string | URL): string {
  return new URL(url, globalThis.document?.baseURI ?? globalThis.location?.href).href;
}
