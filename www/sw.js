// The page without the network: its files are kept at the first visit, whole versions at a time, and given from there ever after. Model
// files are kept by the package itself. The build puts VERSION, FILES (with their hashes), HOSTS and POLICY in front of this
// (vite.config.mjs).
/* global VERSION, FILES, HOSTS, POLICY */

const FOLDER = new URL('./', self.location.href).href;
/** What is kept is of one folder: another copy of the page may lie in another one of the same origin. */
const PREFIX = `kitfox page ${FOLDER} `;
const NAME = PREFIX + VERSION;
/** The folder of names that have a hash, each of one content. */
const HASHED = 'assets/';

/** The name of an address in our folder, if it is there; what follows `?` is the page's own affair. */
function nameOf(address) {
  const url = new URL(address);
  const path = url.origin + url.pathname;
  return path.startsWith(FOLDER) ? path.slice(FOLDER.length) || 'index.html' : undefined;
}

/** Whether it is that of a file of this version. */
const isFile = (name) => name !== undefined && Object.hasOwn(FILES, name);

/** A file as it is kept. A tab of the version before, whose "Use it" was pressed in another tab, still asks for its own. */
async function keptFile(name) {
  const kept = await (await caches.open(NAME)).match(FOLDER + name);
  return kept ?? (name.startsWith(HASHED) ? caches.match(FOLDER + name) : undefined);
}

/** Keeps this version, or nothing of it: a host in the middle of an update has files of two, and then the version before goes on. */
async function fill() {
  const requests = Object.entries(FILES).map(([name, integrity]) => {
    // Of a name without a hash a copy on the way may be old.
    return new Request(FOLDER + name, { integrity, cache: name.startsWith(HASHED) ? 'default' : 'no-cache' });
  });
  const known = await caches.has(NAME);
  try {
    await (await caches.open(NAME)).addAll(requests);
  } catch (cause) {
    // What was there is whole: all are added, or none.
    if (!known) await caches.delete(NAME);
    throw cause;
  }
}

async function takeOver() {
  const pages = await self.clients.matchAll({ type: 'window', includeUncontrolled: true });
  // One page is the one that asked for this version. Others may yet start the worker of theirs.
  if (pages.filter(({ url }) => isFile(nameOf(url))).length <= 1) {
    const old = (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== NAME);
    await Promise.all(old.map((name) => caches.delete(name)));
  }
  await self.clients.claim();
}

/** A file of ours, with the policy: a worker heeds only the one that comes with its script. */
async function give(name, request) {
  const kept = await keptFile(name);
  // A browser that clears what it keeps.
  if (kept === undefined) return fetch(request);
  const headers = new Headers(kept.headers);
  headers.set('content-security-policy', POLICY);
  return new Response(kept.body, { status: 200, headers });
}

/** Other hosts are none of our pages' business; those of another page in this folder are its own. */
async function giveForeign(event) {
  const client = await self.clients.get(event.clientId);
  const name = client === undefined ? undefined : nameOf(client.url);
  const ours = name !== undefined && (isFile(name) || (await keptFile(name)) !== undefined);
  return ours ? Response.error() : fetch(event.request);
}

self.addEventListener('install', (event) => event.waitUntil(fill()));
self.addEventListener('activate', (event) => event.waitUntil(takeOver()));
// A new version waits until the last page of the old one is closed, or until its reader wants it.
self.addEventListener('message', ({ data }) => data === 'take over' && self.skipWaiting());
self.addEventListener('fetch', (event) => {
  const { origin } = new URL(event.request.url);
  if (origin !== self.location.origin) {
    if (!HOSTS.includes(origin)) event.respondWith(giveForeign(event));
    return;
  }
  const name = event.request.method === 'GET' ? nameOf(event.request.url) : undefined;
  if (name !== undefined && (isFile(name) || name.startsWith(HASHED))) event.respondWith(give(name, event.request));
});
