// What fuzzing of the file readers found: each target for some time, added to what earlier runs did.
//
//     npm run evidence fuzz [SECONDS A TARGET, 600] [TARGETS]
//
// The table of fuzz.md, beside this file, is read, and written again after each target: a run that was cut short has added what it did.

import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { TARGETS, build, fuzz, told } from '../../tools/fuzz.mjs';
import { main, root } from '../../tools/shared.mjs';

const HEAD = ['target', 'executions', 'seconds', 'panics', 'hangs', 'over memory', 'seconds since then', 'worst time, ms', 'peak memory, MB'];
const report = `${root}tests/evidence/fuzz.md`;

/** The rows of the table, by target. */
async function rows() {
  const found = Object.fromEntries(TARGETS.map((target) => [target, [0, 0, 0, 0, 0, 0, 0, 0]]));
  if (!existsSync(report)) return found;
  for (const line of (await readFile(report, 'utf8')).split('\n')) {
    const [target, ...cells] = line.split('|').slice(1, -1).map((cell) => cell.trim());
    if (target in found) found[target] = cells.map((cell) => Number(cell.replaceAll(',', '')));
  }
  return found;
}

async function write(found) {
  const row = (cells) => `| ${cells.join(' | ')} |`;
  const shown = ([executions, seconds, panics, hangs, over, since, worst, peak]) =>
    [executions.toLocaleString('en'), seconds.toLocaleString('en'), panics, hangs, over, since.toLocaleString('en'), worst.toFixed(1), peak.toFixed(1)];
  const table = [row(HEAD), row(HEAD.map(() => '---')), ...TARGETS.map((target) => row([target, ...shown(found[target])]))];
  await writeFile(report, `# Fuzzing of what reads files

libFuzzer on each kind of input (fuzz/, stable compiler, arithmetic checked), added up over all runs: \`npm run evidence fuzz\`. What counts as a
hang is 2 s of the thread's own time, as over memory 4 times the input and 64 MB; worst time and peak memory are those of single inputs.
Findings are mended, and their inputs are in fuzz/corpus, where \`npm test\` tries them; since the last of them a target ran for so many seconds.

${table.join('\n')}
`);
}

await main(async () => {
  const args = process.argv.slice(2);
  const seconds = Number(args.find((arg) => /^\d+$/.test(arg)) ?? 600);
  const named = args.filter((arg) => TARGETS.includes(arg));
  const programs = await build();
  for (const target of named.length > 0 ? named : TARGETS) {
    const result = await fuzz(programs, target, seconds);
    console.log(told(target, result));
    const found = await rows();
    const [executions, before, panics, hangs, over, since, worst, peak] = found[target];
    const findings = [panics, hangs, over].map((n, ix) => n + Number(result.broke === ['panic', 'hang', 'memory'][ix]));
    const clean = ['panic', 'hang', 'memory'].includes(result.broke) ? 0 : since + result.seconds;
    const most = [Math.max(worst, result.worst), Math.max(peak, result.peak)];
    found[target] = [executions + result.executions, before + result.seconds, ...findings, clean, ...most];
    await write(found);
  }
});
