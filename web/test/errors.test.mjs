import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import test from 'node:test';
import { ENGINE_CODES, KitfoxError, WEB_CODES, aborted, fromWire, toWire } from '../dist/errors.js';

test('the codes are those of the engine, in its order', async () => {
  const source = await readFile(new URL('../../src/error.rs', import.meta.url), 'utf8');
  const codes = [...source.matchAll(/^\s*Self::\w+.*=> "([a-z-]+)",$/gm)].map(([, code]) => code);
  assert.ok(codes.length > 5, 'no codes found in src/error.rs');
  assert.deepEqual([...ENGINE_CODES], codes);
});

test('the type of a code, as an editor and the API pages show it, lists them all', async () => {
  const [, union] = /type KitfoxErrorCode = ([^;]*);/.exec(await readFile(new URL('../dist/errors.d.ts', import.meta.url), 'utf8'));
  assert.deepEqual([...union.matchAll(/'([a-z-]+)'/g)].map(([, code]) => code), [...ENGINE_CODES, ...WEB_CODES]);
});

test('the README says what each code means', async () => {
  const readme = await readFile(new URL('../README.md', import.meta.url), 'utf8');
  const told = [...readme.matchAll(/^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \|/gm)].flatMap(([, codes]) => codes.replaceAll('`', '').split(', '));
  assert.deepEqual(told.sort(), [...ENGINE_CODES, ...WEB_CODES].sort());
});

test('an error with a code keeps it, anything else is a crash', () => {
  assert.deepEqual(toWire(new KitfoxError('http', 'no')), { code: 'http', message: 'no' });
  assert.deepEqual(toWire(Object.assign(new Error('full'), { code: 'context-full' })), { code: 'context-full', message: 'full' });
  for (const thrown of [new Error('trap'), Object.assign(new Error('trap'), { code: 'EPIPE' }), 'trap']) {
    const cause = thrown instanceof Error ? { cause: { name: 'Error', message: 'trap' } } : {};
    assert.deepEqual(toWire(thrown), { code: 'crashed', message: 'the engine stopped: trap', ...cause });
  }
  assert.equal(toWire(undefined).code, 'crashed');
});

test('an error crosses from the worker with what it came of', () => {
  const cause = new TypeError('Failed to fetch');
  const crossed = fromWire(structuredClone(toWire(new KitfoxError('network', 'no answer', { cause }))));
  assert.ok(crossed instanceof KitfoxError && crossed.cause instanceof Error);
  assert.deepEqual([crossed.code, crossed.message, crossed.cause.name, crossed.cause.message], ['network', 'no answer', 'TypeError', 'Failed to fetch']);
  assert.equal('cause' in fromWire(toWire(new KitfoxError('http', 'no'))), false);
});

test('an abort carries its reason', () => {
  const error = aborted(AbortSignal.abort('enough'));
  assert.equal(error.code, 'aborted');
  assert.equal(error.cause, 'enough');
});
