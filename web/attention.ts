/** The attention weights of a text: what each token pays to itself and those before it. */

import { within, withNumbers } from './check.js';
import { KitfoxError } from './errors.js';
import { meanRow } from './forgetting.js';

/** The attention weights of a text, A_ij = softmax_j(q_i·k_j/√h + D_ij). */
export interface Attention {
  /**
   * The text of each token: joined they are the whole. A character of several tokens stands at the one that completes it, and those before have
   * none of it; bytes that become no character are U+FFFD.
   */
  tokens: string[];
  /** Of each token the index of the one that completes its last character: its own, or a later one where it has only a part of that. */
  completedBy: number[];
  /** Of each token its id. */
  ids: number[];
  /** Layers of the model. */
  layers: number;
  /** Heads of a layer. */
  heads: number;
  /** Of each layer and head row behind row, i + 1 weights in row i: [layers, heads, n(n + 1)/2] of n tokens. A row's sum is 1. */
  weights: Float32Array;
}

/** Most weights that are given at once: 64 MiB of them. */
const MOST_WEIGHTS = 2 ** 24;

/** Weights of the rows before row `i`. */
const before = (i: number): number => (i * (i + 1)) / 2;

/** Most tokens of a text whose attention weights `Kitfox.attention` gives, of a model of so many layers and heads. */
export function mostAttentionTokens({ layers, heads }: { layers: number; heads: number }): number {
  const of = MOST_WEIGHTS / (layers * heads);
  return Math.max(Math.floor((Math.sqrt(8 * of + 1) - 1) / 2), 1);
}

/**
 * Row `i` of a layer and head: what token i pays to each token j from 0 to i.
 *
 * @throws {KitfoxError} `argument`: a layer or head outside of them, or `i` behind the last token.
 */
export function attention(of: Attention, layer: number, head: number, i: number): Float32Array {
  within('layer', layer, of.layers);
  within('head', head, of.heads);
  within('i', i, of.ids.length);
  withNumbers('weights', of.weights);
  const start = (layer * of.heads + head) * before(of.ids.length) + before(i);
  return of.weights.subarray(start, start + i + 1);
}

/**
 * Row `i` as a mean over the heads of a layer, or of all layers.
 *
 * @throws {KitfoxError} `argument`: a layer outside of them, or `i` behind the last token.
 */
export function meanAttention(of: Attention, i: number, layer?: number): Float64Array {
  return meanRow(of, i, layer, attention);
}

/** Puts the weights of rows `first` to `first + n`, [layers, heads, Σ (i + 1)], where they belong in all. */
export function place(all: Attention, first: number, n: number, part: Float32Array): void {
  const [size, of, at] = [before(first + n) - before(first), before(all.ids.length), before(first)];
  for (let head = 0; head < all.layers * all.heads; head += 1) {
    all.weights.set(part.subarray(head * size, (head + 1) * size), head * of + at);
  }
}

/** Tokens of a part of the weights that begins at row `first`. */
export function rowsOf(all: Attention, first: number, part: Float32Array): number {
  const end = part.length / (all.layers * all.heads) + before(first);
  return Math.round((Math.sqrt(8 * end + 1) - 1) / 2) - first;
}

/** Room for all weights of a text; more tokens than that are an `argument` error. */
export function room(shape: Omit<Attention, 'weights'>): Attention {
  const { ids, layers, heads } = shape;
  const most = mostAttentionTokens(shape);
  if (ids.length > most) {
    const expected = `at most ${most} tokens: all pairs of them have weights, in ${layers} layers of ${heads} heads`;
    throw new KitfoxError('argument', `attention: text: expected ${expected}, got ${ids.length}`);
  }
  return { ...shape, weights: new Float32Array(layers * heads * before(ids.length)) };
}
