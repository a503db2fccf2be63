// Every point at which the device may fail: each allocation of loads, calls, self-tests and recoveries refused or invalid, and the device lost
// at every step, on a device with no feature and on the one that users get.
//
//     npm run evidence faults [again | PART OF A TEST'S NAME]
//
// It runs tests/models/faults with KITFOX_ALL_POINTS=1, one test after the other, which takes about 20 minutes on two cores. What is done is kept in
// target/faults.json with its commit, and the next run goes on behind it; `again` begins anew, a part of a name with the tests of that name. Results
// go to faults.md beside this file.

import { existsSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { gpuEnvironment } from '../../tools/setup.mjs';
import { main, root, run } from '../../tools/shared.mjs';

const KEPT = `${root}target/faults.json`;
const CARGO = ['test', '--release', '--test', 'models', '--'];

await main(async () => {
  const [word] = process.argv.slice(2);
  Object.assign(process.env, await gpuEnvironment(), { KITFOX_ALL_POINTS: '1' });
  const revision = (await run('git', ['rev-parse', '--short', 'HEAD'], { quiet: true })).trim();
  const listed = await run('cargo', [...CARGO, 'faults::', '--list'], { quiet: true });
  const tests = listed.split('\n').filter((line) => line.endsWith(': test')).map((line) => line.slice(0, -': test'.length));
  const known = existsSync(KEPT) && word !== 'again' ? JSON.parse(await readFile(KEPT, 'utf8')) : {};
  const kept = Object.fromEntries(tests.flatMap((test) => (known[test] === undefined ? [] : [[test, known[test]]])));
  if (![undefined, 'again'].includes(word) && !tests.some((test) => test.includes(word))) throw new Error(`no test of faults has ${word} in its name`);
  for (const test of tests.filter((name) => kept[name] === undefined || (word !== undefined && name.includes(word)))) {
    const since = Date.now();
    const said = await run('cargo', [...CARGO, '--exact', test, '--nocapture'], { quiet: true });
    const told = said.split('\n').filter((line) => line.includes('points | '));
    const rows = told.map((line) => line.slice(line.indexOf('points | ')).split(' | ').slice(1));
    console.log(`${test}: ${rows.length} sweeps in ${Math.round((Date.now() - since) / 1000)} s`);
    kept[test] = { revision, rows };
    await writeFile(KEPT, JSON.stringify(kept));
  }
  const line = (cells) => `| ${cells.join(' | ')} |`;
  const head = ['where', 'fault', 'points', 'tried', 'same result', "another kernel's", 'typed error', 'otherwise', 'commit'];
  const rows = Object.values(kept).flatMap(({ revision, rows }) => rows.map((row) => [...row, 0, revision]));
  const sum = (column) => rows.reduce((total, row) => total + Number(row[column]), 0);
  const total = ['all', '', sum(2), sum(3), sum(4), sum(5), sum(6), 0, ''];
  const report = `# Faults of the device at every point

What happens when an allocation is refused (OutOfMemory) or invalid (Validation), or the device is lost, at each point in turn, on a software adapter:
\`npm run evidence faults\`. Baseline: a device with no feature and default limits; Equipped: with all that the adapter has. A run gives the same result as
without a fault, to the last bit (of a loss after the device is opened again), that of another kernel where an alternative could not be had (within 2e-4 of
each logit), or one typed error, and the next call works; anything else ends the run, so that \`otherwise\` is 0. Losses are tried once at each point, and at
some of them for good, which is the typed error.

${[head, head.map(() => '---'), ...rows, total].map(line).join('\n')}
`;
  await writeFile(`${root}tests/evidence/faults.md`, report);
  console.log(report);
});
