// The desk's view of what the model forgets: the shades and numbers that are seen are those of the package's functions for the same text.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { attention, meanAttention } from '../../web/dist/attention.js';
import { effectiveContext, forgetting, livePages, meanForgetting } from '../../web/dist/forgetting.js';
import { chromium, inPage, openPage } from './browsers.mjs';
import { openDesk } from './desk.mjs';
import { startServer } from './server.mjs';

const TEXT = 'The Time Traveller (for so it will be convenient to speak of him) was expounding a recondite matter to us.\n\nHis pale grey eyes shone, and';

// Of this file alone: files run side by side.
let server;
let browser;
let gates;
let weights;
/** Of a text of more than ten pages: its gates, and what the model itself has of it then. */
let long;
const LONG = 'Something understood everything, and the Time Traveller went on. '.repeat(58);
before(async () => {
  server = await startServer();
  browser = await chromium({ webgpu: false });
  const { page } = await openPage(browser, `${server.url}/blank`);
  const run = async (Kitfox, helpers, text) => {
    const fox = await Kitfox.load('/models/demo.gguf', { device: 'cpu' });
    const plain = ({ logF, u, ...rest }) => ({ ...rest, logF: [...logF], u: [...u] });
    const gates = plain(await fox.gates(text.short));
    const { weights, ...shape } = await fox.attention(text.short);
    const long = plain(await fox.gates(text.long));
    const { kvBytesLive } = await fox.stats();
    const { kvBytesPool, contextTokens } = fox.info;
    fox.dispose();
    return { gates, attention: { ...shape, weights: [...weights] }, long, kvBytesLive, ofColumn: kvBytesPool / (contextTokens / 64) };
  };
  const numbers = ({ logF, u, ...rest }) => ({ ...rest, logF: Float32Array.from(logF), u: Float32Array.from(u) });
  const got = await inPage(page, run, { short: TEXT, long: LONG });
  gates = numbers(got.gates);
  weights = { ...got.attention, weights: Float32Array.from(got.attention.weights) };
  long = { gates: numbers(got.long), kvBytesLive: got.kvBytesLive, ofColumn: got.ofColumn };
  await page.close();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

/** The desk with a text and the view of it, all numbers there, as it opens or through all heads. */
async function openView(options, text = TEXT, all = true) {
  const opened = await openDesk(browser, server.url, options);
  await opened.desk.set({ prompt: text });
  await opened.page.click('#look');
  await filled(opened.page);
  if (all) await lookThroughAll(opened.page);
  return opened;
}

/** What most tests begin with: all heads, and the focus in the text. */
async function lookThroughAll(page) {
  await page.click('#reach thead button');
  await page.waitForFunction(() => document.getElementById('seen').textContent.includes('the whole model'));
  await page.focus('#tokens');
}

const filled = (page) =>
  page.waitForFunction(() => {
    const cells = [...document.querySelectorAll('#reach td button')];
    return cells.length > 0 && cells.every(({ textContent }) => textContent !== '');
  });

/** The shades of the tokens, once the one that is looked from is `ix`, through `name`; those behind it have none. */
async function shades(page, ix, name) {
  await page.waitForFunction((start, name) => document.getElementById('seen').textContent.includes(start) && document.getElementById('seen').textContent.includes(name), {}, `token ${ix + 1} of `, name);
  // What comes into view is shaded by the browser's observer.
  await page.waitForFunction((ix) => document.querySelectorAll('#tokens span span')[ix].className === 'here', {}, ix);
  const all = await page.$$eval('#tokens span span', (spans) => spans.map(({ style, className }) => [style.getPropertyValue('--f'), className]));
  assert.equal(all.length, gates.ids.length);
  assert.ok(all.slice(ix + 1).every(([shade, kind]) => shade === '' && kind === 'later'), 'what comes after is not seen');
  return all.slice(0, ix + 1).map(([shade]) => shade);
}

const shown = (row) => [...row].map((part) => part.toFixed(3));
const choose = (page, layer, head) => page.click(`#reach tbody tr:nth-child(${layer + 1}) > :nth-child(${head === undefined ? 1 : head + 2}) button`);

test('by keys from token to token, for the model, a layer and a head, the text is shaded by e^D, and by pointer for a moment', async () => {
  const { page, complaints } = await openView();
  const last = gates.ids.length - 1;
  assert.equal(await page.$eval('#tokens', ({ textContent }) => textContent), TEXT);
  assert.deepEqual(await page.$eval('#forgets-progress', ({ value, max }) => [value, max]), [last + 1, last + 1], 'how much was read is told');
  assert.deepEqual(await shades(page, last, 'the whole model'), shown(meanForgetting(gates, last)));
  const sum = meanForgetting(gates, last).reduce((all, part) => all + part, 0);
  assert.match(await page.$eval('#seen', ({ textContent }) => textContent), new RegExp(`^At and, token ${last + 1} of ${last + 1}, the whole model still sees ${sum < 9.95 ? sum.toFixed(1) : Math.round(sum)} of ${last + 1} tokens: what is left of each, added up\\.$`));

  for (const key of ['ArrowLeft', 'ArrowLeft', 'ArrowRight']) await page.keyboard.press(key);
  assert.deepEqual(await shades(page, last - 1, 'the whole model'), shown(meanForgetting(gates, last - 1)));
  assert.equal(await page.$eval('#tokens', ({ ariaValueText }) => ariaValueText), `,, ${last} of ${last + 1}`);
  await page.keyboard.press('Home');
  assert.deepEqual(await shades(page, 0, 'the whole model'), ['1.000']);
  await page.keyboard.press('ArrowLeft');
  assert.equal(await page.$eval('#tokens', ({ ariaValueNow }) => ariaValueNow), '1', 'there is none before');
  await page.keyboard.press('ArrowDown');
  const below = await page.$eval('#tokens', ({ ariaValueNow }) => Number(ariaValueNow) - 1);
  const tops = await page.$$eval('#tokens span span', (spans) => spans.map((span) => Math.round(span.getClientRects()[0].top)));
  const lines = [...new Set(tops)].sort((a, b) => a - b);
  assert.equal(tops[below], lines[1], 'the line below');
  await page.keyboard.press('End');

  await choose(page, 3);
  assert.deepEqual(await shades(page, last, 'layer 3'), shown(meanForgetting(gates, last, 3)));
  const back = await page.$$eval('#left div', (parts) => parts.map(({ textContent }) => textContent));
  const ofLayer = meanForgetting(gates, last, 3);
  assert.deepEqual(back, [1, 4, 16].map((n) => `${n} back${(ofLayer[last - n] * 100).toFixed(1)} %`));
  await choose(page, 6, 0);
  assert.deepEqual(await shades(page, last, 'head 0 of layer 6'), shown(forgetting(gates, 6, 0, last)));
  const row = forgetting(gates, 6, 0, last);

  await page.hover('#tokens span span:nth-child(6)');
  assert.deepEqual(await shades(page, 5, 'head 0 of layer 6'), shown(forgetting(gates, 6, 0, 5)));
  await page.hover('#forgets-title');
  assert.deepEqual(await shades(page, last, 'head 0 of layer 6'), shown(row), 'back to the chosen token');
  assert.deepEqual(complaints, []);
  await page.close();
});

test('it opens on a head that forgets in the course of the text, of which it is told; on a text too short for that on all heads', async () => {
  const { page, desk, complaints } = await openView({}, TEXT, false);
  const [n, last] = [gates.ids.length, gates.ids.length - 1];
  assert.equal(await page.evaluate(() => document.activeElement.id), 'tokens');
  const contexts = [...Array(gates.layers * gates.heads).keys()].map((ix) => effectiveContext(gates, Math.floor(ix / gates.heads), ix % gates.heads));
  const within = contexts.filter((context) => context > 4 && context < n / 2);
  assert.ok(within.length > 2, `${within.length} heads`);
  const far = (context) => Math.abs(Math.log(context / Math.sqrt(2 * n)));
  const ix = contexts.indexOf(within.sort((a, b) => far(a) - far(b))[0]);
  const [layer, head] = [Math.floor(ix / gates.heads), ix % gates.heads];
  assert.deepEqual(await shades(page, last, `head ${head} of layer ${layer}`), shown(forgetting(gates, layer, head, last)));
  const pressed = () => page.$$eval('#reach [aria-pressed=true]', (buttons) => buttons.map(({ ariaLabel, tabIndex }) => [ariaLabel.split(':')[0], tabIndex]));
  assert.deepEqual(await pressed(), [[`Layer ${layer}, head ${head}`, 0]]);
  assert.equal(await desk.text('through'), `Head ${head} of layer ${layer} forgets in the course of this text. All is the mean of all heads (64).`);
  assert.match(await desk.text('alive'), /of 1 page|of \d pages alive/);
  await choose(page, 0, 0);
  assert.match(await desk.text('through'), /^Head 0 of layer 0 forgets almost at once\. /);
  await choose(page, 3);
  assert.equal(await desk.text('through'), 'Layer 3: the mean of its heads (8).');
  await page.keyboard.press('Escape');
  await desk.set({ prompt: 'The “.”' });
  await page.click('#look');
  await page.waitForFunction(() => document.getElementById('seen').textContent.includes(', the whole model still sees'));
  assert.deepEqual(await pressed(), [['All heads of the model', 0]]);
  assert.match(await desk.text('through'), /^All: the mean of all heads \(64\)/);
  assert.equal(await page.$eval('#seen code', ({ textContent }) => textContent), '”', 'its own quotes alone');
  assert.deepEqual(complaints, []);
  await page.close();
});

test('while attention is read nothing is shaded, and it is read once, whatever is pressed meanwhile', async () => {
  // The worker's answer waits until it is let go.
  const hold = () => {
    const { set } = Object.getOwnPropertyDescriptor(Worker.prototype, 'onmessage');
    const { postMessage } = Worker.prototype;
    globalThis.asked = 0;
    const may = new Promise((release) => (globalThis.release = release));
    Worker.prototype.postMessage = function (message, ...more) {
      if (message?.type === 'attention') globalThis.asked += 1;
      return postMessage.call(this, message, ...more);
    };
    Object.defineProperty(Worker.prototype, 'onmessage', {
      set(listener) {
        set.call(this, (event) => (event.data?.type === 'attention' ? void may.then(() => listener(event)) : listener(event)));
      },
    });
  };
  const { page, desk, complaints } = await openView({ prepare: (page) => page.evaluateOnNewDocument(hold) });
  const last = gates.ids.length - 1;
  const busy = () =>
    page.evaluate(() => ({
      busy: document.getElementById('tokens').ariaBusy,
      bar: !document.getElementById('by-progress').hidden,
      shaded: [...document.querySelectorAll('#tokens span span')].filter((span) => getComputedStyle(span).backgroundColor !== 'rgba(0, 0, 0, 0)').length > 0,
      numbers: document.getElementById('left').childElementCount > 0,
    }));
  const [reads, idle] = [{ busy: 'true', bar: true, shaded: false, numbers: false }, { busy: null, bar: false, shaded: true, numbers: true }];
  assert.deepEqual(await busy(), idle);
  await page.click('#by label:last-child');
  await page.waitForFunction(() => document.getElementById('seen').textContent.startsWith('Reading the attention weights'));
  await page.focus('#tokens');
  await page.keyboard.press('ArrowLeft');
  await choose(page, 6, 0);
  assert.deepEqual(await busy(), reads);
  await page.click('#by label');
  assert.deepEqual(await shades(page, last - 1, 'still sees'), shown(forgetting(gates, 6, 0, last - 1)));
  assert.deepEqual(await busy(), idle);
  await page.click('#by label:last-child');
  assert.deepEqual(await busy(), reads);
  await page.evaluate(() => globalThis.release());
  assert.deepEqual(await shades(page, last - 1, '% of its attention'), shown(attention(weights, 6, 0, last - 1)));
  assert.deepEqual(await busy(), idle);
  assert.deepEqual([await page.evaluate(() => globalThis.asked), await desk.text('by-note')], [1, '']);
  assert.deepEqual(complaints, []);
  await page.close();
});

test('in a low window it is told that there is more below, until that is in view', async () => {
  const { page, complaints } = await openView({ prepare: (page) => page.setViewport({ width: 1280, height: 600 }) });
  const cut = (wanted) => page.waitForFunction((wanted) => document.getElementById('forgets').classList.contains('cut') === wanted, {}, wanted);
  await cut(true);
  await page.$eval('#forgets', (dialog) => dialog.scrollTo(0, dialog.scrollHeight));
  await cut(false);
  assert.deepEqual(complaints, []);
  await page.close();
});

test('the heat map has the effective context of each head, in numbers, and is gone through by keys', async () => {
  const { page, complaints } = await openView();
  const cells = await page.$$eval('#reach tbody tr', (lines) => lines.map((line) => [...line.querySelectorAll('td button')].map(({ textContent, ariaLabel }) => [textContent, ariaLabel])));
  assert.deepEqual([cells.length, cells[0].length], [gates.layers, gates.heads]);
  for (const [layer, line] of cells.entries()) {
    for (const [head, [text, label]] of line.entries()) {
      const tokens = effectiveContext(gates, layer, head);
      assert.equal(text, tokens < 9.95 ? tokens.toFixed(1) : String(Math.round(tokens)));
      assert.equal(label, `Layer ${layer}, head ${head}: ${text} tokens`);
    }
  }
  await page.keyboard.press('Tab'); // from the text to the chosen cell: all
  for (const key of ['ArrowDown', 'ArrowDown', 'ArrowRight', 'ArrowRight']) await page.keyboard.press(key);
  await page.keyboard.press('Enter');
  const last = gates.ids.length - 1;
  assert.deepEqual(await shades(page, last, 'head 1 of layer 1'), shown(forgetting(gates, 1, 1, last)));
  assert.deepEqual(await page.$$eval('#reach [aria-pressed=true]', (buttons) => buttons.map(({ ariaLabel }) => ariaLabel)), [cells[1][1][1]]);
  assert.deepEqual(complaints, []);
  await page.close();
});

test('by a switch the text is shaded by attention, which is told in words; a change of the text is shaded by its gates again', async () => {
  const { page, desk, complaints } = await openView();
  const last = gates.ids.length - 1;
  assert.ok(await page.$eval('#by-gates', ({ checked }) => checked));
  await page.focus('#by-gates');
  await page.keyboard.press('ArrowRight');
  const row = meanAttention(weights, last);
  assert.deepEqual(await shades(page, last, '% of its attention'), shown(row));
  const most = row.indexOf(Math.max(...row));
  const whom = most === last ? 'the token itself' : `.+, ${last - most} back`;
  assert.match(await page.$eval('#seen', ({ textContent }) => textContent), new RegExp(`^At and, token ${last + 1} of ${last + 1}, the whole model pays ${(row[most] * 100).toFixed(1)} % of its attention to ${whom}, more than to any other\\.$`));
  await choose(page, 6, 0);
  assert.deepEqual(await shades(page, last, 'head 0 of layer 6'), shown(attention(weights, 6, 0, last)));
  await page.focus('#tokens');
  await page.keyboard.press('ArrowLeft');
  assert.deepEqual(await shades(page, last - 1, 'head 0 of layer 6'), shown(attention(weights, 6, 0, last - 1)));
  await page.click('#by label');
  assert.deepEqual(await shades(page, last - 1, 'still sees'), shown(forgetting(gates, 6, 0, last - 1)));
  assert.equal(await desk.text('by-note'), '');
  await page.click('#by label:last-child');
  assert.deepEqual(await shades(page, last - 1, '% of its attention'), shown(attention(weights, 6, 0, last - 1)));
  await page.keyboard.press('Escape');
  await desk.set({ prompt: 'The old' });
  await page.click('#look');
  await page.waitForFunction(() => document.getElementById('seen').textContent.startsWith('At old, token 3 of 3, the whole model still sees'));
  assert.ok(await page.$eval('#by-gates', ({ checked }) => checked));
  assert.deepEqual(complaints, []);
  await page.close();
});

test('live pages over time are those of the engine: drawn, in a sentence and in a table, by keys and by pointer; a long text has no attention', async () => {
  const n = long.gates.ids.length;
  assert.ok(n > 723 && n <= 1024, `${n} tokens`);
  const { layers, heads } = long.gates;
  const ofHeads = (list) => {
    const live = list.map(([layer, head]) => livePages(long.gates, layer, head));
    return Array.from({ length: n }, (_, t) => live.reduce((sum, one) => sum + one[t], 0));
  };
  const every = [...Array(layers).keys()].flatMap((layer) => [...Array(heads).keys()].map((head) => [layer, head]));
  const all = ofHeads(every);
  assert.equal((all[n - 1] * long.ofColumn) / (layers * heads), long.kvBytesLive, 'the bytes that the engine has live');
  assert.ok(all[n - 1] < 0.8 * Math.ceil(n / 64) * layers * heads, 'some have died');

  const { page, desk, complaints } = await openView({}, LONG);
  const said = () => desk.text('alive');
  const wanted = (of, columns, t) => `${of[t].toLocaleString('en')} of ${(Math.ceil((t + 1) / 64) * columns).toLocaleString('en')} pages alive`;
  await page.waitForFunction(() => document.getElementById('alive').textContent !== '');
  assert.ok((await said()).includes(`token ${n}: ${wanted(all, layers * heads, n - 1)}, `), await said());
  await page.focus('#timeline');
  for (const key of ['PageDown', 'ArrowLeft']) await page.keyboard.press(key);
  const at = n - 1 - 65;
  await page.waitForFunction((at) => document.getElementById('seen').textContent.includes(`token ${at + 1} of `), {}, at);
  assert.equal(await page.$eval('#timeline', ({ ariaValueText }) => ariaValueText), `token ${at + 1}: ${wanted(all, layers * heads, at)}`);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'timeline');
  const box = await (await page.$('#timeline')).boundingBox();
  await page.mouse.click(box.x + box.width * (300.5 / n), box.y + 20);
  await page.waitForFunction(() => document.getElementById('seen').textContent.includes('token 301 of '));
  assert.equal(await page.$eval('#timeline line', (line) => line.getAttribute('x1')), '300.5');

  await choose(page, 2);
  const ofLayer = ofHeads(every.filter(([layer]) => layer === 2));
  const rows = await page.$$eval('#alive-table tbody tr', (lines) => lines.map(({ cells }) => [...cells].map(({ textContent }) => textContent)));
  const ends = [...Array(Math.ceil(n / 64)).keys()].map((page) => Math.min(64 * (page + 1), n) - 1);
  assert.deepEqual(rows.map((row) => row.slice(0, 3)), ends.map((t) => [t + 1, Math.ceil((t + 1) / 64) * heads, ofLayer[t]].map((value) => value.toLocaleString('en'))));
  await choose(page, 6, 0);
  const ofHead = ofHeads([[6, 0]]);
  await page.waitForFunction((said) => document.getElementById('alive').textContent.includes(said), {}, wanted(ofHead, 1, 300));
  // The drawing's area is that of the counts.
  const area = await page.$eval('#timeline .alive', (path) => {
    let [x, y, sum] = [0, 0, 0];
    const high = path.ownerSVGElement.viewBox.baseVal.height;
    for (const [, kind, number] of path.getAttribute('d').matchAll(/([HV])([\d.]+)/g)) {
      if (kind === 'V') y = high - Number(number);
      else [sum, x] = [sum + y * (Number(number) - x), Number(number)];
    }
    return sum;
  });
  assert.equal(area, ofHead.reduce((sum, live) => sum + live, 0));

  assert.ok(await page.$eval('#by-attention', ({ disabled }) => disabled));
  assert.equal(await desk.text('by-note'), `Attention weights, one for each pair of tokens and each head, can be shown of a text of at most 723 tokens; this one has ${n.toLocaleString('en')}.`);
  assert.deepEqual(complaints, []);
  await page.close();
});

test('a text is read once; a change of it is read anew; the desk goes on from its text', async () => {
  const count = () => {
    const { postMessage } = Worker.prototype;
    globalThis.asked = 0;
    Worker.prototype.postMessage = function (message, ...more) {
      if (message?.type === 'gates') globalThis.asked += 1;
      return postMessage.call(this, message, ...more);
    };
  };
  const { page, desk, complaints } = await openView({ prepare: (page) => page.evaluateOnNewDocument(count) });
  const asked = () => page.evaluate(() => globalThis.asked);
  const open = () => page.$eval('#forgets', (dialog) => dialog.open);
  await page.keyboard.press('Escape');
  assert.equal(await open(), false);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'look', 'the focus is where it was');
  await page.focus('#prompt');
  await desk.chord('Control', '/');
  assert.equal(await open(), true);
  assert.equal(await asked(), 1);
  const { left, top } = await page.$eval('#forgets', (dialog) => dialog.getBoundingClientRect().toJSON());
  await page.mouse.click(left + 5, top + 5);
  assert.equal(await open(), true, 'a press on its edge');
  await page.mouse.click(left - 5, top + 5);
  assert.equal(await open(), false, 'a press beside it');
  await desk.go(4);
  const story = await desk.story();
  assert.ok(story.startsWith(TEXT) && story.length > TEXT.length, story);
  await page.click('#look');
  await page.waitForFunction((text) => document.getElementById('tokens').textContent === text, {}, story);
  assert.equal(await asked(), 2);
  // A shorter text, while the pointer is on a token that it has not.
  await filled(page);
  await page.hover('#tokens div:last-child span:last-child span:last-child');
  await page.keyboard.press('Escape');
  await desk.set({ prompt: 'The old' });
  await desk.chord('Control', '/');
  // By chance the pointer may be on one of the few tokens now, and looks from it until it leaves.
  await filled(page);
  await page.mouse.move(1, 1);
  await page.waitForFunction(() => document.getElementById('seen').textContent.startsWith('At old, token 3 of 3, the whole model'));
  assert.deepEqual(complaints, []);
  await page.close();
});

