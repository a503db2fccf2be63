/** The two places in which a browser keeps a model's pieces and journal; cache.ts says what they mean. */

import { PIECE_BYTES } from './manifest.js';

/** Pieces and journal of one file. */
export interface Store {
  /** The journal's text; empty when there is none. */
  journal(): Promise<string>;
  /** Empties it, and begins a journal with this line. */
  begin(line: string): Promise<void>;
  /** Makes ready to go on behind this journal. */
  resume(text: string): Promise<void>;
  piece(ix: number): Promise<Uint8Array>;
  /** Puts a piece in place, and then its line. */
  put(ix: number, bytes: Uint8Array, line: string): Promise<void>;
  /** Adds a line. */
  log(line: string): Promise<void>;
  /** Whether there was anything. */
  remove(): Promise<boolean>;
  close(): Promise<void>;
}

/** Of a worker only, and not in TypeScript's DOM library. */
interface AccessHandle {
  read(into: Uint8Array, options: { at: number }): number;
  write(from: Uint8Array, options: { at: number }): number;
  truncate(length: number): void;
  getSize(): number;
  flush(): void;
  close(): void;
}

type FileHandle = FileSystemFileHandle & { createSyncAccessHandle?(): Promise<AccessHandle> };

const FOLDER = 'kitfox';

/** A worker that ended lets go of its locks at once and of its files a little later: so long they are waited for, looking this often. */
const RELEASE_MS = 5000;
const LOOK_MS = 20;

/** The origin's private file system: a folder a model, with the files `data` and `journal`. */
export class DiskStore implements Store {
  readonly #key: string;
  readonly #models: FileSystemDirectoryHandle;
  #data: AccessHandle | undefined;
  #journal: AccessHandle | undefined;
  /** A file that nobody writes, as it was when it was first asked for. */
  #whole: File | undefined;

  private constructor(key: string, models: FileSystemDirectoryHandle) {
    this.#key = key;
    this.#models = models;
  }

  static async at(key: string): Promise<DiskStore> {
    return new DiskStore(key, await models());
  }

  /** All journals. */
  static async journals(): Promise<string[]> {
    const folder = await models();
    const texts: string[] = [];
    for await (const handle of folder.values()) {
      if (handle.kind === 'directory') texts.push(await new DiskStore(handle.name, folder).journal().catch(() => ''));
    }
    return texts;
  }

  async journal(): Promise<string> {
    try {
      const folder = await this.#models.getDirectoryHandle(this.#key);
      return await (await (await folder.getFileHandle('journal')).getFile()).text();
    } catch (thrown) {
      if ((thrown as Error).name === 'NotFoundError') return '';
      throw thrown;
    }
  }

  async begin(line: string): Promise<void> {
    await this.#open();
    // The journal first: until it is empty it speaks of the old data.
    this.#journal?.truncate(0);
    this.#journal?.flush();
    this.#data?.truncate(0);
    await this.log(line);
  }

  async resume(text: string): Promise<void> {
    await this.#open();
    this.#journal?.truncate(0);
    await this.log(text);
  }

