// What pruning costs and saves: the demo model over the first tokens of four held-out books, with keys forgotten at its own ln ε = −10.
//
//     npm run evidence prune [FOLDER OF THE CHECKPOINT]
//
// The folder (default ../shared/model) holds golden.json and books/*.txt. tests/models/pruned_mass.rs gives the live part of the keys at the end and
// the largest part of any row's attention that dead pages hold (f64, from the q, k and λ of the run); the losses are of `kitfox
// perplexity` with and without. Results go to prune.md beside this file; each book's are kept in target/evidence/prune.json at once, so
// that a run which was cut short goes on where it was.

import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { main, root, run } from '../../tools/shared.mjs';

const TOKENS = 4096;
const BARS = { live: 0.17, loss: 1e-4 };

/** The first JSON object in some output. */
const object = (output) => JSON.parse(output.slice(output.indexOf('{')).split('\n')[0]);

async function measure(text) {
  const env = { KITFOX_MASS_TEXT: text, KITFOX_MASS_TOKENS: `${TOKENS}` };
  const mass = object(await run('cargo', ['test', '--release', '--test', 'models', 'pruned_mass::', '--', '--nocapture'], { env, quiet: true }));
  const nll = async (prune) => {
    const size = ['-c', `${TOKENS}`, '--max-tokens', `${TOKENS}`];
    const args = ['perplexity', '-f', text, ...size, '--device', 'cpu', '--json', ...prune];
    return object(await run(`${root}target/release/kitfox`, args, { quiet: true })).nll;
  };
  return { ...mass, change: (await nll([])) - (await nll(['--prune', 'off'])) };
}

await main(async () => {
  const folder = resolve(process.argv[2] ?? `${root}../shared/model`);
  const books = Object.keys(JSON.parse(await readFile(`${folder}/golden.json`, 'utf8')).books);
  const journal = `${root}target/evidence/prune.json`;
  await mkdir(`${root}target/evidence`, { recursive: true });
  await run('cargo', ['build', '--release']);
  // What was measured with another program is measured again.
  const identity = (await run('git', ['rev-parse', 'HEAD:src', 'HEAD:shaders'], { quiet: true })) + folder;
  const kept = existsSync(journal) ? JSON.parse(await readFile(journal, 'utf8')) : {};
  const done = kept.identity === identity ? kept.done : {};
  for (const book of books.filter((book) => done[book] === undefined)) {
    done[book] = await measure(`${folder}/books/${book.toLowerCase().replaceAll(' ', '_')}.txt`);
    console.log(book, JSON.stringify(done[book]));
    await writeFile(journal, JSON.stringify({ identity, done }));
  }

  const row = (cells) => `| ${cells.join(' | ')} |`;
  const head = ['book', 'live keys at the end', 'most of a row in dead pages', 'change of the mean loss, nats'];
  const rows = books.map((book) => {
    const { live, mass, change } = done[book];
    return row([book, `${(100 * live).toFixed(1)} %`, mass.toExponential(1), change.toExponential(1)]);
  });
  const { epsilon } = done[books[0]];
  const report = `# Pruning of the demo model

The first ${TOKENS} tokens of each book at ln ε = −10 (ε = ${epsilon.toExponential(1)}), CPU device, f16 KV cache: \`npm run evidence prune\`. Bars: ${100 * BARS.live} % live, ε, ${BARS.loss} nats.

${[row(head), row(head.map(() => '---')), ...rows].join('\n')}
`;
  await writeFile(`${root}tests/evidence/prune.md`, report);
  const over = ({ live, mass, change }) => live > BARS.live || mass > epsilon || Math.abs(change) > BARS.loss;
  const failures = books.filter((book) => over(done[book]));
  if (failures.length > 0) throw new Error(`over a bar: ${failures.join(', ')}`);
});
