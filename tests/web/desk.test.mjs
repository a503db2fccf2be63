// The writing desk: one text that a person and the model write in turns, and whatever is done to it, the model goes on from the text that
// is there, as the native program does from that text.

import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { build, createServer } from 'vite';
import { policyOf } from '../../www/policy.mjs';
import { pageOf } from '../../www/vite.config.mjs';
import { chromium } from './browsers.mjs';
import { openDesk } from './desk.mjs';
import { native } from './native.mjs';
import { model, root, startOtherHost, startServer } from './server.mjs';

const PROMPT = 'The old fox stopped at the edge of the wood, and';
const N = 12;

// Of this file alone: files run side by side.
let server;
let browser;
before(async () => {
  server = await startServer();
  browser = await chromium();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

const open = (options) => openDesk(browser, server.url, options);
const texts = new Map();
/** What the native program makes of a text: the text, continued. */
async function continued(text, tokens) {
  const key = `${tokens} ${text}`;
  if (!texts.has(key)) texts.set(key, text + (await native(text, tokens)).text);
  return texts.get(key);
}

test('a text written in turns, taken back, put back, marked and changed is continued as the native program continues it', async () => {
  const { page, desk, complaints } = await open();
  const [once, twice] = [await continued(PROMPT, N), await continued(PROMPT, 2 * N)];
  await desk.set({ prompt: PROMPT });
  await desk.go(N);
  assert.equal(await desk.story(), once);
  await desk.go(N);
  assert.equal(await desk.story(), twice);
  assert.deepEqual(await desk.hands(), [['you', PROMPT], ['fox', twice.slice(PROMPT.length)]]);
  assert.match(await desk.text('memory'), /^[\d.]+ MB of memory(, [\d.]+ MB freed)?$/);

  // Back by steps, forth, and on: the same words again.
  for (const text of [once, PROMPT]) {
    await desk.press('undo');
    assert.equal(await desk.story(), text);
  }
  assert.ok(await page.$eval('#undo', ({ disabled }) => disabled), 'there is no place before');
  await desk.press('redo');
  assert.equal(await desk.story(), once);
  await desk.go(N);
  assert.equal(await desk.story(), twice);

  // A mark, a line of one's own, and back to the mark by its place in the margin.
  await desk.press('undo');
  await desk.press('mark');
  await page.type('#prompt', '\nThe hunter');
  await desk.go(N);
  assert.equal(await desk.story(), await continued(`${once}\nThe hunter`, N));
  assert.equal((await desk.points()).filter((name) => name.startsWith('* ')).length, 1);
  await page.$eval('#points .marked', (place) => place.click());
  assert.equal(await desk.story(), once);
  await desk.go(N);
  assert.equal(await desk.story(), twice);

  // Changed at its start: nothing that was read is of use.
  const other = PROMPT.replace('old', 'young');
  await desk.set({ prompt: other });
  assert.deepEqual(await desk.points(), []);
  await desk.go(N);
  assert.equal(await desk.story(), await continued(other, N));
  assert.deepEqual(complaints, []);
  await page.close();
});

test('a mark is given up beside the text, and by the button that made it; the place stays, and nothing brings the mark back', async () => {
  const listen = () => {
    const { postMessage } = Worker.prototype;
    globalThis.asked = [];
    Worker.prototype.postMessage = function (message, ...more) {
      if (['mark', 'unmark'].includes(message?.type)) globalThis.asked.push(message.type);
      return postMessage.call(this, message, ...more);
    };
  };
  const { page, desk, complaints } = await open({ prepare: (page) => page.evaluateOnNewDocument(listen) });
  const pressed = () => page.$eval('#mark', ({ ariaPressed }) => ariaPressed);
  const marks = async () => (await desk.points()).filter((name) => name.startsWith('* ')).length;
  const opening = PROMPT.slice(0, 12);
  await desk.set({ prompt: opening });
  for (const [state, n] of [['true', 1], ['false', 0], ['true', 1]]) {
    await desk.press('mark');
    assert.deepEqual([await pressed(), await marks()], [state, n]);
  }
  await desk.go(4);
  const story = await desk.story();
  const places = (await desk.points()).length;
  await page.hover('#points .marked');
  await page.click('#points .release');
  await desk.idle();
  assert.deepEqual([await marks(), (await desk.points()).length, await desk.story()], [0, places, story]);
  assert.deepEqual(await page.evaluate(() => globalThis.asked), ['mark', 'unmark', 'mark', 'unmark']);
  await desk.press('undo');
  assert.deepEqual([await desk.story(), await pressed()], [opening, 'false']);
  await desk.press('redo');
  assert.equal(await marks(), 0);
  await desk.press('undo');
  await desk.go(4);
  assert.equal(await desk.story(), story);
  // By the keyboard alone.
  await desk.press('mark');
  await page.focus('#points .marked + .release');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('#points .marked') === null);
  assert.deepEqual(complaints, []);
  await page.close();
});

test('the dialog of models says what a load would take: of the list, of an address, and of one that is none', async () => {
  const { page, complaints } = await open();
  await page.click('#choose');
  const shows = (selector, pattern) => page.waitForFunction((selector, pattern) => new RegExp(pattern).test(document.querySelector(selector).textContent), {}, selector, pattern);
  await shows('#known .takes', '^Kept here, nothing to fetch; \\d+\\.\\d MB of memory on the CPU\\.$');
  const look = async (url, pattern) => {
    await page.$eval('#url', (field, url) => (field.value = url), url);
    await page.click('#plan');
    await shows('#planned', pattern);
  };
  await look('fixtures/nothing.gguf', '^What it takes cannot be told: .*404');
  await look('chunked.gguf', '^20\\.\\d MB to fetch; \\d+\\.\\d MB of memory on the CPU\\.$');
  await look('bad/other.gguf', '^What it takes cannot be told: .*other\\.gguf: .*expected');
  await look('https://elsewhere.example/big.gguf', '^This page fetches nothing from elsewhere\\.example');
  assert.deepEqual(complaints, []);
  await page.close();
});

test('a text that was read when its reading is stopped is read once', async () => {
  const { page, desk, complaints } = await open({
    prepare: (page) =>
      page.evaluateOnNewDocument(() => {
        // The worker's word that a text is read finds Stop pressed.
        const { get, set } = Object.getOwnPropertyDescriptor(Worker.prototype, 'onmessage');
        const { postMessage } = Worker.prototype;
        let reading;
        Worker.prototype.postMessage = function (message, ...rest) {
          if (message.type === 'append') reading ??= message.call;
          postMessage.call(this, message, ...rest);
        };
        const listening = (listener) => function (event) {
          if (event.data.type === 'value' && event.data.call === reading) document.getElementById('stop').click();
          return listener.call(this, event);
        };
        Object.defineProperty(Worker.prototype, 'onmessage', { get, set(listener) { set.call(this, listening(listener)); } });
      }),
  });
  await desk.set({ prompt: PROMPT });
  await desk.go(N);
  assert.equal(await desk.story(), PROMPT, 'stopped');
  await desk.go(N);
  assert.equal(await desk.story(), await continued(PROMPT, N));
  assert.deepEqual(complaints, []);
  await page.close();
});

test('a stop keeps what is there, and the text goes on from it; a change within the answer is yours', async () => {
  const { page, desk, complaints } = await open();
  await desk.set({ prompt: PROMPT });
  assert.equal(await desk.text('memory'), '');
  await desk.begin(60);
  // The figures are there while it writes.
  await page.waitForFunction(() => document.body.classList.contains('writing') && document.getElementById('memory').textContent.endsWith('MB of memory'));
  assert.match(await desk.text('stats'), /^Writing: \d+ tokens, [\d.]+ tokens\/s …$/);
  await desk.press('stop');
  assert.match(await desk.text('stats'), /seed \d+\. Stopped\.$/);
  const stopped = await desk.story();
  await desk.go(N);
  assert.equal(await desk.story(), await continued(stopped, N));

  // Within a word that the model wrote.
  const cut = stopped.slice(0, PROMPT.length + 20);
  await desk.set({ prompt: `${cut} and nobody` });
  assert.deepEqual((await desk.hands()).map(([by]) => by), ['you', 'fox', 'you']);
  await desk.go(N);
  assert.ok((await desk.story()).startsWith(`${cut} and nobody`));
  assert.ok((await desk.story()).length > cut.length + 20);

  // A new page can be taken back, too; an empty one is asked for words.
  const before = await desk.story();
  await desk.press('clear');
  assert.equal(await desk.story(), '');
  await page.click('#go');
  assert.match(await desk.text('error'), /^The page is empty/);
  await desk.press('redo');
  assert.equal(await desk.story(), before);
  assert.deepEqual(complaints, []);
  await page.close();
});

test('the keyboard does it all, and typing has its own undo', async () => {
  const { page, desk, complaints } = await open();
  await desk.set({ prompt: PROMPT, temperature: '0', maxTokens: String(N) });
  await page.focus('#prompt');
  await desk.chord('Control', 'Enter');
  await page.waitForFunction((n) => document.getElementById('prompt').value.length > n, {}, PROMPT.length);
  await desk.idle();
  const once = await desk.story();
  assert.equal(once, await continued(PROMPT, N));
  await page.keyboard.type(' xyz');
  await desk.chord('Control', 'z');
  assert.ok((await desk.story()).startsWith(once), 'typing is taken back by the browser, not the answer');
  await desk.set({ prompt: once });
  await desk.press('undo');
  await page.focus('#prompt');
  await desk.chord('Control', 'Shift', 'z');
  assert.equal(await desk.story(), once);
  await desk.chord('Control', 'z');
  assert.equal(await desk.story(), PROMPT);
  await desk.chord('Control', '.');
  await page.waitForFunction(() => document.querySelector('#points .marked') !== null);
  await desk.set({ maxTokens: '3000' });
  await desk.chord('Control', 'Enter');
  await page.waitForFunction((n) => document.getElementById('output').textContent.length > n + 30, {}, PROMPT.length);
  assert.ok(await page.$eval('#prompt', ({ readOnly }) => readOnly));
  await page.keyboard.press('Escape');
  await desk.idle();
  assert.match(await desk.text('stats'), /Stopped\.$/);
  assert.deepEqual(complaints, []);
  await page.close();
});

test('presets fill in their numbers, changed numbers are your own, and a kept seed writes the same again', async () => {
  const { page, desk, complaints } = await open();
  const checked = () => page.$eval('#presets input:checked', ({ value }) => value);
  await page.$eval('#settings', (settings) => (settings.open = true));
  assert.equal(await checked(), 'natural');
  await page.click('#presets input[value=likeliest]');
  assert.equal(await page.$eval('#temperature', ({ value }) => value), '0');
  await desk.set({ temperature: '0.9' });
  assert.equal(await checked(), 'own');
  await page.click('#presets input[value=wild]');
  assert.equal(await page.$eval('#temperature', ({ value }) => value), '1.15');
  await desk.set({ prompt: PROMPT, maxTokens: String(N) });
  await desk.press('go');
  const first = await desk.story();
  await page.$eval('#keep-seed', (button) => button.click());
  const seed = await page.$eval('#seed', ({ value }) => value);
  assert.match(await desk.text('stats'), new RegExp(`seed ${seed}\\.`));
  await desk.press('again');
  assert.equal(await desk.story(), first);
  await page.$eval('#keep-seed', (button) => button.click());
  await desk.press('again');
  const second = await desk.story();
  assert.notEqual(second, first);
  // Neither answer is lost.
  for (const text of [first, second, first]) {
    await desk.press('redo');
    assert.equal(await desk.story(), text);
  }
  assert.deepEqual(complaints, []);
  await page.close();
});

test('a reload of the tab keeps the text, who wrote it and the places', async () => {
  const { page, desk, complaints } = await open();
  await desk.set({ prompt: PROMPT });
  await desk.go(N);
  const before = [await desk.story(), await desk.hands(), await desk.points()];
  await page.reload();
  await desk.loaded();
  assert.deepEqual([await desk.story(), await desk.hands(), await desk.points()], before);
  await desk.go(N);
  assert.equal(await desk.story(), await continued(PROMPT, 2 * N));
  assert.deepEqual(complaints, []);
  await page.close();
});

test('a model comes as a file, chosen or dropped, as parts, or from an address of the page’s host; others are refused in a sentence', async () => {
  const { page, desk, complaints } = await open();
  const isLoaded = (name) => page.waitForFunction((name) => document.getElementById('model').textContent === `${name} on the CPU`, {}, name);
  const choose = async () => (await page.$('#file')).uploadFile(model);
  await page.click('#choose');
  await choose();
  await isLoaded('demo.gguf');
  await desk.set({ prompt: PROMPT });
  await desk.go(N);
  assert.equal(await desk.story(), await continued(PROMPT, N));

  // Parts, dropped in any order.
  await page.evaluate(async () => {
    const blob = await (await fetch('models/demo.gguf')).blob();
    const items = new DataTransfer();
    items.items.add(new File([blob.slice(5_000_000)], 'mine.gguf.part2'));
    items.items.add(new File([blob.slice(0, 5_000_000)], 'mine.gguf.part1'));
    document.body.dispatchEvent(new DragEvent('dragover', { dataTransfer: items, bubbles: true, cancelable: true }));
    if (document.getElementById('drop').hidden) throw new Error('nothing says that it can be dropped');
    document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: items, bubbles: true, cancelable: true }));
  });
  await isLoaded('mine.gguf.part1');
  await page.evaluate(() => {
    const items = new DataTransfer();
    items.items.add(new File(['no model'], 'notes.txt'));
    document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: items, bubbles: true, cancelable: true }));
  });
  await page.waitForFunction(() => !document.getElementById('error').hidden);
  assert.match(await desk.text('error'), /^The model could not be loaded\. notes\.txt: .*magic/i);

  const address = async (url) => {
    await page.click('#choose');
    await page.$eval('#url', (field, url) => (field.value = url), url);
    await page.click('#by-url button:last-child');
    await desk.loaded();
  };
  await address('https://elsewhere.example/big.gguf');
  assert.equal(
    await desk.text('error'),
    'The model could not be loaded. This page fetches nothing from elsewhere.example: download the file yourself and drop it here.',
  );
  await address('chunked.gguf');
  await isLoaded('chunked.gguf');
  assert.equal(await desk.text('error'), '');
  await desk.go(N);
  assert.equal(await desk.story(), await continued(PROMPT, 2 * N), 'another model goes on with the text that is there');
  assert.deepEqual(complaints, []);
  await page.close();
});

