/** A call whose answer is numbers: gathered as they come, given as one array. */

import type { Connection, Listener } from './connection.js';
import { KitfoxError, aborted } from './errors.js';
import type { Request } from './protocol.js';

/** Makes the call; `n` is how many numbers will come, `transfer` what the worker may take over. */
export async function compute(
  connection: Connection<unknown>,
  request: Request,
  n: number,
  signal?: AbortSignal,
  transfer?: ArrayBuffer[],
): Promise<Float32Array> {
  if (signal?.aborted === true) throw aborted(signal);
  const out = allocate(n);
  let filled = 0;
  let stop = (): void => undefined;
  try {
    return await new Promise((resolve, reject) => {
      const listener: Listener = {
        message(message) {
          if (message.type === 'values') {
            out.set(message.values, filled);
            filled += message.values.length;
          } else if (message.type === 'computed') resolve(out);
          else if (message.type === 'error') reject(new KitfoxError(message.error.code, message.error.message));
        },
        lost: reject,
      };
      const call = connection.call(request, listener, transfer);
      stop = () => {
        connection.close(call);
        reject(aborted(signal));
      };
      signal?.addEventListener('abort', stop);
    });
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}

function allocate(n: number): Float32Array {
  try {
    return new Float32Array(n);
  } catch (cause) {
    throw new KitfoxError('out-of-memory', `the answer's ${n} numbers do not fit in memory: ask for fewer tokens at once`, { cause });
  }
}
