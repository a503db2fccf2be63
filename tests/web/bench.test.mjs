// The page that measures, as a person would use it: figures side by side, the JSON that is copied, and errors that leave it usable.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chromium, openPage } from './browsers.mjs';
import { serveDeep } from './deep.mjs';

// Of this file alone: files run side by side.
let server;
let browser;
before(async () => {
  server = await serveDeep('fox_pro_pruned', 2);
  browser = await chromium();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

/** Fills in the form, presses the button, and gives what is there at the end. */
async function measure(page, fields) {
  for (const [id, value] of Object.entries(fields)) await page.$eval(`#${id}`, (field, value) => (field.value = value), value);
  await page.click('#go');
  await page.waitForFunction(() => !document.getElementById('go').disabled);
  return page.evaluate(() => {
    const text = (id) => (document.getElementById(id).hidden ? '' : document.getElementById(id).textContent);
    const rows = [...document.querySelectorAll('#table tr')].map((row) => [...row.cells].map((cell) => cell.textContent));
    return { error: text('error'), notice: text('notice'), shown: document.getElementById('results').checkVisibility(), rows, json: text('json') };
  });
}

test('a pruned and an unpruned model side by side on the CPU; what cannot be is told in a sentence', async () => {
  const { page, complaints } = await openPage(browser, `${server.url}/bench.html?device=cpu`);
  const refused = await measure(page, { context: '1', n: '4', runs: '1' });
  assert.match(refused.error, /context: expected/);
  assert.equal(refused.shown, false);

  const { error, shown, rows, json } = await measure(page, { context: '200', n: '4', runs: '2', compare: 'prune' });
  assert.equal(error, '');
  assert.ok(shown);
  assert.deepEqual(rows[0], ['', 'as the model states', 'no pruning']);
  const row = (name) => rows.find(([first]) => first === name).slice(1);
  assert.deepEqual(row('Backend'), ['cpu', 'cpu']);
  assert.deepEqual(row('Its floor, ms'), ['not measured', 'not measured']);
  assert.match(row('Writing, tokens/s')[0], /^[\d.,]+ \([\d.,]+ to [\d.,]+\)$/);
  const [pruned, whole] = JSON.parse(json);
  assert.deepEqual([pruned.name, whole.name], ['as the model states', 'no pruning']);
  assert.ok(pruned.live_kv_fraction < 1 && whole.live_kv_fraction === 1, json);
  assert.equal(pruned.quant, whole.quant);
  assert.match(pruned.quant, /^Q4_0/);
  for (const { prefill_spread: [slowest, quickest], prefill_tokens_per_s: median, context, browser } of [pruned, whole]) {
    assert.ok(slowest > 0 && slowest <= median && median <= quickest);
    assert.equal(context, 200);
    assert.match(browser, /Chrom/);
  }
  assert.deepEqual(complaints, []);
  await page.close();
});

test('a GPU is measured with as many in flight as pay and with one; a stop ends it', async () => {
  const { page, complaints } = await openPage(browser, `${server.url}/bench.html?device=gpu&model=deep/fox_pro_pruned.gguf`);
  const { error, rows, json } = await measure(page, { context: '16', n: '8', runs: '1', floor: 'no', compare: 'inFlight' });
  assert.equal(error, '');
  const [many, one] = JSON.parse(json);
  assert.equal(many.backend, 'webgpu');
  assert.equal(many.dispatches_per_token, 6 * 2 + 2);
  assert.deepEqual([many.floor_ms, one.floor_ms], [null, null]);
  assert.ok(many.cpu_us_per_token > 0 && many.decode_tokens_per_s > 0 && one.decode_tokens_per_s > 0, json);
  assert.ok(rows.length > 15);

  await page.$eval('#n', (field) => (field.value = '100000'));
  await page.$eval('#runs', (field) => (field.value = '1000'));
  await page.click('#go');
  await page.waitForFunction(() => !document.getElementById('stop').disabled);
  await page.click('#stop');
  await page.waitForFunction(() => !document.getElementById('go').disabled);
  assert.equal(await page.$eval('#stats', ({ textContent }) => textContent), 'Stopped.');
  assert.deepEqual(complaints, []);
  await page.close();
});