  async piece(ix: number): Promise<Uint8Array> {
    const at = ix * PIECE_BYTES;
    if (this.#data !== undefined) {
      const bytes = new Uint8Array(Math.min(PIECE_BYTES, Math.max(this.#data.getSize() - at, 0)));
      return bytes.subarray(0, this.#data.read(bytes, { at }));
    }
    this.#whole ??= await (await (await this.#models.getDirectoryHandle(this.#key)).getFileHandle('data')).getFile();
    return new Uint8Array(await this.#whole.slice(at, at + PIECE_BYTES).arrayBuffer());
  }

  async put(ix: number, bytes: Uint8Array, line: string): Promise<void> {
    const written = this.#data?.write(bytes, { at: ix * PIECE_BYTES });
    if (written !== bytes.length) throw new Error(`${written} of ${bytes.length} bytes could be written`);
    this.#data?.flush();
    await this.log(line);
  }

  async log(line: string): Promise<void> {
    await this.#open();
    const bytes = new TextEncoder().encode(line);
    const written = this.#journal?.write(bytes, { at: this.#journal.getSize() });
    if (written !== bytes.length) throw new Error(`${written} of ${bytes.length} bytes could be written`);
    this.#journal?.flush();
  }

  async remove(): Promise<boolean> {
    await this.close();
    return released(() => this.#models.removeEntry(this.#key, { recursive: true })).then(
      () => true,
      (thrown: Error) => {
        if (thrown.name !== 'NotFoundError') throw thrown;
        return false;
      },
    );
  }

  async close(): Promise<void> {
    this.#data?.close();
    this.#journal?.close();
    this.#data = this.#journal = this.#whole = undefined;
  }

  async #open(): Promise<void> {
    if (this.#data !== undefined) return;
    const folder = await this.#models.getDirectoryHandle(this.#key, { create: true });
    const open = async (name: string): Promise<AccessHandle> => {
      const handle: FileHandle = await folder.getFileHandle(name, { create: true });
      if (handle.createSyncAccessHandle === undefined) throw new Error('this browser cannot write its private files from a worker');
      return released(async () => handle.createSyncAccessHandle?.() as Promise<AccessHandle>);
    };
    this.#journal = await open('journal');
    this.#data = await open('data');
  }
}

/** Does what needs a file that nobody else has open. */
async function released<T>(work: () => Promise<T>): Promise<T> {
  for (let waited = 0; ; waited += LOOK_MS) {
    try {
      return await work();
    } catch (thrown) {
      if ((thrown as Error).name !== 'NoModificationAllowedError' || waited >= RELEASE_MS) throw thrown;
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

async function models(): Promise<FileSystemDirectoryHandle> {
  const root = await globalThis.navigator?.storage?.getDirectory?.();
  if (root === undefined) throw new Error('this browser has no private file system');
  return root.getDirectoryHandle(FOLDER, { create: true });
}

/** The Cache API: a response a piece, and one for the journal, under addresses that no server has. */
export class ResponseStore implements Store {
  readonly #key: string;
  readonly #cache: Cache;
  #text = '';

  private constructor(key: string, cache: Cache) {
    this.#key = key;
    this.#cache = cache;
  }

  static async at(key: string): Promise<ResponseStore> {
    return new ResponseStore(key, await responses());
  }

  /** All journals. */
  static async journals(): Promise<string[]> {
    const cache = await responses();
    const keys = (await cache.keys()).filter(({ url }) => url.endsWith('/journal'));
    return Promise.all(keys.map(async (key) => (await cache.match(key))?.text() ?? ''));
  }

  async journal(): Promise<string> {
    this.#text = (await (await this.#cache.match(this.#address('journal')))?.text()) ?? '';
    return this.#text;
  }

  async begin(line: string): Promise<void> {
    await this.remove();
    await this.log(line);
  }

  async resume(text: string): Promise<void> {
    this.#text = '';
    await this.log(text);
  }

  async piece(ix: number): Promise<Uint8Array> {
    const response = await this.#cache.match(this.#address(ix));
    if (response === undefined) throw new Error(`piece ${ix} is gone`);
    return new Uint8Array(await response.arrayBuffer());
  }

  async put(ix: number, bytes: Uint8Array, line: string): Promise<void> {
    await this.#cache.put(this.#address(ix), new Response(bytes as Uint8Array<ArrayBuffer>));
    await this.log(line);
  }

  async log(line: string): Promise<void> {
    this.#text += line;
    await this.#cache.put(this.#address('journal'), new Response(this.#text));
  }

  async remove(): Promise<boolean> {
    this.#text = '';
    // The journal first: without it the pieces are nothing.
    let found = await this.#cache.delete(this.#address('journal'));
    for (const { url } of await this.#cache.keys()) {
      if (url.startsWith(this.#address('')) && (await this.#cache.delete(url))) found = true;
    }
    return found;
  }

  async close(): Promise<void> {}

  #address(name: string | number): string {
    return `https://kitfox.invalid/${this.#key}/${name}`;
  }
}

async function responses(): Promise<Cache> {
  if (globalThis.caches === undefined) throw new Error('this browser has no cache for pages');
  return caches.open(FOLDER);
}
