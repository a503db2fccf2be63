// After the first visit the page needs no server: files and model are on the machine, it can be used within a second, and a new version
// is taken when its reader wants it. What its service worker gives out has the page's policy, by which the page's worker is bound, too.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { cp, mkdtemp, readFile, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { chromium, openPage } from './browsers.mjs';
import { openDesk } from './desk.mjs';
import { native } from './native.mjs';
import { root, startOtherHost, startServer } from './server.mjs';

const PROMPT = 'The old fox stopped at the edge of the wood, and';
/** Milliseconds from the navigation to a page that takes a person's words. */
const MOST_MS = 1000;

let browser;
before(async () => (browser = await chromium()));
after(() => browser?.close());

/** The service worker has all files and the page. */
const controlled = (page) =>
  page.waitForFunction(async () => {
    await navigator.serviceWorker.ready;
    return navigator.serviceWorker.controller !== null;
  });

test('with the server gone the page loads, with its model, is usable within a second, and writes the same', async () => {
  const server = await startServer();
  const first = await openDesk(browser, server.url);
  await controlled(first.page);
  await first.page.close();
  await server.close();

  const { page, desk, complaints } = await openDesk(browser, server.url);
  const { usable, seen } = await page.evaluate(() => ({
    usable: performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd,
    seen: performance.getEntriesByName('first-contentful-paint')[0].startTime,
  }));
  console.log(`usable after ${usable.toFixed(0)} ms, seen after ${seen.toFixed(0)} ms`);
  assert.ok(usable <= MOST_MS && seen <= MOST_MS, `${usable} and ${seen} ms`);
  await desk.set({ prompt: PROMPT });
  await desk.go(12);
  assert.equal(await desk.story(), PROMPT + (await native(PROMPT, 12)).text);

  // The browser says that it is offline; a model that is not here waits, in a sentence, and the page goes on.
  await page.setOfflineMode(true);
  await page.waitForFunction(() => !document.getElementById('offline').hidden);
  await page.click('#choose');
  await page.$eval('#url', (field) => (field.value = 'models/other.gguf'));
  await page.click('#by-url button:last-child');
  await page.waitForFunction(() => !document.getElementById('error').hidden);
  assert.match(await desk.text('error'), /^The model could not be loaded\. .*other\.gguf.* You are offline/);
  await page.click('#choose');
  await page.click('#known button');
  await page.waitForFunction(() => document.getElementById('model').textContent === 'Demo on the CPU');
  assert.equal(await desk.text('error'), '');
  assert.deepEqual(complaints, []);
  await page.close();
});

/** A copy of the page on a server; `path` is its folder. */
async function servePage(first) {
  const folder = await mkdtemp(path.join(tmpdir(), 'kitfox-page-'));
  await cp(path.join(root, 'www/dist'), folder, { recursive: true });
  const { url, close } = await startServer([['/', folder]], first);
  return { folder, url, close: () => close().then(() => rm(folder, { recursive: true })) };
}

/** Puts another version into the page's folder, as a build does: another title, other names in assets/, other hashes. */
async function update(folder) {
  const assets = await readdir(path.join(folder, 'assets'));
  const renamed = (text) => assets.reduce((text, name) => text.replaceAll(name, name.replace(/-[\w-]{8}\./, '-12345678.')), text);
  const hashes = [];
  const sha = (bytes) => `sha256-${createHash('sha256').update(bytes).digest('base64')}`;
  for (const name of ['index.html', 'bench.html', ...assets.map((name) => `assets/${name}`)]) {
    const file = path.join(folder, name);
    const bytes = await readFile(file);
    const text = /\.(html|js|css)$/.test(name) ? renamed(bytes.toString()).replace('<title>kitfox', '<title>new kitfox') : undefined;
    if (text !== undefined) await writeFile(file, text);
    hashes.push([sha(bytes), sha(text ?? bytes)]);
    await rename(file, path.join(folder, renamed(name)));
  }
  const file = path.join(folder, 'sw.js');
  const script = renamed(await readFile(file, 'utf8')).replace('const VERSION = "', 'const VERSION = "new');
  for (const [old] of hashes) assert.ok(script.includes(old), 'the service worker knows the hash of each file');
  await writeFile(file, hashes.reduce((text, [old, now]) => text.replace(old, now), script));
}

/** Has the browser look for a new version, and waits for what becomes of it. */
const lookForUpdate = (page) =>
  page.evaluate(async () => {
    const registration = await navigator.serviceWorker.getRegistration();
    await registration.update();
    const found = registration.installing ?? registration.waiting;
    while (found !== null && !['installed', 'redundant'].includes(found.state)) {
      await new Promise((resolve) => found.addEventListener('statechange', resolve, { once: true }));
    }
    return found?.state ?? 'none';
  });
const isOffered = (page) => page.waitForFunction(() => !document.getElementById('update').hidden);
const take = (page) => Promise.all([page.waitForNavigation(), page.click('#take-update')]);

