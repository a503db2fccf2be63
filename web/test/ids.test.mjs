// Ids beyond the vocabulary are refused by every call that takes ids. The real engine, on the CPU of Node.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Kitfox } from '../dist/kitfox.js';

const model = fileURLToPath(new URL('../../www/models/demo.gguf', import.meta.url));

let fox;
before(async () => {
  fox = await Kitfox.load(model, { device: 'cpu', scores: true, context: 64 });
});
after(() => fox?.dispose());

/** Every call that takes ids. */
const OF_IDS = {
  detokenize: (ids) => fox.detokenize(ids),
  score: (ids) => fox.score(ids),
  logits: (ids) => fox.logits(ids),
  'logits, token by token': (ids) => fox.logits(ids, { decode: true }),
  gates: (ids) => fox.gates(ids),
  attention: (ids) => fox.attention(ids),
  append: async (ids) => (await fox.session()).append(ids),
  logitBias: (ids) => fox.generate('a', { logitBias: new Map(ids.map((id) => [id, 1])), maxTokens: 1 }).next(),
  'logitBias in a session': async (ids) => {
    const session = await fox.session();
    await session.append('a');
    return session.generate({ logitBias: new Map(ids.map((id) => [id, 1])), maxTokens: 1 }).next();
  },
};

test('the table of calls has every one that takes ids', async () => {
  const declared = await Promise.all(['kitfox', 'session', 'options'].map((name) => readFile(new URL(`../dist/${name}.d.ts`, import.meta.url), 'utf8')));
  const names = [...declared.join('\n').matchAll(/^\s+(?:readonly )?(\w+)(?:\(\w+: [^)]*\bUint32Array\b|\?: Readonly<Record<number)/gm)].map(([, name]) => name);
  assert.deepEqual(names.toSorted(), [...new Set(Object.keys(OF_IDS).map((name) => name.split(/[ ,]/)[0]))].toSorted());
});

for (const [name, call] of Object.entries(OF_IDS)) {
  test(`${name} refuses an id beyond the vocabulary, and takes the last one of it`, async () => {
    const { vocab } = fox.info;
    const option = name.split(/[ ,]/)[0] === 'logitBias' ? 'logitBias' : 'ids';
    for (const id of [vocab, 99_999_999, 2 ** 32 - 1]) {
      const message = `${option}: expected token ids below the vocabulary of ${vocab}, got id ${id}`;
      await assert.rejects(async () => call([1, id]), { name: 'KitfoxError', code: 'argument', message });
    }
    await call([1, vocab - 1]);
  });
}
