/**
 * kitfox in a page: a Forgetting Transformer, read from a URL, run in a worker of its own on WebGPU or on the CPU.
 *
 *     const fox = await Kitfox.load('models/demo.gguf', { onProgress, signal });
 *     for await (const piece of fox.generate('Once upon a time', { maxTokens: 200, signal })) output.append(piece.text);
 *     fox.dispose();
 *
 * `ForgettingAttentionLayer` (layer.ts) is one attention layer as a building block of networks that are not language models.
 *
 * Importing this module does nothing. All errors are `KitfoxError`s with a `code`.
 */

import type { Attention } from './attention.js';
import { checkBench, type BenchOptions, type BenchReport } from './bench.js';
import { evict, list, type CachedFile } from './cache.js';
import { callback, check, checkValue, location, signal as abortSignal } from './check.js';
import { Connection, type CallMessage } from './connection.js';
import { KitfoxError, aborted, unlessAborted } from './errors.js';
import type { Gates } from './forgetting.js';
import { Generation } from './generation.js';
import { sent, unasked, type LoadSource } from './loading.js';
import { inNode } from './node.js';
import { compute } from './numbers.js';
import {
  checkGates,
  checkGenerate,
  checkIds,
  checkLoad,
  checkLogits,
  checkText,
  checkTokenize,
  given,
  type GatesOptions,
  type GenerateOptions,
  type Info,
  type LoadOptions,
  type LogitsOptions,
} from './options.js';
import { absolute, startWorker } from './place.js';
import { ask, type Scores, type SelfCheck, type Stats } from './requests.js';
import { Session, type CallOptions } from './session.js';
import { nothing, probe, type Plan, type Probe, type ProbeOptions } from './plan.js';

export { attention, meanAttention, mostAttentionTokens, type Attention } from './attention.js';
export type { BenchOptions, BenchProgress, BenchReport } from './bench.js';
export { KitfoxError, type KitfoxErrorCode } from './errors.js';
export { effectiveContext, forgetting, livePages, meanForgetting, type Gates } from './forgetting.js';
export type { Generation, Piece } from './generation.js';
export { ForgettingAttentionLayer, type LayerSource } from './layer.js';
export type { CheckedKernel, Scores, SelfCheck, Stats } from './requests.js';
export type { CallOptions, Mark, Session } from './session.js';
export type { CachedFile } from './cache.js';
export type { CacheChoice, LoadEvent, LoadPart, LoadPhase, LoadProgress, LoadSource } from './loading.js';
export type { Manifest } from './manifest.js';
export type { Plan, Probe, ProbeOptions } from './plan.js';
export type { LayerInfo, LayerMode, LayerOptions, LayerWeights, RunOptions } from './layer-options.js';
export type {
  DeviceChoice,
  FinishReason,
  GatesOptions,
  GenerateOptions,
  Info,
  LoadOptions,
  LogitsOptions,
  PrefillProgress,
  Summary,
} from './options.js';

/** A loaded model. */
export class Kitfox {
  readonly #connection: Connection<Info>;

  private constructor(connection: Connection<Info>) {
    this.#connection = connection;
  }

  /**
   * Loads a GGUF model: from a URL, a `File` or `Blob`, its bytes, or a list of its parts. A file of a server is kept on the user's
   * machine (`cache`) and then loads without the network. When a load fails or is aborted the next one goes on where it ended.
   *
   * @throws {KitfoxError} `argument`; `http`, `network`, `integrity`, `not-cached`, `io` of the file's way; `format`, `tensors`, `config`,
   * `tokenizer` of the file; `no-gpu`, `out-of-memory`, `device-lost`, `gpu`, `not-finite` of the device; `worker`, `crashed`, `aborted`.
   */
  static async load(source: LoadSource, options: LoadOptions = {}): Promise<Kitfox> {
    const { message, workerUrl, listen } = asked('load', source, options);
    // A browser that refuses keeps the files all the same, as long as it has room; one that asks its user first holds nothing up.
    if (options.persist === true) void persist();
    const connection = new Connection<Info>('model', startWorker('load', workerUrl));
    await connection.load(message, listen);
    return new Kitfox(connection);
  }

