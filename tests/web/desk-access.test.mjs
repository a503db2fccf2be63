// The desk for everyone: axe-core finds nothing serious in any of its states, light and dark, and nothing sticks out of a phone.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { chromium, openPage } from './browsers.mjs';
import { openDesk } from './desk.mjs';
import { startServer } from './server.mjs';

const AXE = fileURLToPath(import.meta.resolve('axe-core/axe.min.js'));
const DESKTOP = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };

// Of this file alone: files run side by side.
let server;
let browser;
let axe;
before(async () => {
  axe = await readFile(AXE, 'utf8');
  server = await startServer();
  browser = await chromium();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

/** What axe-core finds that is serious or worse, targets too small to touch included. */
async function serious(page) {
  const { violations, passes } = await page.evaluate(() => globalThis.axe.run(document, { rules: { 'target-size': { enabled: true } } }));
  assert.ok(passes.length > 10, 'it looked');
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ target, failureSummary }) => `${target} (${failureSummary})`).join('; ')}`);
}

/** How far anything sticks out to the right. */
const overhang = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

/** Of fields those that have no room for their placeholder and the browser's arrows beside it. */
const cutPlaceholders = (fields) =>
  fields.filter((field) => {
    const style = getComputedStyle(field);
    const context = new OffscreenCanvas(1, 1).getContext('2d');
    context.font = `${style.fontSize} ${style.fontFamily}`;
    return context.measureText(field.placeholder).width > field.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 18;
  }).map(({ id }) => id);

async function look(page, name) {
  for (const scheme of ['light', 'dark']) {
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }, { name: 'prefers-reduced-motion', value: 'reduce' }]);
    assert.deepEqual(await serious(page), [], `${name}, ${scheme}`);
  }
  assert.equal(await overhang(page), 0, name);
}

for (const [kind, viewport] of Object.entries({ desktop: DESKTOP, phone: PHONE })) {
  test(`the desk on a ${kind}: with a text, its settings, its models, an error, and while it writes`, async () => {
    const { page, desk, complaints } = await openDesk(browser, server.url, { prepare: (page) => page.setViewport(viewport) });
    await page.evaluate(axe);
    await look(page, 'empty');
    await desk.set({ prompt: 'The old fox stopped at the edge of the wood, and' });
    await desk.go(40);
    await page.type('#prompt', ' – and then\n\nnobody ');
    await desk.press('mark');
    await desk.go(20);
    await look(page, 'text');
    const unnamed = await page.$$eval('.actions svg + span', (names) => names.filter((name) => name.getBoundingClientRect().width < 12).map(({ textContent }) => textContent));
    assert.deepEqual(unnamed, [], 'a visible name for each sign');
    await page.$eval('#settings', (settings) => (settings.open = true));
    await look(page, 'settings');
    assert.deepEqual(await page.$$eval('#settings input[placeholder]', cutPlaceholders), [], 'placeholders are seen whole');
    const panel = await page.$eval('#settings .panel', (element) => element.getBoundingClientRect().toJSON());
    assert.ok(panel.left >= 0 && panel.top >= 0 && panel.right <= viewport.width, JSON.stringify(panel));
    await page.$eval('#settings', (settings) => (settings.open = false));
    await page.click('#choose');
    await page.waitForFunction(() => !document.getElementById('kept').hidden);
    await look(page, 'models');
    assert.deepEqual(await page.$$eval('#models input[placeholder]', cutPlaceholders), []);
    await page.keyboard.press('Escape');
    await desk.set({ topP: '7' });
    await page.click('#go');
    await page.waitForFunction(() => !document.getElementById('error').hidden);
    await look(page, 'error');
    await desk.set({ topP: '1' });
    await desk.begin(20);
    await look(page, 'writing');
    await desk.press('stop');
    assert.deepEqual(complaints, []);
    await page.close();
  });
}

test('what is written is told sentence by sentence to those who listen, and the focus is never lost', async () => {
  const { page, desk } = await openDesk(browser, server.url);
  await desk.set({ prompt: 'The old fox stopped at the edge of the wood, and', temperature: '0', maxTokens: '60' });
  const focused = () => page.evaluate(() => document.activeElement.id);
  await page.focus('#go');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => !document.getElementById('stop').disabled);
  assert.equal(await focused(), 'stop');
  assert.equal(await page.$eval('#stats', ({ ariaLive }) => ariaLive), 'off', 'figures do not talk over the words');
  await desk.idle();
  assert.equal(await page.$eval('#stats', ({ ariaLive }) => ariaLive), 'polite');
  assert.equal(await focused(), 'go');
  const said = await page.$$eval('#spoken p', (lines) => lines.map(({ textContent }) => textContent));
  const hands = await desk.hands();
  assert.equal(said.join(' ').replace(/\s+/g, ' '), hands.at(-1)[1].trim().replace(/\s+/g, ' '));
  await page.close();
});

test('a button that was pressed by key keeps the focus when it is out of use, and does nothing more', async () => {
  const { page, desk, complaints } = await openDesk(browser, server.url);
  await desk.set({ prompt: 'The old fox' });
  await desk.go(6);
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.tagName);
  const pressByKey = async (selector, times = 1) => {
    await page.focus('#prompt');
    await page.focus(selector);
    for (let k = 0; k < times; k += 1) await page.keyboard.press('Enter');
    await desk.idle();
  };
  const once = await desk.story();
  await pressByKey('#again');
  assert.deepEqual([await focused(), await desk.story()], ['again', once]);
  await pressByKey('#undo', 3);
  assert.deepEqual([await focused(), await desk.story()], ['undo', 'The old fox']);
  await pressByKey('#redo', 3);
  assert.deepEqual([await focused(), await desk.story()], ['redo', once]);
  await page.keyboard.press('Tab');
  assert.ok(await page.$eval('#redo', ({ disabled }) => disabled), 'behind the focus it is as any other');
  await pressByKey('#mark');
  assert.equal(await focused(), 'mark');
  await desk.set({ prompt: `${once}\n\n\nAnd` });
  await pressByKey('#points .marked', 2);
  assert.equal(await desk.story(), once);
  assert.equal(await page.evaluate(() => document.activeElement.closest('#points')?.id), 'points');

  // A field of the settings is no place to begin from, unless it is said.
  await page.$eval('#settings', (settings) => (settings.open = true));
  await page.focus('#temperature');
  await page.keyboard.press('Enter');
  assert.equal(await page.$eval('#stop', ({ hidden }) => hidden), true);
  await desk.chord('Control', 'Enter');
  await page.waitForFunction((length) => document.getElementById('prompt').value.length > length, {}, once.length);
  await desk.idle();
  assert.deepEqual(complaints, []);
  await page.close();
});

test('the page that measures', async () => {
  const { page } = await openPage(browser, 'about:blank');
  await page.setViewport(PHONE);
  await page.goto(`${server.url}/bench.html?device=cpu`);
  await page.evaluate(axe);
  await look(page, 'bench');
  await page.close();
});
