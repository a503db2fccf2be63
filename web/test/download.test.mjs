import assert from 'node:assert/strict';
import test from 'node:test';
import { Download, StartOver, brokenOff } from '../dist/download.js';

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

test('of another origin the length on the wire is an estimate, and no more', async () => {
  const hidden = (response) => Object.defineProperty(response, 'type', { value: 'cors' });
  const whole = () => hidden(new Response(bytes, { headers: { 'content-length': 300_000 } }));
  const rest = () => hidden(new Response(bytes.slice(50_000), { status: 206, headers: { 'content-length': 250_000, etag: '"one"' } }));
  const opened = await Download.open('m', serving(10, { answers: [whole()] }));
  assert.deepEqual([opened.length, opened.estimate], [undefined, 300_000]);
  const going = await Download.open('m', { ...serving(10, { answers: [rest()] }), from: 50_000, version: { etag: '"one"' } });
  assert.deepEqual([going.length, going.estimate], [undefined, 300_000]);
  assert.equal((await Download.open('m', serving(10, { answers: [new Response(bytes)] }))).estimate, undefined);
});

test('a body that stops coming is broken off after a minute, one that ends is not', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const coming = new ReadableStream({ start: (controller) => controller.enqueue(bytes) });
  const stops = brokenOff(coming);
  let broken = false;
  for (const body of [new Response(bytes).body, null]) brokenOff(body).catch(() => (broken = true));
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  t.mock.timers.tick(60_000);
  await assert.rejects(stops, { message: 'nothing came for 60 s' });
  t.mock.timers.tick(60_000);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(broken, false);
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
  // However many attempts: none of its own waits is too long.
  const often = [];
  await Download.open('m', { ...serving(10_000, { answers: Array.from({ length: 100 }, () => busy()) }), retries: 100, onRetry: (_, ms) => often.push(ms) });
  assert.equal(often.length, 100);
  assert.ok(often.every((ms) => ms <= 60_000));
  await fails(waits(...Array.from({ length: 5 }, () => busy())), 'http', /answered 429 \(after 4 attempts more\)/);
});

test('a web page in the place of the rest is told at once', async () => {
  const portal = new Response('<html>', { headers: { 'content-type': 'text/html' } });
  const download = await Download.open('m', serving(10_000, { breaks: [50_000], etag: '"one"', answers: [undefined, portal] }));
  await download.read(50_000);
  await fails(download.read(1), 'format', /the server answered with a web page/);
});

const rangeOf = ({ range }) => range ?? 'whole';

/** An answer as one of another host: the page sees neither its length nor its ETag nor its coding. */
const foreign = (response) => {
  const headers = new Headers({ 'last-modified': response.headers.get('last-modified') });
  return Object.defineProperties(new Response(response.body, { status: response.status, headers }), { type: { value: 'cors' } });
};

test('where another host answers no header is sent that it would have to be asked for, and the download goes on', async () => {
  const DATE = 'Mon, 02 Nov 2026 10:00:00 GMT';
  // Ranges, and no preflight: that is what If-Range would take.
  const host = (asked, breaks) => async (url, { headers }) => {
    asked.push(rangeOf(headers));
    if (headers['if-range'] !== undefined) throw new TypeError('Failed to fetch');
    const at = Number(/^bytes=(\d+)-$/.exec(headers.range ?? '')?.[1] ?? 0);
    const end = breaks.shift() ?? bytes.length;
    const body = new ReadableStream({
      start: (controller) => (at < end ? controller.enqueue(bytes.slice(at, end)) : undefined),
      pull: (controller) => (end < bytes.length ? controller.error(new TypeError('gone')) : controller.close()),
    });
    return foreign(new Response(body, { status: at > 0 ? 206 : 200, headers: { 'last-modified': DATE } }));
  };
  const asked = [];
  const told = [];
  const download = await Download.open('m', { fetcher: host(asked, [50_000]), sleep: async () => {}, retries: 1, onRetry: (why) => told.push(why) });
  assert.deepEqual(await readAll(download), bytes);
  assert.deepEqual(asked, ['whole', 'bytes=50000-']);
  assert.equal(told.length, 1);
  // Begun by a page before, which is all that is known: one attempt finds it out, also where none is left.
  for (const retries of [0, 4]) {
    const again = [];
    const rest = await Download.open('m', { fetcher: host(again, []), sleep: async () => {}, retries, from: 50_000, version: { lastModified: DATE } });
    assert.deepEqual(await readAll(rest), bytes.slice(50_000));
    assert.deepEqual(again, ['bytes=50000-', 'bytes=50000-']);
  }
});