  /**
   * What this browser has for a model: WebGPU or why not, limits, features, storage. Whatever it has, this does not fail: only a wrong
   * option and an aborted signal reject.
   *
   * @throws {KitfoxError} `argument`, `aborted`.
   */
  static async probe(options: ProbeOptions = {}): Promise<Probe> {
    check('probe', options, { signal: abortSignal, workerUrl: location });
    return inNode() ? probeThread(options) : unlessAborted(options.signal, probe);
  }

  /**
   * What `load` with the same arguments would take, and whether it fits, by the file's header alone: only its first MBs are fetched.
   *
   * @throws {KitfoxError} `argument`; `http`, `network`, `integrity`, `not-cached`, `io` of the file's way; `format`, `tensors`, `config`,
   * `tokenizer` of the file; `no-gpu`; `worker`, `crashed`, `aborted`.
   */
  static async plan(source: LoadSource, options: LoadOptions = {}): Promise<Plan> {
    const { message, workerUrl, listen } = asked('plan', source, options);
    const connection = new Connection<Plan>('plan', startWorker('plan', workerUrl));
    await connection.load(message, listen);
    const plan = connection.info;
    connection.dispose();
    return plan;
  }

  /**
   * The model files that are kept on the user's machine for this origin.
   *
   * @throws {KitfoxError} `argument`, `aborted`.
   */
  static async cached(options: CallOptions = {}): Promise<CachedFile[]> {
    check('cached', options, { signal: abortSignal });
    return unlessAborted(options.signal, list);
  }

  /**
   * Removes a file from there, after a transfer of it that is under way; false when there was none. The signal ends the wait for that
   * transfer: then the file stays.
   *
   * @throws {KitfoxError} `argument`, `aborted`; `io` where the browser does not let go of the file.
   */
  static async evict(url: string | URL, options: CallOptions = {}): Promise<boolean> {
    checkValue('evict', 'url', url, location);
    check('evict', options, { signal: abortSignal });
    const address = new URL(absolute('evict', 'url', url));
    address.hash = '';
    return evict(address.href, options.signal);
  }

  /** What is known of the model; the byte counts are those after the last call. */
  get info(): Info {
    return this.#connection.info;
  }

