/** A model's file once more: the GPU's device was lost, and the engine reads the weights again, from the cache or from where they came. */

import { KitfoxError } from './errors.js';
import type { SentPart } from './loading.js';
import { ModelSource } from './source.js';
import type { TransferSettings } from './transfer.js';

/** Reads bytes for the engine. */
type Read = (at: number, n: number) => Promise<Uint8Array>;

export class Again {
  readonly #parts: readonly SentPart[];
  readonly #settings: TransferSettings;
  #source: ModelSource | undefined;
  #loaded = false;

  constructor(parts: readonly SentPart[], settings: TransferSettings) {
    this.#parts = parts;
    this.#settings = settings;
  }

  /** Of the file that was opened again, or else by `first`. */
  reader(first: Read): Read {
    return async (at, n) => (this.#source === undefined ? first(at, n) : this.#source.read(at, n));
  }

  /** The first reading is over: from now on the file can be opened again. */
  loaded(): void {
    this.#loaded = true;
  }

  /** Opens the file. */
  async open(): Promise<void> {
    // A load that is under way holds the file itself, and begins anew.
    if (!this.#loaded) throw new KitfoxError('device-lost', 'the model was not loaded yet');
    await this.close();
    const { cache = 'auto', retries, onEvent } = this.#settings;
    const heard = { onEvent, onBytes: () => undefined, onVerify: () => undefined };
    this.#source = await ModelSource.open(this.#parts, { cache, revalidate: false, fresh: false, ...(retries === undefined ? {} : { retries }), ...heard });
    onEvent({ kind: 'recover', url: this.#source.name, reason: "the GPU's device was lost; the model is loaded onto it again" });
  }

  /** Ends that reading. */
  async close(): Promise<void> {
    const source = this.#source;
    this.#source = undefined;
    await source?.close();
  }
}
