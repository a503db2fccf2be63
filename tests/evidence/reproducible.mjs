// Whether two builds of the wasm module are the same bytes: both of the last commit and from nothing, in two checkouts, with libraries in two places.
//
//     npm run evidence reproducible
//
// Results go to reproducible.md beside this file.

import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import path from 'node:path';
import { main, root, run } from '../../tools/shared.mjs';

await main(async () => {
  const rows = [];
  for (const n of [1, 2]) {
    const folder = await mkdtemp(path.join(tmpdir(), `kitfox-build-${n}-`));
    try {
      const [checkout, cargo] = [path.join(folder, n === 1 ? 'kitfox' : 'another name'), path.join(folder, 'cargo')];
      await run('git', ['clone', '--quiet', root, checkout]);
      // Another name for where libraries are, as another user has: what is there already is not fetched anew.
      await mkdir(cargo);
      const home = process.env.CARGO_HOME ?? path.join(homedir(), '.cargo');
      for (const name of await readdir(home)) await symlink(path.join(home, name), path.join(cargo, name));
      const env = { ...(n === 1 ? {} : { CARGO_HOME: cargo }), CARGO_TARGET_DIR: path.join(folder, 'target') };
      await run(process.execPath, ['-e', "import('./tools/build-web.mjs').then(({ buildWasm }) => buildWasm())"], { cwd: checkout, env });
      const bytes = await readFile(path.join(checkout, 'web/dist/wasm/kitfox_bg.wasm'));
      rows.push([n, bytes.length, createHash('sha256').update(bytes).digest('hex')]);
      console.log(rows.at(-1).join(' '));
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }
  const version = async (command, args) => (await run(command, args, { quiet: true })).trim();
  const report = `# Two builds of the wasm module

Each from nothing, in a checkout of its own with libraries in a place of its own, with ${await version('rustc', ['--version'])} at commit ${await version('git', ['rev-parse', '--short', 'HEAD'])}: \`npm run evidence reproducible\`.

| build | bytes | SHA-256 |
|---|---|---|
${rows.map((row) => `| ${row.join(' | ')} |`).join('\n')}
`;
  await writeFile(`${root}tests/evidence/reproducible.md`, report);
  if (rows[0][2] !== rows[1][2]) throw new Error('the two builds differ');
});
