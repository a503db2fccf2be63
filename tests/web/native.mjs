// The native program's answer, to compare the browsers' with.

import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { model, root } from './server.mjs';

/** Greedy tokens and text of the CPU device. */
export async function native(prompt, tokens) {
  const program = path.join(process.env.CARGO_TARGET_DIR ?? path.join(root, 'target'), 'release/kitfox');
  const options = ['-m', model, '-p', prompt, '-n', String(tokens), '--temp', '0', '--json', '--device', 'cpu'];
  const { stdout } = await promisify(execFile)(program, ['generate', ...options]);
  return JSON.parse(stdout);
}
