// Perplexity of the demo model in each type of weights over the first 4096 predictions of four held-out books, against the losses
// that its training code found in f32 (golden.json).
//
//     npm run evidence perplexity             Q4_0 of The Time Machine alone: under a minute; prints it beside the table's
//     npm run evidence perplexity FOLDER      all of it: writes perplexity.md beside this file
//
// The demo model that is built in holds the weights as Q4_0; the other types, and the reference, need the float checkpoint, which is not in
// the repository: FOLDER has config.json, model.safetensors, tokenizer.json, golden.json and books/*.txt. Each result is kept
// in target/evidence/perplexity.json at once, so that a run which was cut short goes on where it was.

import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { main, root, run } from '../../tools/shared.mjs';
import { demand, excerpt } from './texts.mjs';

const CONTEXT = 4096;
/** Types, and how many nats a token each may be away from the f32 reference in any book; ternary is none of these weights' kind. */
const BARS = { f16: 0.003, q8_0: 0.004, q6_k: 0.008, q4_k_m: 0.03, q4_0: 0.06, tq2_0: undefined };
/** How far a loss may be from that of the table, which has four digits: sums of f32 differ with a CPU's SIMD. */
const REPEATED = 2e-4;

const OF_A_CHECKPOINT = ['config.json', 'model.safetensors', 'tokenizer.json', 'golden.json', 'books'];

/** Nats a token over the first predictions of a text; without a model, of the demo model. */
async function loss(kitfox, text, model) {
  const size = ['-c', `${CONTEXT}`, '--max-tokens', `${CONTEXT}`];
  const which = model === undefined ? [] : ['-m', model];
  const output = await run(kitfox, ['perplexity', ...which, '-f', text, ...size, '--device', 'cpu', '--json'], { quiet: true });
  // A note, if there is one, comes before the result.
  return JSON.parse(output.slice(output.indexOf('{')).split('\n')[0]).nll;
}

/** What can be had without the float checkpoint: the loss of the demo model, held against the table's. */
async function ofTheDemoModel() {
  await run('cargo', ['build', '--release']);
  const nll = await loss(`${root}target/release/kitfox`, excerpt);
  const table = await readFile(`${root}tests/evidence/perplexity.md`, 'utf8');
  const noted = Number(/^\| q4_0 \| ([0-9.]+)/m.exec(table)[1]);
  console.log(`q4_0, The Time Machine: ${nll.toFixed(4)} nats; the table has ${noted}`);
  if (Math.abs(nll - noted) > REPEATED) throw new Error(`the table's ${noted} is more than ${REPEATED} nats away`);
}

await main(async () => {
  if (process.argv[2] === undefined) return ofTheDemoModel();
  const folder = resolve(process.argv[2]);
  demand(folder, OF_A_CHECKPOINT);
  const golden = JSON.parse(await readFile(`${folder}/golden.json`, 'utf8')).books;
  const out = `${root}target/evidence`;
  const journal = `${out}/perplexity.json`;
  await mkdir(out, { recursive: true });
  await run('cargo', ['build', '--release']);
  // A copy, so that a build in the meantime does not change the program under way.
  const kitfox = `${out}/kitfox`;
  await copyFile(`${root}target/release/kitfox`, kitfox);
  // What was measured with another program, or of another checkpoint, is measured again.
  const identity = (await run('git', ['rev-parse', 'HEAD:src', 'HEAD:shaders'], { quiet: true })) + folder;
  const kept = existsSync(journal) ? JSON.parse(await readFile(journal, 'utf8')) : {};
  const done = kept.identity === identity ? kept.done : {};

  for (const type of Object.keys(BARS)) {
    const missing = Object.keys(golden).filter((book) => done[type]?.[book] === undefined);
    if (missing.length === 0) continue;
    const model = `${out}/${type}.gguf`;
    await run(kitfox, ['convert', folder, '-o', model, '--quant', type]);
    for (const book of missing) {
      const text = `${folder}/books/${book.toLowerCase().replaceAll(' ', '_')}.txt`;
      const began = performance.now();
      const nll = await loss(kitfox, text, model);
      console.log(`${type}, ${book}: ${nll.toFixed(4)} nats, ${((performance.now() - began) / 1000).toFixed(0)} s`);
      (done[type] ??= {})[book] = nll;
      await writeFile(journal, JSON.stringify({ identity, done }));
    }
  }

  const books = Object.keys(golden);
  const mean = (losses) => books.reduce((sum, book) => sum + losses[book], 0) / books.length;
  const reference = Object.fromEntries(books.map((book) => [book, golden[book][`nll_first_${CONTEXT}`]]));
  const row = (cells) => `| ${cells.join(' | ')} |`;
  const signed = (value) => (value < 0 ? '-' : '+') + Math.abs(value).toFixed(4);
  const failures = [];
  const rows = Object.entries(BARS).map(([type, bar]) => {
    const cost = mean(done[type]) - mean(reference);
    const worst = Math.max(...books.map((book) => done[type][book] - reference[book]));
    const least = Math.min(...books.map((book) => done[type][book] - reference[book]));
    const away = Math.max(Math.abs(worst), Math.abs(least));
    if (bar !== undefined && away > bar) failures.push(`${type}: ${away.toFixed(4)} nats away is more than ${bar}`);
    const losses = books.map((book) => done[type][book].toFixed(4));
    const perplexity = Math.exp(mean(done[type])).toFixed(3);
    return row([type, ...losses, mean(done[type]).toFixed(4), perplexity, signed(cost), away.toFixed(4), bar ?? 'none']);
  });
  const table = [
    '# Perplexity of the demo model',
    '',
    `Nats a token over the first ${CONTEXT} predictions of each book (BOS first, context ${CONTEXT}, f16 KV cache), on the CPU device:`,
    '`npm run evidence perplexity FOLDER`. The reference is `golden.json`: f32 arithmetic with the same f16 weights. "Cost" is the mean minus',
    'that of the reference, "away" the largest difference of a single book, which the bar holds.',
    '',
    row(['type', ...books, 'mean', 'perplexity', 'cost', 'away', 'bar']),
    row(Array(books.length + 6).fill('---')),
    row(['reference', ...books.map((book) => reference[book].toFixed(4)), mean(reference).toFixed(4), Math.exp(mean(reference)).toFixed(3), '', '', '']),
    ...rows,
    '',
  ].join('\n');
  await writeFile(`${root}tests/evidence/perplexity.md`, table);
  console.log(`\n${table}`);
  if (failures.length > 0) throw new Error(failures.join('; '));
});
