// An engine of the tests' own, in place of the wasm one.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

export const weight = (head, i, j) => 100 * head + 10 * i + j;

/** Spells the prompt token by token, four prompt letters at a time; an id's logits are itself. Checks that calls never mix. */
export class Speller {
  busy = false;
  gpu = false;
  steps = 0;

  start(prompt, options) {
    if (prompt === 'bad') throw Object.assign(new Error('context: 9 tokens asked for'), { code: 'context-full' });
    [this.prompt, this.options, this.read, this.said] = [prompt, options, 0, 0];
  }

  startLogits(ids, decode) {
    if (ids.includes(9)) throw Object.assign(new Error('ids: expected less, got id 9'), { code: 'argument' });
    [this.ids, this.row, this.prompt] = [[...ids], decode ? 1 : 2, ids[0] === 7 ? 'slow' : ''];
  }

  logits() {
    return this.#alone(() => Float32Array.from(this.ids.splice(0, this.row).flatMap((id) => [id, id, id])));
  }

  startGates(text, ids) {
    if (ids?.includes(9)) throw Object.assign(new Error('ids: expected less, got id 9'), { code: 'argument' });
    const own = ids === undefined ? [0, ...Array(text.length).keys()] : [...ids];
    [this.ids, this.prompt, this.first] = [own, text ?? '', 0];
    return { ids: [...own], tokens: own.map(String), completedBy: own.map((_, ix) => ix), layers: 2, heads: 2, kvHeads: 1, prune: 1e-4, u: Float32Array.of(1, 2, 3, 4) };
  }

  /** Two tokens at a time; log f of a head is its number a token. */
  gates() {
    return this.#alone(() => {
      const n = this.ids.splice(0, 2).length;
      return Float32Array.from([0, -1, -2, -3].flatMap((logF) => Array(n).fill(logF)));
    });
  }

  /** Two tokens at a time; a weight is spelled by its place. */
  attention() {
    return this.#alone(() => {
      const rows = this.ids.splice(0, 2).map((_, ix) => this.first + ix);
      this.first += rows.length;
      return Float32Array.from([0, 1, 2, 3].flatMap((head) => rows.flatMap((i) => Array.from({ length: i + 1 }, (_, j) => weight(head, i, j)))));
    });
  }

  async #alone(work) {
    assert.ok(!this.busy, 'two steps at once');
    this.busy = true;
    this.steps += 1;
    await sleep(this.prompt.startsWith('slow') ? 15 : 0);
    this.busy = false;
    return work();
  }

  async cost() {
    return { kvBytesLive: 64 * this.said, kvBytesFreed: 5, cpuUsPerToken: 2.5 };
  }

  startBench(options) {
    if (options.context === 1000) throw Object.assign(new Error('context: 1128 tokens'), { code: 'context-full' });
    [this.benched, this.phase, this.prompt] = [options, 0, options.text ?? ''];
  }

  bench() {
    return this.#alone(() => {
      this.phase += 1;
      return { done: this.phase, total: 3, ...(this.phase === 3 ? { report: '{"adapter":"speller","floor_ms":null}' } : {}) };
    });
  }

  prefill() {
    return this.#alone(() => ({ done: (this.read = Math.min(this.read + 4, this.prompt.length)), total: this.prompt.length }));
  }

  next() {
    return this.#alone(() => {
      if (this.prompt === 'trap') throw new WebAssembly.RuntimeError('unreachable');
      if (this.prompt === 'panic') {
        this.panic('index out of bounds');
        return new Promise(() => {});
      }
      const text = this.prompt[this.said % this.prompt.length];
      this.said += 1;
      const likely = this.options.logprobs ? { logprobs: Float32Array.of(-this.said) } : {};
      return { text, ids: [this.said], kvBytesLive: 64 * this.said, kvBytesFreed: this.said - 1, ...likely, ...(this.said === this.options.maxTokens ? { finish: 'length' } : {}) };
    });
  }
}
