// What npm would install is what the lock file says: exact versions with their hashes, and no program of theirs runs.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lockFindings, npmFindings, otherLocks } from '../../tools/audit.mjs';

test('what npm installs is exact, hashed, of known licences, and runs nothing', async () => {
  assert.deepEqual(await npmFindings(), []);
});

test('the locks of what tests build and of the API pages are looked at, too', async () => {
  const locks = await otherLocks();
  assert.ok(locks.includes('tools/docs') && locks.filter((folder) => folder.startsWith('tests/web/fixtures/')).length >= 3, locks.join());
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
  for (const version of ['^1.0.0', '~1.0.0', '*', '1', 'latest', 'github:a/b']) {
    assert.match(findings({}, { devDependencies: { a: version } })[0], /expected an exact version/);
  }
  assert.match(findings({}, { scripts: { postinstall: 'x' } })[0], /runs a program when it is installed \(postinstall\)/);
  assert.match(findings({}, {}, '')[0], /ignore-scripts/);
});