test('a text beyond the context, a model without a forget gate, an engine that stops, and a close while it reads', async () => {
  const meddle = () => {
    const { set } = Object.getOwnPropertyDescriptor(Worker.prototype, 'onmessage');
    Object.defineProperty(Worker.prototype, 'onmessage', {
      set(listener) {
        set.call(this, (event) => {
          const gates = event.data?.type === 'gates';
          if (gates && globalThis.meddling === 'ungated') event.data.gates.logF.fill(0);
          if (gates && globalThis.meddling === 'crash') return listener({ data: { type: 'crashed', error: { message: 'for a test' } } });
          listener(event);
        });
      },
    });
  };
  const { page, desk, complaints } = await openDesk(browser, server.url, { prepare: (page) => page.evaluateOnNewDocument(meddle) });
  const told = async () => {
    await page.click('#look');
    await page.waitForFunction(() => !document.getElementById('forgets-problem').hidden);
    const text = await desk.text('forgets-problem');
    assert.ok(await page.$eval('#forgets-view', ({ hidden }) => hidden), 'nothing is shown');
    assert.ok(await page.$eval('#forgets-reading', ({ hidden }) => hidden));
    await page.keyboard.press('Escape');
    return text;
  };
  await desk.set({ prompt: ' ' });
  assert.ok(await page.$eval('#look', ({ disabled }) => disabled), 'there is nothing to look at');
  await desk.set({ prompt: 'fox '.repeat(5000) });
  assert.match(await told(), /^The text is longer than the model can read at once\. .*4096/);
  await desk.set({ prompt: TEXT });
  await page.evaluate(() => (globalThis.meddling = 'ungated'));
  assert.match(await told(), /^This model has no forget gate: every token sees all of the text before it/);
  // A close ends the reading without a word, and the next opening reads.
  await page.evaluate(() => (globalThis.meddling = ''));
  await desk.set({ prompt: 'something everything understanding '.repeat(100) });
  await page.click('#look');
  await page.keyboard.press('Escape');
  await desk.set({ prompt: TEXT });
  await page.click('#look');
  await filled(page);
  assert.equal(await desk.text('forgets-problem'), '');
  await page.keyboard.press('Escape');
  await page.evaluate(() => (globalThis.meddling = 'crash'));
  await desk.set({ prompt: `${TEXT} the` });
  assert.match(await told(), /^The engine stopped\. Open this again/);
  await page.evaluate(() => (globalThis.meddling = ''));
  await page.click('#look');
  await filled(page);
  assert.deepEqual(complaints, []);
  await page.close();
});

