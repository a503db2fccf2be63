// A server's answers for one model file, with the faults that a test asks for, and a list of what was asked of it.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { model } from './server.mjs';

export const PIECE = 4 * 2 ** 20;
export const bytes = readFileSync(model);

const sha256 = (part) => createHash('sha256').update(part).digest('hex');

/** What `kitfox manifest` would write of `data`. */
export function manifestOf(data) {
  const pieces = Array.from({ length: Math.ceil(data.length / PIECE) }, (_, ix) => data.subarray(ix * PIECE, (ix + 1) * PIECE));
  return { version: 1, file: 'model.gguf', bytes: data.length, piece_bytes: PIECE, sha256: pieces.map(sha256), whole: sha256(data) };
}

/**
 * Paths and how they answer. A rule has: `data`; `etag`; `ranges` (default true); `breaks`: the bytes at which the next connections
 * break; `flips`: for each of the next answers the byte with a bit turned, or none; `answers`: functions that answer in its place first;
 * `always`: one that always does; `slow`: milliseconds between two MiB.
 */
export class Faults {
  rules = new Map();
  asked = [];

  set(path, rule = {}) {
    this.rules.set(path, { data: bytes, etag: '"one"', ranges: true, breaks: [], flips: [], answers: [], ...rule });
    return path;
  }

  /** The ranges that were asked for of a path since the last time, `whole` for none. */
  take(path) {
    const mine = this.asked.filter((one) => one.path === path);
    this.asked = this.asked.filter((one) => one.path !== path);
    return mine.map(({ method, range }) => (method === 'GET' ? (range ?? 'whole') : method));
  }

  answer = (request, response, path) => {
    const rule = this.rules.get(path);
    if (rule === undefined) return false;
    const { range, 'if-range': validator } = request.headers;
    this.asked.push({ path, method: request.method, range });
    const own = rule.always ?? rule.answers.shift();
    if (own !== undefined) {
      own(response);
      return true;
    }
    void send(rule, request, response, range, validator);
    return true;
  };
}

async function send(rule, request, response, range, validator) {
  const { etag } = rule;
  const begin = /^bytes=(\d+)-$/.exec(range ?? '')?.[1];
  const part = rule.ranges && begin !== undefined && (validator === undefined || validator === etag);
  let at = part ? Number(begin) : 0;
  let { data } = rule;
  const flip = rule.flips.shift();
  if (flip !== undefined) {
    data = Buffer.from(data);
    data[flip] ^= 4;
  }
  const headers = { 'content-length': data.length - at, 'cache-control': 'no-store', ...(etag === undefined ? {} : { etag }) };
  if (part) headers['content-range'] = `bytes ${at}-${data.length - 1}/${data.length}`;
  response.writeHead(part ? 206 : 200, headers);
  if (request.method === 'HEAD') return response.end();
  const breakAt = rule.breaks.shift() ?? Infinity;
  const end = Math.min(breakAt, data.length);
  response.flushHeaders();
  for (; at < end && !response.destroyed; at += 2 ** 20) {
    await new Promise((resolve) => response.write(data.subarray(at, Math.min(at + 2 ** 20, end)), resolve));
    if (rule.slow !== undefined) await new Promise((resolve) => setTimeout(resolve, rule.slow));
  }
  if (breakAt === Infinity) return response.end();
  // A browser throws away what it has not handed out when the connection goes: it is given the time, also on a busy machine.
  setTimeout(() => response.destroy(), 500);
}
