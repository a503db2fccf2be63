import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test from 'node:test';
import { plainSha256, sha256 } from '../dist/digest.js';

test('the digest without the browser is the one with it, at every length around a block', async () => {
  for (const length of [0, 1, 54, 55, 56, 57, 63, 64, 65, 119, 120, 121, 128, 1000, 300_001]) {
    const bytes = Uint8Array.from({ length }, (_, i) => (i * 131 + (i >> 7)) & 0xff);
    const expected = createHash('sha256').update(bytes).digest('hex');
    assert.equal(Buffer.from(plainSha256(bytes)).toString('hex'), expected, `${length} bytes`);
    assert.equal(await sha256(bytes), expected);
    // A view into a larger buffer.
    assert.equal(Buffer.from(plainSha256(Uint8Array.of(9, ...bytes.subarray(0, 500), 9).subarray(1, -1))).toString('hex'), createHash('sha256').update(bytes.subarray(0, 500)).digest('hex'));
  }
});
