// The native program, to compare the browsers with and to make files for them.

import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { model, root } from './server.mjs';

/** Runs it and gives what it prints. */
export async function kitfox(...args) {
  const program = path.join(process.env.CARGO_TARGET_DIR ?? path.join(root, 'target'), 'release/kitfox');
  return (await promisify(execFile)(program, args)).stdout;
}

/** Greedy tokens and text of the CPU device. */
export async function native(prompt, tokens) {
  const options = ['-m', model, '-p', prompt, '-n', String(tokens), '--temp', '0', '--json', '--device', 'cpu'];
  return JSON.parse(await kitfox('generate', ...options));
}
