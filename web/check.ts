/** The check of what a user wrote: an unknown name, a wrong type or a value out of range is an `argument` error that names it. */

import { KitfoxError } from './errors.js';

/** Says what was expected of a value, if it is not that. */
export type Check = (value: unknown) => string | undefined;

export const number = (expected: string, fits: (value: number) => boolean): Check => (value) =>
  typeof value === 'number' && fits(value) ? undefined : expected;
export const whole = (least: number, most: number): Check =>
  number(`a whole number from ${least} to ${most}`, (n) => Number.isInteger(n) && n >= least && n <= most);
export const oneOf = (...words: readonly string[]): Check => {
  const quoted = words.map((word) => `'${word}'`);
  const expected = `${quoted.slice(0, -1).join(', ')} or ${quoted.at(-1)}`;
  return (value) => (words.some((word) => word === value) ? undefined : expected);
};
export const flag: Check = (value) => (typeof value === 'boolean' ? undefined : 'true or false');
export const callback: Check = (value) => (typeof value === 'function' ? undefined : 'a function');
export const signal: Check = (value) => (value instanceof AbortSignal ? undefined : 'an AbortSignal');
export const location: Check = (value) => (typeof value === 'string' || value instanceof URL ? undefined : 'a string or URL');
export const floats: Check = (value) => (value instanceof Float32Array && isThere(value) ? undefined : 'a Float32Array');

/** What holds numbers or bytes. */
type Memory = ArrayBuffer | Uint8Array | Uint32Array | Float32Array;

/** Whether memory is there to be read: not handed over to a thread, nor shrunk away under its view. What is not there throws when it is copied. */
export function isThere(memory: Memory): boolean {
  try {
    // Each of these fails on such memory, and reads nothing of any other.
    if (memory instanceof ArrayBuffer) memory.slice(0, 0);
    else memory.at(0);
    return true;
  } catch {
    return false;
  }
}

/** Largest number of tokens anywhere. */
export const MOST_TOKENS = 2 ** 31 - 1;

/** Holds an object of `what` against a table; what is `undefined` counts as not given, except under a name of `needed`. */
export function check(
  call: string,
  options: unknown,
  table: Record<string, Check>,
  needed: readonly string[] = [],
  what = 'options',
): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new KitfoxError('argument', `${call}: expected an object of ${what}, got ${show(options)}`);
  }
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(table, name)) {
      throw new KitfoxError('argument', `${call}: unknown option ${name} (known: ${Object.keys(table).join(', ')})`);
    }
  }
  for (const [name, fits] of Object.entries(table)) {
    const value = (options as Record<string, unknown>)[name];
    // What a prototype has would be checked, and then left behind where options are copied.
    if (needed.length === 0 && value !== undefined && !Object.prototype.propertyIsEnumerable.call(options, name)) {
      throw new KitfoxError('argument', `${call}: ${name}: expected a property of the options themselves, got an inherited or hidden one`);
    }
    if (value !== undefined || needed.includes(name)) checkValue(call, name, value, fits);
  }
}

/** Holds one value against its check. */
export function checkValue(call: string, name: string, value: unknown, fits: Check): void {
  const expected = fits(value);
  if (expected !== undefined) throw new KitfoxError('argument', `${call}: ${name}: expected ${expected}, got ${show(value)}`);
}

/** Throws an `argument` error unless these are numbers that can be read. */
export function withNumbers(name: string, value: unknown): void {
  if (floats(value) !== undefined) throw new KitfoxError('argument', `${name}: expected a Float32Array, got ${show(value)}`);
}

/** Throws an `argument` error unless it is a place in a list of `end`. */
export function within(name: string, value: number, end: number): void {
  if (Number.isInteger(value) && value >= 0 && value < end) return;
  throw new KitfoxError('argument', `${name}: expected a whole number from 0 to ${end - 1}, got ${value}`);
}

/** Characters of a value that a message shows at most. */
const MOST_SHOWN = 80;

/** Any value at all in a message: short, and never itself a failure. */
function show(value: unknown): string {
  const shown = plain(value);
  return shown.length <= MOST_SHOWN ? shown : `${shown.slice(0, MOST_SHOWN)} …`;
}

function plain(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value);
  // Only as many elements as can be seen: a list may be long, and its elements may be lists.
  if (Array.isArray(value)) return `[${value.slice(0, MOST_SHOWN).map((element) => (Array.isArray(element) ? 'a list' : plain(element))).join(',')}]`;
  // An object can have any `toString`, or none.
  if (typeof value === 'object' && value !== null) {
    const tag = Object.prototype.toString.call(value);
    return isMemory(value) && !isThere(value) ? `${tag} whose memory is gone (it was transferred, or shrunk)` : tag;
  }
  return typeof value === 'function' ? 'a function' : String(value);
}

function isMemory(value: object): value is Memory {
  return value instanceof ArrayBuffer || value instanceof Uint8Array || value instanceof Uint32Array || value instanceof Float32Array;
}
