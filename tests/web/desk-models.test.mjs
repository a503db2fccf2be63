// The desk's models: what is none does not end the one that is there, a model that was replaced on the server is fetched anew, and every
// kept file can be removed.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { chromium } from './browsers.mjs';
import { openDesk } from './desk.mjs';
import { model, root, startServer } from './server.mjs';

/** Bytes of a manifest's piece. */
const PIECE = 4 * 2 ** 20;

let browser;
before(async () => (browser = await chromium({ webgpu: false })));
after(() => browser?.close());

/** Drops a file of this text. */
const drop = (page, name, text) =>
  page.evaluate(
    (name, text) => {
      const items = new DataTransfer();
      items.items.add(new File([text], name));
      document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: items, bubbles: true, cancelable: true }));
    },
    name,
    text,
  );
const refused = (page, words) => page.waitForFunction((words) => document.getElementById('error').textContent.includes(words), {}, words);

test('a file that is no model leaves the model as it is, and after a broken one the desk goes on with the one before', async () => {
  const server = await startServer();
  try {
    const { page, desk, complaints } = await openDesk(browser, server.url);
    await desk.set({ prompt: 'The old fox' });
    await desk.begin(10);
    await drop(page, 'holiday.jpg', 'hello');
    await refused(page, 'holiday.jpg: magic: expected "GGUF"');
    assert.equal(await desk.text('model'), 'Demo on the CPU');
    assert.ok(await page.$eval('#stop', ({ disabled }) => !disabled), 'it goes on writing');
    await desk.press('stop');
    const before = await desk.story();

    await drop(page, 'broken.gguf', 'GGUF and nothing more');
    await refused(page, ' Continue goes on with Demo.');
    await desk.loaded();
    await desk.set({ temperature: '0', maxTokens: '3' });
    await page.click('#go');
    await page.waitForFunction((length) => document.getElementById('prompt').value.length > length, {}, before.length);
    await desk.idle();
    assert.deepEqual([await desk.text('model'), await desk.text('error')], ['Demo on the CPU', '']);
    assert.deepEqual(complaints, []);
    await page.close();
  } finally {
    await server.close();
  }
});

test('the loaded model of the list has no button, and its kept copy has its name', async () => {
  const server = await startServer();
  try {
    const { page, desk, complaints } = await openDesk(browser, server.url);
    const inList = () => page.$eval('#known li', (item) => [item.querySelector('.word'), item.querySelector('button')].filter(({ hidden }) => !hidden).map(({ textContent }) => textContent));
    await page.click('#choose');
    assert.deepEqual(await inList(), ['Loaded']);
    await page.waitForFunction(() => !document.getElementById('kept').hidden);
    assert.deepEqual(await page.$$eval('#cached button', (buttons) => buttons.map(({ ariaLabel }) => ariaLabel)), ['Remove Demo']);
    await (await page.$('#file')).uploadFile(model);
    await page.waitForFunction(() => document.getElementById('model').textContent === 'demo.gguf on the CPU');
    assert.deepEqual(await inList(), ['Load']);
    await page.click('#choose');
    await page.click('#known button');
    await page.waitForFunction(() => document.getElementById('model').textContent === 'Demo on the CPU');
    assert.deepEqual([await inList(), await desk.text('error')], [['Loaded'], '']);
    assert.deepEqual(complaints, []);
    await page.close();
  } finally {
    await server.close();
  }
});

test('the list says what the demo is, byte by byte', async () => {
  const bytes = await readFile(model);
  const hash = (bytes) => createHash('sha256').update(bytes).digest('hex');
  const pieces = Array.from({ length: Math.ceil(bytes.length / PIECE) }, (_, ix) => hash(bytes.subarray(ix * PIECE, (ix + 1) * PIECE)));
  const [{ url, manifest }] = JSON.parse(await readFile(path.join(root, 'www/models.json'), 'utf8'));
  assert.deepEqual([url, manifest], ['models/demo.gguf', { version: 1, file: 'demo.gguf', bytes: bytes.length, piece_bytes: PIECE, sha256: pieces, whole: hash(bytes) }]);
});

test('a model that was replaced on the server is fetched anew; a kept file of any name can be removed', async () => {
  const { size } = await stat(model);
  let etag = '"1"';
  const asked = [];
  const server = await startServer([], (request, response, pathname) => {
    if (pathname !== '/models/fox-50%.gguf') return false;
    asked.push(request.method);
    response.writeHead(200, { 'content-length': size, etag });
    if (request.method === 'HEAD') response.end();
    else createReadStream(model).pipe(response);
    return true;
  });
  try {
    const { page, desk, complaints } = await openDesk(browser, server.url, { query: '?device=cpu&model=models/fox-50%.gguf' });
    const loadAgain = async () => {
      asked.length = 0;
      await page.reload();
      await desk.loaded();
      assert.equal(await desk.text('error'), '');
      return asked.filter((method) => method === 'GET').length;
    };
    assert.equal(await loadAgain(), 0);
    etag = '"2"';
    assert.equal(await loadAgain(), 1);

    await page.click('#choose');
    await page.waitForFunction(() => !document.getElementById('kept').hidden);
    assert.deepEqual(await page.$$eval('#cached button', (buttons) => buttons.map(({ ariaLabel }) => ariaLabel)), ['Remove fox-50%.gguf']);
    await page.focus('#cached button');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.getElementById('kept').hidden);
    assert.equal(await page.evaluate(() => document.activeElement.id), 'url');
    assert.deepEqual(complaints, []);
    await page.close();
  } finally {
    await server.close();
  }
});
