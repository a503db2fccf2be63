// The page without the network: its files are kept at the first visit, whole versions at a time, and given from there ever after. Model
// files are kept by the package itself. The build puts VERSION, FILES, HOSTS and POLICY in front of this (vite.config.mjs).
/* global VERSION, FILES, HOSTS, POLICY */

const PREFIX = 'kitfox page ';
const NAME = PREFIX + VERSION;
const FOLDER = new URL('./', self.location.href).href;

/** Which of our files an address names, if any; what follows `?` is the page's own affair. */
function fileOf(address) {
  const url = new URL(address);
  const path = url.origin + url.pathname;
  if (!path.startsWith(FOLDER)) return undefined;
  const name = path.slice(FOLDER.length) || 'index.html';
  return FILES.includes(name) ? name : undefined;
}

async function fill() {
  const cache = await caches.open(NAME);
  // A name with a hash is that of one content; of the others a copy on the way may be old.
  const requests = FILES.map((name) => new Request(FOLDER + name, { cache: name.startsWith('assets/') ? 'default' : 'no-cache' }));
  await cache.addAll(requests);
}

async function takeOver() {
  const old = (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== NAME);
  await Promise.all(old.map((name) => caches.delete(name)));
  await self.clients.claim();
}

/** A file of ours, with the policy: a worker heeds only the one that comes with its script. */
async function give(name, request) {
  const kept = await (await caches.open(NAME)).match(FOLDER + name);
  // A browser that clears what it keeps.
  if (kept === undefined) return fetch(request);
  const headers = new Headers(kept.headers);
  headers.set('content-security-policy', POLICY);
  return new Response(kept.body, { status: 200, headers });
}

/** Other hosts are none of our pages' business; those of another page in this folder are its own. */
async function giveForeign(event) {
  const client = await self.clients.get(event.clientId);
  const ours = client !== undefined && fileOf(client.url) !== undefined;
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
  const name = event.request.method === 'GET' ? fileOf(event.request.url) : undefined;
  if (name !== undefined) event.respondWith(give(name, event.request));
});
