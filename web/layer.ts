/** One layer of the encoder family in a worker of its own. */

import { Connection } from './connection.js';
import { aborted } from './errors.js';
import { checkLayer, checkRun, isBytes, type LayerInfo, type LayerOptions, type LayerWeights, type RunOptions } from './layer-options.js';
import { compute } from './numbers.js';
import { absolute, startWorker } from './place.js';
import type { LoadLayerMessage } from './protocol.js';

/** Plain matrices, the bytes of a layer's GGUF file, or the URL of one. */
export type LayerSource = LayerWeights | Uint8Array | ArrayBuffer | string | URL;

/**
 * Forgetting attention as a building block of other networks: [T, d] to [T, d], nothing is kept from one call to the next.
 *
 *     const layer = await ForgettingAttentionLayer.load({ hiddenSize, numHeads, mode: 'encoder', bitnet: false, qProj, … });
 *     const y = await layer.run(x);
 *     layer.dispose();
 */
export class ForgettingAttentionLayer {
  readonly #connection: Connection<LayerInfo>;

  private constructor(connection: Connection<LayerInfo>) {
    this.#connection = connection;
  }

  /**
   * Loads a layer. What is given is copied, not taken; on a GPU the worker keeps its copy for the time when the device is lost. Nothing is left behind when
   * it fails or is aborted.
   *
   * @throws {KitfoxError} `argument`, also for matrices of other sizes than were said; of a URL `http`, `network`; `format`, `tensors`, `config`;
   * `no-gpu`, `out-of-memory`, `device-lost`, `gpu` of the device; `worker`, `crashed`, `aborted`.
   */
  static async load(from: LayerSource, options: LayerOptions = {}): Promise<ForgettingAttentionLayer> {
    checkLayer(from, options);
    const { wasmUrl, workerUrl, maxTokens, signal, device = 'auto' } = options;
    if (signal?.aborted === true) throw aborted(signal);
    const { given, transfer } = copied(from);
    const message = {
      type: 'load-layer',
      from: given,
      device,
      ...(wasmUrl === undefined ? {} : { wasmUrl: absolute('load', 'wasmUrl', wasmUrl) }),
      ...(maxTokens === undefined ? {} : { maxTokens }),
    } as const;
    const connection = new Connection<LayerInfo>('layer', startWorker('load', workerUrl));
    await connection.load(message, signal === undefined ? {} : { signal }, transfer);
    return new ForgettingAttentionLayer(connection);
  }

  /** What is known of the layer; the byte counts are those after the last call. */
  get info(): LayerInfo {
    return this.#connection.info;
  }

  /**
   * Runs a sequence of T tokens, row by row, T from 1 to `info.maxTokens`, and gives as many rows. Calls wait their turn. A call
   * that fails or is aborted leaves the layer usable; after a `crashed` error it must be loaded again. A GPU's device that is lost is opened
   * again, twice at most in a call; after `device-lost` the next call tries again.
   *
   * @throws {KitfoxError} `argument`; `device-lost`, `gpu`, `not-finite`, `out-of-memory` of the device; `aborted`, `disposed`, `crashed`.
   */
  async run(x: Float32Array, options: RunOptions = {}): Promise<Float32Array> {
    checkRun(x, options);
    const copy = x.slice();
    return compute(this.#connection, { type: 'run', x: copy }, x.length, options.signal, [copy.buffer]);
  }

  /** Ends the worker and frees all memory. Calls that still run are rejected with `disposed`. */
  dispose(): void {
    this.#connection.dispose();
  }
}

/** Copies of just what was given, to be handed over: a message would copy the whole buffer behind a view, and share a shared one. */
function copied(from: LayerSource): { given: LoadLayerMessage['from']; transfer: ArrayBuffer[] } {
  if (typeof from === 'string' || from instanceof URL) return { given: { url: absolute('load', 'url', from) }, transfer: [] };
  if (isBytes(from)) {
    const bytes = from instanceof Uint8Array ? from.slice() : new Uint8Array(from.slice(0));
    return { given: { bytes }, transfer: [bytes.buffer] };
  }
  const transfer: ArrayBuffer[] = [];
  const copy = (matrix: Float32Array): Float32Array => {
    const own = matrix.slice();
    transfer.push(own.buffer);
    return own;
  };
  const { qProj, kProj, vProj, fProj, fBias, outProj, hiddenSize, numHeads, mode, bitnet } = from;
  const matrices = { qProj: copy(qProj), kProj: copy(kProj), vProj: copy(vProj), fProj: copy(fProj), outProj: copy(outProj) };
  const weights = { hiddenSize, numHeads, mode, bitnet, ...matrices, ...(fBias === undefined ? {} : { fBias: copy(fBias) }) };
  return { given: { weights }, transfer };
}