test('a file that comes compressed is never gone on with by Range, which counts other bytes', async () => {
  const server = serving(10_000, { breaks: [50_000], etag: '"one"', headers: { 'content-encoding': 'gzip' } });
  const download = await Download.open('m', server);
  assert.deepEqual(await readAll(download), bytes);
  assert.deepEqual(server.asked.map(rangeOf), ['whole', 'whole']);
  // The next page's load knows it by the journal.
  const next = serving(10_000, { etag: '"one"' });
  const rest = await Download.open('m', { ...next, from: 50_000, version: JSON.parse(JSON.stringify(download.version)) });
  assert.deepEqual(await readAll(rest), bytes.slice(50_000));
  assert.deepEqual(next.asked.map(rangeOf), ['whole']);
});

test('a Range that gives nothing, however often, is no end: the file is asked for from its start', async () => {
  const broken = () => new Response(new ReadableStream({ start: (controller) => controller.error(new TypeError('ERR_CONTENT_DECODING_FAILED')) }), { status: 206, headers: { etag: '"one"' } });
  for (const [answer, status] of [[broken], [() => new TypeError('Failed to fetch')], [() => new Response('', { status: 416 })], [() => new Response('', { status: 403 })], [() => new Response('', { status: 503 })]]) {
    for (const retries of [0, 1, 4]) {
      const asked = [];
      const whole = serving(10_000, { etag: '"one"' });
      const fetcher = async (url, init) => {
        asked.push(rangeOf(init.headers));
        if (init.headers.range === undefined) return whole.fetcher(url, init);
        const said = answer();
        if (said instanceof Error) throw said;
        return said;
      };
      const download = await Download.open('m', { fetcher, sleep: async () => {}, retries, from: 50_000, version: { etag: '"one"' } });
      assert.deepEqual(await readAll(download), bytes.slice(50_000), `${status} ${retries}`);
      assert.equal(asked.at(-1), 'whole');
      assert.ok(asked.length <= retries + 3, asked.join());
    }
  }
  // And where the start is of another version it starts over; where nothing answers at all that is said, soon.
  const other = serving(10_000, { etag: '"two"', answers: [new Response('', { status: 416 })] });
  await assert.rejects(Download.open('m', { ...other, from: 50_000, version: { etag: '"one"' } }), StartOver);
  const silent = serving(10_000, { answers: Array(99).fill(new TypeError('Failed to fetch')) });
  await fails(Download.open('m', { ...silent, retries: 2, from: 50_000, version: { etag: '"one"' } }), 'network', /cannot be fetched: Failed to fetch \(after 2 attempts more\)/);
  assert.ok(silent.asked.length <= 5, `${silent.asked.length}`);
});

test('a 206 that does not say which version it is of is never mixed in', async () => {
  const nameless = () => new Response(bytes.slice(50_000), { status: 206, headers: { 'content-range': 'bytes 50000-299999/300000' } });
  const download = await Download.open('m', serving(10_000, { breaks: [50_000], etag: '"one"', answers: [undefined, nameless()] }));
  await download.read(50_000);
  await assert.rejects(download.read(1), (error) => error instanceof StartOver && /names no version/.test(error.message));
  // In answer to If-Range a date need not be repeated. Where that was sent, also in Node, it is the server's word.
  const dated = serving(10_000, { breaks: [50_000], headers: { 'last-modified': 'Mon, 02 Nov 2026 10:00:00 GMT' }, answers: [undefined, nameless()] });
  const other = await Download.open('http://other.example/m', dated);
  assert.deepEqual(await readAll(other), bytes);
  assert.equal(dated.asked[1]['if-range'], 'Mon, 02 Nov 2026 10:00:00 GMT');
});

test('a part that nobody asked for is named, not read as the file', async () => {
  const part = () => new Response(bytes.slice(1000), { status: 206, headers: { 'content-range': 'bytes 1000-299999/300000' } });
  await fails(Download.open('a/m.gguf', serving(10, { answers: [part()] })), 'http', /^a\/m.gguf: the server sent bytes from 1000 on, though all were asked for/);
  const start = new Response(bytes, { status: 206, headers: { 'content-range': 'bytes 0-299999/300000' } });
  assert.deepEqual(await readAll(await Download.open('m', serving(10, { answers: [start] }))), bytes);
});

test('a server that takes the request and answers nothing is left after a minute', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const signals = [];
  const whole = serving(10_000);
  const fetcher = (url, init) => {
    signals.push(init.signal);
    return signals.length < 2 ? new Promise(() => {}) : whole.fetcher(url, init);
  };
  const told = [];
  const opening = Download.open('m', { ...whole, fetcher, onRetry: (why) => told.push(why) });
  for (let turn = 0; turn < 10; turn += 1) await Promise.resolve();
  t.mock.timers.tick(60_000);
  const download = await opening;
  assert.match(told.join(), /^m: cannot be fetched: nothing came for 60 s$/);
  assert.deepEqual(signals.map(({ aborted }) => aborted), [true, false]);
  assert.deepEqual(await readAll(download), bytes);
});
