// `npm run evidence NAME [ARGUMENTS]`: a slow run, made once and kept as a table in tests/evidence/.

import { existsSync, readdirSync } from 'node:fs';
import { main, root, run } from './shared.mjs';

await main(async () => {
  const [name, ...args] = process.argv.slice(2);
  const folder = `${root}tests/evidence`;
  const script = `${folder}/${name}.mjs`;
  if (name === undefined || !existsSync(script)) {
    const names = readdirSync(folder).filter((file) => file.endsWith('.mjs'));
    throw new Error(`no evidence ${name ?? 'named'}; there is ${names.map((file) => file.slice(0, -4)).join(', ')}`);
  }
  await run(process.execPath, [script, ...args]);
});
