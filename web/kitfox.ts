/**
 * kitfox in a page: a Forgetting Transformer, read from a URL, run in a worker of its own on WebGPU or on the CPU.
 *
 *     const fox = await Kitfox.load('models/demo.gguf', { onProgress, signal });
 *     for await (const piece of fox.generate('Once upon a time', { maxTokens: 200, signal })) output.append(piece.text);
 *     fox.dispose();
 *
 * Importing this module does nothing. All errors are `KitfoxError`s with a `code`.
 */

import { Connection } from './connection.js';
import { aborted } from './errors.js';
import { Generation } from './generation.js';
import { checkGenerate, checkLoad, type GenerateOptions, type Info, type LoadOptions } from './options.js';

export { KitfoxError, type KitfoxErrorCode } from './errors.js';
export { Generation, Piece } from './generation.js';
export type {
  DeviceChoice,
  FinishReason,
  GenerateOptions,
  Info,
  LoadOptions,
  LoadProgress,
  PrefillProgress,
  Summary,
} from './options.js';

/** A loaded model. */
export class Kitfox {
  readonly #connection: Connection;

  private constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Loads a GGUF model. Nothing is left behind when it fails or is aborted: load again. */
  static async load(url: string | URL, options: LoadOptions = {}): Promise<Kitfox> {
    checkLoad(url, options);
    if (options.signal?.aborted === true) throw aborted(options.signal);
    const connection = new Connection(startWorker(options.workerUrl));
    const { wasmUrl, context } = options;
    await connection.load(
      {
        type: 'load',
        url: absolute(url),
        device: options.device ?? 'auto',
        ...(wasmUrl === undefined ? {} : { wasmUrl: absolute(wasmUrl) }),
        ...(context === undefined ? {} : { context }),
      },
      options,
    );
    return new Kitfox(connection);
  }

  /** What is known of the model; the byte counts are those after the last call. */
  get info(): Info {
    return this.#connection.info;
  }

  /**
   * Continues a text, piece by piece, starting at the first `next()`. Calls wait their turn in the order in which they start.
   * Leaving the loop early, aborting, or an error of a call leaves the model usable; after a `crashed` or `device-lost` error
   * it must be loaded again. Bad options throw here, not at the first piece.
   */
  generate(prompt: string, options: GenerateOptions = {}): Generation {
    checkGenerate(prompt, options);
    return new Generation(this.#connection, prompt, options);
  }

  /** Ends the worker and frees all memory. Calls that still run are rejected with `disposed`. */
  dispose(): void {
    this.#connection.dispose();
  }
}

function startWorker(url: string | URL | undefined): Worker {
  if (url !== undefined) return new Worker(absolute(url), { type: 'module', name: 'kitfox' });
  // Bundlers know a worker by this very form.
  return new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name: 'kitfox' });
}

function absolute(url: string | URL): string {
  return new URL(url, globalThis.document?.baseURI ?? globalThis.location?.href).href;
}
