// What npm would install is what the lock file says: exact versions with their hashes, and no program of theirs runs.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { test } from 'node:test';
import { OTHER_LOCKS, lockFindings, npmFindings } from '../../tools/audit.mjs';
import { root } from '../../tools/shared.mjs';

test('what npm installs is exact, hashed, of known licences, and runs nothing', async () => {
  assert.deepEqual(await npmFindings(), []);
});

test('every lock of the repository is looked at', async () => {
  const folders = ['tools', 'examples', 'tests/web/fixtures'].map(async (parent) => (await readdir(root + parent)).map((name) => `${parent}/${name}`));
  const locked = (await Promise.all(folders)).flat().filter((folder) => existsSync(`${root}${folder}/package-lock.json`));
  assert.deepEqual(locked.sort(), OTHER_LOCKS.toSorted());
});

test('each way to be otherwise is told', () => {
  const good = { resolved: 'https://registry.example/a.tgz', integrity: 'sha512-x', license: 'MIT' };
  const findings = (change, manifest = {}, npmrc = 'ignore-scripts=true') =>
    lockFindings({ packages: { 'node_modules/a': { ...good, ...change } } }, [['package.json', manifest]], npmrc);
  assert.deepEqual(findings({}), []);
  for (const [change, words] of [
    [{ integrity: undefined }, /^a: expected a sha512, got undefined$/],
    [{ integrity: 'sha1-x' }, /sha1-x/],
    [{ resolved: 'git+ssh://host/a' }, /^a: expected an address of https/],
    [{ license: 'GPL-3.0' }, /licence GPL-3.0/],
    [{ license: undefined }, /licence undefined/],
    [{ hasInstallScript: true }, /^a: runs a program/],
  ]) {
    const [said, ...more] = findings(change);
    assert.match(said, words);
    assert.deepEqual(more, []);
  }
  assert.deepEqual(findings({}, { dependencies: { kitfox: 'file:../../web' } }), []);
  for (const version of ['file:../other', '^1.0.0', '~1.0.0', '*', '1', 'latest', 'github:a/b']) {
    assert.match(findings({}, { devDependencies: { a: version } })[0], /expected an exact version/);
  }
  assert.match(findings({}, { scripts: { postinstall: 'x' } })[0], /runs a program when it is installed \(postinstall\)/);
  assert.match(findings({}, {}, '')[0], /ignore-scripts/);
});