test('axe-core finds nothing serious in the view, on a desktop and a phone, light and dark, and nothing sticks out', async () => {
  const axe = await readFile(fileURLToPath(import.meta.resolve('axe-core/axe.min.js')), 'utf8');
  const { page } = await openView({ prepare: (page) => page.setViewport({ width: 390, height: 844 }) }, TEXT, false);
  await page.evaluate(axe);
  for (const viewport of [{ width: 390, height: 844 }, { width: 1280, height: 800 }]) {
    await page.setViewport(viewport);
    for (const scheme of ['light', 'dark']) {
      await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }, { name: 'prefers-reduced-motion', value: 'reduce' }]);
      const { violations, passes } = await page.evaluate(() => globalThis.axe.run('#forgets', { rules: { 'target-size': { enabled: true } } }));
      assert.ok(passes.length > 10, 'it looked');
      const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
      assert.deepEqual(serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ target, failureSummary }) => `${target} (${failureSummary})`).join('; ')}`), [], `${viewport.width}, ${scheme}`);
    }
    const overhang = await page.$eval('#forgets', (dialog) => [dialog.scrollWidth - dialog.clientWidth, document.documentElement.scrollWidth - document.documentElement.clientWidth]);
    assert.deepEqual(overhang, [0, 0]);
  }
  await page.close();
});
