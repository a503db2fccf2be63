// The real worker loop behind a message channel, in place of the browser's workers. URLs tell how a load goes: `stalled`,
// `missing`, `panics`, a worker script `absent.js`, and `mute.js`, which is none of kitfox's.

import { setTimeout as sleep } from 'node:timers/promises';
import { KitfoxError } from '../dist/kitfox.js';
import { serve } from '../dist/serve.js';

/** Puts workers in place whose load gives `hold()`: an engine of the test's own, and what the loop holds of it. */
export function fakeWorkers(hold) {
  const made = [];
  globalThis.location = { href: 'http://page.example/folder/' };
  globalThis.Worker = class {
    constructor(url) {
      this.url = String(url);
      const { engine, held } = hold();
      this.engine = engine;
      made.push(this);
      const { port1, port2 } = new MessageChannel();
      this.ports = [port1, port2];
      port1.onmessage = (event) => this.onmessage?.(event);
      this.postMessage = (message, transfer) => port1.postMessage(message, transfer);
      const crash = new Promise((_, reject) => {
        engine.panic = (message) => reject(new KitfoxError('crashed', `the engine stopped: ${message}`));
      });
      crash.catch(() => undefined); // where no loop listens
      const load = async (message, { onProgress, onEvent }) => {
        this.asked = message;
        const url = message.parts?.[0].url ?? message.from?.url ?? '';
        if (url.endsWith('stalled')) await new Promise(() => {});
        if (url.endsWith('missing')) throw new KitfoxError('http', 'the server answered 404', { cause: new TypeError('of the network') });
        if (url.endsWith('panics')) engine.panic('while loading');
        onEvent({ kind: 'uncached', url, reason: 'a test' });
        onProgress({ phase: 'upload', doneBytes: 1, totalBytes: 2, bytesPerSecond: 5 });
        onProgress({ phase: 'compile', doneBytes: 2, totalBytes: 2, bytesPerSecond: 5 });
        return held;
      };
      if (this.url.endsWith('absent.js')) {
        setTimeout(() => this.onerror({ preventDefault() {} }));
        return;
      }
      if (!this.url.endsWith('mute.js')) serve(port2, { load, crash });
    }

    terminate() {
      this.terminated = true;
      for (const port of this.ports) port.close();
      this.engine.panic?.('terminated'); // a worker that is ended computes no further
    }
  };
  /** Open ports would keep this process alive. */
  const end = () => made.splice(0).forEach((worker) => worker.terminate());
  return { made, end };
}

export const promptly = (promise) =>
  Promise.race([promise, sleep(60_000, undefined, { ref: false }).then(() => Promise.reject(new Error('nothing came in a minute')))]);

/** The functions of a class and of its instances, getters left out, by name. */
export function methodsOf(type) {
  const of = (object, prefix) =>
    Object.entries(Object.getOwnPropertyDescriptors(object)).flatMap(([name, { value }]) => (typeof value === 'function' && name !== 'constructor' ? [`${prefix}.${name}`] : []));
  return [...of(type, type.name), ...of(type.prototype, `${type.name}.prototype`)];
}
