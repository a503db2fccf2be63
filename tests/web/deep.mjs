// A model of many small layers, for what a token costs beside the arithmetic.

import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { kitfox } from './native.mjs';
import { root, startServer } from './server.mjs';

/** A server that has such a model at `/deep/NAME.gguf`; its end removes the file. */
export async function serveDeep(name, layers, options) {
  const folder = await mkdtemp(path.join(tmpdir(), 'kitfox-deep-'));
  try {
    await deepModel(folder, name, layers, options);
    const { url, close } = await startServer([['/deep/', folder]]);
    return { url, close: () => close().then(() => rm(folder, { recursive: true })) };
  } catch (error) {
    await rm(folder, { recursive: true });
    throw error;
  }
}

/** Writes FILE.gguf into a folder: the golden model of that name with its two layers again and again; with `bytes`, it reads and writes text. */
async function deepModel(folder, name, layers, { bytes = false } = {}) {
  const from = path.join(root, 'tests/fixtures/golden', name);
  const config = JSON.parse(await readFile(path.join(from, 'config.json'), 'utf8'));
  const file = await readFile(path.join(from, 'model.safetensors'));
  const length = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString('utf8', 8, 8 + length));
  delete header.__metadata__;
  // Every name has bytes of its own: no two tensors of a file may overlap.
  const [parts, tensors] = [[], {}];
  let at = 0;
  const put = (name, { data_offsets: [start, end], ...tensor }) => {
    parts.push(file.subarray(8 + length + start, 8 + length + end));
    tensors[name] = { ...tensor, data_offsets: [at, (at += end - start)] };
  };
  for (const [name, tensor] of Object.entries(header)) {
    const [, layer, rest] = /^model\.layers\.(\d+)\.(.*)$/.exec(name) ?? [];
    if (layer === undefined) put(name, tensor);
    else for (let copy = Number(layer); copy < layers; copy += config.num_hidden_layers) put(`model.layers.${copy}.${rest}`, tensor);
  }
  const text = Buffer.from(JSON.stringify(tensors));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(text.length));
  const made = path.join(folder, `deep-${name}`);
  await mkdir(made);
  await writeFile(path.join(made, 'config.json'), JSON.stringify({ ...config, num_hidden_layers: layers }));
  await writeFile(path.join(made, 'model.safetensors'), Buffer.concat([size, text, ...parts]));
  if (bytes) await byteTokenizer(made, config.vocab_size);
  await kitfox('convert', made, '-o', path.join(folder, `${name}.gguf`), '--quant', 'f32');
}

/** GPT-2's files for a tokenizer that has a token for each of the first bytes, and no other. */
async function byteTokenizer(folder, size) {
  const shown = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte < 173) || byte > 173;
  let others = 256;
  const letters = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(shown(byte) ? byte : others++));
  const vocab = Object.fromEntries(['<|endoftext|>', ...letters].slice(0, size).map((token, id) => [token, id]));
  await writeFile(path.join(folder, 'vocab.json'), JSON.stringify(vocab));
  await writeFile(path.join(folder, 'merges.txt'), '#version: 0.2\n');
}
