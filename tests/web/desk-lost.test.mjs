// What can be lost: the graphics device in the middle of an answer, and characters that a text area has not.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chromium } from './browsers.mjs';
import { serveDeep } from './deep.mjs';
import { openDesk } from './desk.mjs';

const NAME = 'fox_pro_pruned';
const PROMPT = 'The fox';

// Of this file alone: files run side by side.
let server;
let browser;
before(async () => {
  server = await serveDeep(NAME, 2, { bytes: true });
  browser = await chromium();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

const open = (device) => openDesk(browser, server.url, { query: `?device=${device}&model=deep/${NAME}.gguf` });

test('a device that the system takes is back, and the text goes on, with a line that says so', async () => {
  const { page, desk, complaints } = await open('gpu');
  assert.equal(await desk.text('error'), '');
  assert.equal(await desk.text('model'), `${NAME}.gguf on the GPU`);
  await desk.set({ prompt: PROMPT });
  await desk.press('mark');
  await desk.begin(20);
  const session = await browser.target().createCDPSession();
  void session.send('Browser.crashGpuProcess');
  await page.waitForFunction(() => /^The graphics device was gone for a moment.* your text goes on\./.test(document.getElementById('notice').textContent));
  const length = () => page.$eval('#output', ({ textContent }) => textContent.length);
  const before = await length();
  await page.waitForFunction((n) => document.getElementById('output').textContent.length > n || document.getElementById('stop').disabled, {}, before);
  await page.evaluate(() => document.getElementById('stop').click());
  await desk.idle();
  assert.equal(await desk.text('error'), '');
  const kept = await desk.story();
  assert.ok(kept.startsWith(PROMPT) && kept.length >= before);
  assert.ok((await desk.points()).some((name) => name.startsWith('*')), 'its marks are the model\'s still');
  await desk.go(8);
  assert.ok((await desk.story()).startsWith(kept));
  assert.deepEqual(complaints, []);
  await page.close();
});

test('line ends that a text area has not are no change of the text', async () => {
  const { page, desk, complaints } = await open('cpu');
  await desk.set({ prompt: PROMPT });
  await desk.go(60);
  const first = await desk.story();
  assert.ok(!first.includes('\r') && first.includes('\n'));
  await desk.go(10);
  assert.ok((await desk.story()).startsWith(first));
  assert.deepEqual((await desk.hands()).map(([by]) => by), ['you', 'fox']);
  assert.deepEqual(complaints, []);
  await page.close();
});
