// The texts that evidence is of. The excerpt is in the repository; a folder of more is its caller's, and one that lacks what is needed is
// bad usage.

import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { root, Usage } from '../../tools/shared.mjs';

/** The first chapters of The Time Machine: 5,230 tokens of the demo model. */
export const excerpt = `${root}tests/fixtures/books/the_time_machine.txt`;

/** Each text of a folder. */
export async function textsOf(folder) {
  const names = existsSync(folder) ? (await readdir(folder)).filter((name) => name.endsWith('.txt')).sort() : [];
  if (names.length === 0) throw new Usage(`${folder} must be a folder with a text NAME.txt (UTF-8, 4,096 tokens or more) for each row of the table`);
  return names.map((name) => `${folder}/${name}`);
}

/** Holds that a folder has these files. */
export function demand(folder, files) {
  if (files.some((file) => !existsSync(`${folder}/${file}`))) throw new Usage(`${folder} must be a folder with ${files.join(', ')}`);
}
