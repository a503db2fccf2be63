import assert from 'node:assert/strict';
import test from 'node:test';
import { Download, StartOver } from '../dist/download.js';

const bytes = Uint8Array.from({ length: 300_000 }, (_, i) => (i * 31 + (i >> 8)) & 0xff).fill(0x47, 0, 4);

/**
 * A server of that file, in parts of the given size. `breaks`: the bytes at which one connection after the other breaks; `ranges`: whether
 * it knows `Range`; `answers`: whole answers that come first, `undefined` for the file.
 */
function serving(part, { headers = {}, breaks = [], ranges = true, etag, answers = [] } = {}) {
  const asked = [];
  const fetcher = async (url, init) => {
    asked.push(init.headers);
    const answer = answers.shift();
    if (answer !== undefined) {
      if (answer instanceof Error) throw answer;
      return answer;
    }
    const current = typeof etag === 'function' ? etag(asked.length) : etag;
    const range = /^bytes=(\d+)-$/.exec(init.headers.range ?? '')?.[1];
    const partial = ranges && range !== undefined && (init.headers['if-range'] ?? current) === current;
    let at = partial ? Number(range) : 0;
    const breakAt = breaks.shift() ?? Infinity;
    const body = new ReadableStream({
      pull(controller) {
        if (at >= breakAt) return controller.error(new TypeError('gone'));
        if (at >= bytes.length) return controller.close();
        const end = Math.min(at + part, breakAt);
        controller.enqueue(bytes.slice(at, end));
        at = end;
      },
    });
    const version = current === undefined ? {} : { etag: current };
    if (!partial) return new Response(body, { status: 200, headers: { 'content-length': bytes.length, ...version, ...headers } });
    return new Response(body, { status: 206, headers: { 'content-range': `bytes ${at}-${bytes.length - 1}/${bytes.length}`, ...version } });
  };
  return { fetcher, asked, sleep: async () => {} };
}

async function readAll(download, n = 70_000) {
  const parts = [];
  for (;;) {
    const part = await download.read(n);
    parts.push(...part);
    if (part.length < n) return Uint8Array.from(parts);
  }
}

const fails = (opening, code, pattern) =>
  assert.rejects(opening, (error) => {
    assert.equal(error.code, code);
    assert.match(error.message, pattern);
    return true;
  });

for (const part of [1000, 65_536, 1_000_000]) {
  test(`reads to the end from parts of ${part}`, async () => {
    const download = await Download.open('m', serving(part));
    assert.deepEqual(await readAll(download), bytes);
    assert.equal((await download.read(10)).length, 0);
  });
}

test('the length is told only where it is that of the file', async () => {
  const length = async (headers) => (await Download.open('m', serving(1e6, { headers }))).length;
  assert.equal(await length({}), 300_000);
  assert.equal(await length({ 'content-length': 'many' }), undefined);
  assert.equal(await length({ 'content-length': '100', 'content-encoding': 'gzip' }), undefined);
});

test('a refusal, silence and a web page are told apart', async () => {
  const refused = new Response('', { status: 404 });
  await fails(Download.open('a/m.gguf', serving(10, { answers: [refused] })), 'http', /^a\/m.gguf: the server answered 404/);
  const silent = Array(5).fill(new TypeError('Failed to fetch'));
  await fails(Download.open('m', serving(10, { answers: silent })), 'network', /cannot be fetched: Failed to fetch \(after 4 attempts more\)/);
  for (const response of [
    new Response('no', { headers: { 'content-type': 'text/html; charset=utf-8' } }),
    new Response('\n <!DOCTYPE html>'),
    new Response('\ufeff<html lang=en>'),
  ]) {
    await fails(Download.open('m', serving(10, { answers: [response] })), 'format', /not a GGUF model file: the server answered with a web page/);
  }
  await fails(Download.open('m', { ...serving(10, { breaks: [0, 0], etag: '"a"' }), retries: 1 }), 'network', /broke at byte 0: gone/);
});

// The first byte, within a header, the middle, the last byte.
for (const at of [0, 1, 20, 150_000, 299_999]) {
  for (const ranges of [true, false]) {
    test(`a connection that breaks at byte ${at} goes on there, ${ranges ? 'by Range' : 'though the server knows no Range'}`, async () => {
      const server = serving(10_000, { breaks: [at, at + 1], ranges, etag: '"one"' });
      const told = [];
      const download = await Download.open('m', { ...server, onRetry: (why, ms) => told.push([why, ms]) });
      assert.deepEqual(await readAll(download), bytes);
      const expected = [0, at, at + 1].filter((from, ix) => ix === 0 || from < bytes.length);
      assert.deepEqual(server.asked.map(({ range }) => range ?? 'bytes=0-'), expected.map((from) => `bytes=${from}-`));
      for (const { range, 'if-range': validator } of server.asked) assert.equal(validator, range && '"one"');
      assert.equal(told.length, expected.length - 1);
      for (const [why, ms] of told) assert.ok(/broke at byte \d+: gone/.test(why) && ms >= 250 && ms <= 1000, `${why} ${ms}`);
    });
  }
}

