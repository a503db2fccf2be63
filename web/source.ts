/** Where the engine's bytes come from: one file or its parts, one after the other, opened when they are reached. */

import type { StartOver } from './download.js';
import { Forward } from './forward.js';
import type { SentPart } from './loading.js';
import { PIECE_BYTES } from './manifest.js';
import { ServedFile, type Wish } from './served.js';

/** What a file on a server and a `Blob` have in common. */
interface Part {
  length: number | undefined;
  next(): Promise<Uint8Array>;
  accept(): Promise<void>;
  close(refused?: boolean): Promise<void>;
}

/** An open source. */
export class ModelSource {
  readonly name: string;
  /** Length of it all, if it is known. */
  readonly length: number | undefined;
  /** Why reading failed: kept here because the engine passes on only the text of an error. */
  failure: StartOver | Error | undefined;

  readonly #forward: Forward;
  readonly #sent: readonly SentPart[];
  readonly #open: (part: SentPart) => Promise<Part>;
  readonly #parts: Part[];

  private constructor(sent: readonly SentPart[], first: Part, open: (part: SentPart) => Promise<Part>) {
    [this.#sent, this.#open] = [sent, open];
    const [head] = sent;
    this.name = head === undefined ? '' : nameOf(head);
    const blobs = sent.map((part) => ('blob' in part ? part.blob.size : undefined));
    const all = blobs.every((size) => size !== undefined) ? blobs.reduce((sum, size) => sum + size, 0) : undefined;
    this.length = sent.length === 1 ? first.length : all;
    this.#parts = [first];
    this.#forward = new Forward(async () => {
      for (;;) {
        const bytes = (await this.#parts.at(-1)?.next()) ?? new Uint8Array(0);
        const following = sent[this.#parts.length];
        if (bytes.length > 0 || following === undefined) return bytes;
        this.#parts.push(await open(following));
      }
    });
  }

  /** Opens the first part. */
  static async open(sent: readonly SentPart[], wish: Omit<Wish, 'manifest'>): Promise<ModelSource> {
    const open = async (part: SentPart): Promise<Part> =>
      'blob' in part ? new BlobPart(part.blob, wish) : ServedFile.open(part.url, part.manifest === undefined ? wish : { ...wish, manifest: part.manifest });
    const [first] = sent;
    if (first === undefined) throw new RangeError('a source has at least one part');
    return new ModelSource(sent, await open(first), open);
  }

  /** `n` bytes from offset `at`; fewer at the end. */
  async read(at: number, n: number): Promise<Uint8Array> {
    try {
      return await this.#forward.read(at, n);
    } catch (thrown) {
      this.failure = thrown as Error;
      throw thrown;
    }
  }

  /** The name of a part behind the model's end that holds more than zeros, which fill up a file: it is none of it. */
  async partBehind(): Promise<string | undefined> {
    for (;;) {
      const left = this.#sent[this.#parts.length];
      if (left === undefined) return undefined;
      // A part is read to its end before the next one, here too: its copy is complete then.
      let rest: Uint8Array | undefined;
      do rest = await this.#parts.at(-1)?.next();
      while (rest !== undefined && rest.length > 0);
      const part = await this.#open(left);
      this.#parts.push(part);
      if ((await part.next()).some((byte) => byte !== 0)) return nameOf(left);
    }
  }

  /** It is a model: what is left is read, and the copies in the cache are complete. */
  async accept(): Promise<void> {
    await this.#forward.drain();
    for (const part of this.#parts) await part.accept();
  }

  /** Ends all transfers. `refused`: it is no model, and nothing of it is kept. */
  async close(refused = false): Promise<void> {
    for (const part of this.#parts) await part.close(refused);
  }
}

const nameOf = (part: SentPart): string => ('url' in part ? part.url : part.name);

/** A file of the user's machine, or bytes. */
class BlobPart implements Part {
  readonly length: number;
  readonly #blob: Blob;
  readonly #wish: Omit<Wish, 'manifest'>;
  #at = 0;

  constructor(blob: Blob, wish: Omit<Wish, 'manifest'>) {
    this.length = blob.size;
    this.#blob = blob;
    this.#wish = wish;
  }

  async next(): Promise<Uint8Array> {
    const bytes = new Uint8Array(await this.#blob.slice(this.#at, this.#at + PIECE_BYTES).arrayBuffer());
    this.#at += bytes.length;
    this.#wish.onBytes(bytes.length);
    return bytes;
  }

  async accept(): Promise<void> {}

  async close(): Promise<void> {}
}