test('the policy names the other hosts that models of the list are on, each once, and no more', () => {
  const policy = policyOf([{ url: 'models/demo.gguf' }, { url: 'https://b.example/a/x.gguf' }, { url: 'https://a.example:8443/x.gguf' }, { url: 'https://b.example/y.gguf' }]);
  assert.match(policy, /; connect-src 'self' https:\/\/a\.example:8443 https:\/\/b\.example; /);
});

test('a build writes that policy into its pages and its service worker', async () => {
  const out = await mkdtemp(path.join(tmpdir(), 'kitfox-page-'));
  try {
    const models = [{ url: 'models/demo.gguf' }, { url: 'https://a.example:8443/x.gguf' }];
    await build({ ...pageOf(models, out), configFile: false, logLevel: 'error' });
    const read = (name) => readFile(path.join(out, name), 'utf8');
    for (const name of ['index.html', 'bench.html']) assert.ok((await read(name)).replaceAll('&#39;', "'").includes(`content="${policyOf(models)}"`), name);
    assert.ok((await read('sw.js')).includes(`const POLICY = ${JSON.stringify(policyOf(models))};`));
    assert.ok((await read('sw.js')).includes('const HOSTS = ["https://a.example:8443"];'));
  } finally {
    await rm(out, { recursive: true });
  }
});

