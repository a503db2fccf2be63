/** What a model would take, told before it is loaded: by its file's header alone. */

import { Kitfox, KitfoxError, type LoadSource, type Plan } from 'kitfox';
import { megabytes, sentence } from './elements.js';
import { guarded } from './offline.js';
import { chosenDevice } from './settings.js';

/** What a load on the chosen device would take, or why it cannot be told, in a sentence; nothing once the signal has ended it. */
export async function takes(source: LoadSource, signal: AbortSignal): Promise<string> {
  try {
    await guarded;
    const retries = navigator.onLine ? {} : { retries: 0 };
    return told(await Kitfox.plan(source, { device: chosenDevice(), signal, ...retries }));
  } catch (thrown) {
    if (thrown instanceof KitfoxError && thrown.code === 'aborted') return '';
    return `What it takes cannot be told: ${sentence(thrown)}`;
  }
}

function told({ fetchBytes, fileBytes, deviceBytes, gpu, fits, reason }: Plan): string {
  const kept = fetchBytes === fileBytes ? '' : `, ${megabytes(fileBytes - fetchBytes)} are kept here`;
  const fetched = fetchBytes === 0 ? 'Kept here, nothing to fetch' : `${megabytes(fetchBytes)} to fetch${kept}`;
  const memory = `${megabytes(deviceBytes)} of memory on the ${gpu ? 'GPU' : 'CPU'}`;
  return fits ? `${fetched}; ${memory}.` : `It does not fit: ${sentence(reason ?? memory)}`;
}
