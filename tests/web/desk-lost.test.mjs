// What can be lost: the graphics device in the middle of an answer, and characters that a text area has not.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chromium } from './browsers.mjs';
import { serveDeep } from './deep.mjs';
import { openDesk } from './desk.mjs';

const NAME = 'fox_pro_pruned';
const PROMPT = 'The fox';

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

test('a device that the system takes is told in a sentence; the text stays, and the next press goes on with it', async () => {
  const { page, desk, complaints } = await open('gpu');
  assert.equal(await desk.text('error'), '');
  assert.equal(await desk.text('model'), `${NAME}.gguf on the GPU`);
  await desk.set({ prompt: PROMPT });
  await desk.press('mark');
  await desk.begin(20);
  const session = await browser.target().createCDPSession();
  void session.send('Browser.crashGpuProcess');
  await page.waitForFunction(() => !document.getElementById('error').hidden);
  await desk.idle();
  assert.match(await desk.text('error'), /^The graphics device is gone.* Your text is here; Continue loads the model again\./);
  const kept = await desk.story();
  assert.ok(kept.startsWith(PROMPT) && kept.length > PROMPT.length + 20);
  assert.ok((await desk.points()).length >= 2 && !(await desk.points()).some((name) => name.startsWith('*')), 'its marks are places now');
  // On the CPU, which is loaded sooner.
  await page.$eval('#device', (device) => (device.value = 'cpu'));
  await desk.set({ temperature: '0', maxTokens: '8' });
  await page.click('#go');
  await page.waitForFunction((n) => document.getElementById('prompt').value.length > n, {}, kept.length);
  await desk.idle();
  assert.ok((await desk.story()).startsWith(kept));
  assert.equal(await desk.text('error'), '');
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
