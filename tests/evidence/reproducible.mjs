// Whether two builds of the wasm module are the same bytes: both from nothing, in two folders.
//
//     npm run evidence reproducible
//
// Results go to reproducible.md beside this file.

import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { main, root, run } from '../../tools/shared.mjs';

await main(async () => {
  const module = `${root}web/dist/wasm/kitfox_bg.wasm`;
  const rows = [];
  for (const n of [1, 2]) {
    const folder = await mkdtemp(path.join(tmpdir(), `kitfox-build-${n}-`));
    try {
      await run(process.execPath, ['-e', "import('./tools/build-web.mjs').then(({ buildWasm }) => buildWasm())"], { env: { CARGO_TARGET_DIR: folder } });
      const bytes = await readFile(module);
      rows.push([n, bytes.length, createHash('sha256').update(bytes).digest('hex')]);
      console.log(rows.at(-1).join(' '));
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }
  const version = async (command, args) => (await run(command, args, { quiet: true })).trim();
  const report = `# Two builds of the wasm module

Each from nothing, in a folder of its own, with ${await version('rustc', ['--version'])} at commit ${await version('git', ['rev-parse', '--short', 'HEAD'])}: \`npm run evidence reproducible\`.

| build | bytes | SHA-256 |
|---|---|---|
${rows.map((row) => `| ${row.join(' | ')} |`).join('\n')}
`;
  await writeFile(`${root}tests/evidence/reproducible.md`, report);
  if (rows[0][2] !== rows[1][2]) throw new Error('the two builds differ');
});
