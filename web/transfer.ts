/** Brings a source to the engine: again from its start where a file has changed or the device was lost under way, and telling how far it is. */

import { StartOver, reason } from './download.js';
import { KitfoxError } from './errors.js';
import type { CacheChoice, LoadEvent, LoadPhase, LoadProgress, SentPart } from './loading.js';
import { ModelSource } from './source.js';

/** What the worker gives to a transfer. */
export interface TransferSettings {
  cache?: CacheChoice;
  revalidate?: boolean;
  retries?: number;
  onEvent: (event: LoadEvent) => void;
  onProgress: (progress: LoadProgress) => void;
}

/** Reads bytes for the engine, and hears how far it is. */
export type Use<T> = (
  read: (at: number, n: number) => Promise<Uint8Array>,
  length: number | undefined,
  name: string,
  onUpload: (doneBytes: number, totalBytes: number) => void,
) => Promise<T>;

/** Times that a load begins anew because its file is another one, or the device was lost. */
const RESTARTS = 3;
/** Codes of an engine that finds the file itself wrong: such a file is not kept. */
const REFUSED: ReadonlySet<unknown> = new Set(['format', 'tensors', 'config', 'tokenizer', 'not-finite']);

/** Gives `use` the source, once or as often as it takes. `whole`: it has then used all of it, and what came is kept. */
export async function transfer<T>(parts: readonly SentPart[], settings: TransferSettings, use: Use<T>, whole = true): Promise<T> {
  const { cache = 'auto', revalidate = false, onEvent, onProgress } = settings;
  for (let begun = 0; ; begun += 1) {
    const pace = new Pace(onProgress);
    const retries = settings.retries === undefined ? {} : { retries: settings.retries };
    const wish = { cache, revalidate, fresh: begun > 0, ...retries, onEvent, onBytes: (n: number) => pace.came(n), onVerify: () => pace.at('verify') };
    let source: ModelSource | undefined;
    let refused = false;
    try {
      source = await ModelSource.open(parts, wish);
      const { name, length } = source;
      const read = source.read.bind(source);
      const used = await use(read, length, name, (done, total) => pace.uploaded(done, total));
      if (whole) await keep(source, cache !== 'off', onEvent);
      return used;
    } catch (thrown) {
      const failure = source?.failure ?? thrown;
      refused = source?.failure === undefined && REFUSED.has((thrown as { code?: unknown } | null)?.code);
      const lost = (failure as { code?: unknown } | null)?.code === 'device-lost';
      if (!(failure instanceof StartOver || lost) || begun >= RESTARTS) throw failure;
      onEvent({ kind: lost ? 'recover' : 'restart', url: source?.name ?? '', reason: (failure as Error).message });
    } finally {
      await source?.close(refused);
    }
    await new Promise((resolve) => setTimeout(resolve, 200 * 2 ** begun));
  }
}

/** The model is there whether its file can be kept or not; only a file that is not its manifest's, and a part that is none, end the load. */
async function keep(source: ModelSource, kept: boolean, onEvent: (event: LoadEvent) => void): Promise<void> {
  let behind: string | undefined;
  try {
    behind = await source.partBehind();
    if (kept && behind === undefined) await source.accept();
  } catch (thrown) {
    if (thrown instanceof KitfoxError && thrown.code === 'integrity') throw thrown;
    if (kept) onEvent({ kind: 'uncached', url: source.name, reason: reason(thrown) });
  }
  if (behind !== undefined) throw new KitfoxError('format', `${behind}: expected a part of the model of ${source.name}, got one behind its end`);
}

/** Milliseconds over which a rate is taken, and between two reports of it. */
const [OVER_MS, REPORT_MS] = [3000, 100];

/** What a load is busy with, and how fast bytes come. */
class Pace {
  readonly #tell: (progress: LoadProgress) => void;
  /** When how many bytes came. */
  readonly #came: [ms: number, bytes: number][] = [];
  #phase: LoadPhase = 'fetch';
  #done = 0;
  /** Unknown before the header is read: nothing is told until then. */
  #total: number | undefined;
  #told = 0;

  constructor(tell: (progress: LoadProgress) => void) {
    this.#tell = tell;
  }

  came(n: number): void {
    this.#came.push([performance.now(), n]);
    this.at('fetch');
  }

  at(phase: LoadPhase): void {
    const same = phase === this.#phase;
    this.#phase = phase;
    if (!same || performance.now() - this.#told > REPORT_MS) this.#report();
  }

  /** Always told: the engine says it a piece at a time. */
  uploaded(done: number, total: number): void {
    [this.#done, this.#total] = [done, total];
    this.#phase = done < total ? 'upload' : 'compile';
    this.#report();
  }

  #report(): void {
    if (this.#total === undefined) return;
    const now = (this.#told = performance.now());
    while (this.#came.length > 0 && now - (this.#came[0]?.[0] ?? 0) > OVER_MS) this.#came.shift();
    const bytes = this.#came.reduce((sum, [, n]) => sum + n, 0);
    const ms = Math.max(now - (this.#came[0]?.[0] ?? now), 1);
    const bytesPerSecond = bytes === 0 ? 0 : Math.round((bytes / ms) * 1000);
    this.#tell({ phase: this.#phase, doneBytes: this.#done, totalBytes: this.#total, bytesPerSecond });
  }
}
