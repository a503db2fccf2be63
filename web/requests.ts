/** Calls whose answer is one value: of sessions, the tokenizer, scores, the self-test and what was counted. */

import type { CallMessage, Connection } from './connection.js';

/** What is asked; each is answered by a value of its own. */
export type ValueRequest =
  | { type: 'tokenize'; text: string }
  | { type: 'detokenize'; ids: Uint32Array }
  | { type: 'score'; content: string | Uint32Array }
  | { type: 'self-check' }
  | { type: 'stats' }
  | { type: 'open-session' }
  | { type: 'close-session'; session: number }
  | { type: 'append'; session: number; content: string | Uint32Array }
  | { type: 'mark'; session: number }
  | { type: 'unmark'; session: number; tokens: number }
  | { type: 'rewind'; session: number; tokens: number }
  | { type: 'fork'; session: number }
  | { type: 'save'; session: number }
  /** `undo`: whether it may be aborted. */
  | { type: 'restore'; session: number; bytes: Uint8Array; undo: boolean };

/**
 * Those that make or change a session. An abort of them is over when the worker says so, by `aborted` (then nothing was done, or it was undone)
 * or by the answer (then it came too late): page and worker never hold two opinions of a session.
 */
const CHANGING: ReadonlySet<string> = new Set(['open-session', 'append', 'mark', 'rewind', 'fork', 'restore'] satisfies ValueRequest['type'][]);

export function changesSessions({ type }: { type: string }): boolean {
  return CHANGING.has(type);
}

/** How likely a text is, token by token. */
export interface Scores {
  /** Its tokens. */
  ids: Uint32Array;
  /** ln of the probability of each, given those before it. */
  logprobs: Float32Array;
}

/** What the self-test found of one kernel. */
export interface CheckedKernel {
  kernel: string;
  /** Cases that ran. */
  cases: number;
  /** Worst deviations from the plain twin: normalised mean squared error, and largest absolute error. */
  nmse: number;
  maxAbs: number;
  /** A sentence for each case that is out of its tolerance or did not run. */
  failures: string[];
}

/** What `selfCheck` gives. */
export interface SelfCheck {
  /** Whether no case failed. */
  ok: boolean;
  kernels: CheckedKernel[];
}

/** What `stats` gives. */
export interface Stats {
  /** Tokens generated since the load, and how many a second while answers were generated; 0 without any. */
  tokens: number;
  tokensPerSecond: number;
  /** Bytes of keys and values that a next token of what the model holds could look at. */
  kvBytesLive: number;
  /** Bytes of those that were freed because they are forgotten for good. */
  kvBytesFreed: number;
  /** Bytes of sessions that wait for their turn, in the wasm heap. */
  sessionBytes: number;
  /** Dispatches that were compared with their twins, and agreed: those of a model that was loaded with `check`. */
  checkedDispatches: number;
  deviceBytes: number;
  heapBytes: number;
  dispatchesPerToken: number;
}

/** Asks, and gives the value. `onStep` hears how far it is. */
export async function ask<T>(
  connection: Connection<unknown>,
  request: ValueRequest,
  signal?: AbortSignal,
  onStep?: (progress: { done: number; total: number }) => void,
): Promise<T> {
  // An answer may be any value, also one that counts as none.
  const take = (message: CallMessage): { value: T } | undefined => {
    if (message.type === 'measured') onStep?.({ done: message.done, total: message.total });
    return message.type === 'value' ? { value: message.value as T } : undefined;
  };
  return (await connection.ask(request, take, signal)).value;
}
