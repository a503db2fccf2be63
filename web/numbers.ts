/** A call whose answer is numbers: gathered as they come, given as one array. */

import type { CallMessage, Connection } from './connection.js';
import { KitfoxError } from './errors.js';
import type { Request } from './protocol.js';

/** Makes the call; `n` is how many numbers will come, `transfer` what the worker may take over. */
export async function compute(
  connection: Connection<unknown>,
  request: Request,
  n: number,
  signal?: AbortSignal,
  transfer?: ArrayBuffer[],
): Promise<Float32Array> {
  const out = allocate(n);
  let filled = 0;
  const take = (message: CallMessage): Float32Array | undefined => {
    if (message.type === 'values') {
      out.set(message.values, filled);
      filled += message.values.length;
    }
    return message.type === 'computed' ? out : undefined;
  };
  return connection.ask(request, take, signal, transfer);
}

function allocate(n: number): Float32Array {
  try {
    return new Float32Array(n);
  } catch (cause) {
    throw new KitfoxError('out-of-memory', `the answer's ${n} numbers do not fit in memory: ask for fewer tokens at once`, { cause });
  }
}
