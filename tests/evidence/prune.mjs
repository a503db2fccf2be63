// What pruning costs and saves: the demo model over the first tokens of four held-out books, with keys forgotten at its own ln ε = −10.
//
//     npm run evidence prune             The Time Machine alone, by the excerpt in tests/fixtures/books: about a minute; prints its row
//     npm run evidence prune FOLDER      each *.txt of FOLDER: writes prune.md beside this file
//
// It needs no checkpoint but the demo model that is built in. tests/models/pruned_mass.rs gives the live part of the keys at the end and
// the largest part of any row's attention that dead pages hold (f64, from the q, k and λ of the run); the losses are of `kitfox
// perplexity` with and without. The texts of the table are not in the repository (Project Gutenberg has them). Each text's results are
// kept in target/evidence/prune.json at once, so that a run which was cut short goes on where it was.

import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { basename, resolve } from 'node:path';
import { excerpt, textsOf } from './texts.mjs';
import { main, root, run } from '../../tools/shared.mjs';

const TOKENS = 4096;
const BARS = { live: 0.17, loss: 1e-4 };

/** The first JSON object in some output. */
const object = (output) => JSON.parse(output.slice(output.indexOf('{')).split('\n')[0]);

/** the_time_machine.txt is The Time Machine. */
const title = (text) => basename(text, '.txt').replaceAll('_', ' ').replaceAll(/\b[a-z]/g, (letter) => letter.toUpperCase());

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
  const folder = process.argv[2] === undefined ? undefined : resolve(process.argv[2]);
  const texts = folder === undefined ? [excerpt] : await textsOf(folder);
  const journal = `${root}target/evidence/prune.json`;
  await mkdir(`${root}target/evidence`, { recursive: true });
  await run('cargo', ['build', '--release']);
  // What was measured with another program is measured again.
  const identity = (await run('git', ['rev-parse', 'HEAD:src', 'HEAD:shaders'], { quiet: true })) + texts.join();
  const kept = existsSync(journal) ? JSON.parse(await readFile(journal, 'utf8')) : {};
  const done = kept.identity === identity ? kept.done : {};
  for (const text of texts.filter((text) => done[text] === undefined)) {
    done[text] = await measure(text);
    console.log(text, JSON.stringify(done[text]));
    await writeFile(journal, JSON.stringify({ identity, done }));
  }

  const row = (cells) => `| ${cells.join(' | ')} |`;
  const head = ['book', 'live keys at the end', 'most of a row in dead pages', 'change of the mean loss, nats'];
  const rows = texts.map((text) => {
    const { live, mass, change } = done[text];
    return row([title(text), `${(100 * live).toFixed(1)} %`, mass.toExponential(1), change.toExponential(1)]);
  });
  const table = [row(head), row(head.map(() => '---')), ...rows].join('\n');
  const { epsilon } = done[texts[0]];
  const report = `# Pruning of the demo model

The first ${TOKENS} tokens of each book at ln ε = −10 (ε = ${epsilon.toExponential(1)}), CPU device, f16 KV cache: \`npm run evidence prune FOLDER\` (a folder of the
books, as Project Gutenberg has them; without it the first row alone, of the excerpt in tests/fixtures/books). Bars: ${100 * BARS.live} % live, ε, ${BARS.loss} nats.

${table}
`;
  if (folder === undefined) console.log(`\n${table}`);
  else await writeFile(`${root}tests/evidence/prune.md`, report);
  const over = ({ live, mass, change }) => live > BARS.live || mass > epsilon || Math.abs(change) > BARS.loss;
  const failures = texts.filter((text) => over(done[text]));
  if (failures.length > 0) throw new Error(`over a bar: ${failures.join(', ')}`);
});
