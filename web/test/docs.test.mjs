// What an editor shows of the package: every name that a user can reach has its comment, every call that can fail its codes, and a report of
// the engine the members that its type promises.

import assert from 'node:assert/strict';
import { readFile, readdir } from 'node:fs/promises';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { ENGINE_CODES, WEB_CODES } from '../dist/errors.js';

const dist = fileURLToPath(new URL('../dist/', import.meta.url));
const CODES = [...ENGINE_CODES, ...WEB_CODES];

/** The compiler's declarations by name: the comment in front, and the lines within. */
async function declarations() {
  const found = new Map();
  for (const name of await readdir(dist)) {
    if (!name.endsWith('.d.ts')) continue;
    let comment = '';
    let inside;
    for (const line of (await readFile(dist + name, 'utf8')).split('\n')) {
      const [, kind, declared] = /^export (?:declare )?(?:abstract )?(class|interface|type|function|const) (\w+)/.exec(line) ?? [];
      if (inside !== undefined && !/^export /.test(line)) inside.lines.push(line);
      if (/^\}/.test(line)) inside = undefined;
      if (declared !== undefined) {
        found.set(declared, (inside = { file: name, kind, comment, lines: [line] }));
        if (/^export .*(\{.*\}|;)$/.test(line)) inside = undefined;
        comment = '';
      } else if (inside === undefined) comment = /^(\/\*\*| \*)/.test(line) ? `${comment}${line}\n` : '';
    }
  }
  return found;
}

/** Those that the package exports, and those that they are made of. */
async function reachable() {
  const all = await declarations();
  const index = await readFile(`${dist}kitfox.d.ts`, 'utf8');
  const names = [...index.matchAll(/^export (?:type )?\{([^}]*)\}/gm)].flatMap(([, list]) => [...list.matchAll(/\w+/g)].map(([name]) => name));
  const reached = new Map();
  const waiting = ['Kitfox', ...names];
  for (let name; (name = waiting.pop()) !== undefined; ) {
    const its = all.get(name);
    if (its === undefined || reached.has(name)) continue;
    reached.set(name, its);
    const code = its.lines.filter((line) => !/^\s*(\/\*\*|\*)/.test(line)).join('\n');
    waiting.push(...[...code.matchAll(/\b[A-Z]\w+/g)].map(([other]) => other));
  }
  return reached;
}

/** The members of a class or interface, each with the comment in front of it. */
function* members({ kind, lines }) {
  if (kind !== 'class' && kind !== 'interface') return;
  let comment = '';
  for (const line of lines.slice(1)) {
    if (/^ {4}( ?\*|\/\*\*)/.test(line)) comment += `${line}\n`;
    else {
      if (/^ {4}[^ }*]/.test(line) && !/^ {4}(#private|private |readonly #)/.test(line)) yield { line: line.trim(), comment };
      comment = '';
    }
  }
}

test('every exported name and every member has its comment', async () => {
  const reached = await reachable();
  assert.ok(reached.size > 40 && reached.has('TransferOptions'), [...reached.keys()].join());
  const bare = [];
  for (const [name, its] of reached) {
    if (its.comment === '') bare.push(`${its.file}: ${name}`);
    for (const { line, comment } of members(its)) if (comment === '') bare.push(`${its.file}: ${name}: ${line}`);
  }
  assert.deepEqual(bare, []);
});

test('every call says by which codes it fails, and no other is said', async () => {
  const silent = [];
  let calls = 0;
  for (const [name, its] of await reachable()) {
    for (const { line, comment } of members(its)) {
      if (its.kind !== 'class' || !/\): (Promise<|Generation;)/.test(line) || /^return\(/.test(line)) continue;
      calls += 1;
      const [, told] = /@throws \{KitfoxError\} ([^]*)$/.exec(comment) ?? [];
      const codes = [...(told ?? '').matchAll(/`([a-z-]+)`/g)].map(([, code]) => code);
      if (codes.filter((code) => CODES.includes(code)).length === 0) silent.push(`${name}: ${line}`);
      // The others are members and options.
      for (const code of codes) assert.ok(CODES.includes(code) || ['scores', 'decode', 'ok', 'i'].includes(code), `${name}: ${line}: ${code} is no code`);
    }
  }
  assert.ok(calls > 24, `${calls} calls`);
  assert.deepEqual(silent, []);
});

test('a report of a measurement has the members that the engine writes', async () => {
  const source = await readFile(new URL('../../src/session/bench.rs', import.meta.url), 'utf8');
  const [, body] = /json!\(\{([^]*?)\n {8}\}\)/.exec(source);
  const written = [...body.matchAll(/"(\w+)":/g)].map(([, key]) => key).sort();
  const typed = [...members((await declarations()).get('BenchReport'))].map(({ line }) => /^\w+/.exec(line)[0]).sort();
  assert.deepEqual(typed, written);
});

test('the widest head of a layer is the one that its comment says', async () => {
  const source = await readFile(new URL('../../src/kernel/attn_full.rs', import.meta.url), 'utf8');
  const [, most] = /MAX_HEAD_DIM: usize = (\d+)/.exec(source);
  const { comment } = [...members((await declarations()).get('LayerWeights'))].find(({ line }) => line.startsWith('numHeads'));
  assert.match(comment, new RegExp(`multiples of 4, at most ${most}\\.`));
});