test('a connection that is closed too early is one that broke', async () => {
  const cut = new Response(bytes.slice(0, 1000), { headers: { 'content-length': 300_000, etag: '"one"' } });
  const download = await Download.open('m', serving(10_000, { answers: [cut], etag: '"one"' }));
  assert.deepEqual(await readAll(download), bytes);
});

test('a server that always breaks at the same place is given up, with Range and without', async () => {
  for (const ranges of [true, false]) {
    const server = serving(10_000, { breaks: Array(99).fill(50_000), ranges, etag: '"one"' });
    const download = await Download.open('m', { ...server, retries: 3 });
    await download.read(40_000);
    await fails(download.read(20_000), 'network', /broke at byte 50000: gone \(after 3 attempts more\)/);
    assert.equal(server.asked.length, 4);
    await download.close();
  }
});

test('another version of the file is never mixed in', async () => {
  for (const ranges of [true, false]) {
    const server = serving(10_000, { breaks: [50_000], ranges, etag: (n) => (n === 1 ? '"one"' : '"two"') });
    const download = await Download.open('m', server);
    await download.read(50_000);
    await assert.rejects(download.read(1), (error) => error instanceof StartOver && /has changed on the server, seen at byte 50000: expected ETag "one", got "two"/.test(error.message));
  }
  // The server took If-Range for what it is not.
  const liar = new Response(bytes.slice(50_000), { status: 206, headers: { 'content-range': 'bytes 50000-299999/300000', etag: '"two"' } });
  const download = await Download.open('m', serving(10_000, { breaks: [50_000], etag: '"one"', answers: [undefined, liar] }));
  await download.read(50_000);
  await assert.rejects(download.read(1), StartOver);
  // Another place, or another length, than was asked for.
  for (const range of ['bytes 40000-299999/300000', 'bytes 50000-399999/400000']) {
    const wrong = new Response(bytes.slice(40_000), { status: 206, headers: { 'content-range': range, etag: '"one"' } });
    const other = await Download.open('m', serving(10_000, { breaks: [50_000], etag: '"one"', answers: [undefined, wrong] }));
    await other.read(50_000);
    await assert.rejects(other.read(1), StartOver);
  }
});

test('a file of no known version, or of a weak one, starts over, unless its bytes are checked', async () => {
  for (const etag of [undefined, 'W/"one"']) {
    const download = await Download.open('m', serving(10_000, { breaks: [50_000], etag }));
    await download.read(50_000);
    await assert.rejects(download.read(1), (error) => error instanceof StartOver && /names no version/.test(error.message));
    const checked = await Download.open('m', { ...serving(10_000, { breaks: [50_000], etag }), checked: true });
    assert.deepEqual(await readAll(checked), bytes);
  }
});

test('a busy server is waited for as long as it asks, up to a minute', async () => {
  const busy = (after) => new Response('', { status: 429, headers: after === undefined ? {} : { 'retry-after': after } });
  const waits = async (...answers) => {
    const waited = [];
    await Download.open('m', { ...serving(10_000, { answers }), onRetry: (_, ms) => waited.push(ms) });
    return waited;
  };
  const [, , exact] = await waits(new Response('', { status: 500 }), busy(), busy('7'));
  assert.equal(exact, 7000);
  const [date] = await waits(busy(new Date(Date.now() + 20_000).toUTCString()));
  assert.ok(date > 15_000 && date <= 20_000, `${date}`);
  await fails(waits(busy('3600')), 'http', /answered 429; it asks for 3600 s without a request/);
  await fails(waits(...Array.from({ length: 5 }, () => busy())), 'http', /answered 429 \(after 4 attempts more\)/);
});

test('a web page in the place of the rest is told at once', async () => {
  const portal = new Response('<html>', { headers: { 'content-type': 'text/html' } });
  const download = await Download.open('m', serving(10_000, { breaks: [50_000], etag: '"one"', answers: [undefined, portal] }));
  await download.read(50_000);
  await fails(download.read(1), 'format', /the server answered with a web page/);
});
