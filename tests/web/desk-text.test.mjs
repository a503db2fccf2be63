// Nothing that was written is lost: not by a reload in the middle of an answer, not by a new page, and what the browser does not keep is told.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chromium } from './browsers.mjs';
import { openDesk } from './desk.mjs';
import { startServer } from './server.mjs';

const TEXT = 'A long story of mine.';
/** The desk without a model. */
const BARE = { query: '?device=none' };

// Of this file alone: files run side by side.
let server;
let browser;
before(async () => {
  server = await startServer();
  browser = await chromium({ webgpu: false });
});
after(async () => {
  await browser?.close();
  await server?.close();
});

const open = (options) => openDesk(browser, server.url, options);
const disabled = (page, id) => page.$eval(`#${id}`, ({ disabled }) => disabled);

test('a reload in the middle of an answer keeps what was seen of it, and so does a tab that is only hidden', async () => {
  const { page, desk, complaints } = await open();
  await desk.set({ prompt: 'The old fox' });
  await desk.begin(40);
  const [seen, kept] = await page.evaluate(() => {
    Object.defineProperty(document, 'hidden', { configurable: true, value: true });
    document.dispatchEvent(new Event('visibilitychange'));
    delete document.hidden;
    return [document.getElementById('output').textContent, JSON.parse(sessionStorage.getItem('kitfox draft')).text];
  });
  assert.ok(kept.startsWith(seen), `${kept} has ${seen}`);
  await page.reload();
  await desk.loaded();
  const story = await desk.story();
  assert.ok(story.startsWith(seen), `${story} has ${seen}`);
  assert.deepEqual((await desk.hands()).map(([by]) => by), ['you', 'fox']);
  await desk.press('undo');
  assert.equal(await desk.story(), 'The old fox');
  assert.deepEqual(complaints, []);
  await page.close();
});

test('an empty page has no text that nobody wrote: beginnings are offered, one is taken by a press, and nothing is lost by it', async () => {
  const { page, desk, complaints } = await open(BARE);
  const offered = () => page.$eval('#openings', ({ hidden }) => !hidden);
  const second = '#openings li:nth-child(2) button';
  const opening = 'On the last evening of the summer the three children';
  assert.deepEqual([await desk.story(), await offered()], ['', true]);
  assert.ok(await page.$eval('#prompt', (area) => area.matches(':placeholder-shown')));
  assert.ok(await disabled(page, 'clear'));
  // A press beside them is one on the page.
  const { right, top } = await page.$eval(second, (button) => button.getBoundingClientRect().toJSON());
  await page.mouse.click(right + 20, top + 5);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'prompt');
  await page.keyboard.type('My');
  assert.equal(await offered(), false);
  await page.click('#clear');
  await page.click(second);
  assert.deepEqual([await desk.story(), await desk.hands(), await offered()], [opening, [['you', opening]], false]);
  await page.keyboard.type(' sang');
  assert.equal(await desk.story(), `${opening} sang`);
  await page.click('#undo');
  assert.equal(await desk.story(), 'My');
  await page.click('#redo');
  assert.equal(await desk.story(), `${opening} sang`);
  await page.reload();
  await desk.loaded();
  assert.equal(await desk.story(), `${opening} sang`);
  assert.deepEqual(complaints, []);
  await page.close();
});

test('Undo brings back the page before a new one, whatever was typed there, and Redo that', async () => {
  const { page, desk, complaints } = await open(BARE);
  await desk.set({ prompt: TEXT });
  await page.click('#clear');
  await page.keyboard.type('A lo');
  assert.ok(await disabled(page, 'redo'));
  await page.click('#undo');
  assert.equal(await desk.story(), TEXT);
  assert.ok(await disabled(page, 'undo'), 'there is no page before');
  await page.click('#redo');
  assert.equal(await desk.story(), 'A lo');
  await page.focus('#prompt');
  await page.keyboard.type('ng');
  await page.click('#undo');
  assert.equal(await desk.story(), TEXT);

  // By keys: the browser takes back what was typed, then the desk the new page.
  await page.click('#clear');
  await page.keyboard.type('x');
  for (let k = 0; k < 4; k += 1) await desk.chord('Control', 'z');
  assert.equal(await desk.story(), TEXT);

  // Several pages, in their order.
  await page.click('#clear');
  await page.keyboard.type('Two');
  await page.click('#clear');
  await page.keyboard.type('Three');
  for (const text of ['Two', TEXT]) {
    await page.click('#undo');
    assert.equal(await desk.story(), text);
  }
  for (const text of ['Two', 'Three']) {
    await page.click('#redo');
    assert.equal(await desk.story(), text);
  }
  assert.deepEqual(complaints, []);
  await page.close();
});

test('what can be put back outlives a reload', async () => {
  const { page, desk, complaints } = await open(BARE);
  await desk.set({ prompt: TEXT });
  await page.click('#clear');
  await page.reload();
  await desk.loaded();
  assert.equal(await desk.story(), '');
  await page.focus('#prompt');
  await page.keyboard.type('Another');
  await page.reload();
  await desk.loaded();
  await page.click('#undo');
  assert.equal(await desk.story(), TEXT);
  await page.reload();
  await desk.loaded();
  await page.click('#redo');
  assert.equal(await desk.story(), 'Another');
  assert.deepEqual(complaints, []);
  await page.close();
});

/** A browser that has room for so many characters. */
function limitStorage(most) {
  const { setItem } = Storage.prototype;
  Storage.prototype.setItem = function (name, value) {
    const others = Object.keys(this).filter((other) => other !== name).reduce((sum, other) => sum + this.getItem(other).length, 0);
    if (others + value.length > most) throw new DOMException('full', 'QuotaExceededError');
    setItem.call(this, name, value);
  };
}

test('a text that the browser has no room for is told, and the browser asks before it is left', async () => {
  const { page, desk, complaints } = await open({ ...BARE, prepare: (page) => page.evaluateOnNewDocument(limitStorage, 1000) });
  const asks = () => page.evaluate(() => !dispatchEvent(new Event('beforeunload', { cancelable: true })));
  const kept = () => page.evaluate(() => JSON.parse(sessionStorage.getItem('kitfox draft')).text);
  await desk.set({ prompt: TEXT });
  assert.deepEqual([await desk.text('unkept'), await asks()], ['', false]);
  await desk.set({ prompt: 'a'.repeat(1200) });
  assert.match(await desk.text('unkept'), /^The browser does not keep this text: /);
  assert.ok(await asks());
  await desk.set({ prompt: 'a'.repeat(600) });
  assert.deepEqual([await desk.text('unkept'), await asks(), await kept()], ['', false, 'a'.repeat(600)]);

  // What can be put back makes room for the text.
  await page.click('#clear');
  assert.equal(await desk.text('unkept'), '');
  await desk.set({ prompt: 'b'.repeat(600) });
  assert.match(await desk.text('unkept'), /^The browser does not keep what Undo and Redo would bring back: /);
  assert.ok(await asks());
  assert.equal(await kept(), 'b'.repeat(600));
  assert.deepEqual(complaints, []);
  await page.close();
});
