// After the first visit the page needs no server: files and model are on the machine, it can be used within a second, and a new version
// is taken when its reader wants it. What its service worker gives out has the page's policy, by which the page's worker is bound, too.

import assert from 'node:assert/strict';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import http from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { chromium, openPage } from './browsers.mjs';
import { openDesk } from './desk.mjs';
import { native } from './native.mjs';
import { root, startServer } from './server.mjs';

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

test('a new version is offered, and taken with the text in place', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'kitfox-page-'));
  await cp(path.join(root, 'www/dist'), folder, { recursive: true });
  const server = await startServer([['/', folder]]);
  try {
    const { page, desk } = await openDesk(browser, server.url);
    await controlled(page);
    await desk.set({ prompt: PROMPT });
    for (const [name, from, to] of [['index.html', '<title>kitfox', '<title>new kitfox'], ['sw.js', 'const VERSION = "', 'const VERSION = "new']]) {
      const file = path.join(folder, name);
      const text = await readFile(file, 'utf8');
      assert.ok(text.includes(from), name);
      await writeFile(file, text.replace(from, to));
    }
    await page.reload();
    assert.equal(await page.title(), 'kitfox', 'the old version, whole');
    await page.waitForFunction(() => !document.getElementById('update').hidden);
    await Promise.all([page.waitForNavigation(), page.click('#take-update')]);
    assert.equal(await page.title(), 'new kitfox');
    assert.equal(await desk.story(), PROMPT);
    assert.deepEqual(await page.evaluate(async () => (await caches.keys()).filter((name) => name.startsWith('kitfox page ')).length), 1);
    await page.close();
  } finally {
    await server.close();
    await rm(folder, { recursive: true });
  }
});

test('the worker, too, fetches nothing from another host, not even by a redirect', async () => {
  const asked = [];
  const elsewhere = http.createServer((request, response) => {
    asked.push(request.url);
    response.writeHead(200, { 'access-control-allow-origin': '*' }).end('here');
  });
  await new Promise((resolve) => elsewhere.listen(0, '127.0.0.1', resolve));
  const host = `http://127.0.0.1:${elsewhere.address().port}`;
  let [asks, again] = [0, () => undefined];
  const asksTwice = new Promise((resolve) => (again = resolve));
  const server = await startServer([], (request, response, pathname) => {
    if (pathname !== '/models/moved.gguf') return false;
    if ((asks += 1) === 2) again();
    response.writeHead(302, { location: `${host}/model.gguf` }).end();
    return true;
  });
  try {
    const first = await openDesk(browser, server.url);
    await controlled(first.page);
    await first.page.close();
    const { page } = await openPage(browser, `${server.url}/?device=cpu&model=models/moved.gguf`);
    // The first attempt has failed when the second comes, or the load has ended, as it would with an answer.
    await Promise.race([asksTwice, page.waitForFunction(() => !document.getElementById('error').hidden).catch(() => undefined)]);
    assert.deepEqual(asked, []);
    await page.close();
  } finally {
    await server.close();
    elsewhere.closeAllConnections();
    elsewhere.close();
  }
});
