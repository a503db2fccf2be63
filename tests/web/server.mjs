// A static server for the built page, the package and models, with the misbehaviours that tests want.

import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import http from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../../', import.meta.url));
export const model = path.join(root, 'www/models/demo.gguf');

const TYPES = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm',
};
const FOLDERS = [
  ['/kitfox/', path.join(root, 'web/dist')], // the package as it is, without a bundler
  ['/tests/', path.join(root, 'tests/web')],
  ['/fixtures/', path.join(root, 'tests/fixtures')],
  ['/', path.join(root, 'www/dist')],
];

/** What no file answers, by path. */
const TRICKS = {
  // A page to run tests in.
  '/blank': (response) =>
    response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><link rel="icon" href="data:," /><title>blank</title>'),
  // A 200 with a web page: what many servers answer for a file that they do not have.
  '/bad/page.gguf': (response) => response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>no</title>'),
  '/bad/untyped-page.gguf': (response) => response.writeHead(200).end('\n<html><body>no</body></html>'),
  '/bad/refused.gguf': (response) => response.writeHead(403).end(),
  '/bad/other.gguf': (response) => response.writeHead(200).end('PK\u0003\u0004 something else'),
  '/bad/empty.gguf': (response) => response.writeHead(200).end(),
  // A file that was cut short, and a connection that breaks.
  '/bad/cut.gguf': async (response) => {
    const size = Math.floor((await stat(model)).size / 2);
    response.writeHead(200, { 'content-length': size });
    createReadStream(model, { end: size - 1 }).pipe(response);
  },
  '/bad/broken.gguf': async (response) => {
    response.writeHead(200, { 'content-length': (await stat(model)).size });
    createReadStream(model, { end: 3_000_000 })
      .on('end', () => response.destroy())
      .pipe(response, { end: false });
  },
  // Begins and never ends.
  '/bad/stalled.gguf': async (response) => {
    response.writeHead(200, { 'content-length': (await stat(model)).size });
    createReadStream(model, { end: 2_000_000 }).pipe(response, { end: false });
  },
  // The right file without its length, in small pieces.
  '/chunked.gguf': (response) => createReadStream(model, { highWaterMark: 10_007 }).pipe(response.writeHead(200)),
};

/** Little-endian numbers of so many bytes, and texts as they are, one after the other. */
const bytes = (...parts) =>
  Buffer.concat(
    parts.map((part) => {
      if (typeof part === 'string') return Buffer.from(part);
      const [width, number] = part;
      const out = Buffer.alloc(8);
      out.writeBigUInt64LE(BigInt(number));
      return out.subarray(0, width);
    }),
  );
const HUGE = 2n ** 60n;
const gguf = (version, tensors, keys, ...rest) => bytes('GGUF', [4, version], [8, tensors], [8, keys], ...rest, 'and a few bytes more, so that there is something to read');

/** Heads of GGUF files that promise more than any file holds, or what nobody knows. */
const LIES = {
  tensors: gguf(3, HUGE, 0),
  keys: gguf(3, 0, HUGE),
  key: gguf(3, 0, 1, [8, 3_000_000_000]),
  text: gguf(3, 0, 1, [8, 3], 'fox', [4, 8], [8, 2n ** 40n]),
  list: gguf(3, 0, 1, [8, 3], 'fox', [4, 9], [4, 4], [8, HUGE]),
  version: gguf(77, 0, 0),
  kind: gguf(3, 0, 1, [8, 3], 'fox', [4, 77]),
};

/**
 * Starts it; gives its address and a function that ends it. `folders`: pairs of a path's start and a folder, before the others.
 * `first` may answer a request itself, and then gives true.
 */
export async function startServer(folders = [], first = () => false) {
  const server = http.createServer(async (request, response) => {
    const { pathname } = new URL(request.url, 'http://server');
    if (first(request, response, pathname)) return;
    if (TRICKS[pathname]) return TRICKS[pathname](response);
    const [, unsized, lie] = /^\/lying\/(unsized\/)?(\w+)\.gguf$/.exec(pathname) ?? [];
    if (lie !== undefined) {
      if (unsized === undefined) response.setHeader('content-length', LIES[lie].length);
      response.writeHead(200).write(LIES[lie]);
      return response.end();
    }
    const [prefix, folder] = [...folders, ...FOLDERS].find(([start]) => pathname.startsWith(start));
    const file = path.join(folder, path.normalize(decodeURIComponent(pathname.slice(prefix.length)) || 'index.html'));
    const found = file.startsWith(folder) && (await stat(file).catch(() => undefined));
    if (!found || !found.isFile()) return response.writeHead(404).end();
    const type = TYPES[path.extname(file)] ?? 'application/octet-stream';
    response.writeHead(200, { 'content-type': type, 'content-length': found.size });
    createReadStream(file).pipe(response);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const close = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { url: `http://127.0.0.1:${server.address().port}`, close };
}

/** Another host, which takes every request: its address, what it was asked for, and a function that ends it. */
export async function startOtherHost() {
  const asked = [];
  const server = await startServer([], (request, response) => {
    asked.push(request.url);
    response.writeHead(200, { 'access-control-allow-origin': '*' }).end('here');
    return true;
  });
  return { ...server, asked };
}
