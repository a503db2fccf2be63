/** Where the engine's bytes come from: one file or its parts, one after the other, opened when they are reached. */

import type { StartOver } from './download.js';
import { BlobPart, isFile, manifestFile, openFile } from './file.js';
import { Forward } from './forward.js';
import type { SentPart } from './loading.js';
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
      'blob' in part ? new BlobPart(part.blob, part.name, wish) : opened(part, wish);
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

/** What has an address: in Node a file is no matter of servers, caches and connections, and its manifest neither. */
async function opened({ url, manifest: asked }: Extract<SentPart, { url: string }>, wish: Omit<Wish, 'manifest'>): Promise<Part> {
  const manifest = typeof asked === 'string' && isFile(asked) ? await manifestFile(asked) : asked;
  if (isFile(url)) return openFile(url, wish, manifest);
  return ServedFile.open(url, manifest === undefined ? wish : { ...wish, manifest });
}
