// How a model comes into the page: connections that break, servers that lie, files that change, a cache that is damaged or missing. Each
// recovers or fails as documented, and the next load works.

import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { chromium, firefox, inPage, openPage } from './browsers.mjs';
import { Faults, PIECE, bytes, manifestOf } from './faults.mjs';
import { startServer } from './server.mjs';

const LAST = bytes.length - 1;
const html = (response) => response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>sign in</title>');
const busy = (response) => response.writeHead(429, { 'retry-after': '3600' }).end();
const json = (value) => (response) => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value));

/** Loads in the page, one after the other; each gives its first ids or its error, and what happened on the way. */
const LOADS = async (Kitfox, { collect, fails }, loads) => {
  const told = [];
  for (const { url, ...options } of loads) {
    const events = [];
    const load = Kitfox.load(url, { device: 'cpu', context: 64, onEvent: (event) => events.push(event), ...options });
    const fox = await load.catch(() => undefined);
    if (fox === undefined) {
      const { cause } = await load.catch((error) => error);
      told.push({ error: await fails(load), cause: cause instanceof Error ? cause.message : undefined, events });
      continue;
    }
    const { ids } = await collect(fox.generate('The fox', { temperature: 0, maxTokens: 3 }));
    fox.dispose();
    told.push({ ids: ids.join(), kinds: events.map(({ kind }) => kind).join(), events });
  }
  return told;
};

/** Another host, as one that gives files away is: no preflights, and Ranges of what it stores, `/packed` compressed. Each first transfer breaks. */
async function otherHost() {
  const stored = { '/plain': bytes, '/packed': gzipSync(bytes, { level: 1 }) };
  const breaks = { '/plain': [9_000_000], '/packed': [9_000_000] };
  const server = http.createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://host');
    const data = stored[pathname];
    const at = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
    const headers = { 'access-control-allow-origin': '*', 'last-modified': 'Mon, 02 Nov 2026 10:00:00 GMT', 'cache-control': 'no-store', 'content-length': data.length - at };
    if (pathname === '/packed') headers['content-encoding'] = 'gzip';
    if (request.method === 'OPTIONS') return response.writeHead(403).end();
    if (at > 0) headers['content-range'] = `bytes ${at}-${data.length - 1}/${data.length}`;
    response.writeHead(at > 0 ? 206 : 200, headers);
    const end = breaks[pathname].shift();
    if (end === undefined) return response.end(data.subarray(at));
    response.write(data.subarray(at, end), () => setTimeout(() => response.destroy(), 500));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => (server.closeAllConnections(), server.close()) };
}

