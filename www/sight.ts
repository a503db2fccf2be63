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

/** A token as it is told: in words, and then in its own letters, where it has any. */
export interface TokenName {
  readonly words: string;
  readonly letters: string;
}

/** What a token of a text is called. */
export function nameOfToken({ tokens, completedBy }: Pick<Gates, 'tokens' | 'completedBy'>, ix: number): TokenName {
  const token = tokens[ix] ?? '';
  const by = completedBy[ix] ?? ix;
  if (token === '' && by !== ix) return { words: 'a part of ', letters: [...(tokens[by] ?? '')][0] ?? '' };
  if (token === '') return { words: ix === 0 ? 'the beginning' : 'a token without text', letters: '' };
  if (token.includes('\n') && token.trim() === '') return { words: 'a line end', letters: '' };
  return token.trim() === '' ? { words: 'a space', letters: '' } : { words: '', letters: token.trim() };
}

/** Tokens of effective context up to which a head forgets almost at once. */
const AT_ONCE = 4;

/** Whether a head of this effective context forgets in the course of a text of `n` tokens: neither almost at once nor hardly anything. */
function forgetsWithin(context: number, n: number): boolean {
  return context > AT_ONCE && context < n / 2;
}

/** Whose sight shows most of how a text of `n` tokens is forgotten: of the heads that do it in its course the one in the middle of that range, by the logarithm. */
export function tellingSight(contexts: readonly (readonly number[])[], n: number): Sight {
  const middle = Math.log(AT_ONCE * (n / 2)) / 2;
  const within = contexts.flatMap((row, layer) => row.map((context, head) => ({ layer, head, context }))).filter(({ context }) => forgetsWithin(context, n));
  const [first] = within.sort((a, b) => Math.abs(Math.log(a.context) - middle) - Math.abs(Math.log(b.context) - middle));
  return first === undefined ? {} : { layer: first.layer, head: first.head };
}

/** What is looked through, in a sentence or two. */
export function aboutSight({ layer, head }: Sight, contexts: readonly (readonly number[])[], n: number): string {
  const heads = contexts.reduce((sum, row) => sum + row.length, 0);
  if (layer === undefined) return `All: the mean of all heads (${heads}), those that forget at once and those that keep all. One head alone shows more.`;
  if (head === undefined) return `Layer ${layer}: the mean of its heads (${contexts[layer]?.length ?? 0}).`;
  const context = contexts[layer]?.[head] ?? 0;
  const how = forgetsWithin(context, n) ? 'forgets in the course of this text' : context > AT_ONCE ? 'forgets little of this text' : 'forgets almost at once';
  return `Head ${head} of layer ${layer} ${how}. All is the mean of all heads (${heads}).`;
}

/** How much is left so many tokens back from the end of a row. */
export function leftBehind(row: Float64Array): { readonly back: number; readonly part: number }[] {
  return BACK.filter((back) => back < row.length).map((back) => ({ back, part: row[row.length - 1 - back] ?? 0 }));
}
