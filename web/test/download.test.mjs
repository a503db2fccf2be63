import assert from 'node:assert/strict';
import test from 'node:test';
import { Download } from '../dist/download.js';

const bytes = Uint8Array.from({ length: 300_000 }, (_, i) => (i * 31 + (i >> 8)) & 0xff).fill(0x47, 0, 4);

/** A fetch whose body comes in parts of the given size. */
function serving(part, { headers = {}, status = 200, breakAt = Infinity } = {}) {
  return async () => {
    let at = 0;
    const body = new ReadableStream({
      pull(controller) {
        if (at >= breakAt) return controller.error(new TypeError('gone'));
        if (at >= bytes.length) return controller.close();
        controller.enqueue(bytes.slice(at, (at += part)));
      },
    });
    return new Response(body, { status, headers });
  };
}

for (const part of [1000, 65_536, 1_000_000]) {
  test(`reads forward, over gaps and to the end, from parts of ${part}`, async () => {
    const download = await Download.open('m', serving(part));
    let at = 0;
    for (const [skip, n] of [[0, 4], [0, 100], [7, 70_000], [5000, 1], [0, 100_000], [1, 65_537]]) {
      at += skip;
      assert.deepEqual(await download.read(at, n), bytes.slice(at, at + n));
      at += n;
    }
    assert.deepEqual(await download.read(at, 1e6), bytes.slice(at), 'a read past the end gives what there is');
    assert.equal((await download.read(bytes.length, 10)).length, 0);
    assert.equal((await download.read(bytes.length + 5, 10)).length, 0);
  });
}

test('what was read last can be read again, and not more', async () => {
  const download = await Download.open('m', serving(5000));
  await download.read(0, 100_000);
  assert.deepEqual(await download.read(99_000, 500), bytes.slice(99_000, 99_500));
  assert.deepEqual(await download.read(99_900, 5_000), bytes.slice(99_900, 104_900), 'across the edge');
  await download.read(104_900, 10_000);
  await assert.rejects(download.read(0, 4), RangeError);
});

test('the length is told only where it is that of the file', async () => {
  const length = async (headers) => (await Download.open('m', serving(1e6, { headers }))).length;
  assert.equal(await length({ 'content-length': '300000' }), 300_000);
  assert.equal(await length({}), undefined);
  assert.equal(await length({ 'content-length': 'many' }), undefined);
  assert.equal(await length({ 'content-length': '100', 'content-encoding': 'gzip' }), undefined);
});

const fails = (opening, code, pattern) =>
  assert.rejects(opening, (error) => {
    assert.equal(error.code, code);
    assert.match(error.message, pattern);
    return true;
  });

test('a refusal, silence and a web page are told apart', async () => {
  await fails(Download.open('a/m.gguf', serving(10, { status: 404 })), 'http', /^a\/m.gguf: the server answered 404/);
  await fails(
    Download.open('m', async () => {
      throw new TypeError('Failed to fetch');
    }),
    'network',
    /cannot be fetched: Failed to fetch/,
  );
  for (const response of [
    () => new Response('no', { headers: { 'content-type': 'text/html; charset=utf-8' } }),
    () => new Response('\n <!DOCTYPE html>'),
    () => new Response('\ufeff<html lang=en>'),
  ]) {
    await fails(Download.open('m', async () => response()), 'format', /not a GGUF model file: the server answered with a web page/);
  }
  await fails(Download.open('m', serving(10, { breakAt: 0 })), 'network', /broke at byte 0: gone/);
});

test('a connection that breaks is a network error, and is kept', async () => {
  const download = await Download.open('m', serving(10_000, { breakAt: 50_000 }));
  await download.read(0, 40_000);
  await fails(download.read(40_000, 20_000), 'network', /broke at byte 50000: gone/);
  assert.equal(download.failure.code, 'network');
  await download.close();
});
