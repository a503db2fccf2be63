// The package's gates and the pure functions over them, against the numbers and tables of the command line for the same text.

import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import test from 'node:test';
import { attention } from '../../web/dist/attention.js';
import { effectiveContext, forgetting, meanForgetting } from '../../web/dist/forgetting.js';
import { chromium, inPage, openPage } from './browsers.mjs';
import { kitfox } from './native.mjs';
import { parse } from './safetensors.mjs';
import { model, startServer } from './server.mjs';

const TEXT = 'The Time Traveller (for so it will be convenient to speak of him) was expounding a recondite matter to us. '.repeat(4);

test('F and the effective context are those of kitfox inspect gates', async () => {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'kitfox-gates-'));
  try {
    const [numbers, table] = ['g.safetensors', 'g.csv'].map((name) => path.join(folder, name));
    const inspect = (...more) => kitfox('inspect', 'gates', '-m', model, '-p', TEXT, '--device', 'cpu', ...more);
    await inspect('-o', numbers);
    await inspect('-o', table, '--layer', '2');
    const { log_f: logF } = parse((await readFile(numbers)).buffer.slice(0));
    const [layers, heads, n] = logF.shape;
    const gates = { tokens: Array(n).fill(''), ids: Array(n).fill(0), layers, heads, logF: logF.data };
    const sums = Array(heads).fill(0);
    const last = new Float64Array(n);
    const lines = (await readFile(table, 'utf8')).trim().split('\n');
    assert.equal(lines.shift(), 'layer,head,i,j,f');
    assert.equal(lines.length, (heads * n * (n + 1)) / 2);
    let row, at;
    for (const line of lines) {
      const [layer, head, i, j, f] = line.split(',').map(Number);
      if (at !== `${head},${i}`) [row, at] = [forgetting(gates, layer, head, i), `${head},${i}`];
      assert.ok(Math.abs(row[j] - f) < 1e-6, `${line}: ${row[j]}`);
      if (i >= n - 64) sums[head] += f / Math.min(n, 64);
      if (i === n - 1) last[j] += f / heads;
    }
    assert.ok(n > 64);
    sums.forEach((sum, head) => assert.ok(Math.abs(effectiveContext(gates, 2, head) / sum - 1) < 1e-5, `head ${head}: ${sum}`));
    meanForgetting(gates, n - 1, 2).forEach((f, j) => assert.ok(Math.abs(f - last[j]) < 1e-6, `${j}`));
  } finally {
    await rm(folder, { recursive: true });
  }
});

/** The package in a page, on the CPU: gates of a text and of its ids, and a text that comes after. */
function usePackage(Kitfox, { collect, fails }, { TEXT }) {
  const run = async () => {
    const fox = await Kitfox.load('/chunked.gguf', { device: 'cpu', context: 512, chunk: 40 });
    const { logF, u, ...shape } = await fox.gates(TEXT);
    const again = await fox.gates(shape.ids);
    const same = again.logF.every((value, ix) => value === logF[ix]);
    const { weights, ...paid } = await fox.attention(TEXT);
    const ofLayer = weights.length / paid.layers;
    const tooMany = await fails(fox.gates(Array(600).fill(1)));
    const after = (await collect(fox.generate('The', { maxTokens: 3, temperature: 0 }))).ids.length;
    fox.dispose();
    return { ...shape, logF: [...logF], u: [...u], same, tooMany, after, paid: { ...paid, layers: 1, weights: [...weights.subarray(5 * ofLayer, 6 * ofLayer)] } };
  };
  return run();
}

test('gates and attention in a browser are those of the command line', async () => {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'kitfox-gates-'));
  const [server, browser] = [await startServer(), await chromium({ webgpu: false })];
  try {
    const [numbers, table] = ['g.safetensors', 'a.csv'].map((name) => path.join(folder, name));
    const inspect = (...more) => kitfox('inspect', 'gates', '-m', model, '-p', TEXT, '--device', 'cpu', ...more);
    await inspect('-o', numbers);
    await inspect('-o', table, '--matrix', 'a', '--layer', '5');
    const { log_f: logF, u } = parse((await readFile(numbers)).buffer.slice(0));
    const { page, complaints } = await openPage(browser, `${server.url}/blank`);
    const got = await inPage(page, usePackage, { TEXT });
    assert.deepEqual(complaints, []);
    assert.deepEqual([got.layers, got.heads, got.ids.length, got.tokens.length], [...logF.shape, logF.shape[2]]);
    assert.equal(got.tokens.slice(1).join(''), TEXT);
    const far = got.logF.findIndex((value, ix) => !(Math.abs(value - logF.data[ix]) <= 2e-4 * (1 + Math.abs(logF.data[ix]))));
    assert.equal(far, -1, `log f ${far} is ${got.logF[far]}, not ${logF.data[far]}`);
    assert.ok(got.u.every((value, ix) => Math.abs(value / u.data[ix] - 1) < 1e-6));
    assert.deepEqual([got.paid.ids, got.paid.tokens, got.kvHeads], [got.ids, got.tokens, got.heads]);
    const [head, ...lines] = (await readFile(table, 'utf8')).trim().split('\n');
    assert.equal(head, 'layer,head,i,j,a');
    assert.equal(lines.length, (got.heads * got.ids.length * (got.ids.length + 1)) / 2);
    const paid = { ...got.paid, weights: Float32Array.from(got.paid.weights) };
    for (const line of lines) {
      const [, head, i, j, a] = line.split(',').map(Number);
      // As gates do, q and k come of sums in another order: a score of 10 by some 1e-4 of itself, its weight by as much as 1e-3.
      const got = attention(paid, 0, head, i)[j];
      assert.ok(Math.abs(got - a) < 1e-3, `${line}: ${got}`);
    }
    assert.deepEqual([got.same, got.tooMany.split(':')[0], got.after, got.window], [true, 'context-full', 3, undefined]);
  } finally {
    await browser.close();
    await server.close();
    await rm(folder, { recursive: true });
  }
});
