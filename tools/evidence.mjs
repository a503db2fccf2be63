// `npm run evidence NAME [ARGUMENTS]`: a slow run, made once and kept as a table in tests/evidence/.

import { spawn } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { main, root, Usage } from './shared.mjs';

/** Scripts of that folder that others import, and that measure nothing. */
const SHARED = ['texts'];

await main(async () => {
  const [name, ...args] = process.argv.slice(2);
  const folder = `${root}tests/evidence`;
  const script = `${folder}/${name}.mjs`;
  if (name === undefined || SHARED.includes(name) || !existsSync(script)) {
    const files = readdirSync(folder).filter((file) => file.endsWith('.mjs'));
    const names = files.map((file) => file.slice(0, -4)).filter((name) => !SHARED.includes(name));
    throw new Usage(`no evidence ${name ?? 'named'}; there is ${names.join(', ')}`);
  }
  // What went wrong the script says itself, and its code is this one's.
  const child = spawn(process.execPath, [script, ...args], { cwd: root, stdio: 'inherit' });
  process.exitCode = await new Promise((resolve, reject) => child.on('error', reject).on('close', (code) => resolve(code ?? 1)));
});