for (const [name, launch] of [['Chromium', chromium], ['Firefox', firefox]]) {
  describe(name, () => {
    const faults = new Faults();
    let server, browser, page, complaints, ids;
    before(async () => {
      server = await startServer([], faults.answer);
      browser = await launch();
      ({ page, complaints } = await openPage(browser, `${server.url}/blank`));
      const [whole] = await inPage(page, LOADS, [{ url: '/models/demo.gguf', cache: 'off' }]);
      ids = whole.ids;
      assert.ok(ids.length > 3);
    });
    after(async () => {
      await browser?.close();
      await server?.close();
    });
    const loads = (...list) => inPage(page, LOADS, list);
    /** The load worked and gave the model. */
    const worked = (told, kinds) => {
      assert.equal(told.error, undefined);
      assert.equal(told.ids, ids);
      if (kinds !== undefined) assert.equal(told.kinds, kinds, JSON.stringify(told.events));
    };

    test('a complete copy is used without the network: the server busy or gone', async () => {
      const url = faults.set('/f/kept.gguf');
      const [first, second] = await loads({ url }, { url });
      worked(first, '');
      worked(second, 'cached');
      assert.deepEqual(faults.take(url), ['whole']);
      faults.set(url, { always: busy });
      const [third, only] = await loads({ url }, { url, cache: 'only' });
      worked(third, 'cached');
      worked(only, 'cached');
      assert.deepEqual(faults.take(url), []);
      const { listed, evicted, again, after } = await inPage(
        page,
        async (Kitfox, helpers, url) => ({
          listed: (await Kitfox.cached()).find((file) => file.url.endsWith(url)),
          evicted: await Kitfox.evict(url),
          again: await Kitfox.evict(url),
          after: (await Kitfox.cached()).some((file) => file.url.endsWith(url)),
        }),
        url,
      );
      assert.deepEqual(listed, { url: server.url + url, bytes: bytes.length, complete: true });
      assert.deepEqual([evicted, again, after], [true, false, false]);
      const [gone, refused] = await loads({ url, cache: 'only' }, { url });
      assert.match(gone.error, /^not-cached: \S+kept.gguf: no complete copy is in the cache/);
      assert.match(refused.error, /^http: \S+kept.gguf: the server answered 429 .*3600 s/);
      assert.deepEqual(complaints, []);
    });

    for (const at of [0, 20, 10_000_000, LAST]) {
      test(`a connection that breaks at byte ${at} goes on there, and the copy is whole`, async () => {
        const url = faults.set(`/f/broken-${at}.gguf`, { breaks: [at] });
        const [told, next] = await loads({ url }, { url });
        worked(told, 'retry');
        worked(next, 'cached');
        const [whole, rest, ...more] = faults.take(url);
        assert.deepEqual([whole, more], ['whole', []]);
        // A browser throws away what it had received and not yet handed out: how much that is, it decides.
        const from = Number(/^bytes=(\d+)-$/.exec(rest)?.[1] ?? 0);
        assert.ok(from <= at && (from > 0 || at < PIECE), `it went on at ${rest}`);
      });
    }

    test('a server that knows no Range, and one that names no version: no byte is mixed', async () => {
      const plain = faults.set('/f/no-range.gguf', { ranges: false, breaks: [9_000_000, 12_000_000] });
      const nameless = faults.set('/f/nameless.gguf', { etag: undefined, breaks: [9_000_000] });
      const [one, two, three] = await loads({ url: plain }, { url: nameless }, { url: nameless });
      worked(one, 'retry,retry');
      worked(two, 'retry,restart');
      worked(three, 'cached');
    });

    test('where an address leads to another host, or a file is stored compressed there, the next load goes on too', async () => {
      const host = await otherHost();
      try {
        const url = faults.set('/f/moved.gguf', { always: (response) => response.writeHead(302, { location: `${host.url}/plain` }).end() });
        for (const from of [url, `${host.url}/packed`]) {
          const [failed, told] = await loads({ url: from, retries: 0 }, { url: from, retries: 1 });
          // Firefox takes a compressed body that breaks for one that ends.
          const ended = from !== url && /^format: .* \(the file is cut short\)$/.test(failed.error);
          if (!ended) assert.match(failed.error, /^network: .* the connection broke at byte \d+/);
          worked(told);
          assert.equal(/resume/.test(told.kinds), !ended, told.kinds);
        }
        // How long the file is, another host does not say; that there is no room for it can be seen all the same.
        const [full] = await loads({ url: `${host.url}/plain?full`, workerUrl: '/tests/without-worker.mjs?quota' });
        worked(full, 'uncached');
        assert.match(full.events[0].reason, new RegExp(`quota: ${bytes.length} bytes are needed, 1000000 are available`));
      } finally {
        host.close();
      }
    });

    test('what came before a page was left is not fetched again', async () => {
      const url = faults.set('/f/left.gguf', { breaks: [10_000_000] });
      const [failed] = await loads({ url, retries: 0 });
      const [, came] = /^network: \S+left.gguf: the connection broke at byte (\d+): /.exec(failed.error) ?? [];
      assert.ok(failed.cause?.length > 0 && failed.error.includes(failed.cause), JSON.stringify(failed));
      // Whole pieces are kept; how much of what was sent had come by then, the browser decides.
      const kept = Math.floor(came / PIECE) * PIECE;
      assert.ok(kept > 0 && kept <= 2 * PIECE, failed.error);
      faults.take(url);
      await page.reload();
      const [told, next] = await loads({ url }, { url });
      worked(told, 'resume');
      worked(next, 'cached');
      assert.deepEqual(faults.take(url), [`bytes=${kept}-`]);
    });

    test('a file that changed between two loads, and under way, is fetched anew', async () => {
      const url = faults.set('/f/changed.gguf', { breaks: [10_000_000] });
      await loads({ url, retries: 0 });
      faults.set(url, { etag: '"two"' });
      const [told] = await loads({ url });
      worked(told, 'restart');
      const midway = faults.set('/f/midway.gguf', { breaks: [10_000_000] });
      const rule = faults.rules.get(midway);
      const turns = setInterval(() => faults.asked.some(({ path }) => path === midway) && (rule.etag = '"two"'), 5);
      const [other] = await loads({ url: midway });
      clearInterval(turns);
      worked(other, 'retry,restart,restart'); // the second: what the cache had of the old one
      // A complete copy is looked at again only when that is asked for.
      faults.set(url, { etag: '"three"' });
      faults.take(url);
      const [unasked, asked, kept] = await loads({ url }, { url, revalidate: true }, { url, revalidate: true });
      worked(unasked, 'cached');
      worked(asked, 'restart');
      worked(kept, 'cached');
      assert.deepEqual(faults.take(url), ['HEAD', 'whole', 'HEAD']);
    });

    test('a plan asks as a load does whether the copy is still the file of the server and of the manifest', async () => {
      const url = faults.set('/f/replaced.gguf');
      const plan = async (Kitfox, helpers, [url, options]) => (await Kitfox.plan(url, { device: 'cpu', context: 64, ...options })).fetchBytes;
      await loads({ url });
      assert.equal(await inPage(page, plan, [url, { revalidate: true }]), 0);
      faults.set(url, { etag: '"two"' });
      faults.take(url);
      assert.equal(await inPage(page, plan, [url, {}]), 0);
      assert.equal(await inPage(page, plan, [url, { cache: 'only', revalidate: true }]), 0);
      assert.deepEqual(faults.take(url), []);
      assert.equal(await inPage(page, plan, [url, { revalidate: true }]), bytes.length);
      assert.deepEqual(faults.take(url), ['HEAD', 'whole']);
      const manifest = manifestOf(Buffer.from(bytes).fill(1, 9_000_000, 9_000_001));
      assert.equal(await inPage(page, plan, [url, { manifest }]), bytes.length);
    });

    test('a network that wants a sign-in, or an empty answer, is no word against the copy', async () => {
      const url = faults.set('/f/hotel.gguf');
      await loads({ url });
      const empty = (response) => response.writeHead(200, { 'content-length': 0 }).end();
      for (const always of [html, empty, busy]) {
        faults.set(url, { always });
        const [told] = await loads({ url, revalidate: true });
        worked(told, 'cached');
      }
      assert.deepEqual(faults.take(url), ['whole', 'HEAD', 'HEAD', 'HEAD']);
    });

    test('a manifest is compared once, not asked for without the network, and where it cannot be had the copy is used', async () => {
      const url = faults.set('/f/later.gguf');
      const its = faults.set(`${url}.manifest.json`, { always: busy });
      await loads({ url });
      const [only, without] = await loads({ url, cache: 'only', manifest: true, revalidate: true }, { url, manifest: true });
      worked(only, 'cached');
      assert.deepEqual(faults.take(its), ['whole']); // of the second
      worked(without, 'unchecked,cached');
      assert.match(without.events[0].reason, /later.gguf.manifest.json: the server answered 429/);
      faults.set(its, { always: json(manifestOf(bytes)) });
      const [first, second] = await loads({ url, manifest: true }, { url, manifest: true });
      worked(first, 'cached');
      worked(second, 'cached');
      assert.deepEqual(faults.take(its), ['whole']);
      assert.deepEqual(faults.take(url), ['whole']);
    });

    test('a web page, a cut file and a refusal are named, and poison nothing', async () => {
      const url = faults.set('/f/poison.gguf', { answers: [html], data: bytes });
      const [page1, fine] = await loads({ url }, { url });
      assert.match(page1.error, /^format: \S+poison.gguf: not a GGUF model file: the server answered with a web page$/);
      worked(fine, '');
      const cut = faults.set('/f/cut.gguf', { data: bytes.subarray(0, 12_000_000) });
      const [short] = await loads({ url: cut });
      assert.match(short.error, /^format: \S+cut.gguf: .*expected.*got/);
      faults.set(cut);
      faults.take(cut);
      const [whole] = await loads({ url: cut });
      worked(whole, '');
      assert.deepEqual(faults.take(cut), ['whole']);
      const later = faults.set('/f/portal.gguf', { breaks: [10_000_000], answers: [] });
      await loads({ url: later, retries: 0 });
      faults.rules.get(later).answers.push(html);
      const [portal, home] = await loads({ url: later }, { url: later });
      assert.match(portal.error, /web page/);
      worked(home, 'resume');
    });

    test('a bit that is turned on the way is seen by the manifest, fetched once more, else named', async () => {
      faults.set('/f/flipped.gguf.manifest.json', { always: json(manifestOf(bytes)) });
      const url = faults.set('/f/flipped.gguf', { flips: [9_000_000] });
      const [once, next] = await loads({ url, manifest: true }, { url, manifest: true });
      worked(once, 'retry');
      worked(next, 'cached');
      assert.deepEqual(faults.take(url), ['whole', `bytes=${2 * PIECE}-`]);
      assert.deepEqual(faults.take('/f/flipped.gguf.manifest.json'), ['whole']);

      const manifest = manifestOf(bytes);
      // Each piece in turn, the short one at the end too; each load goes on behind the pieces that were right.
      assert.ok(bytes.length % PIECE > 0);
      const ends = manifest.sha256.map((_, ix) => Math.min((ix + 1) * PIECE, bytes.length) - 1);
      const worse = faults.set('/f/worse.gguf', { flips: ends.flatMap((end) => [end, end]) });
      const told = await loads(...Array(ends.length + 1).fill({ url: worse, manifest }));
      worked(told.pop(), 'resume');
      for (const [ix, { error }] of told.entries()) {
        const where = `piece ${ix} \\(from byte ${ix * PIECE}\\)`;
        assert.match(error, new RegExp(`^integrity: \\S+worse.gguf: ${where}: expected SHA-256 ${manifest.sha256[ix]}, got [0-9a-f]{64}$`));
      }

      // A copy that came without a manifest is held against one that comes later.
      const other = faults.set('/f/unchecked.gguf', { flips: [LAST - 1_000_000] });
      const [unchecked, checked] = await loads({ url: other, cache: 'auto' }, { url: other, manifest });
      assert.equal(unchecked.error, undefined);
      worked(checked);
      assert.match(checked.kinds, /^restart/);

      const short = { ...manifestOf(bytes.subarray(0, 9_000_000)) };
      const [lies, hostile] = await loads({ url: worse, manifest: short, cache: 'off' }, { url: worse, manifest: { ...manifest, sha256: ['x'] } });
      assert.match(lies.error, /^integrity: \S+worse.gguf: expected 9000000 bytes by its manifest, got \d+$/);
      assert.match(hostile.error, /^format: load: manifest: sha256: expected 5 pieces/);
      faults.set('/f/bad.manifest.json', { always: html });
      const [bad] = await loads({ url: worse, cache: 'off', manifest: '/f/bad.manifest.json' });
      assert.match(bad.error, /^format: /);
    });

    test('a damaged copy is noticed and fetched anew', async () => {
      const url = faults.set('/f/damaged.gguf');
      await loads({ url });
      const damage = async (Kitfox, helpers, { file, at, text }) => {
        const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('kitfox');
        for await (const folder of root.values()) {
          const journal = await (await (await folder.getFileHandle('journal')).getFile()).text();
          if (!journal.includes('/f/damaged.gguf')) continue;
          const out = await (await folder.getFileHandle(file)).createWritable({ keepExistingData: true });
          if (text === undefined) await out.truncate(journal.length - at);
          else await out.write({ type: 'write', position: at, data: text });
          await out.close();
        }
      };
      await inPage(page, damage, { file: 'data', at: 12_345_678, text: 'xyz' });
      const [told, next] = await loads({ url }, { url });
      worked(told, 'cached,restart');
      worked(next, 'cached');
      faults.take(url);
      // The last line, and a part of that before it, never came to the disk.
      await inPage(page, damage, { file: 'journal', at: 60 });
      const [rest] = await loads({ url });
      worked(rest, 'resume');
      assert.deepEqual(faults.take(url), [`bytes=${4 * PIECE}-`]);
      await inPage(page, damage, { file: 'journal', at: 5, text: '\u0000\u0000\u0000' });
      const [anew] = await loads({ url });
      worked(anew, '');
      assert.deepEqual(faults.take(url), ['whole']);
    });

    test('a copy whose journal cannot be read can be removed', async () => {
      const url = faults.set('/f/unreadable.gguf');
      await loads({ url });
      const run = async (Kitfox, helpers, url) => {
        const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('kitfox');
        const folders = async () => (await Array.fromAsync(root.keys())).length;
        const had = await folders();
        for await (const folder of root.values()) {
          const handle = await folder.getFileHandle('journal');
          if (!(await (await handle.getFile()).text()).includes(url)) continue;
          const out = await handle.createWritable();
          await out.write('{"kitfox":2}\n');
          await out.close();
        }
        const listed = (await Kitfox.cached()).some((file) => file.url.endsWith(url));
        return { listed, evicted: [await Kitfox.evict(url), await Kitfox.evict(url)], fewer: had - (await folders()) };
      };
      assert.deepEqual(await inPage(page, run, url), { listed: false, evicted: [true, false], fewer: 1 });
    });

    test('two loads at once, in two tabs, share one transfer', async () => {
      const url = faults.set('/f/shared.gguf', { slow: 30 });
      const other = await openPage(browser, `${server.url}/blank`);
      const both = await Promise.all([loads({ url }), inPage(other.page, LOADS, [{ url }]), loads({ url })]);
      for (const [told] of both) worked(told);
      assert.deepEqual(both.map(([{ kinds }]) => kinds).sort(), ['', 'waiting,cached', 'waiting,cached']);
      assert.deepEqual(faults.take(url), ['whole']);
      await other.page.close();
    });

    test('where nothing can be kept, or no more, the load goes on and says so', async () => {
      const url = faults.set('/f/nowhere.gguf');
      const worker = (lacks) => `/tests/without-worker.mjs?${lacks}`;
      const [fallback, again, nothing, quota, full] = await loads(
        { url, workerUrl: worker('opfs') },
        { url, workerUrl: worker('opfs') },
        { url, workerUrl: worker('opfs&caches') },
        { url, workerUrl: worker('quota') },
        { url, workerUrl: worker('full') },
      );
      worked(fallback, '');
      worked(again, 'cached');
      worked(nothing, 'uncached');
      assert.match(nothing.events[0].reason, /no private file system; this browser has no cache for pages/);
      worked(quota, 'uncached');
      assert.match(quota.events[0].reason, /quota: \d+ bytes are needed, 1000000 are available/);
      worked(full);
      assert.match(full.kinds, /(^|,)uncached$/);
      assert.match(full.events.at(-1).reason, /the disk is full/);
      const { evicted, left } = await inPage(page, async (Kitfox, helpers, url) => ({ evicted: await Kitfox.evict(url), left: (await Kitfox.cached()).filter((file) => file.url.endsWith(url)) }), url);
      assert.deepEqual([evicted, left], [true, []]);
      const [unlocked] = await loads({ url, workerUrl: worker('locks') });
      worked(unlocked, '');
    });

    test('an abort in every phase is followed by a load that works', async () => {
      const run = async (Kitfox, { collect, fails }, url) => {
        const ended = {};
        await Kitfox.load('/models/demo.gguf', { device: 'cpu', context: 64 }).then((fox) => fox.dispose());
        for (const phase of ['fetch', 'verify', 'compile', 'at once', 'soon', 'upload']) {
          const ends = new AbortController();
          const onProgress = (progress) => progress.phase === phase && ends.abort();
          if (phase === 'at once') queueMicrotask(() => ends.abort());
          if (phase === 'soon') setTimeout(() => ends.abort(), 30);
          ended[phase] = await fails(Kitfox.load(url, { device: 'cpu', context: 64, signal: ends.signal, onProgress }));
          const fox = await Kitfox.load('/models/demo.gguf', { device: 'cpu', context: 64, cache: 'only' });
          ended[phase] += ` ${(await collect(fox.generate('The fox', { temperature: 0, maxTokens: 3 }))).ids}`;
          fox.dispose();
          // What came before the last abort is left for the load behind it.
          if (phase !== 'upload') await Kitfox.evict(url);
        }
        return ended;
      };
      const url = faults.set('/f/aborted.gguf', { slow: 60 });
      for (const [phase, message] of Object.entries(await inPage(page, run, url))) assert.equal(message, `aborted: aborted ${ids}`, phase);
      const [told] = await loads({ url });
      worked(told, 'resume');
    });

    test('a plan reads the header only, says what a load takes, and leaves the cache alone', async () => {
      const url = faults.set('/f/planned.gguf', { slow: 100 });
      const run = async (Kitfox, { fails }, url) => {
        const before = await Kitfox.plan(url, { device: 'cpu', context: 64 });
        const fox = await Kitfox.load(url, { device: 'cpu', context: 64 });
        const { info } = fox;
        fox.dispose();
        const after = await Kitfox.plan(url, { device: 'cpu', context: 64, cache: 'only' });
        const huge = await Kitfox.plan(url, { device: 'cpu', context: 262144 });
        const wrong = await fails(Kitfox.plan(url, { contxt: 1 }));
        return { before, info, after, huge, wrong, none: await fails(Kitfox.plan('/bad/other.gguf', { device: 'cpu' })), probe: await Kitfox.probe() };
      };
      const { before: plan, info, after, huge, wrong, none, probe } = await inPage(page, run, url);
      assert.deepEqual([plan.fileBytes, plan.fetchBytes, after.fetchBytes], [bytes.length, bytes.length, 0]);
      for (const name of ['deviceBytes', 'kvBytesPool', 'contextTokens', 'chunkTokens', 'vocab', 'gpu']) assert.equal(plan[name], info[name], name);
      assert.deepEqual([plan.fits, plan.reason, plan.hasTokenizer], [true, undefined, true]);
      assert.equal(huge.fits, false);
      assert.match(huge.reason, /^memory: .* a context of at most \d+ tokens fits/);
      assert.match(wrong, /^argument: plan: unknown option contxt/);
      assert.match(none, /^format: .*magic/);
      assert.deepEqual(faults.take(url), ['whole', 'whole']);
      // Not every Firefox has WebGPU; it then says so.
      assert.ok(probe.webgpu || (name === 'Firefox' && /WebGPU/.test(probe.reason)), JSON.stringify(probe));
      if (probe.webgpu) assert.ok(probe.limits.maxStorageBufferBindingSize >= 2 ** 27, JSON.stringify(probe));
      assert.deepEqual([probe.storage.privateFiles, probe.storage.cacheApi, probe.storage.bytesLeft > 0], [true, true, true]);
      if (probe.software) assert.match(probe.reason, /software/);
    });

    test('a Blob, a File, bytes, and lists of parts are sources', async () => {
      const cut = [7_000_000, 7_000_001];
      const parts = [bytes.subarray(0, cut[0]), bytes.subarray(cut[0], cut[1]), bytes.subarray(cut[1])].map((data, ix) => faults.set(`/f/part.${ix}`, { data }));
      parts.forEach((url, ix) => faults.set(`${url}.manifest.json`, { always: json(manifestOf(faults.rules.get(parts[ix]).data)) }));
      const url = faults.set('/f/source.gguf');
      faults.set(`${url}.second`);
      const run = async (Kitfox, { collect, fails }, { url, parts }) => {
        const blob = await (await fetch(url)).blob();
        const buffer = await blob.arrayBuffer();
        const view = new Uint8Array(new Uint8Array([0, ...[]]).length + buffer.byteLength);
        view.set(new Uint8Array(buffer), 1);
        const sources = [blob, new File([blob], 'mine.gguf'), buffer, view.subarray(1), [blob.slice(0, 5_000_000), blob.slice(5_000_000), new Blob([new Uint8Array(16)])], parts];
        const ids = [];
        for (const source of sources) {
          const fox = await Kitfox.load(source, { device: 'cpu', context: 64, ...(source === parts ? { manifest: true } : {}) });
          ids.push((await collect(fox.generate('The fox', { temperature: 0, maxTokens: 3 }))).ids.join());
          fox.dispose();
        }
        const bad = [new Blob(['GGUX, and some more bytes, so that there is something to read']), [parts[0], parts[0]], new File([], 'empty.gguf'), [blob, new Blob([blob])], [url, `${url}.second`]];
        const errors = [];
        for (const source of bad) errors.push(await fails(Kitfox.load(source, { device: 'cpu', context: 64, cache: source[0] === url ? 'off' : 'auto' })));
        return { ids, errors, left: buffer.byteLength };
      };
      const { ids: all, errors, left } = await inPage(page, run, { url, parts });
      assert.deepEqual(all, Array(6).fill(ids));
      assert.equal(left, bytes.length, 'what is given is not taken');
      assert.match(errors[0], /^format: bytes: .*magic/);
      assert.match(errors[1], /^argument: load: url: expected each part once/);
      assert.match(errors[2], /^format: empty.gguf: /);
      assert.match(errors[3], /^format: part 1: expected a part of the model of part 0, got one behind its end/);
      assert.match(errors[4], /^format: \S+source.gguf.second: expected a part of the model of \S+source.gguf, got one/);
      const [again] = await loads({ url: parts, cache: 'only' });
      worked(again, 'cached,cached,cached');
    });
  });
}