test('with its model here the page asks no server for it', async () => {
  const asked = [];
  const server = await startServer([], (request, response, pathname) => {
    if (pathname.startsWith('/models/')) asked.push(`${request.method} ${pathname}`);
    return false;
  });
  try {
    for (const wanted of [['GET /models/demo.gguf'], []]) {
      asked.length = 0;
      const { page } = await openDesk(browser, server.url);
      await controlled(page);
      assert.deepEqual(asked, wanted);
      await page.close();
    }
  } finally {
    await server.close();
  }
});

test('a new version is offered, and taken with the text in place', async () => {
  const server = await servePage();
  try {
    const { page, desk } = await openDesk(browser, server.url);
    await controlled(page);
    await desk.set({ prompt: PROMPT });
    await update(server.folder);
    await page.reload();
    assert.equal(await page.title(), 'kitfox', 'the old version, whole');
    await isOffered(page);
    await take(page);
    assert.equal(await page.title(), 'new kitfox');
    assert.equal(await desk.story(), PROMPT);
    assert.deepEqual(await page.evaluate(async () => (await caches.keys()).filter((name) => name.startsWith('kitfox page ')).length), 1);
    await page.close();
  } finally {
    await server.close();
  }
});

test('a host in the middle of an update has no say: the version before goes on until the new one is whole', async () => {
  let old;
  const server = await servePage((request, response, pathname) => {
    if (old === undefined || !['/', '/index.html'].includes(pathname)) return false;
    response.writeHead(200, { 'content-type': 'text/html' }).end(old);
    return true;
  });
  try {
    const { page } = await openPage(browser, `${server.url}/?device=none`);
    await controlled(page);
    old = await readFile(path.join(server.folder, 'index.html'));
    await update(server.folder);
    assert.equal(await lookForUpdate(page), 'redundant');
    await page.reload();
    assert.equal(await page.title(), 'kitfox');
    old = undefined;
    assert.equal(await lookForUpdate(page), 'installed');
    await isOffered(page);
    await take(page);
    assert.equal(await page.title(), 'new kitfox');
    await page.waitForFunction(() => !document.getElementById('error').hidden); // its script runs, and tells of the device "none"
    await page.close();
  } finally {
    await server.close();
  }
});

test('a new version that is taken in one tab leaves the others as they are, and is offered there, too', async () => {
  const server = await servePage();
  try {
    const first = await openPage(browser, `${server.url}/?device=none`);
    await controlled(first.page);
    const other = await openDesk(browser, server.url);
    await update(server.folder);
    await first.page.bringToFront();
    assert.equal(await lookForUpdate(first.page), 'installed');
    await isOffered(first.page);
    await take(first.page);
    assert.equal(await first.page.title(), 'new kitfox');
    // It loads a model again, by a worker that only its own version has.
    await other.page.bringToFront();
    await other.page.$eval('#device', (device) => device.dispatchEvent(new Event('change')));
    await other.page.waitForFunction(() => document.getElementById('model').textContent === 'Demo on the CPU' || !document.getElementById('error').hidden);
    assert.equal(await other.desk.text('error'), '');
    await isOffered(other.page);
    await take(other.page);
    assert.equal(await other.page.title(), 'new kitfox');
    await first.page.close();
    await other.page.close();
  } finally {
    await server.close();
  }
});

test('two copies of the page in two folders of one origin keep their files apart', async () => {
  const copy = await mkdtemp(path.join(tmpdir(), 'kitfox-page-'));
  await cp(path.join(root, 'www/dist'), copy, { recursive: true });
  await update(copy);
  const server = await startServer([['/copy/', copy]]);
  try {
    const { page } = await openPage(browser, `${server.url}/?device=none`);
    await controlled(page);
    await page.goto(`${server.url}/copy/?device=none`);
    await controlled(page);
    const counts = await page.evaluate(async () => {
      const names = (await caches.keys()).filter((name) => name.startsWith('kitfox page '));
      return Promise.all(names.map(async (name) => (await (await caches.open(name)).keys()).length));
    });
    assert.equal(counts.length, 2);
    assert.ok(counts.every((n) => n === counts[0] && n > 4), `${counts}`);
    await page.close();
  } finally {
    await server.close();
    await rm(copy, { recursive: true });
  }
});

test('the worker, too, fetches nothing from another host, not even by a redirect', async () => {
  const elsewhere = await startOtherHost();
  let [asks, again] = [0, () => undefined];
  const server = await startServer([], (request, response, pathname) => {
    if (pathname !== '/models/moved.gguf') return false;
    if ((asks += 1) === 2) again();
    response.writeHead(302, { location: `${elsewhere.url}/model.gguf` }).end();
    return true;
  });
  try {
    // The first time, too: what fetches waits for what binds it.
    for (const visit of ['first', 'second']) {
      asks = 0;
      const asksTwice = new Promise((resolve) => (again = resolve));
      const { page } = await openPage(browser, `${server.url}/?device=cpu&model=models/moved.gguf`);
      // The first attempt has failed when the second comes, or the load has ended, as it would with an answer.
      await Promise.race([asksTwice, page.waitForFunction(() => !document.getElementById('error').hidden).catch(() => undefined)]);
      assert.deepEqual(elsewhere.asked, [], visit);
      await page.close();
    }
  } finally {
    await server.close();
    await elsewhere.close();
  }
});