test('the page’s policy lets nothing out and no other script in', async () => {
  const elsewhere = await startOtherHost();
  try {
    const { page, desk } = await open();
    const seen = await page.evaluate(async (host) => {
      const broken = [];
      document.addEventListener('securitypolicyviolation', ({ effectiveDirective }) => broken.push(effectiveDirective));
      const fetched = await fetch(`${host}/fetch`).then(() => 'fetched', () => 'blocked');
      const beacon = navigator.sendBeacon(`${host}/beacon`, 'text');
      const image = await new Promise((resolve) => {
        const one = new Image();
        one.onload = () => resolve('loaded');
        one.onerror = () => resolve('blocked');
        one.src = `${host}/image.png`;
      });
      const inline = document.createElement('script');
      inline.textContent = 'globalThis.got = 1';
      document.body.append(inline);
      let evaluated = 'blocked';
      try {
        evaluated = new Function('return "run"')();
      } catch {
        // as it has to be
      }
      const form = document.createElement('form');
      form.action = `${host}/form`;
      document.body.append(form);
      form.submit();
      await new Promise((resolve) => setTimeout(resolve, 200));
      return { broken: [...new Set(broken)].sort(), fetched, beacon, image, inline: globalThis.got ?? 'blocked', evaluated };
    }, elsewhere.url);
    assert.deepEqual([seen.fetched, seen.image, seen.inline, seen.evaluated], Array(4).fill('blocked'));
    for (const rule of ['connect-src', 'form-action', 'img-src', 'script-src', 'script-src-elem']) assert.ok(seen.broken.includes(rule), `${rule}: ${seen.broken}`);
    assert.deepEqual(elsewhere.asked, []);
    const policy = await page.$eval('meta[http-equiv=content-security-policy]', ({ content }) => content);
    assert.match(policy, /^default-src 'none'; connect-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; /);
    assert.equal(await desk.text('error'), '');
    await page.close();
  } finally {
    await elsewhere.close();
  }
});

test('the development server has the desk, too', async () => {
  const developed = await createServer({ root: path.join(root, 'www'), logLevel: 'error', server: { host: '127.0.0.1', port: 0, hmr: false } });
  await developed.listen();
  try {
    const { page, desk, complaints } = await openDesk(browser, developed.resolvedUrls.local[0].replace(/\/$/, ''));
    assert.equal(await desk.text('error'), '');
    await desk.set({ prompt: PROMPT });
    await desk.go(N);
    assert.equal(await desk.story(), await continued(PROMPT, N));
    assert.deepEqual(complaints, []);
    await page.close();
  } finally {
    await developed.close();
  }
});
