// Manifests come from anywhere: taken, or refused by the name of what is wrong; by the same rules as the program's (src/format/manifest.rs).

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { checkManifest } from '../dist/manifest.js';

const cases = JSON.parse(await readFile(new URL('../../tests/fixtures/manifests.json', import.meta.url), 'utf8'));

test('manifests are taken and refused as the program does', () => {
  for (const { name, manifest, wrong } of cases) {
    if (wrong === null) checkManifest('m', manifest);
    else assert.throws(() => checkManifest('m', manifest), (error) => error.code === 'format' && error.message.startsWith(`m: ${wrong}: `), name);
  }
});

/** Numbers from a seed (mulberry32). */
function random(seed) {
  return (n) => {
    seed = (seed + 0x6d2b79f5) | 0;
    let z = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    z = (z + Math.imul(z ^ (z >>> 7), 61 | z)) ^ z;
    return ((z ^ (z >>> 14)) >>> 0) % n;
  };
}

test('two thousand mutations give a manifest or a format error', () => {
  const next = random(7);
  const odd = [null, true, -1, 0, 0.5, 1e308, 2 ** 53, '', 'a', '\u0000\n', '\ud800', [], {}, [[[]]], { length: 3 }];
  let taken = 0;
  for (let turn = 0; turn < 2000; turn++) {
    const manifest = structuredClone(cases[next(cases.length)].manifest);
    for (let edits = next(3); edits >= 0 && manifest !== null && typeof manifest === 'object'; edits--) {
      const keys = Object.keys(manifest);
      const key = next(8) === 0 ? '__proto__' : (keys[next(keys.length)] ?? 'file');
      if (next(3) === 0) delete manifest[key];
      else if (Array.isArray(manifest[key]) && next(2) === 0) manifest[key][next(4)] = odd[next(odd.length)];
      else Object.defineProperty(manifest, key, { value: odd[next(odd.length)], enumerable: true, configurable: true, writable: true });
    }
    try {
      const { bytes, sha256 } = checkManifest('m', manifest);
      assert.equal(sha256.length, Math.ceil(bytes / 2 ** 22));
      taken++;
    } catch (error) {
      assert.equal(error.code, 'format', error.stack);
      assert.ok(error.message.length < 300 && error.message.startsWith('m: '), error.message);
    }
  }
  assert.ok(taken > 20 && taken < 1000, `${taken} taken`);
});
