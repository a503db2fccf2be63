// Perplexity of the demo model in each type of weights over the first 4096 predictions of four held-out books, against the losses
// that its training code found in f32 (golden.json).
//
//     npm run evidence perplexity [FOLDER OF THE CHECKPOINT]
//
// The folder (default ../shared/model) holds the checkpoint, golden.json and books/*.txt. Results go to perplexity.md beside this
// file; each single one is kept in target/evidence/perplexity.json at once, so that a run which was cut short goes on where it was.

import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { main, root, run } from '../../tools/shared.mjs';

const CONTEXT = 4096;
/** Types, and how many nats a token each may be away from the f32 reference in any book; ternary is none of these weights' kind. */
const BARS = { f16: 0.003, q8_0: 0.004, q6_k: 0.008, q4_k_m: 0.03, q4_0: 0.06, tq2_0: undefined };

await main(async () => {
  const folder = resolve(process.argv[2] ?? `${root}../shared/model`);
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
      const size = ['-c', `${CONTEXT}`, '--max-tokens', `${CONTEXT}`];
      const began = performance.now();
      const output = await run(kitfox, ['perplexity', '-m', model, '-f', text, ...size, '--device', 'cpu', '--json'], { quiet: true });
      // A note, if there is one, comes before the result.
      const { nll } = JSON.parse(output.slice(output.indexOf('{')));
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
    '`npm run evidence perplexity`. The reference is `golden.json`: f32 arithmetic with the same f16 weights. "Cost" is the mean minus',
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
