// `npm run audit`: what kitfox is built from. The crates by cargo-deny (deny.toml: licences, versions, sources, known faults), those of the
// fuzzing workspace too, the npm packages by their lock files: also those that write the API pages and that the tests build programs with. With `--offline`
// nothing is fetched, and known faults are not asked for.

import { existsSync } from 'node:fs';
import { readFile, readdir } from 'node:fs/promises';
import { has, main, root, run } from './shared.mjs';

/** Licences under which a tool of ours may be used; nothing of npm's is part of what is shipped. */
const LICENCES = ['MIT', 'Apache-2.0', 'BSD-2-Clause', 'BSD-3-Clause', 'ISC', '0BSD', 'MPL-2.0', 'MIT OR Apache-2.0'];
/** Further ones of what only the tests' programs and the writer of API pages install. */
const OTHER_LICENCES = [
  'Python-2.0', // argparse (typedoc)
  'BlueOak-1.0.0', // minimatch, graceful-fs
  'CC-BY-4.0', // caniuse-lite: data
  // Next's pictures, by platform.
  'LGPL-3.0-or-later',
  'Apache-2.0 AND LGPL-3.0-or-later',
  'Apache-2.0 AND LGPL-3.0-or-later AND MIT',
];
/** Packages with a program to run while they are installed, which .npmrc (or `--ignore-scripts`) keeps from running. */
const WITH_SCRIPTS = ['webgpu', 'esbuild'];
/** Where folders with a lock of their own are. */
const PLACES = ['tools', 'tests/web/fixtures', 'examples'];
/** `1.2.3`, and `1.2.3-rc.1`: no range; or the package of this repository. */
const EXACT = /^(\d+\.\d+\.\d+(-[0-9a-z.]+)?|file:\.\.\/\.\.\/web)$/;

const json = async (name) => JSON.parse(await readFile(root + name, 'utf8'));

/** Folders with a lock of their own. */
export async function otherLocks() {
  const folders = PLACES.map(async (place) => (await readdir(root + place).catch(() => [])).map((name) => `${place}/${name}`));
  return (await Promise.all(folders)).flat().filter((folder) => existsSync(`${root}${folder}/package-lock.json`));
}

/** Sentences about what npm would install that is not as it should be. */
export function lockFindings(lock, manifests, npmrc, licences = LICENCES) {
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
    if (!licences.includes(license)) findings.push(`${name}: licence ${license} is not among ${licences.join(', ')}`);
    if (hasInstallScript && !WITH_SCRIPTS.includes(name)) findings.push(`${name}: runs a program when it is installed`);
  }
  return findings;
}

/** [`lockFindings`] of this repository. */
export async function npmFindings() {
  const named = async (...names) => Promise.all(names.map(async (name) => [name, await json(name)]));
  const npmrc = await readFile(`${root}.npmrc`, 'utf8');
  const findings = lockFindings(await json('package-lock.json'), await named('package.json', 'web/package.json', 'www/package.json'), npmrc);
  for (const folder of await otherLocks()) {
    const lock = await json(`${folder}/package-lock.json`);
    const others = lockFindings(lock, await named(`${folder}/package.json`), npmrc, [...LICENCES, ...OTHER_LICENCES]);
    findings.push(...others.map((finding) => `${folder}: ${finding}`));
  }
  return findings;
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
    const deny = (manifest, checks) => {
      const where = ['--manifest-path', root + manifest, '--config', `${root}deny.toml`, ...(offline ? ['--offline'] : [])];
      return run('cargo', ['deny', ...where, 'check', '--hide-inclusion-graph', ...checks]);
    };
    // The exception of deny.toml is for the fuzzing workspace.
    await deny('Cargo.toml', ['-A', 'license-exception-not-encountered', 'bans', 'licenses', 'sources']);
    // Of the fuzzing workspace, which is never shipped, not the versions: which ones are there twice is no matter.
    await deny('fuzz/Cargo.toml', ['licenses', 'sources']);
    if (offline) {
      console.log('offline: known faults (the RustSec database, npm audit) were not asked for');
      return;
    }
    for (const manifest of ['Cargo.toml', 'fuzz/Cargo.toml']) await deny(manifest, ['advisories']);
    await run('npm', ['audit', '--audit-level=high']);
    for (const folder of await otherLocks()) await run('npm', ['audit', '--audit-level=high', '--package-lock-only', '--prefix', folder]);
  });
}