  /**
   * Continues a text, piece by piece, starting at the first `next()`. Calls wait their turn in the order in which they start.
   * Leaving the loop early, aborting, or an error of a call leaves the model usable; after a `crashed` error it must be loaded again.
   * When the GPU's device is lost the answer goes on as if it had not been, after a pause in which the model is loaded onto the device
   * again; a `device-lost` error says that this could not be done now, and the next call tries again. Bad options throw here, not at the
   * first piece.
   *
   * @throws {KitfoxError} `argument`, at once. What the answer itself can end with, see `Generation.next`.
   */
  generate(prompt: string, options: GenerateOptions = {}): Generation {
    checkGenerate(prompt, options);
    return new Generation(this.#connection, prompt, options);
  }

  /**
   * The logits after each of these token ids, nothing put in front of them: [ids.length, info.vocab], row by row. For evaluation
   * and for comparison with other code; the model must have been loaded with `scores: true`, or `decode` be set. A call like
   * `generate`: it waits its turn, and a failure leaves the model usable.
   *
   * @throws {KitfoxError} `argument` (also for a model without `scores` where `decode` is not set), `context-full`; `device-lost`, `gpu`,
   * `not-finite`, `out-of-memory` of the device; `aborted`, `disposed`, `crashed`.
   */
  async logits(ids: readonly number[] | Uint32Array, options: LogitsOptions = {}): Promise<Float32Array> {
    checkLogits(ids, options);
    const request = { type: 'logits', ids: Uint32Array.from(ids), decode: options.decode ?? false } as const;
    return compute(this.#connection, request, ids.length * this.info.vocab, options.signal);
  }

  /**
   * The token ids of a text; no begin token is put in front.
   *
   * @throws {KitfoxError} `argument`; `no-tokenizer`, `tokenizer`; `aborted`, `disposed`, `crashed`.
   */
  async tokenize(text: string, options: CallOptions = {}): Promise<Uint32Array> {
    check('tokenize', options, { signal: abortSignal });
    checkTokenize(text);
    return ask(this.#connection, { type: 'tokenize', text }, options.signal);
  }

  /**
   * The text of token ids; special tokens have none.
   *
   * @throws {KitfoxError} `argument`; `no-tokenizer`, `tokenizer`; `aborted`, `disposed`, `crashed`.
   */
  async detokenize(ids: readonly number[] | Uint32Array, options: CallOptions = {}): Promise<string> {
    check('detokenize', options, { signal: abortSignal });
    checkIds('detokenize', ids);
    return ask(this.#connection, { type: 'detokenize', ids: Uint32Array.from(ids) }, options.signal);
  }

  /**
   * How likely a text (or ids) is behind the model's begin token: ln of the probability of each token given those before it. (The begin
   * token itself has none: NaN.) Quick in a model loaded with `scores: true`; else token by token.
   *
   * @throws {KitfoxError} `argument`, `context-full`; for a text `no-tokenizer`, `tokenizer`; `device-lost`, `gpu`, `not-finite`, `out-of-memory` of
   * the device; `aborted`, `disposed`, `crashed`.
   */
  async score(text: string | readonly number[] | Uint32Array, options: CallOptions = {}): Promise<Scores> {
    check('score', options, { signal: abortSignal });
    checkText('score', text);
    return ask(this.#connection, { type: 'score', content: typeof text === 'string' ? text : Uint32Array.from(text) }, options.signal);
  }

  /**
   * A new session, empty: a sequence that lasts from call to call.
   *
   * @throws {KitfoxError} `argument`; `aborted`, `disposed`, `crashed`.
   */
  async session(options: CallOptions = {}): Promise<Session> {
    check('session', options, { signal: abortSignal });
    return Session.open(this.#connection, options);
  }

  /**
   * Compares every kernel with its plain twin where the model runs, as `kitfox check` does: on a GPU, or the CPU's fast code. Takes a while.
   *
   * @throws {KitfoxError} `argument`; `device-lost`, `gpu`, `out-of-memory` of the device; `aborted`, `disposed`, `crashed`. A kernel that fails is
   * no error: `ok` says so.
   */
  async selfCheck(options: CallOptions & { onProgress?: (progress: { done: number; total: number }) => void } = {}): Promise<SelfCheck> {
    check('selfCheck', options, { signal: abortSignal, onProgress: callback });
    return ask(this.#connection, { type: 'self-check' }, options.signal, options.onProgress);
  }

  /**
   * What was generated so far, and what is held.
   *
   * @throws {KitfoxError} `argument`; `device-lost`, `gpu` of the device; `aborted`, `disposed`, `crashed`.
   */
  async stats(options: CallOptions = {}): Promise<Stats> {
    check('stats', options, { signal: abortSignal });
    return ask(this.#connection, { type: 'stats' }, options.signal);
  }

  /**
   * How much each head forgets at each token of a text (behind the model's begin token), or of token ids as they are: for `forgetting`,
   * `meanForgetting`, `effectiveContext` and `livePages`. A call like `generate`: it waits its turn, and a failure leaves the model usable.
   *
   * @throws {KitfoxError} `argument`, `context-full`; `no-tokenizer`, `tokenizer`; `device-lost`, `gpu`, `not-finite`, `out-of-memory` of the device;
   * `aborted`, `disposed`, `crashed`.
   */
  async gates(of: string | readonly number[] | Uint32Array, options: GatesOptions = {}): Promise<Gates> {
    return this.#looked('gates', of, options, (message) => (message.type === 'gates' ? message.gates : undefined));
  }

  /**
   * What each token of a text (behind the model's begin token), or of token ids as they are, pays to itself and those before it: for `attention`
   * and `meanAttention`. Of at most `mostAttentionTokens` tokens: else an `argument` error. On a GPU q and the keys are read back, and the weights
   * computed from them on the CPU. A call like `generate`.
   *
   * @throws {KitfoxError} `argument` (also for too many tokens), `context-full`; `no-tokenizer`, `tokenizer`; `device-lost`, `gpu`, `not-finite`,
   * `out-of-memory` of the device; `aborted`, `disposed`, `crashed`.
   */
  async attention(of: string | readonly number[] | Uint32Array, options: GatesOptions = {}): Promise<Attention> {
    return this.#looked('attention', of, options, (message) => (message.type === 'attention' ? message.attention : undefined));
  }

  /**
   * Measures how fast the model reads and writes here, and how near that is to the GPU's own floor, as `kitfox bench` does. A call
   * like `generate`: it waits its turn, and a failure leaves the model usable. Prompt and tokens must fit in the context.
   *
   * @throws {KitfoxError} `argument`, `context-full`; for a text `no-tokenizer`, `tokenizer`; `device-lost`, `gpu`, `not-finite`, `out-of-memory` of
   * the device; `aborted`, `disposed`, `crashed`.
   */
  async bench(options: BenchOptions = {}): Promise<BenchReport> {
    checkBench(options);
    const { signal, onProgress, ...asked } = given(options);
    const take = (message: CallMessage): BenchReport | undefined => {
      if (message.type === 'measured') onProgress?.({ done: message.done, total: message.total });
      return message.type === 'report' ? message.report : undefined;
    };
    return this.#connection.ask({ type: 'bench', options: asked }, take, signal);
  }

  /** Ends the worker and frees all memory. Calls that still run are rejected with `disposed`. */
  dispose(): void {
    this.#connection.dispose();
  }

  /** Asks how a text is seen; `found` takes the answer out of a message. */
  async #looked<T>(
    type: 'gates' | 'attention',
    of: string | readonly number[] | Uint32Array,
    options: GatesOptions,
    found: (message: CallMessage) => T | undefined,
  ): Promise<T> {
    checkGates(type, of, options);
    const asked = typeof of === 'string' ? { text: of } : { ids: Uint32Array.from(of) };
    const take = (message: CallMessage): T | undefined => {
      if (message.type === 'measured') options.onProgress?.({ done: message.done, total: message.total });
      return found(message);
    };
    return this.#connection.ask({ type, ...asked }, take, options.signal);
  }
}

/** What is asked of the worker, and what the page keeps to itself. */
function asked<T extends 'load' | 'plan'>(type: T, source: LoadSource, options: LoadOptions) {
  checkLoad(source, options, type);
  const { onProgress, onEvent, signal, wasmUrl, workerUrl, manifest, persist, ...engine } = given(options);
  const parts = sent(type, source, manifest, absolute);
  const offline = engine.cache === 'only';
  if (signal?.aborted === true) throw aborted(signal);
  const message = {
    type,
    parts: offline ? parts.map(unasked) : parts,
    device: 'auto',
    cache: 'auto',
    ...(wasmUrl === undefined ? {} : { wasmUrl: absolute(type, 'wasmUrl', wasmUrl) }),
    ...engine,
    ...(offline ? { revalidate: false } : {}),
  } as const;
  return { message, workerUrl, listen: options };
}

/** What a thread of Node finds: WebGPU comes into it as the worker starts, and this thread would have to stay for it. */
async function probeThread({ signal, workerUrl }: ProbeOptions): Promise<Probe> {
  if (signal?.aborted === true) throw aborted(signal);
  try {
    const connection = new Connection<Probe>('probe', startWorker('probe', workerUrl));
    await connection.load({ type: 'probe' }, signal === undefined ? {} : { signal });
    const found = connection.info;
    connection.dispose();
    return found;
  } catch (thrown) {
    if (thrown instanceof KitfoxError && (thrown.code === 'aborted' || thrown.code === 'argument')) throw thrown;
    return { ...nothing(), reason: thrown instanceof Error ? thrown.message : String(thrown) };
  }
}

/** Asks the browser not to clear this origin's files by itself. */
async function persist(): Promise<void> {
  try {
    await globalThis.navigator?.storage?.persist?.();
  } catch {
    // They stay as long as there is room.
  }
}
