/**
 * What the forget gates of a text mean: how much of each token a later one can still see, how far back a head reaches, and when pages of keys
 * die. Plain functions of numbers, the same as `kitfox inspect gates` computes: D_ij = Σ log f over the tokens behind j up to i, F_ij = e^{D_ij}.
 */

import { within, withNumbers } from './check.js';

/** The gates of a text. */
export interface Gates {
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
  /** log f of each layer, head and token: [layers, heads, ids.length], from -16384 to 0. */
  logF: Float32Array;
  /** U ≥ |q·k|/√h of each layer and head, [layers, heads], where something bounds the scores. */
  u?: Float32Array;
  /** Keys that a query sees, its own the last, where the model has a sliding window. */
  window?: number;
  /** Key heads of a layer: each is shared by as many neighbouring heads. */
  kvHeads: number;
  /** ε in force: pages die when they and all before them weigh less than this part of a row's attention. Absent: none dies by it. */
  prune?: number;
}

/** Rows that an effective context is averaged over: the last ones. */
const EFFECTIVE_ROWS = 64;

/**
 * F_ij of row `i`, for j from 0 to i: what the gates of a layer and head leave of each token there, from 0 to 1.
 *
 * @throws {KitfoxError} `argument`: a layer or head outside of them, or `i` behind the last token; gates whose memory was transferred.
 */
export function forgetting(gates: Gates, layer: number, head: number, i: number): Float64Array {
  const logF = gatesOf(gates, layer, head);
  within('i', i, logF.length);
  const row = new Float64Array(i + 1);
  let d = 0;
  for (let j = i; j > i - (gates.window ?? Infinity) && j >= 0; j -= 1) {
    row[j] = Math.exp(d);
    d += logF[j] ?? 0;
  }
  return row;
}

/**
 * Row `i` of F as a mean over the heads of a layer, or of all layers: what the layer or the model can still see of each token.
 *
 * @throws {KitfoxError} `argument`: a layer outside of them, or `i` behind the last token.
 */
export function meanForgetting(gates: Gates, i: number, layer?: number): Float64Array {
  return meanRow(gates, i, layer, forgetting);
}

/** Row `i` of a matrix that every head has, as a mean over the heads of a layer, or of all layers. */
export function meanRow<T extends Pick<Gates, 'ids' | 'layers' | 'heads'>>(
  of: T,
  i: number,
  layer: number | undefined,
  row: (of: T, layer: number, head: number, i: number) => Float32Array | Float64Array,
): Float64Array {
  within('i', i, of.ids.length);
  const layers = layer === undefined ? [...Array(of.layers).keys()] : [layer];
  const mean = new Float64Array(i + 1);
  for (const one of layers) {
    for (let head = 0; head < of.heads; head += 1) {
      row(of, one, head, i).forEach((value, j) => (mean[j] = (mean[j] ?? 0) + value / (layers.length * of.heads)));
    }
  }
  return mean;
}

/**
 * Σ_j F_ij in tokens, averaged over the last 64 rows: i + 1 of a head that forgets nothing, 1 of one that keeps only the token itself.
 *
 * @throws {KitfoxError} `argument`: a layer or head outside of them.
 */
export function effectiveContext(gates: Gates, layer: number, head: number): number {
  const n = gatesOf(gates, layer, head).length;
  const first = Math.max(0, n - EFFECTIVE_ROWS);
  let sum = 0;
  for (let i = first; i < n; i += 1) sum += forgetting(gates, layer, head, i).reduce((all, f) => all + f, 0);
  return sum / (n - first);
}

/** Keys of a page. */
const PAGE = 64;

/**
 * Pages of 64 keys of a layer's key head that are alive after each token: those that this or a later token may look at. A page dies once
 * Λ_t > Λ_b + 2U − ln ε + ln G_b for all heads that share it, with Λ = −Σ log f, b its last key and G_t = f_t · G_{t−1} + 1; with a sliding
 * window, once it has left that.
 */
export function livePages(gates: Gates, layer: number, kvHead: number): Uint32Array {
  const { heads, kvHeads, window, prune, u } = gates;
  within('layer', layer, gates.layers);
  within('kvHead', kvHead, kvHeads);
  if (u !== undefined) withNumbers('u', u);
  const group = heads / kvHeads;
  const dies = window === undefined && prune !== undefined && u !== undefined;
  const queries = dies ? [...Array(group).keys()].map((ix) => endsOf(gatesOf(gates, layer, kvHead * group + ix), u[layer * heads + kvHead * group + ix] ?? 0, prune)) : [];
  let first = 0;
  const live = (t: number): number => {
    if (window !== undefined) first = Math.floor(Math.max(t + 2 - window, 0) / PAGE);
    while (dies && first < Math.floor((t + 1) / PAGE) && queries.every(({ ends, forgotten }) => (ends[first] ?? 0) < (forgotten[t] ?? 0))) first += 1;
    return Math.max(Math.ceil((t + 1) / PAGE) - first, 0);
  };
  return Uint32Array.from({ length: gates.ids.length }, (_, t) => live(t));
}

/** Λ of each token, and of each whole page the Λ behind which it is dead. */
function endsOf(logF: Float32Array, u: number, prune: number): { forgotten: Float64Array; ends: number[] } {
  const tau = 2 * u - Math.log(prune);
  const forgotten = new Float64Array(logF.length);
  const ends: number[] = [];
  let [sum, g] = [0, 0];
  for (const [t, value] of logF.entries()) {
    g = Math.exp(value) * g + 1;
    forgotten[t] = sum -= value;
    if ((t + 1) % PAGE === 0) ends.push(tau + sum + Math.log(g));
  }
  return { forgotten, ends };
}

function gatesOf({ layers, heads, ids, logF }: Gates, layer: number, head: number): Float32Array {
  within('layer', layer, layers);
  within('head', head, heads);
  withNumbers('logF', logF);
  return logF.subarray((layer * heads + head) * ids.length, (layer * heads + head + 1) * ids.length);
}
