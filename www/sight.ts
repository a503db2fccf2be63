/** What is still seen of a text, and by whom: rows of F = e^D or of the attention A, one at a time. */

import { attention, forgetting, type Attention, type Gates } from 'kitfox';
import { Turns } from './turns.js';

/** A matrix of each layer and head. */
export interface Matrix {
  readonly layers: number;
  readonly heads: number;
  /** Row `i`, of the tokens from 0 to i. */
  row(layer: number, head: number, i: number): ArrayLike<number>;
}

/** F: what the gates leave. */
export function ofGates(gates: Gates): Matrix {
  return { layers: gates.layers, heads: gates.heads, row: (layer, head, i) => forgetting(gates, layer, head, i) };
}

/** A: where the attention goes. */
export function ofAttention(weights: Attention): Matrix {
  return { layers: weights.layers, heads: weights.heads, row: (layer, head, i) => attention(weights, layer, head, i) };
}

/** Whose sight: that of a head, of a layer (without a head), of the whole model (without either). */
export interface Sight {
  readonly layer?: number;
  readonly head?: number;
}

/** Tokens back that the view tells in numbers. */
const BACK = [1, 4, 16, 64, 256, 1024];

/** Row `i`, a mean over the heads of the sight, as `meanForgetting` and `meanAttention` give it; undefined once it is no longer `wanted`. */
export async function rowOf(matrix: Matrix, i: number, { layer, head }: Sight, wanted: () => boolean): Promise<Float64Array | undefined> {
  const layers = layer === undefined ? [...Array(matrix.layers).keys()] : [layer];
  const heads = head === undefined ? [...Array(matrix.heads).keys()] : [head];
  const mean = new Float64Array(i + 1);
  const turns = new Turns();
  for (const of of layers) {
    for (const one of heads) {
      await turns.pause();
      if (!wanted()) return undefined;
      const row = matrix.row(of, one, i);
      for (let j = 0; j <= i; j += 1) mean[j] = (mean[j] ?? 0) + (row[j] ?? 0) / (layers.length * heads.length);
    }
  }
  return mean;
}

/** Whether nothing is ever forgotten by gates: the model has none. */
export function forgetsNothing({ logF }: Gates): boolean {
  return logF.every((value) => value === 0);
}

/** A part of 1 as people read it. */
export function percent(part: number): string {
  if (part >= 0.9995) return '100 %';
  return part < 0.0005 ? '0 %' : `${(part * 100).toFixed(1)} %`;
}

/** A number of tokens as people read it. */
export function count(tokens: number): string {
  const whole = Math.round(tokens);
  return tokens < 9.95 ? tokens.toFixed(1) : whole < 10_000 ? String(whole) : whole.toLocaleString('en');
}

/** Whose sight it is, in words. */
export function nameOf({ layer, head }: Sight): string {
  if (layer === undefined) return 'the whole model';
  return head === undefined ? `layer ${layer}` : `head ${head} of layer ${layer}`;
}

/** A token of a text in words. */
export function nameOfToken({ tokens, completedBy }: Pick<Gates, 'tokens' | 'completedBy'>, ix: number): string {
  const token = tokens[ix] ?? '';
  const by = completedBy[ix] ?? ix;
  if (token === '' && by !== ix) return `a part of “${[...(tokens[by] ?? '')][0] ?? ''}”`;
  if (token === '') return ix === 0 ? 'the beginning' : 'a token without text';
  if (token.includes('\n') && token.trim() === '') return 'a line end';
  return token.trim() === '' ? 'a space' : `“${token.trim()}”`;
}

/** How much is left so many tokens back from the end of a row. */
export function leftBehind(row: Float64Array): { readonly back: number; readonly part: number }[] {
  return BACK.filter((back) => back < row.length).map((back) => ({ back, part: row[row.length - 1 - back] ?? 0 }));
}
