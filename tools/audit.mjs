// `npm run audit`: what kitfox is built from. The crates by cargo-deny (deny.toml: licences, versions, sources, known faults), the npm
// packages by their lock file. With `--offline` nothing is fetched, and known faults are not asked for.

import { readFile } from 'node:fs/promises';
import { has, main, root, run } from './shared.mjs';

/** Licences under which a tool of ours may be used; nothing of npm's is part of what is shipped. */
const LICENCES = ['MIT', 'Apache-2.0', 'BSD-2-Clause', 'BSD-3-Clause', 'ISC', '0BSD', 'MPL-2.0', 'MIT OR Apache-2.0'];
/** Packages with a program to run while they are installed, which .npmrc keeps from running. */
const WITH_SCRIPTS = ['webgpu'];
/** `1.2.3`, and `1.2.3-rc.1`: no range. */
const EXACT = /^\d+\.\d+\.\d+(-[0-9a-z.]+)?$/;

const json = async (name) => JSON.parse(await readFile(root + name, 'utf8'));

/** Sentences about what npm would install that is not as it should be. */
export function lockFindings(lock, manifests, npmrc) {
  const findings = [];
  for (const [place, { dependencies, devDependencies, optionalDependencies, scripts = {} }] of manifests) {
    for (const [name, version] of Object.entries({ ...dependencies, ...devDependencies, ...optionalDependencies })) {
      if (!EXACT.test(version)) findings.push(`${place}: ${name}: expected an exact version, got ${version}`);
    }
    for (const name of ['preinstall', 'install', 'postinstall', 'prepare']) {
      if (scripts[name] !== undefined) findings.push(`${place}: runs a program when it is installed (${name})`);
    }
  }
  if (!/^ignore-scripts=true$/m.test(npmrc)) findings.push('.npmrc: expected ignore-scripts=true');
  for (const [place, { link, resolved, integrity, license, hasInstallScript }] of Object.entries(lock.packages)) {
    if (link || !place.startsWith('node_modules/')) continue;
    const name = place.split('node_modules/').at(-1);
    if (!/^sha512-/.test(integrity ?? '')) findings.push(`${name}: expected a sha512, got ${integrity}`);
    if (resolved !== undefined && !resolved.startsWith('https://')) findings.push(`${name}: expected an address of https, got ${resolved}`);
    if (!LICENCES.includes(license)) findings.push(`${name}: licence ${license} is not among ${LICENCES.join(', ')}`);
    if (hasInstallScript && !WITH_SCRIPTS.includes(name)) findings.push(`${name}: runs a program when it is installed`);
  }
  return findings;
}

/** [`lockFindings`] of this repository. */
export async function npmFindings() {
  const names = ['package.json', 'web/package.json', 'www/package.json', 'tools/docs/package.json'];
  const manifests = await Promise.all(names.map(async (name) => [name, await json(name)]));
  return lockFindings(await json('package-lock.json'), manifests, await readFile(`${root}.npmrc`, 'utf8'));
}

if (process.argv[1] === import.meta.filename) {
  await main(async () => {
    const offline = process.argv.includes('--offline');
    const findings = await npmFindings();
    if (findings.length > 0) throw new Error(`npm:\n${findings.join('\n')}`);
    console.log('npm: exact versions, sha512 of each, known licences, no program runs at installation');
    if (!(await has('cargo', ['deny', '--version']))) {
      throw new Error('install first: cargo-deny (cargo install cargo-deny --locked)');
    }
    await run('cargo', ['deny', ...(offline ? ['--offline'] : []), 'check', '--hide-inclusion-graph', 'bans', 'licenses', 'sources']);
    if (offline) {
      console.log('offline: known faults (the RustSec database, npm audit) were not asked for');
      return;
    }
    await run('cargo', ['deny', 'check', 'advisories']);
    await run('npm', ['audit', '--audit-level=high']);
  });
}
